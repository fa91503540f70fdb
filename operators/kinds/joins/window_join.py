"""`window_join(name, other, assigner)`: pairs of two streams that are in one window of event time.

A window is emitted and removed when the watermark reaches its end: pairs in the order of arrival, left before right,
windows by end and key order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from causal.errors import invariant
from operators.kinds.joins.sides import KeyKinds, Pair, Pairing, keeps_left, keeps_right
from operators.kinds.windows.assigners import Sliding, Tumbling
from operators.stage.event_times import times_of
from operators.stage.failures import Failures
from operators.stage.stages import Stage, without
from operators.stage.watermark_merge import END_NS, IDLE_NS
from operators.state.keyed_tables import FragmentJob, KeyedTable
from operators.state.slots import Slots


class WindowJoinStage(Stage):
    """One task of a window join; `<name>:panes` holds [left records, right records] by (key, start)."""

    sides = True
    traces = False

    def __init__(
        self,
        name: str,
        ordinal: int,
        failures: Failures,
        fn: Pair,
        how: str,
        assigner: Tumbling | Sliding,
        times: tuple[Callable[[Any], Any], Callable[[Any], Any]],
        key_groups: int,
        tags: frozenset[str] = frozenset(),
    ) -> None:
        """
        Args:
            times: return the event time of left and right records.
            tags: side outputs that are read.
        """
        super().__init__(name, ordinal, failures)
        self._assigner = assigner
        self._times = times
        self._alone = keeps_left(how), keeps_right(how)
        self._pairing = Pairing(name, failures, fn)
        self._slots = Slots(f"{name}:panes", name, key_groups, assigner.end_ns)
        self._tags = tags
        self._mark_ns: int | None = None
        self._kinds = KeyKinds()

    def run_side(self, side: int, records: list[Any], keys: list[Any] | None) -> list[Any]:
        keys = keys or []
        invariant(len(keys) == len(records), "a join has a key for each record", operator=self.name)
        self.count("unlike_keys", self._kinds.unlike(side, keys))
        times, lost = times_of(
            self._times[side], records, lambda index, problem: self.failed(index, records[index], problem, keys[index])
        )
        places: Sequence[int] = without(range(len(records)), lost) if lost else range(len(records))
        mark_ns, end_of, values = self._mark_ns, self._assigner.end_ns, self._slots.values
        for index, starts in zip(places, self._assigner.panes(times), strict=True):
            key, record = keys[index], records[index]
            opened = [start for start in starts if mark_ns is None or end_of(start) > mark_ns]
            if not opened:
                self._late(record)
            for start in opened:
                pair = (key, start)
                self._slots.touch((pair,))
                pane = values.get(pair)
                if pane is None:
                    pane = values[pair] = [[], []]
                    self._slots.added((pair,))
                pane[side].append(record)
        return []

    def _late(self, record: Any) -> None:
        self.count("late", 1)
        if "late" in self._tags:
            self.aside.setdefault("late", []).append(record)

    def advance(self, mark_ns: int) -> list[Any]:
        self._mark_ns = mark_ns
        due = self._slots.due(mark_ns)
        out: list[Any] = []
        for pair in due:
            lefts, rights = self._slots.values[pair]
            if not rights and self._alone[0]:
                rights = [None]
            elif not lefts and self._alone[1]:
                lefts = [None]
            for left in lefts:
                for right in rights:
                    self._pairing.add(out, pair[0], left, right)
        self._slots.drop(due)
        return out

    def passes(self, mark_ns: int) -> int:
        """Holds the watermark back: a pair may be as old as the start of its window."""
        return mark_ns if mark_ns in (END_NS, IDLE_NS) else mark_ns - self._assigner.size_ns

    # Snapshots.

    def tables(self) -> list[KeyedTable]:
        return [self._slots.table]

    def freeze(self, full: bool) -> tuple[dict[str, Any], list[FragmentJob]]:
        header, jobs = super().freeze(full)
        header["mark"], header["kinds"] = self._mark_ns, self._kinds.header()
        return header, jobs

    def load_header(self, header: dict[str, Any], full: bool) -> None:
        super().load_header(header, full)
        self._mark_ns = header.get("mark")
        if "kinds" in header:
            self._kinds.load(header["kinds"])

    def merge_headers(self, headers: Sequence[dict[str, Any]]) -> dict[str, Any]:
        kinds = [header["kinds"] for header in headers if "kinds" in header]
        bare = [{name: value for name, value in header.items() if name != "kinds"} for header in headers]
        merged = super().merge_headers(bare)
        return {**merged, "kinds": KeyKinds.merged(kinds)} if kinds else merged
