"""The stage for `delivery="ordered"`: it holds records until the watermark passes them, then releases them in order.

The order is total: by event time, then input channel, then position in that channel. Records that arrived before a
change of the job graph precede later ones with the same time. A record below the watermark of its own channel is late,
regardless of the other channels. After idleness, a record with an earlier time than released records is late as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, repeat
from typing import Any

from operators.graph import Node
from operators.stage.event_times import times_of
from operators.stage.floors import Reached
from operators.stage.scope import INPUTS_MAX, Scope
from operators.stage.stages import Stage, without
from operators.state.due_entries import DueEntries, Slot, slot_of
from operators.state.keyed_tables import KeyedTable

LATE = "late"
HOLD = "hold"


class HoldStage(Stage):
    """The stage that precedes an ordered operator in the same task; its name is `<operator>.hold`.

    State: `<operator>:held` contains [side, record] by (key, (event time in ns, `Arrival.channel`, position there)).

    Attributes:
        keys: the keys of the most recently released records, if the operator works by key.
        side: the operator's input from which those records came.
    """

    makes_marks = True
    traces = False

    def __init__(self, node: Node, scope: Scope, inputs: Sequence[tuple[Callable[[Any], Any], int]]) -> None:
        """
        Args:
            inputs: for each input channel, the function that returns the event time of its records, and the index of
                the operator's input that it belongs to.
        """
        super().__init__(f"{node.name}.{HOLD}", scope)
        self.shown_as = node.name
        self._times_of = [time_of for time_of, _ in inputs]
        self._differ = len(set(self._times_of)) > 1
        self._sides = [side for _, side in inputs]
        self._keyed = node.keyed
        """Whether the operator works by key; if so, a record is held in the key group of its key."""
        self._arrival = scope.arrival
        self._aside = LATE in scope.tags
        self._waiting = DueEntries(f"{node.name}:held", node.name, scope.config.key_groups)
        self._reached = Reached(scope.config.key_groups, node.keyed)
        self._ready: list[tuple[int, int, list[Any], list[Any] | None]] = []

    def run(self, records: list[Any], keys: list[Any] | None) -> list[Any]:
        arrival = self._arrival
        times, lost = times_of(
            self._times_of[arrival.input],
            records,
            lambda index, problem: self.failed(index, records[index], problem),
        )
        if lost:
            records, keys = without(records, lost), None if keys is None else without(keys, lost)
        places: Sequence[int] = range(arrival.first, arrival.first + len(records) + len(lost))
        places = without(places, lost) if lost else places
        late = self._late(times, keys)
        if late:
            self.count(LATE, len(late))
            if self._aside:
                self.aside.setdefault(LATE, []).extend([records[index] for index in late])
            records, times, places = without(records, late), without(times, late), without(places, late)
            keys = None if keys is None else without(keys, late)
        self._hold(records, keys, list(zip(times, repeat(arrival.channel), places)))
        return []

    def _late(self, times: Sequence[int], keys: Sequence[Any] | None) -> list[int]:
        """Return the indices of the times below the channel's watermark, or below the released records."""
        if self._reached.differs:
            return [
                index
                for index, (time_ns, key) in enumerate(zip(times, repeat(None) if keys is None else keys))
                if self._late_by([time_ns], self._reached.of(key))
            ]
        return self._late_by(times, self._reached.mark_ns)

    def _late_by(self, times: Sequence[int], released_ns: int | None) -> list[int]:
        marks = [mark_ns for mark_ns in (self._arrival.mark_ns, released_ns) if mark_ns is not None]
        if not marks or not times or min(times) >= max(marks):
            return []
        floor = max(marks)
        return [index for index, time_ns in enumerate(times) if time_ns < floor]

    def _hold(self, records: Sequence[Any], keys: Sequence[Any] | None, slots: Sequence[Slot]) -> None:
        side = self._sides[self._arrival.input]
        self._waiting.add(
            [None] * len(records) if keys is None else keys, slots, [[side, record] for record in records]
        )

    def advance(self, mark_ns: int) -> list[Any]:
        """Make all records that are older than the watermark ready for release, in order."""
        self._reached.advance(mark_ns)
        taken = sorted(self._waiting.take(mark_ns - 1), key=slot_of)
        released = [(*value, key) for _, _, key, _, value in taken]
        inputs = [self._origin(slot, *value) for _, _, _, slot, value in taken]
        for (input, side), entries in groupby(zip(inputs, released), key=lambda pair: (pair[0], pair[1][0])):
            listed = [entry for _, entry in entries]
            keys = [key for _, _, key in listed] if self._keyed else None
            self._ready.append((input, side, [record for _, record, _ in listed], keys))
        return []

    def _origin(self, slot: Slot, side: int, record: Any) -> int:
        """Return the input of a record if the inputs have different time functions; otherwise -1 for every record.

        For a record from before a change of the graph, return an input whose function returns the record's time.
        """
        if not self._differ:
            return -1
        generation, input = divmod(slot[1], INPUTS_MAX)
        if generation == self._arrival.generation:
            return input
        alike = [other for other, each in enumerate(self._sides) if each == side]
        for other in alike:
            if times_of(self._times_of[other], [record], _without_time)[0] == [slot[0]]:
                return other
        return alike[0]

    def pieces(self) -> Iterator[tuple[Any, int | None]]:
        """Yield runs of records from one side; during each, `side`, `keys` and the arrival's input are its own."""
        ready, self._ready = self._ready, []
        for input, side, records, keys in ready:
            self._arrival.input, self.side, self.keys = input, side, keys
            yield records, None

    def tables(self) -> list[KeyedTable]:
        return [self._waiting]

    def header(self) -> dict[str, Any]:
        return self._reached.header()

    def load_header(self, header: dict[str, Any], full: bool) -> None:
        super().load_header(header, full)
        self._reached.load(header)

    def merge_headers(self, headers: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return self._reached.merged(headers)


def _without_time(index: int, problem: Exception) -> None:
    """Ignore the problem, because the time function of another input may not support the record."""
