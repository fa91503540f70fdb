"""The ingest log in a store: drivers and readers die, sleep, come back and get no answers, and each row is read once.

The drivers are a model of Spark: a batch is fixed in the checkpoint on the driver's disk, then run (in attempts of
which one counts), then committed; a driver that begins repeats the last batch unless the checkpoint says that it is
done.  The source has the rows 0, 1, 2 …, and row r is in Spark's partition r modulo PARTITIONS.  Then: all that any
reader of a channel has read at a position is the same, and all of it together is every row once, each partition in
order.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, TypeVar, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow", reason="pyarrow is not installed: nothing can decode segments")

from causal.errors import CausalError, CorruptData, DeterminantsLost, Fenced, Unavailable
from operators.ingest.contract import Backlog, Segment, segment_name
from operators.ingest.ingest_log import IngestLog
from operators.ingest.reader import IngestReader
from operators.spark.checkpoint import Kept, StoredCheckpoint
from tests.members import campaign, examples, except_for
from tests.properties.objects import Memory, Seat, Turns
from tests.unit.ingest.test_ingest_reader import encoded

FOLDER = "ingest/numbers"
CHANNELS, PARTITIONS = 2, 3
TRIES_MAX = 2000
T = TypeVar("T")


def retried(attempt: Callable[[], T]) -> T:
    for _ in range(TRIES_MAX):
        try:
            return attempt()
        except Unavailable:
            continue
    raise AssertionError("the store never answers")


class World:
    """The world outside of all processes: their store, their disks, and what was read.

    State: `read[c]` are the rows of channel c by position; `done[c]` the position that a complete checkpoint covers.
    """

    def __init__(self, chance: Random, memory: Memory, disks: Path) -> None:
        self.chance = chance
        self.memory = memory
        self.read: list[dict[int, int]] = [{} for _ in range(CHANNELS)]
        self.done = [0] * CHANNELS
        self.taken: list[Path] = []
        self._disks = disks

    def disk(self) -> Path:
        """Return the disk of a driver, which no other one has now: one that an earlier one has left, or of a fresh
        host.
        """
        left = [disk for disk in sorted(self._disks.iterdir()) if disk not in self.taken]
        if not left or self.chance.random() < 0.5:
            left = [self._disks / str(len(self.taken) + len(left))]
            left[0].mkdir()
        disk = self.chance.choice(left)
        self.taken.append(disk)
        return disk


class Spark:
    """One driver, with its checkpoint; `batches` is how many it runs before its query ends on its own or stops."""

    def __init__(self, world: World, batches: int, ends: bool = False) -> None:
        self._world = world
        self._batches = batches
        self._ends = ends
        self._disk = world.disk()

    def run(self, seat: Seat) -> None:
        try:
            self._run(seat)
        except Fenced:
            return

    def _run(self, seat: Seat) -> None:
        log = IngestLog(seat, FOLDER, CHANNELS)
        checkpoint = StoredCheckpoint(seat, FOLDER, self._disk)
        retried(log.create)
        if retried(log.ended) is not None:
            return
        token = retried(log.take_over)
        resumed = retried(lambda: begun(log, checkpoint))
        log = IngestLog(seat, FOLDER, CHANNELS, resumed)
        for _ in range(self._batches):
            batch, first, last = self._planned(checkpoint.directory)
            retried(lambda: log.check_token(token))
            self._write(log, batch, token, first, last)  # an attempt that does not count
            segments = self._write(log, batch, token, first, last)
            kept = checkpoint.packed(batch, token)
            if not self._ends and self._world.chance.random() < 0.1:  # Spark gives the batch up
                retried(partial(log.discard, segments))
                return
            retried(partial(self._publish, log, checkpoint, kept, batch, token, segments, str((first, last))))
            (checkpoint.directory / "commits" / str(batch)).write_text("")
        if self._ends:
            retried(lambda: log.end(token))

    def _publish(
        self, log: IngestLog, checkpoint: StoredCheckpoint, kept: Kept, batch: int, token: int,
        segments: list[Segment], offsets: str,
    ) -> None:  # fmt: skip
        log.note_backlog(Backlog(1, 2, batch, 0))
        checkpoint.store(kept)
        if log.publish("query", batch, token, segments, offsets, kept.name):
            checkpoint.note(kept)

    def _planned(self, directory: Path) -> tuple[int, int, int]:
        """Return the batch that is next, with its rows: one that is on record and not done with, or a new one."""
        for name in ("offsets", "commits"):
            (directory / name).mkdir(parents=True, exist_ok=True)
        planned = {int(path.name): json.loads(path.read_text()) for path in (directory / "offsets").iterdir()}
        batch = max(planned, default=-1)
        if batch >= 0 and not (directory / "commits" / str(batch)).exists():
            first, last = planned[batch]
            return batch, first, last
        first = planned[batch][1] if batch >= 0 else 0
        last = first + self._world.chance.randrange(0, 7)
        (directory / "offsets" / str(batch + 1)).write_text(json.dumps([first, last]))
        for old in [number for number in planned if number < batch - 1]:
            (directory / "offsets" / str(old)).unlink()
            (directory / "commits" / str(old)).unlink(missing_ok=True)
        return batch + 1, first, last

    def _write(self, log: IngestLog, batch: int, token: int, first: int, last: int) -> list[Segment]:
        segments = []
        attempt = self._world.chance.randrange(1 << 30)
        for partition in range(PARTITIONS):
            rows = [row for row in range(first, last) if row % PARTITIONS == partition]
            parts = [rows[:1], rows[1:]] if self._world.chance.random() < 0.3 else [rows]
            for part, numbers in enumerate(each for each in parts if each):
                name, data = segment_name(batch, partition, token, attempt, part), encoded(numbers)
                digest = retried(partial(log.write_segment, name, data))
                segments.append(Segment(name, partition, part, len(numbers), digest))
        return segments


def begun(log: IngestLog, checkpoint: StoredCheckpoint) -> int:
    batch = max(log.batches(), default=-1)
    manifest = log.manifest(batch)
    checkpoint.restore(manifest.checkpoint if manifest is not None else "")
    return batch


class Reader:
    """One life of a source task that reads a channel from the last checkpoint's position, or any behind it."""

    def __init__(self, world: World, channel: int, reads: int) -> None:
        self._world = world
        self._channel = channel
        self._reads = reads

    def run(self, seat: Seat) -> None:
        world, channel = self._world, self._channel
        position = world.done[channel]
        try:
            reader = IngestReader(IngestLog(seat, FOLDER, CHANNELS), channel, "numbers")
            for _ in range(self._reads):
                read = retried(partial(reader.read, position, world.chance.randrange(1, 5)))
                if read is None:
                    continue
                for row in cast("list[dict[str, int]]", read.records):
                    number = row["n"]
                    assert world.read[channel].setdefault(position, number) == number, "a position has two rows"
                    position += 1
                if world.chance.random() < 0.4:
                    world.done[channel] = max(world.done[channel], position)
                    retried(partial(reader.completed, position))
                if read.ended:
                    return
        except (CorruptData, DeterminantsLost):
            # Only what sleeps while its successor has come further may find its rows gone.
            if world.done[channel] <= position:
                raise


