"""The base classes of window stages: record times, late records, and the windows to emit at a watermark."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any

from causal.ports import Services
from operators.graph import Node, time_of_inputs
from operators.kinds.windows.assigners import Assigner
from operators.kinds.windows.contents import contents_of
from operators.kinds.windows.task_windows import Window
from operators.kinds.windows.wakes import Wakes
from operators.records.ownership import copy_containers
from operators.records.seconds import seconds_of
from operators.stage.event_times import times_of
from operators.stage.failures import NO_KEY
from operators.stage.floors import Floors
from operators.stage.scope import Scope
from operators.stage.stages import Stage, without
from operators.stage.watermark_merge import END_NS, over_until
from operators.state.due_index import Pair
from operators.state.keyed_tables import KeyedTable

LATE = "late"
"""The name of the counter and of the side output for late records."""


def window_of(start_ns: int, end_ns: int) -> Window:
    """Return bounds in seconds, rounded down to whole microseconds, so that converting them back is exact."""
    return Window(seconds_of(start_ns // 1000 * 1000), seconds_of(end_ns // 1000 * 1000))


class WindowedStage(Stage, ABC):
    """The base class of stages whose windows are bounded by time.

    Attributes:
        mark_ns: the last watermark; None before the first one.
    """

    traces = False

    def __init__(self, node: Node, scope: Scope) -> None:
        super().__init__(node.name, scope)
        self.mark_ns: int | None = None
        self._contents = contents_of(node.subject, node.name, node.keyed, scope.config.key_groups, scope.failures)
        self._keyed = node.keyed
        self._time_of = time_of_inputs(node) if node.options["assigner"].clock == "event" else None
        """The function that returns a record's event time; None if the time of a record is that of its arrival."""
        self._lateness_ns: int = node.options["lateness_ns"]
        self._key_groups = scope.config.key_groups
        self._floors = Floors(self._key_groups, node.keyed)
        self._late_is_read = LATE in scope.tags
        self._wakes = Wakes()
        self._stale = False

    def _timed(self, records: list[Any], keys: list[Any] | None) -> tuple[list[Any], list[Any], list[int]]:
        """Return the records with a time, their keys and their times; set `_places` to their places in the batch."""
        named: list[Any] = list(repeat(None, len(records))) if keys is None else keys
        self._places: Sequence[int] = range(len(records))
        if self._time_of is None:
            return records, named, [self._now_ns()] * len(records)

        def failed(index: int, problem: Exception) -> None:
            self.failed(index, records[index], problem, named[index] if self._keyed else NO_KEY)

        times, lost = times_of(self._time_of, records, failed)
        if lost:
            self._places = without(self._places, lost)
            records, named = without(records, lost), without(named, lost)
        return records, named, times

    def run(self, records: list[Any], keys: list[Any] | None) -> Any:
        rows, named, times = self._timed(records, keys)
        out: list[Any] = []
        may_be_late = len(rows) > 1 and (
            self._floors.of_group or (self.mark_ns is not None and min(times) < self.mark_ns)
        )
        if self._lateness_ns and may_be_late:
            # Process records one by one, so that each late record causes its windows to be emitted again, however the
            # records are batched.
            places = self._places
            for at in range(len(rows)):
                one = slice(at, at + 1)
                self._places = places[one]
                self._take(rows[one], named[one], times[one], out)
        elif rows:
            self._take(rows, named, times, out)
        return out

    @abstractmethod
    def _take(self, rows: Sequence[Any], named: Sequence[Any], times: Sequence[int], out: list[Any]) -> None:
        """Add records, at least one, to their windows.

        Args:
            named: the keys of the records.
            out: the list to which results are appended.
        """

    def _now_ns(self) -> int:
        """Return the time of records without an event time."""
        return 0

    def _late(self, records: Sequence[Any]) -> None:
        """Count records whose windows are all closed, and pass them to the side output."""
        self.count(LATE, len(records))
        if self._late_is_read and records:
            self.aside.setdefault(LATE, []).extend(map(copy_containers, records))

    def _failed_in(self, places: Sequence[int], rows: Sequence[Any]) -> Callable[[int, Pair, Exception], None]:
        """Return the handler for a record that an aggregate refuses; the record is added to no further windows."""

        def failed(index: int, pair: Pair, problem: Exception) -> None:
            place = self._places[places[index]]
            self.failed(place, rows[index], problem, pair[0] if self._keyed else NO_KEY)

        return failed

    # Events.

    def begin(self, services: Services) -> None:
        self._settle()

    def advance(self, mark_ns: int) -> Any:
        before_ns = self.mark_ns
        # Event time never decreases, even if a new watermark is lower.
        if before_ns is not None and mark_ns <= before_ns:
            return []
        self.mark_ns = mark_ns
        out: list[Any] = []
        until_ns = over_until(mark_ns)
        self._close(self._wakes.due(until_ns), before_ns, until_ns, out)
        if self._floors.of_group:
            self._floors.passed(mark_ns, mark_ns - self._lateness_ns)
        return out

    def _mark_of(self, key: Any, mark_ns: int | None) -> int | None:
        """Return a key's event time when the task is at watermark `mark_ns`; windows ending by then were emitted."""
        return self._floors.mark_ns(key, mark_ns) if self._floors.of_group else mark_ns

    def _closed_of(self, key: Any) -> int | None:
        """Return the time up to which a key's windows are closed."""
        if self._floors.of_group:
            return self._floors.closed_ns(key, self.mark_ns, self._lateness_ns)
        return None if self.mark_ns is None else self.mark_ns - self._lateness_ns

    def _ended(self, key: Any, end_ns: int) -> bool:
        """Return whether a key's window has ended."""
        mark_ns = self._mark_of(key, self.mark_ns) if self._floors.of_group else self.mark_ns
        return mark_ns is not None and end_ns <= mark_ns

    def _closed(self, key: Any, end_ns: int) -> bool:
        """Return whether a key's window is closed, so that records for it are late."""
        closed_ns = self._closed_of(key)
        return closed_ns is not None and end_ns <= closed_ns

    @abstractmethod
    def _close(self, due: Sequence[Pair], before_ns: int | None, mark_ns: int, out: list[Any]) -> None:
        """Emit the windows that have ended, and remove those whose lateness is over.

        Args:
            due: the windows that are due.
            before_ns: the previous watermark; windows that had ended by then have already been emitted.
        """

    # State.

    def inspect(self, key: Any) -> dict[str, Any]:
        """Return the contents of a key's open windows, each with its start in seconds, as user code sees it."""
        shown = super().inspect(key)
        name = self._contents.table.name
        if name in shown:
            shown[name] = [[seconds_of(start_ns), content] for start_ns, content in shown[name]]
        return shown

    def windows(self, key: Any) -> list[tuple[float, float | None, Any]]:
        """Return the open windows of a key in ascending order."""
        windows: list[tuple[float, float | None, Any]] = []
        for slot, content in self._contents.table.inspect(key) or ():
            start_ns, end_ns = self._bounds_of(key, slot)
            windows.append((seconds_of(start_ns), None if end_ns == END_NS else seconds_of(end_ns), content))
        return windows

    @abstractmethod
    def _bounds_of(self, key: Any, slot: Any) -> tuple[int, int]:
        """Return the bounds of one of the key's open windows."""

    def tables(self) -> list[KeyedTable]:
        return [self._contents.table]

    def header(self) -> dict[str, Any]:
        return {"mark": self.mark_ns, "lateness": self._lateness_ns, **self._floors.header()}

    def load_header(self, header: dict[str, Any], full: bool) -> None:
        """Restore the state; windows that were closed under the lateness in the snapshot stay closed."""
        super().load_header(header, full)
        self.mark_ns = header["mark"]
        self._floors.load(header)
        lateness_ns = header.get("lateness", self._lateness_ns)
        if self.mark_ns is not None and lateness_ns < self._lateness_ns:
            self._floors.raise_all(self.mark_ns, self.mark_ns - lateness_ns)
        self._stale = True

    def merge_headers(self, headers: Sequence[dict[str, Any]]) -> dict[str, Any]:
        merged = Floors(self._key_groups, self._keyed).merge(headers, self._lateness_ns)
        return {"lateness": self._lateness_ns, **merged}

    def _settle(self) -> None:
        """Rebuild the index of due windows if state has been loaded."""
        if self._stale:
            self._stale = False
            self._wakes.clear()
            self._rebuild()

    @abstractmethod
    def _rebuild(self) -> None:
        """Add every open window to the index of due windows."""


class AssignedStage(WindowedStage):
    """The base class of stages whose windows are identified by the starts that an assigner returns."""

    def __init__(self, node: Node, scope: Scope) -> None:
        super().__init__(node, scope)
        self._assigner: Assigner = node.options["assigner"]

    def _bounds_of(self, key: Any, slot: Any) -> tuple[int, int]:
        return slot, self._assigner.end_ns(slot)
