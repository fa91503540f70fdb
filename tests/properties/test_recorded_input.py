"""The input that savepoints keep: readable from each savepoint's positions, never counted as unread, removed with it.

A model of one log with two channels. Batches are published, readers read and release, savepoints are made and removed,
the log returns to one of them, and a reader that began before the return releases what it had read: too late.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow", reason="pyarrow is not installed: nothing can decode segments")

from causal.errors import CausalError
from operators.ingest import marks
from operators.ingest.contract import SEGMENT_BYTES_MIN, Segment, batch_of, segment_name
from operators.ingest.ingest_log import IngestLog
from operators.ingest.marks import LowWater
from operators.ingest.reader import IngestReader
from tests.members import examples
from tests.properties.objects import Memory
from tests.unit.ingest.test_ingest_reader import drained, encoded

FOLDER, CHANNELS = "ingest/numbers", 2


class Job:
    """One job with its log.

    State: `rows[c]` are the rows of a channel; `done[c]` the position that a checkpoint covers; `late` readers of the
    time before a return.
    """

    def __init__(self, chance: Random) -> None:
        self.memory = Memory()
        self.chance = chance
        self.rows: list[list[int]] = [[] for _ in range(CHANNELS)]
        self.done = [0] * CHANNELS
        self.savepoints: dict[str, list[int]] = {}
        self.late: list[tuple[IngestReader, int]] = []
        self.log = self.opened()
        self.log.create()
        self.token = self.log.take_over()
        self._batch = self._saved = 0
        self.readers = [IngestReader(self.opened(), channel, "numbers") for channel in range(CHANNELS)]

    def opened(self) -> IngestLog:
        return IngestLog(self.memory, FOLDER, CHANNELS)

    def publish(self) -> None:
        segments = []
        for channel, rows in enumerate(self.rows):
            numbers = list(range(len(rows), len(rows) + self.chance.randrange(4)))
            if numbers:
                name = segment_name(self._batch, channel, self.token, 0, 0)
                digest = self.log.write_segment(name, encoded(numbers))
                segments.append(Segment(name, channel, 0, len(numbers), digest))
                rows += numbers
        self.log.publish("query", self._batch, self.token, segments)
        self._batch += 1

    def read(self) -> None:
        channel = self.chance.randrange(CHANNELS)
        rows, position = self.rows[channel], self.done[channel]
        assert drained(self.readers[channel], position) == rows[position:]
        self.done[channel] = self.chance.randint(position, len(rows))
        self.readers[channel].completed(self.done[channel])

    def save(self) -> None:
        name = f"{self._saved}-run"
        self._saved += 1
        self.log.keep(name, self.done)
        self.savepoints[name] = list(self.done)

    def delete(self) -> None:
        if self.savepoints:
            name = self.chance.choice(sorted(self.savepoints))
            self.log.forget([name])
            del self.savepoints[name]

    def go_back(self) -> None:
        if not self.savepoints:
            return
        name = self.chance.choice(sorted(self.savepoints))
        self.late += [(reader, len(rows)) for reader, rows in zip(self.readers, self.rows, strict=True)]
        for channel, reader in enumerate(self.readers):
            drained(reader, self.done[channel])
        self.done = list(self.savepoints[name])
        for _ in range(self.chance.randint(1, 2)):  # an interrupted command is repeated
            self.opened().return_to(self.done)
        passed = [each for each in self.savepoints if int(each.partition("-")[0]) > int(name.partition("-")[0])]
        self.log.forget(passed)
        for each in passed:
            del self.savepoints[each]
        self.readers = [IngestReader(self.opened(), channel, "numbers") for channel in range(CHANNELS)]
        for channel, reader in enumerate(self.readers):
            drained(reader, self.done[channel])

    def release_late(self) -> None:
        if self.late:
            reader, position = self.late.pop(self.chance.randrange(len(self.late)))
            reader.completed(position)

    def check(self) -> None:
        for channel, position in enumerate(self.done):
            fresh = IngestReader(self.opened(), channel, "numbers")
            assert drained(fresh, position) == self.rows[channel][position:], "unread input is gone"
            for at in self.savepoints.values():
                begins, ends = self.log.kept_rows(channel)
                assert begins <= at[channel] <= ends == len(self.rows[channel]), "a savepoint's input is gone"
        everything_read = self.done == [len(rows) for rows in self.rows]
        unread = self.opened().room_taken(self._batch)[0]
        assert unread <= SEGMENT_BYTES_MIN * sum(len(rows) - at for rows, at in zip(self.rows, self.done, strict=True))
        assert everything_read or unread

    def settle(self) -> None:
        """Read everything and delete all savepoints: then only the last batch is left."""
        self.log.forget(self.savepoints)
        for _ in range(2):
            self.publish()
            for channel, reader in enumerate(self.readers):
                drained(reader, self.done[channel])
                self.done[channel] = len(self.rows[channel])
                reader.completed(self.done[channel])
        for channel, reader in enumerate(self.readers):
            reader.completed(self.done[channel])
        assert len(self.log.batches()) <= 2


def history(seed: int) -> None:
    chance = Random(seed)
    job = Job(chance)
    steps: list[Callable[[], None]] = [
        job.publish, job.publish, job.read, job.read, job.read, job.save, job.delete, job.go_back, job.release_late,
    ]  # fmt: skip
    for _ in range(chance.randrange(5, 40)):
        chance.choice(steps)()
        job.check()
    job.settle()


@given(seed=st.integers(0, 2**40))
@examples(10)
def test_each_savepoint_keeps_its_input(seed: int) -> None:
    history(seed)


def _keeping_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(IngestLog, "kept", lambda self: {})


def _counting_late_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    before = marks.needed

    def needed(them: Iterable[LowWater], channels: int) -> list[tuple[int, int]]:
        return before((mark._replace(returns=0) for mark in them), channels)

    monkeypatch.setattr(marks, "needed", needed)


def _returning_without_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(IngestLog, "return_to", lambda self, positions: None)


def _keeping_one_batch_less(monkeypatch: pytest.MonkeyPatch) -> None:
    before = marks.kept_of

    def kept_of(names: Iterable[str]) -> dict[str, int]:
        return {name: batch + 1 for name, batch in before(names).items()}

    monkeypatch.setattr(marks, "kept_of", kept_of)


@pytest.mark.parametrize(
    "sabotage", [_keeping_nothing, _counting_late_marks, _returning_without_marks, _keeping_one_batch_less]
)
def test_the_property_finds_a_log_without_one_of_its_rules(
    sabotage: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    sabotage(monkeypatch)
    for seed in range(300):
        try:
            history(seed)
        except (AssertionError, CausalError):
            return
    pytest.fail("nothing was found")


batches = st.integers(0, 9)


@given(
    kept=st.dictionaries(st.sampled_from("abcd"), batches), sizes=st.lists(st.tuples(batches, batches)), most=batches
)
@examples(30)
def test_a_savepoint_exceeds_the_bound_by_what_was_published_since(
    kept: dict[str, int], sizes: list[tuple[int, int]], most: int
) -> None:
    over = marks.exceeding(kept, sizes, most)
    assert set(over) == {name for name, at in kept.items() if sum(s for batch, s in sizes if batch >= at) > most}
    assert [kept[name] for name in over] == sorted(kept[name] for name in over)


@given(st.lists(st.builds(LowWater, *[st.integers(0, 3)] * 4)))
@examples(30)
def test_superseded_marks_say_nothing(them: list[LowWater]) -> None:
    assert marks.low_water_of([mark.name for mark in them] + ["kept", "00000-1-2"]) == them
    left = [mark for mark in them if not any(other.supersedes(mark) for other in them)]
    before: Any = marks.needed(them, 4)
    if {mark.channel for mark in left if mark.returns == marks.returns_of(them)} == {0, 1, 2, 3}:
        assert marks.needed(left, 4) == before


def test_the_oldest_savepoints_lose_their_input_first() -> None:
    job = Job(Random(1))
    for _ in range(6):
        job.save()
        job.publish()
    sizes = [batch_of(name.rpartition("/")[2]) for name in job.memory.stored if "/segments/" in name]
    exceeding = job.log.exceeding(5, SEGMENT_BYTES_MIN * sum(batch >= 3 for batch in sizes))
    assert exceeding == [name for name, at in job.log.kept().items() if at < 3] and exceeding
