"""One incarnation of one task on the stage, and what an onlooker sees of it: states, events, dropped frames."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from causal.determinants import DeterminantCodec, Order
from causal.task.recovery import State
from operators.testing import cluster
from tests.transcripts.script import Line
from tests.transcripts.words import Words, counted

Elements = Callable[[int, int], str]
"""The names of elements: (channel, position) → the word for that element."""

DROPPED = {
    "repeated": "drops a frame that it has had",
    "gap": "drops a frame: one before it is missing",
    "fenced": "drops a frame of an old incarnation",
}


@dataclass(slots=True, kw_only=True)
class Process(cluster.Process):
    """A task that runs, as the stage knows it."""

    name: str
    words: Words
    heard: list[str]
    """The lines that the task has logged."""
    paused: bool = False

    @property
    def shown(self) -> str:
        return f"{self.name}{self.incarnation}"

    def log_bytes(self, task: int, epoch: int) -> bytes:
        """Return its part of a log, and the part forgotten because it is in a file."""
        log = self.protocol.holdings.logs[task]
        return self.words.filed(task, epoch)[: log.begins.get(epoch, 0)] + log.bytes_of(epoch)

    @property
    def place(self) -> int:
        """The bytes of its own log of this epoch that it has performed."""
        return self.protocol.cursor._place


class Onlooker:
    """Compares a process before and after one event, and says what happened inside."""

    def __init__(self, process: Process, elements: Elements) -> None:
        self._process = process
        self._elements = elements
        schedule = process.protocol.cursor
        self._epoch, self._place = schedule.epoch, process.place
        self._extent = schedule.log.extent(schedule.epoch)
        self._state = process.protocol.recovery.state
        self._delivered = [channel.delivered for channel in process.protocol.inputs]
        self._faults = Counter(process.protocol.exchange.faults)
        self._reported = len(process.heard)

    def lines(self) -> list[Line]:
        """Return what has changed since."""
        return [*self._dropped(), *self._state_lines(), *self._performed()]

    def _dropped(self) -> list[Line]:
        faults = Counter(self._process.protocol.exchange.faults)
        faults.subtract(self._faults)
        lines = []
        for sort in sorted(sort for sort, count in faults.items() if count):
            reports = self._process.heard[self._reported :]
            said = DROPPED.get(sort) or (
                reports[0].replace("dropped", "drops") if reports else f"drops a frame: {sort}"
            )
            what, _, rest = said.partition(" ")
            lines.append(Line(self._process.shown, what, (rest,)))
        return lines

    def _state_lines(self) -> list[Line]:
        state = self._process.protocol.recovery.state
        if state is self._state or state is State.FAILED:
            return []
        said = state.value
        if state is State.REPLAYING:
            log = self._process.protocol.cursor.log
            own = ", ".join(f"e{epoch} ..{extent}" for epoch, extent in log.extents().items())
            said += f" its log, {own}" if own else " (its log is empty)"
        elif state is State.RUNNING:
            count = self._process.protocol.execution.schedule.replayed_elements
            said += f": {counted(count, 'element')} replayed" if count else ""
        return [Line(self._process.shown, "is", (said,))]

    def _performed(self) -> list[Line]:
        schedule = self._process.protocol.cursor
        codec, log, entries = DeterminantCodec(), schedule.log.view(self._epoch), []
        place, end = 0, self._process.place if schedule.epoch == self._epoch else len(log)
        while place < end:
            determinant, behind = codec.decode(log, place)
            if place >= self._place:
                entries.append(determinant)
            place = behind
        if not entries:
            return []
        said = []
        for determinant in entries:
            text = self._process.words.determinant(self._process.index, determinant)
            if isinstance(determinant, Order):
                first = self._delivered[determinant.input]
                channel = self._process.protocol.inputs[determinant.input].id
                text += f" ({' '.join(self._elements(channel, first + n) for n in range(determinant.count))})"
            said.append(text)
        verb = "replays" if self._place < self._extent else "performs"
        return [Line(self._process.shown, verb, (", ".join(said),))]
