"""What all stages of windows share: times of their records, what is late, and what is told at which mark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

from causal.ports import Services
from operators.eventtime.times import times_of
from operators.failures import NO_KEY, Failures
from operators.ownership import own
from operators.slots import Pair
from operators.stages import Stage, without
from operators.state import FragmentJob, Table
from operators.windowing.assigners import Assigner
from operators.windowing.contents import Contents
from operators.windowing.wakes import Wakes
from operators.windows import Window

LATE = "late"
"""Why a record is counted, and the side output that it goes to."""


def window_of(start_ns: int, end_ns: int) -> Window:
    """Bounds in seconds; of whole microseconds, so that they come back as the same numbers."""
    return Window(start_ns // 1000 / 1e6, end_ns // 1000 / 1e6)


@dataclass(frozen=True, slots=True)
class Windows:
    """What every stage of windows is made of.

    Attributes:
        time_of: where the event time is; None where records have the time at which they come.
        tags: side outputs that somebody reads.
    """

    name: str
    ordinal: int
    failures: Failures
    contents: Contents
    keyed: bool
    time_of: Callable[[Any], Any] | None = None
    lateness_ns: int = 0
    tags: frozenset[str] = frozenset()


class WindowedStage(Stage):
    """Windows by time.

    Attributes:
        mark_ns: how far time has come; None before the first watermark.
    """

    traces = False

    def __init__(self, windows: Windows) -> None:
        super().__init__(windows.name, windows.ordinal, windows.failures)
        self.mark_ns: int | None = None
        self._contents = windows.contents
        self._keyed = windows.keyed
        self._time_of = windows.time_of
        self._lateness_ns = windows.lateness_ns
        self._late_is_read = LATE in windows.tags
        self._wakes = Wakes()
        self._stale = False

    def _timed(self, records: list[Any], keys: list[Any] | None) -> tuple[list[Any], list[Any], list[int]]:
        """Records that have a time, their keys and times; `places` says which they are."""
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

    def _now_ns(self) -> int:
        """What records that have no time of their own are given."""
        return 0

    def _late(self, records: Sequence[Any]) -> None:
        """These came when all their windows were closed."""
        self.count(LATE, len(records))
        if self._late_is_read and records:
            self.aside.setdefault(LATE, []).extend(map(own, records))

    def _failed_in(self, places: Sequence[int], rows: Sequence[Any]) -> Callable[[int, Pair, Exception], None]:
        """What becomes of a record that an aggregate refuses: it is in none of the windows that are left."""

        def failed(index: int, pair: Pair, problem: Exception) -> None:
            place = self._places[places[index]]
            self.failed(place, rows[index], problem, pair[0] if self._keyed else NO_KEY)

        return failed

    # Events.

    def begin(self, services: Services) -> None:
        self._settle()

    def advance(self, mark_ns: int) -> Any:
        before_ns, self.mark_ns = self.mark_ns, mark_ns
        out: list[Any] = []
        self._close(self._wakes.due(mark_ns), before_ns, mark_ns, out)
        return out

    def _close(self, due: Sequence[Pair], before_ns: int | None, mark_ns: int, out: list[Any]) -> None:
        """Tell the windows that have come to their end; those whose lateness is over are gone.

        Args:
            due: windows of which something is due.
            before_ns: the mark before this one: what ended by then has been told.
        """
        raise NotImplementedError

    # State.

    def tables(self) -> list[Table]:
        return [self._contents.table]

    def freeze(self, full: bool) -> tuple[dict[str, Any], list[FragmentJob]]:
        header, jobs = super().freeze(full)
        return {**header, "mark": self.mark_ns}, jobs

    def load_header(self, header: dict[str, Any], full: bool) -> None:
        super().load_header(header, full)
        self.mark_ns = header["mark"]
        self._stale = True

    def _settle(self) -> None:
        """Derive what is due when, once something was loaded."""
        if self._stale:
            self._stale = False
            self._wakes.clear()
            self._rebuild()

    def _rebuild(self) -> None:
        raise NotImplementedError


class AssignedStage(WindowedStage):
    """Windows that an assigner knows by their starts."""

    def __init__(self, windows: Windows, assigner: Assigner) -> None:
        super().__init__(windows)
        self._assigner = assigner
