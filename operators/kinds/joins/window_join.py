"""`window_join(name, other, assigner)`, which emits pairs of records that are in the same event-time window.

A window is emitted and removed when the watermark, less the grace, reaches its end. Its pairs are in the order of
arrival of the left records, then of the right records; windows are in the order of their ends, then in key order.
"""

from __future__ import annotations

from typing import Any

from operators.graph import Node
from operators.kinds.joins.join_stage import TimedJoinStage
from operators.kinds.joins.sides import keeps_left, keeps_right
from operators.kinds.windows.assigners import Sliding, Tumbling
from operators.stage.scope import Scope
from operators.stage.watermark_merge import END_NS, IDLE_NS, over_until
from operators.state.keyed_tables import KeyedTable
from operators.state.slots import Slots


class WindowJoinStage(TimedJoinStage):
    """One task of a window join; `<name>:panes` contains [left records, right records] by (key, start)."""

    def __init__(self, node: Node, scope: Scope) -> None:
        super().__init__(node, scope)
        name, how, key_groups = node.name, node.options["how"], scope.config.key_groups
        self._assigner: Tumbling | Sliding = node.options["assigner"]
        self._alone = keeps_left(how), keeps_right(how)
        self._slots = Slots(f"{name}:panes", name, key_groups, self._assigner.end_ns)

    def join_side(self, side: int, records: list[Any], keys: list[Any]) -> list[Any]:
        places, times = self._timed(self._times[side], records, keys)
        reached, end_of, values = self._reached, self._assigner.end_ns, self._slots.values
        mark_ns, differs = reached.mark_ns, reached.differs
        for index, starts in zip(places, self._assigner.panes(times), strict=True):
            key, record = keys[index], records[index]
            if differs:
                mark_ns = reached.of(key)
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

    def advance(self, mark_ns: int) -> list[Any]:
        mark_ns = self._less_grace(mark_ns)
        self._reached.advance(mark_ns)
        out: list[Any] = []
        for (key, _), (lefts, rights) in self._slots.take(over_until(mark_ns)):
            if not rights and self._alone[0]:
                rights = [None]
            elif not lefts and self._alone[1]:
                lefts = [None]
            for left in lefts:
                for right in rights:
                    self._pairing.add(out, key, left, right)
        return out

    def passes(self, mark_ns: int) -> int:
        """Hold the watermark back, because a pair may be as old as the start of its window."""
        return mark_ns if mark_ns in (END_NS, IDLE_NS) else self._less_grace(mark_ns) - self._assigner.size_ns

    # Snapshots.

    def tables(self) -> list[KeyedTable]:
        return [self._slots.table]