def history(seed: int) -> World:
    chance = Random(seed)
    memory = Memory(chance, chance.choice([0.0, 0.0, 0.05, 0.2]))
    with ExitStack() as stack:
        disks = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        world = World(chance, memory, disks)
        for _ in range(chance.randrange(1, 4)):
            turns = Turns(memory, chance, chance.choice([5, 40, 200]), chance.choice([0.0, 0.02]))
            for _ in range(chance.randrange(1, 4)):
                turns.add(Spark(world, chance.randrange(1, 8)).run)
            for _ in range(chance.randrange(0, 4)):
                turns.add(Reader(world, chance.randrange(CHANNELS), chance.randrange(1, 30)).run)
            turns.run()
            world.taken.clear()
        memory.become_reliable()
        last = Turns(memory, chance)
        last.add(Spark(world, 3, ends=True).run)
        last.run()
        for channel in range(CHANNELS):
            final = Turns(memory, chance)
            final.add(Reader(world, channel, 10_000).run)
            final.run()
    return world


def check(world: World) -> None:
    log = IngestLog(world.memory, FOLDER, CHANNELS)
    assert log.ended() is not None
    rows: list[int] = []
    for channel in range(CHANNELS):
        read = world.read[channel]
        assert sorted(read) == list(range(len(read))), "a position was passed over"
        in_order = [read[position] for position in range(len(read))]
        for partition in range(PARTITIONS):
            of_partition = [row for row in in_order if row % PARTITIONS == partition]
            assert of_partition == sorted(of_partition), "rows of a partition are out of order"
            assert not of_partition or partition % CHANNELS == channel
        rows += in_order
    assert sorted(rows) == list(range(len(rows))), "a row is missing or double"
    manifest = log.manifest(log.batches()[-1])
    assert manifest is not None and sum(manifest.before) == len(rows)


