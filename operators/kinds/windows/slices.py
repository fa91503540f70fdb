"""Sliding windows whose records are kept only once, in slices; an emitted window is merged from its slices.

The length of a slice is the greatest common divisor of size and period, so each window consists of whole slices.  A
record costs one addition, however many windows contain it; a window costs one merge per slice that contains records.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Mapping, Sequence
from math import gcd
from operator import itemgetter
from typing import Any

from causal.errors import PipelineError
from operators.graph import Node
from operators.kinds.windows.aggregates import Aggregate
from operators.kinds.windows.assigners import Sliding
from operators.kinds.windows.window_stage import AssignedStage, window_of
from operators.records.keys import ordered
from operators.stage.scope import Scope
from operators.state.due_index import Pair

PANES_MIN, WHOLE_MIN = 8, 3
"""The minimum number of windows per record for which the windows of an aggregate are sliced. The second applies if the
period divides the size, because a window then has only as many slices as a record has windows."""
_NEVER_NS = -(1 << 63)
"""A watermark before all times."""
_WAKE = 0
"""The slot of each key in the index of due times, which has one time per key."""


def sliced(assigner: object, contents: object) -> bool:
    """Return whether slices are cheaper; they always are with a function, which otherwise needs a record per window."""
    if not isinstance(assigner, Sliding):
        return False
    if isinstance(contents, Aggregate):
        whole = assigner.size_ns % assigner.every_ns == 0
        return (
            contents.merge is not None and assigner.size_ns >= (WHOLE_MIN if whole else PANES_MIN) * assigner.every_ns
        )
    return True


class SliceStage(AssignedStage):
    """`window(name, Sliding, contents)`; a slot is the start of a slice in ns."""

    def __init__(self, node: Node, scope: Scope) -> None:
        super().__init__(node, scope)
        assigner: Sliding = node.options["assigner"]
        self._size_ns, self._every_ns, self._offset_ns = assigner.size_ns, assigner.every_ns, assigner.offset_ns
        self._length_ns = gcd(self._size_ns, self._every_ns)
        self._panes = self._contents.table.name
        """The name of the table in which earlier versions kept one pane per window instead of slices."""
        if isinstance(node.subject, Aggregate) and self._size_ns < PANES_MIN * self._every_ns:
            self._contents.table.name = f"{node.name}:slices"
        self._slices: dict[Any, list[int]] = {}
        """The starts of each key's slices in ascending order, derived from the contents."""

    def _take(self, rows: Sequence[Any], named: Sequence[Any], times: Sequence[int], out: list[Any]) -> None:
        length_ns, offset_ns = self._length_ns, self._offset_ns
        pairs = [(key, at_ns - (at_ns - offset_ns) % length_ns) for key, at_ns in zip(named, times, strict=True)]
        places: Sequence[int] = range(len(rows))
        if (self.mark_ns is not None or self._floors.of_group) and pairs:
            closed_ns, last_ns_of = self._closed_of(None), self._last_end_ns_of
            earliest_ns = last_ns_of(min(map(itemgetter(1), pairs)))
            if self._floors.of_group or (closed_ns is not None and earliest_ns <= closed_ns):
                places = [place for place, (key, at_ns) in enumerate(pairs) if not self._closed(key, last_ns_of(at_ns))]
                taken = frozenset(places)
                self._late([row for place, row in enumerate(rows) if place not in taken])
                pairs, rows = [pairs[place] for place in places], [rows[place] for place in places]
        fresh = self._contents.add(pairs, rows, self._failed_in(places, rows))
        for key, start_ns in fresh:
            insort(self._slices.setdefault(key, []), start_ns)
        for key in dict.fromkeys(map(itemgetter(0), fresh)):
            self._schedule(key)
        if self._lateness_ns and (self.mark_ns is not None or self._floors.of_group):
            starts_of: dict[Any, list[int]] = {}
            for key, start_ns in sorted(dict.fromkeys(pairs), key=itemgetter(1)):
                starts_of.setdefault(key, []).append(start_ns)
            self._emit(self._ends_by_key(starts_of, self._closed_of, self._mark_of_now), out)

    def _bounds_of(self, key: Any, slot: Any) -> tuple[int, int]:
        """Return the bounds of a slice, which belongs to several windows."""
        return slot, slot + self._length_ns

    def _mark_of_now(self, key: Any) -> int:
        mark_ns = self._mark_of(key, self.mark_ns)
        return _NEVER_NS if mark_ns is None else mark_ns

    # The windows that contain a slice.

    def _end_behind_ns(self, at_ns: int) -> int:
        """Return the first window end after a time; for the start of a slice, this is the end of its first window."""
        return at_ns + self._every_ns - (at_ns - self._offset_ns - self._size_ns) % self._every_ns

    def _last_end_ns_of(self, start_ns: int) -> int:
        """Return the end of the last window that contains a slice, which begins at or before the slice."""
        return start_ns - (start_ns - self._offset_ns) % self._every_ns + self._size_ns

    def _next_end_ns(self, key: Any, after_ns: int | None) -> int | None:
        """Return the first end, above a watermark, of a nonempty window of the key; None if all have passed."""
        for start_ns in self._slices.get(key, ()):
            end_ns = self._end_behind_ns(start_ns)
            if after_ns is not None and end_ns <= after_ns:
                end_ns = self._end_behind_ns(after_ns)
            if end_ns <= self._last_end_ns_of(start_ns):
                return end_ns
        return None

    def _ends(
        self, starts_of: Mapping[Any, Sequence[int]], above_ns: int | None, until_ns: int
    ) -> list[tuple[int, list[Any]]]:
        """Return (end, keys) for the windows of these slices that end above `above_ns` and up to `until_ns`, in order.

        Args:
            starts_of: key -> the starts of its slices in ascending order.
        """
        every_ns, size_ns, offset_ns = self._every_ns, self._size_ns, self._offset_ns
        first_ns = None if above_ns is None else self._end_behind_ns(above_ns)
        keys_of: dict[int, list[Any]] = {}
        for key in ordered(starts_of):
            end_ns = first_ns
            for start_ns in starts_of[key]:
                behind_ns = start_ns + every_ns - (start_ns - offset_ns - size_ns) % every_ns
                if end_ns is None or end_ns < behind_ns:
                    end_ns = behind_ns
                last_ns = min(start_ns - (start_ns - offset_ns) % every_ns + size_ns, until_ns)
                while end_ns <= last_ns:
                    keys_of.setdefault(end_ns, []).append(key)
                    end_ns += every_ns
        return sorted(keys_of.items())

    def _ends_by_key(
        self,
        starts_of: Mapping[Any, Sequence[int]],
        above_ns_of: Callable[[Any], int | None],
        until_ns_of: Callable[[Any], int],
    ) -> list[tuple[int, list[Any]]]:
        """Return the result of `_ends`, with bounds that may differ between keys."""
        if not self._floors.of_group:
            return self._ends(starts_of, above_ns_of(None), until_ns_of(None))
        keys_of: dict[int, list[Any]] = {}
        for key in ordered(starts_of):
            for end_ns, keys in self._ends({key: starts_of[key]}, above_ns_of(key), until_ns_of(key)):
                keys_of.setdefault(end_ns, []).extend(keys)
        return sorted(keys_of.items())

    # Results.

    def _emit(self, ends: Sequence[tuple[int, Sequence[Any]]], out: list[Any]) -> None:
        slices_of, emit_all = self._slices, self._contents.emit_all
        for end_ns, keys in ends:
            start_ns = end_ns - self._size_ns
            window = window_of(start_ns, end_ns)
            for key in keys:
                slices = slices_of.get(key, ())
                if slices and not (slices[0] >= start_ns and slices[-1] < end_ns):
                    slices = slices[bisect_left(slices, start_ns) : bisect_left(slices, end_ns)]
                if slices:
                    emit_all([(key, at_ns) for at_ns in slices], window, out)

    def _close(self, due: Sequence[Pair], before_ns: int | None, mark_ns: int, out: list[Any]) -> None:
        slices_due = {key: self._slices[key] for key, _ in due}
        ends = self._ends_by_key(slices_due, lambda key: self._mark_of(key, before_ns), lambda key: mark_ns)
        self._emit(ends, out)
        gone: list[Pair] = []
        for key, slices in slices_due.items():
            while slices and self._last_end_ns_of(slices[0]) + self._lateness_ns <= mark_ns:
                gone.append((key, slices.pop(0)))
            self._schedule(key)
        self._contents.drop(gone)

    def _schedule(self, key: Any) -> None:
        """Schedule the next due time of a key: the end of its next window, or the end of its first slice's lateness."""
        slices = self._slices[key]
        if not slices:
            del self._slices[key]
            self._wakes.forget([(key, _WAKE)])
            return
        over_ns = self._last_end_ns_of(slices[0]) + self._lateness_ns
        next_ns = self._next_end_ns(key, self._mark_of(key, self.mark_ns))
        self._wakes.set((key, _WAKE), over_ns if next_ns is None else min(over_ns, next_ns))

    def loaders(self) -> dict[str, Callable[[bytes], None]]:
        loaders = super().loaders()
        return loaders if self._panes in loaders else {**loaders, self._panes: self._refuse}

    def merge_rules(self) -> dict[str, str] | None:
        return {table.name: table.merge_rule for table in self.tables()}

    def _refuse(self, fragment: bytes) -> None:
        raise PipelineError(
            f"operator {self.name!r}: the version that wrote the checkpoint kept an accumulator per window, but "
            "this version keeps one per slice; finish the job with that version, or start a new job"
        )

    def changed(self, epoch: int) -> None:
        """Drop slices that a shorter lateness has closed."""
        closed, last_ns_of = self._closed, self._last_end_ns_of
        self._contents.drop([pair for pair in self._contents.values if closed(pair[0], last_ns_of(pair[1]))])

    def _rebuild(self) -> None:
        self._slices = {}
        for key, start_ns in self._contents.values:
            self._slices.setdefault(key, []).append(start_ns)
        for key, slices in self._slices.items():
            slices.sort()
            self._schedule(key)
