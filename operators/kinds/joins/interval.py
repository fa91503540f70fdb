"""`join(name, other, within=(before_s, after_s))`: pairs of two streams that are near one another in event time.

Every pair of records that are not late is emitted exactly once, when the later of the two is delivered.  A record is
dropped when the watermark says that no partner can arrive; only then a record without a partner is emitted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any

from operators.graph import LEFT, RIGHT, Node
from operators.kinds.joins.join_stage import TimedJoinStage
from operators.kinds.joins.sides import keeps_left, keeps_right
from operators.stage.scope import Scope
from operators.stage.watermark_merge import END_NS, IDLE_NS
from operators.state.keyed_tables import KeyedTable
from operators.state.slots import Slots

_STEP_NS = 1000
"""Times are whole microseconds."""


class Buffer:
    """The records of one side that may still find partners, by (key, (time, number)): [record, matched].

    Attributes:
        keeps: whether a record without a partner gives a result.
        low_ns, high_ns: a partner's time less the record's is between these, both included.
        hold_ns: how far below the watermark the time of such a result may be.
    """

    def __init__(
        self,
        table: str,
        operator: str,
        key_groups: int,
        time_of: Callable[[Any], Any],
        low_ns: int,
        high_ns: int,
        keeps: bool,
    ) -> None:
        self.time_of = time_of
        self.low_ns = low_ns
        self.high_ns = high_ns
        self.keeps = keeps
        self.hold_ns = max(high_ns, 0) if keeps else 0
        self.slots = Slots(table, operator, key_groups, lambda slot: self.due_ns(slot[0]), by_key=True)

    def due_ns(self, time_ns: int) -> int:
        """Returns the watermark at which no partner of a record of that time can arrive."""
        return min(time_ns + self.high_ns + _STEP_NS, END_NS)

    def between(self, key: Any, first_ns: int, last_ns: int) -> Sequence[Any]:
        """Returns the slots of a key with times from `first_ns` to `last_ns`, ascending."""
        slots = self.slots.of(key)
        if not slots:
            return ()
        return slots[bisect_left(slots, (first_ns,)) : bisect_left(slots, (last_ns + 1,))]

    def match(self, pair: Any, value: list[Any]) -> None:
        """Marks a record as one that has a partner."""
        if self.keeps and not value[1]:
            self.slots.touch((pair,))
            value[1] = True


class IntervalJoinStage(TimedJoinStage):
    """One task of an interval join."""

    def __init__(self, node: Node, scope: Scope) -> None:
        super().__init__(node, scope)
        name, how, key_groups, times = node.name, node.options["how"], scope.config.key_groups, self._times
        before_ns, after_ns = node.options["within_ns"]  # of the time of a right record less that of its left one
        self._buffers = (
            Buffer(f"{name}:left", name, key_groups, times[LEFT], before_ns, after_ns, keeps_left(how)),
            Buffer(f"{name}:right", name, key_groups, times[RIGHT], -after_ns, -before_ns, keeps_right(how)),
        )
        self._numbers = scope.numbers

    def join_side(self, side: int, records: list[Any], keys: list[Any]) -> list[Any]:
        mine, others = self._buffers[side], self._buffers[1 - side]
        places, times = self._timed(mine.time_of, records, keys)
        mark_ns = self._mark_ns
        kept, out = dict[Any, list[Any]](), list[Any]()
        for index, time_ns in zip(places, times, strict=True):
            key, record = keys[index], records[index]
            if mark_ns is not None and time_ns < mark_ns:
                self._late(record)
                continue
            partners = others.between(key, time_ns + mine.low_ns, time_ns + mine.high_ns)
            for slot in partners:
                pair = (key, slot)
                value = others.slots.values[pair]
                others.match(pair, value)
                self._give(out, side, key, record, value[0], index)
            if mark_ns is None or mine.due_ns(time_ns) > mark_ns:
                kept[key, (time_ns, self._numbers())] = [record, bool(partners)]
            elif mine.keeps and not partners:
                self._give(out, side, key, record, None, index)
        mine.slots.add(kept)
        return out

    def _give(self, out: list[Any], side: int, key: Any, record: Any, partner: Any, index: int | None) -> None:
        if side == LEFT:
            self._pairing.add(out, key, record, partner, index)
        else:
            self._pairing.add(out, key, partner, record, index)

    def advance(self, mark_ns: int) -> list[Any]:
        self._mark_ns = mark_ns
        out: list[Any] = []
        for side, buffer in enumerate(self._buffers):
            for (key, _), (record, matched) in buffer.slots.take(mark_ns):
                if buffer.keeps and not matched:
                    self._give(out, side, key, record, None, None)
        return out

    def passes(self, mark_ns: int) -> int:
        """Holds the watermark back: a result of a record without a partner is as old as the record."""
        if mark_ns in (END_NS, IDLE_NS):
            return mark_ns
        return mark_ns - max(buffer.hold_ns for buffer in self._buffers)

    # Snapshots.

    def tables(self) -> list[KeyedTable]:
        return [buffer.slots.table for buffer in self._buffers]