@given(seed=st.integers(0, 2**40))
@examples(2)
def test_each_row_is_read_once_and_in_order(seed: int) -> None:
    check(history(seed))


@pytest.mark.parametrize("seeds", [range(6), campaign(range(6, 20))], ids=str)
def test_little_is_left_when_everything_was_read(seeds: range) -> None:
    for seed in seeds:
        world = history(seed)
        log = IngestLog(world.memory, FOLDER, CHANNELS)
        for channel, position in enumerate(map(len, world.read)):
            reader = IngestReader(log, channel, "numbers")
            while reader.read(position, 1) is None:
                continue
            reader.completed(position)
        manifests = log.batches()
        assert len(manifests) <= 2
        named = {s.file for batch in manifests if (m := log.manifest(batch)) is not None for s in m.segments}
        left = {name.rpartition("/")[2] for name in world.memory.stored if "/segments/" in name}
        assert left == named


def _sweeping_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that takes over removes every segment that no manifest names."""

    take_over = IngestLog.take_over

    def sweeping(self: IngestLog) -> int:
        named = {s.file for batch in self.batches() if (m := self.manifest(batch)) is not None for s in m.segments}
        self._remove_segments([name for name in self._listed("segments") if name not in named])
        return take_over(self)

    monkeypatch.setattr(IngestLog, "take_over", sweeping)


def _discarding_what_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments of a batch without a manifest are removed when Spark gives the batch up; its manifest arrives later."""
    publish = IngestLog.publish

    def careless(self: IngestLog, *arguments: Any, **named: Any) -> bool:
        try:
            return publish(self, *arguments, **named)
        except Unavailable:
            self._remove_segments([segment.file for segment in arguments[3]])
            raise

    monkeypatch.setattr(IngestLog, "publish", careless)


def _believing_any_manifest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that is there counts as one's own."""
    monkeypatch.setattr(IngestLog, "_check_same", lambda *arguments: None)


def _beginning_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver takes the checkpoint on its own disk for what was published."""
    monkeypatch.setattr(StoredCheckpoint, "restore", lambda self, name: None)


def _forgetting_other_channels(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that one channel has released is removed, although another may need it."""

    def floor(self: IngestLog, removing: bool = False) -> int:
        return max(batch for batch, _ in self._needed())

    monkeypatch.setattr(IngestLog, "_floor", floor)


def _reading_what_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader begins with the lowest manifest that there is."""

    def first(self: IngestLog) -> Any:
        batches = self.batches()
        return self.manifest(batches[0]) if batches else None

    monkeypatch.setattr(IngestLog, "first", first)


def _passing_over_what_was_released(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader whose next batch was released continues its index with the lowest."""
    monkeypatch.setattr(IngestReader, "_forget", lambda self: None)


SABOTAGES = (
    _sweeping_all,
    _discarding_what_is_open,
    _believing_any_manifest,
    _beginning_anywhere,
    _forgetting_other_channels,
    _reading_what_comes_back,
    _passing_over_what_was_released,
)


@pytest.mark.parametrize("sabotage", except_for(SABOTAGES, _believing_any_manifest, _passing_over_what_was_released))
def test_the_property_finds_a_log_without_one_of_its_rules(
    sabotage: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    sabotage(monkeypatch)
    for seed in range(500):
        try:
            check(history(seed))
        except (AssertionError, CausalError):
            return
    pytest.fail("nothing was found")


def test_a_damaged_object_is_named() -> None:
    world = history(3)
    log = IngestLog(world.memory, FOLDER, CHANNELS)
    name = next(name for name in world.memory.stored if name.endswith(f"/manifests/{log.batches()[-1]:010d}"))
    world.memory.stored[name] = world.memory.stored[name][:-9]
    with pytest.raises(CorruptData, match=f"manifests/{log.batches()[-1]:010d}"):
        log.ended()
