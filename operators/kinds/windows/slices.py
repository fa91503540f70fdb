"""Sliding windows whose records are kept once, in slices; a window that is emitted is merged from its slices.

A slice is as long as the greatest common divisor of size and period, so each window consists of whole slices.  A record
costs one addition, however many windows it is in; a window costs as many merges as it has slices that hold records.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from math import gcd
from operator import itemgetter
from typing import Any

from operators.graph import Node
from operators.kinds.windows.aggregates import Aggregate
from operators.kinds.windows.assigners import Sliding
from operators.kinds.windows.window_stage import AssignedStage, window_of
from operators.records.keys import ordered
from operators.stage.scope import Scope
from operators.state.due_index import Pair

PANES_MIN = 8
"""The number of windows per record from which on the windows of an aggregate are sliced."""
_WAKE = 0
"""The slot of a key in the index of what is due: each key has one time."""


def sliced(assigner: object, contents: object) -> bool:
    """Returns whether slices are cheaper: always for a function, whose records would be kept once per window."""
    if not isinstance(assigner, Sliding):
        return False
    if isinstance(contents, Aggregate):
        return contents.merge is not None and assigner.size_ns >= PANES_MIN * assigner.every_ns
    return True


class SliceStage(AssignedStage):
    """`window(name, Sliding, contents)`: slot = start of the slice in ns."""

    def __init__(self, node: Node, scope: Scope) -> None:
        super().__init__(node, scope)
        assigner: Sliding = node.options["assigner"]
        self._size_ns, self._every_ns, self._offset_ns = assigner.size_ns, assigner.every_ns, assigner.offset_ns
        self._length_ns = gcd(self._size_ns, self._every_ns)
        self._slices: dict[Any, list[int]] = {}
        """The starts of the slices of each key, ascending; derived."""

    def _take(self, rows: Sequence[Any], named: Sequence[Any], times: Sequence[int], out: list[Any]) -> None:
        length_ns, offset_ns = self._length_ns, self._offset_ns
        pairs = [(key, at_ns - (at_ns - offset_ns) % length_ns) for key, at_ns in zip(named, times, strict=True)]
        places: Sequence[int] = range(len(rows))
        if self.mark_ns is not None and pairs:
            closed_ns = self.mark_ns - self._lateness_ns
            if self._last_end_ns_of(min(map(itemgetter(1), pairs))) <= closed_ns:
                places = [place for place, pair in enumerate(pairs) if self._last_end_ns_of(pair[1]) > closed_ns]
                taken = frozenset(places)
                self._late([row for place, row in enumerate(rows) if place not in taken])
                pairs, rows = [pairs[place] for place in places], [rows[place] for place in places]
        fresh = self._contents.add(pairs, rows, self._failed_in(places, rows))
        for key, start_ns in fresh:
            insort(self._slices.setdefault(key, []), start_ns)
        for key in dict.fromkeys(map(itemgetter(0), fresh)):
            self._schedule(key)
        if self.mark_ns is not None and self._lateness_ns:
            ends = self._ends(pairs, self.mark_ns - self._lateness_ns, self.mark_ns)
            self._emit(ends, out)

    # Which windows a slice is in.

    def _end_behind_ns(self, at_ns: int) -> int:
        """Returns the first end of a window after a time; for the start of a slice, of the first window it is in."""
        return at_ns + self._every_ns - (at_ns - self._offset_ns - self._size_ns) % self._every_ns

    def _last_end_ns_of(self, start_ns: int) -> int:
        """Returns the end of the last window that a slice is in: of the last that begins with it or before."""
        return start_ns - (start_ns - self._offset_ns) % self._every_ns + self._size_ns

    def _next_end_ns(self, key: Any, after_ns: int | None) -> int | None:
        """Returns the first end above a mark of a nonempty window of the key; None when all have passed."""
        for start_ns in self._slices.get(key, ()):
            end_ns = self._end_behind_ns(start_ns)
            if after_ns is not None and end_ns <= after_ns:
                end_ns = self._end_behind_ns(after_ns)
            if end_ns <= self._last_end_ns_of(start_ns):
                return end_ns
        return None

    def _ends(self, pairs: Iterable[Pair], above_ns: int | None, until_ns: int) -> list[Pair]:
        """Returns (key, end) of the windows of these slices that end above one mark, up to another, in order."""
        ends: dict[Pair, None] = {}
        for key, start_ns in pairs:
            end_ns = self._end_behind_ns(start_ns)
            if above_ns is not None and end_ns <= above_ns:
                end_ns = self._end_behind_ns(above_ns)
            for at_ns in range(end_ns, min(self._last_end_ns_of(start_ns), until_ns) + 1, self._every_ns):
                ends[key, at_ns] = None
        rank = {key: place for place, key in enumerate(ordered(dict.fromkeys(map(itemgetter(0), ends))))}
        return sorted(ends, key=lambda pair: (pair[1], rank[pair[0]]))

    # Results.

    def _emit(self, ends: Sequence[Pair], out: list[Any]) -> None:
        for key, end_ns in ends:
            slices = self._slices.get(key, [])
            first, last = bisect_left(slices, end_ns - self._size_ns), bisect_left(slices, end_ns)
            pairs = [(key, start_ns) for start_ns in slices[first:last]]
            if pairs:
                self._contents.emit_all(pairs, window_of(end_ns - self._size_ns, end_ns), out)

    def _close(self, due: Sequence[Pair], before_ns: int | None, mark_ns: int, out: list[Any]) -> None:
        keys = list(map(itemgetter(0), due))
        slices_due = [(key, start_ns) for key in keys for start_ns in self._slices[key]]
        self._emit(self._ends(slices_due, before_ns, mark_ns), out)
        gone = [pair for pair in slices_due if self._last_end_ns_of(pair[1]) + self._lateness_ns <= mark_ns]
        self._contents.drop(gone)
        for key in keys:
            slices = self._slices[key]
            while slices and self._last_end_ns_of(slices[0]) + self._lateness_ns <= mark_ns:
                del slices[0]
            self._schedule(key)

    def _schedule(self, key: Any) -> None:
        """Schedules what is due next for a key: the end of a window, or of the first slice."""
        slices = self._slices[key]
        if not slices:
            del self._slices[key]
            self._wakes.forget([(key, _WAKE)])
            return
        over_ns = self._last_end_ns_of(slices[0]) + self._lateness_ns
        next_ns = self._next_end_ns(key, self.mark_ns)
        self._wakes.set((key, _WAKE), over_ns if next_ns is None else min(over_ns, next_ns))

    def _rebuild(self) -> None:
        self._slices = {}
        for key, start_ns in self._contents.values:
            self._slices.setdefault(key, []).append(start_ns)
        for key, slices in self._slices.items():
            slices.sort()
            self._schedule(key)
