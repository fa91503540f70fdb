"""Tumbling and sliding windows of wall-clock time whose panes are accumulators, or contents that slide.

A record belongs to the windows that are open when it is delivered, and a window closes with an event of the log, so
what it holds follows from the log alone: the clock is read once when the first window opens, never per record.  A
firing is logged with how many records have come since the one before it, and how many are not in it any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from causal.ports import Services
from operators.calls import CLOSED
from operators.stages import Due
from operators.state import FragmentJob
from operators.windowing.assigners import Sliding, Tumbling
from operators.windowing.panes import PaneStage
from operators.windowing.slices import SliceStage
from operators.windowing.stage import AssignedStage, Windows
from operators.windows import later_end

_MICROSECOND_NS = 1000


class WallClock(AssignedStage):
    """Gives the stage of event time that is beside it among the bases the wall clock."""

    def __init__(self, windows: Windows, assigner: Tumbling | Sliding) -> None:
        super().__init__(windows, assigner)
        self._every_ns = assigner.every_ns if isinstance(assigner, Sliding) else assigner.size_ns
        self._slides_max = assigner.size_ns // self._every_ns
        self._offset_ns = assigner.offset_ns
        self._services: Services = CLOSED
        self._end_ns: int | None = None
        """Of the slide that is open: when the next firing is."""
        self._last_end_ns = 0
        self._slides: list[int] = [0]
        """How many records came in each of the last slides, in the open one last."""
        self._told = 0
        """How many records the last firing held."""

    def begin(self, services: Services) -> None:
        super().begin(services)
        self._services = services

    def end(self) -> None:
        self._services = CLOSED

    def run(self, records: list[Any], keys: list[Any] | None) -> Any:
        if records:
            if self._end_ns is None:
                opened_ns = max(self._services.now_ns(), self._last_end_ns)
                self._end_ns = opened_ns - (opened_ns - self._offset_ns) % self._every_ns + self._every_ns
            self._slides[-1] += len(records)
        return super().run(records, keys)

    def _now_ns(self) -> int:
        return (self._end_ns or 0) - _MICROSECOND_NS

    def next_ns(self) -> int | None:
        return self._end_ns

    def due(self, due_ns: int) -> list[Due]:
        return [] if self._end_ns is None or self._end_ns > due_ns else [(self._end_ns, 1, self.ordinal, None)]

    def fire(self, entries: Sequence[Due]) -> list[Any]:
        return self._slide()

    def advance(self, mark_ns: int) -> list[Any]:
        """Event time does not matter."""
        return []

    def finish(self) -> list[Any]:
        out: list[Any] = []
        while self._end_ns is not None:
            out += self._slide()
        return out

    def _slide(self) -> list[Any]:
        """The open slide ends: the window that ends with it is told."""
        end_ns = self._end_ns or 0
        added, held = self._slides[-1], sum(self._slides)
        gone = [] if self._slides_max == 1 else [(0, self._told + added - held)]
        self._services.window(self.ordinal, end_ns, [*gone, (0, added)])
        self._told = held
        out: list[Any] = super().advance(end_ns)
        self._last_end_ns = end_ns
        if self._wakes.next_ns() is None:
            self._end_ns, self._slides = None, [0]
        else:
            self._end_ns = end_ns + self._every_ns
            self._slides = [*self._slides, 0][-self._slides_max :]
        return out

    def freeze(self, full: bool) -> tuple[dict[str, Any], list[FragmentJob]]:
        header, jobs = super().freeze(full)
        more = {
            "end_ns": self._end_ns,
            "last_end_ns": self._last_end_ns,
            "slides": list(self._slides),
            "told": self._told,
        }
        return {**header, **more}, jobs

    def load_header(self, header: dict[str, Any], full: bool) -> None:
        super().load_header(header, full)
        self._end_ns, self._last_end_ns = header["end_ns"], header["last_end_ns"]
        self._slides, self._told = list(header["slides"]), header["told"]

    def merge_headers(self, headers: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """The latest end counts for all, so that no end is used twice; windows that were due before are told then."""
        last_end_ns = max(header["last_end_ns"] for header in headers)
        opened = [header["end_ns"] for header in headers if header["end_ns"] is not None]
        marks = [header["mark"] for header in headers if header["mark"] is not None]
        return {
            "mark": max(marks, default=None),
            "end_ns": later_end(opened, last_end_ns, self._every_ns),
            "last_end_ns": last_end_ns,
            "slides": [sum(sum(header["slides"]) for header in headers)],
            "told": sum(header["told"] for header in headers),
        }


class ClockPaneStage(WallClock, PaneStage):
    """`window(name, Tumbling | Sliding, contents)` with clock="processing"."""


class ClockSliceStage(WallClock, SliceStage):
    """The same with slices."""
