"""Tumbling and sliding windows of wall-clock time, whose contents are kept in panes or in slices.

A record belongs to the windows that are open when it is delivered, and a window closes at a logged event. The contents
of a window therefore depend on the log alone (`operators.kinds.windows.clock_bounds`). The determinant of a firing
contains the number of records added since the previous firing and the number that have left the window.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from operators.graph import Node
from operators.kinds.windows.assigners import Sliding, Tumbling
from operators.kinds.windows.clock_bounds import ClockBounds
from operators.kinds.windows.panes import PaneStage
from operators.kinds.windows.slices import SliceStage
from operators.kinds.windows.window_stage import AssignedStage
from operators.stage.scope import Scope
from operators.state.snapshot_parts import REPORTED

_MICROSECOND_NS = 1000


class WallClock(ClockBounds, AssignedStage):
    """A mixin that makes the other base class, an event-time stage, use the wall clock."""

    def __init__(self, node: Node, scope: Scope) -> None:
        super().__init__(node, scope)
        assigner: Tumbling | Sliding = node.options["assigner"]
        self._bound_by(assigner)
        self._slides_max = assigner.size_ns // self._every_ns
        self._slides: list[int] = [0]
        """The numbers of records in the most recent slides; the open slide is last."""
        self._last_records = 0
        """The number of records in the window that fired last."""

    def run(self, records: list[Any], keys: list[Any] | None) -> Any:
        if records:
            self._open()
            self._slides[-1] += len(records)
        return super().run(records, keys)

    def _now_ns(self) -> int:
        return (self._end_ns or 0) - _MICROSECOND_NS

    def advance(self, mark_ns: int) -> list[Any]:
        """Ignore event time."""
        return []

    def _slide(self, end_ns: int) -> list[Any]:
        """End the open slide and emit the windows that end with it."""
        added, records = self._slides[-1], sum(self._slides)
        gone = [] if self._slides_max == 1 else [(0, self._last_records + added - records)]
        self._services.window(self.ordinal, end_ns, [*gone, (0, added)])
        self._last_records = records
        out: list[Any] = super().advance(end_ns)
        self._last_end_ns = end_ns
        if self._wakes.next_ns() is None:
            self._end_ns, self._slides = None, [0]
        else:
            self._end_ns = end_ns + self._every_ns
            self._slides = [*self._slides, 0][-self._slides_max :]
        return out

    def header(self) -> dict[str, Any]:
        return {
            **super().header(),
            "end_ns": self._end_ns,
            "last_end_ns": self._last_end_ns,
            "slides": list(self._slides),
            REPORTED: self._last_records,
        }

    def load_header(self, header: dict[str, Any], full: bool) -> None:
        super().load_header(header, full)
        self._end_ns, self._last_end_ns = header["end_ns"], header["last_end_ns"]
        self._slides, self._last_records = list(header["slides"]), header[REPORTED]

    def merge_headers(self, headers: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Emit the windows of all tasks at the latest end, even those that were due earlier.

        The key groups of tasks that had advanced further keep their watermarks.
        """
        return {
            **super().merge_headers(headers),
            **self._merged_bounds(headers),
            "slides": [sum(sum(header["slides"]) for header in headers)],
            REPORTED: sum(header[REPORTED] for header in headers),
        }


class ClockPaneStage(WallClock, PaneStage):
    """`window(name, Tumbling | Sliding, contents)` with clock="processing"."""


class ClockSliceStage(WallClock, SliceStage):
    """The variant of `ClockPaneStage` that uses slices."""
