"""The outside world: requests of tasks to stores, partitions and the disk, performed and written down immediately."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from causal.effects import (
    AppendStable,
    BeginStable,
    ReadSegment,
    ReadStable,
    RemoveSegments,
    SpillSegment,
    TruncateStable,
    WriteSnapshot,
)
from causal.errors import invariant
from causal.events import Event, SnapshotWritten, StableRead
from causal.ids import OUTSIDE
from causal.logs.log import LogDelta
from causal.ports import Bundle, Request, StoreState, WithdrawPoint
from causal.records.rows import listed
from causal.task.performer import DiskEffect
from causal.topology import Topology
from operators.source import Read
from operators.testing.cluster import Segments
from operators.testing.stable_files import StableEffect, StableFiles
from tests.transcripts.peers import Partition, Store, label
from tests.transcripts.process import Process
from tests.transcripts.words import size


class NoRequests:
    """An outside world that no task sends requests to."""

    def ask(self, requests: Sequence[Request]) -> None:
        invariant(not requests, "nothing is asked of the outside world here")


Say = Callable[..., None]
"""Writes a line of the conversation."""


class Outside:
    """Everything that outlives a task.

    Args:
        say: writes a line of the conversation.
        feed: gives a task an answer of its disk.
    """

    def __init__(self, topology: Topology, say: Say, feed: Callable[[Process, Event], None]) -> None:
        self.partitions: dict[int, Partition] = {c.id: Partition() for c in topology.channels if c.source == OUTSIDE}
        self.stores: dict[int, Store] = {
            c.id: Store(topology.tasks[c.source].name, "r") for c in topology.channels if c.target == OUTSIDE
        }
        self.snapshots: dict[tuple[int, int], Sequence[bytes]] = {}
        self.slow = False
        """The disk puts snapshots and determinants off."""
        self.stable = StableFiles()
        self.put_off: list[tuple[Process, DiskEffect]] = []
        self.say = say
        self.feed = feed

    def filed(self, task: int, epoch: int) -> bytes:
        """Answer with the content of the newest file of a log."""
        youngest = max((incarnation for owner, incarnation in self.stable.begun if owner == task), default=0)
        return self.stable.youngest(task, youngest).get(epoch, b"")

    def forget(self, process: Process) -> None:
        """Forget a dead process, which gets no answers."""
        self.put_off = [(p, e) for p, e in self.put_off if p is not process]

    def release_disk(self) -> None:
        """The disk does what it had put off."""
        self.slow = False
        waiting, self.put_off = self.put_off, []
        for process, effect in waiting:
            process.performer.perform([effect])


class NotedStore:
    """A store as one process uses it: each call becomes a line."""

    def __init__(self, outside: Outside, process: Process, channel: int) -> None:
        self._say = outside.say
        self._process = process
        self._store = outside.stores[channel]

    def open(self, task: str, run: str, incarnation: int) -> StoreState:
        self._store.check(incarnation)
        state = self._store.open(task, run, incarnation)
        self._say(f"{self._process.shown} -> store", "OPEN", f"for incarnation {incarnation}")
        return self._shown(state)

    def last_bundle(self) -> StoreState:
        return self._store.last_bundle()

    def write(self, bundle: Bundle) -> None:
        process = self._process
        self._say(f"{process.shown} -> store", "BUNDLE", *process.words.bundle(bundle, process.log_bytes))
        self._store.check(bundle.incarnation)
        self._store.write(bundle)

    def truncate(self, epoch: int) -> None:
        self._say(f"{self._process.shown} -> store", "TRUNCATE", f"determinants of epochs below {epoch}")
        self._store.truncate(epoch)

    def withdraw(self, mark: WithdrawPoint) -> StoreState:
        gone = " ".join(self._store.words()[mark.next :])
        state = self._store.withdraw(mark)
        self._say(f"{self._process.shown} -> store", "WITHDRAW", f"rows from {mark.next} on: {gone}")
        return self._shown(state)

    def _shown(self, state: StoreState) -> StoreState:
        self._say(f"store -> {self._process.shown}", "HELD", *self._process.words.store_state(state))
        return state

    def close(self) -> None:
        """Keep everything."""


class NotedReader:
    """A partition as one process reads it: what it gets becomes a line."""

    def __init__(self, outside: Outside, process: Process, channel: int) -> None:
        self._say = outside.say
        self._process = process
        self._partition = outside.partitions[channel]

    def read(self, position: int, count_max: int) -> Read | None:
        read = self._partition.read(position, count_max) if not self._process.paused else None
        if read is not None:
            end = [*map(label, listed(read.records)), *["|end|"] * read.ended]
            said = f"{position}..{position + len(end)}  {' '.join(end)}"
            self._say(f"input -> {self._process.shown}", "READ", said)
        return read

    def ready_in_s(self, position: int) -> float:
        """Return 0: commands say when records arrive."""
        return 0.0

    def completed(self, position: int) -> None:
        self._say(f"{self._process.shown} -> input", "DONE", f"no task will ask for what is below {position}")

    def close(self) -> None:
        """Keep everything."""


class NotedDisk(Segments):
    """The disk as one process uses it: each effect becomes a line, and is done immediately unless the disk is slow."""

    def __init__(self, outside: Outside, process: Process) -> None:
        super().__init__(lambda event: outside.feed(process, event))
        self._outside = outside
        self._process = process

    def _say(self, what: str, *said: str) -> None:
        self._outside.say(f"{self._process.shown} -> disk", what, *said)

    def ask(self, effect: DiskEffect) -> None:
        outside, process = self._outside, self._process
        if isinstance(effect, WriteSnapshot):
            if not self._puts_off("SNAPSHOT", effect, f"epoch {effect.epoch}"):
                outside.snapshots[process.index, effect.epoch] = effect.parts
                name = f"checkpoints/{process.name}/e{effect.epoch:08}-i{process.incarnation}.snap"
                self.answer(SnapshotWritten(effect.epoch, (name, 1, "d")))
        elif isinstance(effect, ReadStable):
            youngest = outside.stable.youngest(*process.life)
            deltas = [LogDelta(process.index, epoch, 0, content) for epoch, content in sorted(youngest.items())]
            said = process.words.deltas(deltas, lambda _, epoch: youngest[epoch])
            outside.say(f"disk -> {process.shown}", "FILED", *said)
            self.answer(StableRead(deltas))
        elif isinstance(effect, BeginStable):
            if not self._puts_off("BEGIN", effect, *self._logs(effect)):
                self._store(effect)
        elif isinstance(effect, AppendStable):
            if not self._puts_off("FLUSH", effect, *self._logs(effect)):
                self._store(effect)
        elif isinstance(effect, TruncateStable):
            self._say("FORGET", f"determinants of epochs below {effect.epoch}")
            self._store(effect)
        else:
            self._say_of_segments(effect)
            super().ask(effect)

    def _store(self, effect: StableEffect) -> None:
        answer = self._outside.stable.perform(effect, *self._process.life)
        if answer is not None:
            self.answer(answer)

    def _puts_off(self, what: str, effect: DiskEffect, *said: str) -> bool:
        """Write down a write; returns whether the disk does it later."""
        if self._outside.slow:
            self._outside.put_off.append((self._process, effect))
            said = (f"{said[0]} (the disk is slow)",) if what == "SNAPSHOT" else (*said, "(the disk is slow)")
        self._say(what, *said)
        return self._outside.slow

    def _logs(self, effect: BeginStable | AppendStable) -> list[str]:
        return self._process.words.deltas(effect.logs, self._process.log_bytes) or ["a file of its own"]

    def _say_of_segments(self, effect: DiskEffect) -> None:
        if isinstance(effect, SpillSegment):
            first, end = effect.entries[0].first, effect.entries[-1].next
            spilled = size(sum(entry.size for entry in effect.entries))
            self._say("SPILL", f"segment {effect.segment}: elements {first}..{end} in flight, {spilled}")
        elif isinstance(effect, ReadSegment):
            self._outside.say(f"disk -> {self._process.shown}", "LOAD", f"segment {effect.segment}")
        elif isinstance(effect, RemoveSegments):
            self._say("REMOVE", f"segments {', '.join(map(str, effect.segments))}")
