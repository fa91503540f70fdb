"""`join(name, other, within=(before_s, after_s))`, which emits pairs of records that are close in event time.

Every pair of records that are not late is emitted exactly once: when its second record is delivered.  A record is
dropped when the watermark shows that no partner can arrive; a record without a partner is emitted only then.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

from operators.graph import LEFT, Node
from operators.kinds.joins.join_stage import TimedJoinStage
from operators.kinds.joins.sides import keeps_left, keeps_right
from operators.kinds.joins.timelines import STEP_NS, Entry, Timelines
from operators.stage.scope import Scope
from operators.stage.watermark_merge import END_NS, IDLE_NS, over_until
from operators.state.keyed_tables import KeyedTable

_ALWAYS_NS = -(1 << 63)
"""A watermark below every time, used before the first watermark."""


class Buffer:
    """The records of one side that may still find partners.

    Attributes:
        keeps: whether a record without a partner produces a result.
        low_ns, high_ns: the inclusive bounds of a partner's time minus the record's time.
        hold_ns: how far below the watermark the time of a result without a partner may be.
        over_ns: the watermark's distance above a record's time from which no partner of the record can arrive.
    """

    def __init__(self, table: str, operator: str, key_groups: int, low_ns: int, high_ns: int, keeps: bool) -> None:
        self.low_ns = low_ns
        self.high_ns = high_ns
        self.keeps = keeps
        self.hold_ns = max(high_ns, 0) if keeps else 0
        self.over_ns = high_ns + STEP_NS
        self.records = Timelines(table, operator, key_groups, self.over_ns, high_ns - low_ns, keeps)


class IntervalJoinStage(TimedJoinStage):
    """One task of an interval join."""

    def __init__(self, node: Node, scope: Scope) -> None:
        super().__init__(node, scope)
        name, how, key_groups = node.name, node.options["how"], scope.config.key_groups
        before_ns, after_ns = node.options["within_ns"]  # bounds of the right record's time minus the left one's
        self._buffers = (
            Buffer(f"{name}:left", name, key_groups, before_ns, after_ns, keeps_left(how)),
            Buffer(f"{name}:right", name, key_groups, -after_ns, -before_ns, keeps_right(how)),
        )
        self._numbers = scope.numbers

    def join_side(self, side: int, records: list[Any], keys: list[Any]) -> list[Any]:
        mine, others = self._buffers[side], self._buffers[1 - side]
        places, times = self._timed(self._times[side], records, keys)
        late_ns, over_ns = self._late_and_over(mine, None)
        differs = self._reached.differs
        low_ns, high_ns, is_left, number = mine.low_ns, mine.high_ns, side == LEFT, self._numbers
        get, pair, out = others.records.values.get, self._pairing.add, list[Any]()
        kept_keys, kept = list[Any](), list[Entry]()
        for index, time_ns in zip(places, times, strict=True):
            key, record = keys[index], records[index]
            if differs:
                late_ns, over_ns = self._late_and_over(mine, key)
            if time_ns < late_ns:
                self._late(record)
                continue
            partners = get(key, ())
            if partners and not (partners[0][0] >= time_ns + low_ns and partners[-1][0] <= time_ns + high_ns):
                first, behind = (time_ns + low_ns,), (time_ns + high_ns + 1,)
                partners = partners[bisect_left(partners, first) : bisect_left(partners, behind)]
            for partner in partners:
                if others.keeps and not partner[3]:
                    others.records.match(key, partner)
                if is_left:
                    pair(out, key, record, partner[2], index)
                else:
                    pair(out, key, partner[2], record, index)
            if time_ns > over_ns:
                kept_keys.append(key)
                kept.append((time_ns, number(), record, bool(partners)))
            elif mine.keeps and not partners:
                self._give_alone(out, side, key, record, index)
        mine.records.extend(kept_keys, kept)
        return out

    def _late_and_over(self, mine: Buffer, key: Any) -> tuple[int, int]:
        """Return the time below which a record of the key is late, and the time up to which no partner can arrive."""
        mark_ns = self._reached.of(key)
        return (_ALWAYS_NS, _ALWAYS_NS) if mark_ns is None else (mark_ns, over_until(mark_ns) - mine.over_ns)

    def _give_alone(self, out: list[Any], side: int, key: Any, record: Any, index: int | None) -> None:
        left, right = (record, None) if side == LEFT else (None, record)
        self._pairing.add(out, key, left, right, index)

    def advance(self, mark_ns: int) -> list[Any]:
        mark_ns = self._less_grace(mark_ns)
        self._reached.advance(mark_ns)
        out: list[Any] = []
        for side, buffer in enumerate(self._buffers):
            for key, record in buffer.records.take_unmatched(over_until(mark_ns)):
                self._give_alone(out, side, key, record, None)
            buffer.records.drop(over_until(mark_ns))
        return out

    def passes(self, mark_ns: int) -> int:
        """Hold the watermark back, because the result for a record without a partner has the time of that record."""
        if mark_ns in (END_NS, IDLE_NS):
            return mark_ns
        return self._less_grace(mark_ns) - max(buffer.hold_ns for buffer in self._buffers)

    # Snapshots.

    def tables(self) -> list[KeyedTable]:
        return [buffer.records for buffer in self._buffers]

    def restored(self) -> None:
        mark_ns = self._reached.mark_ns
        if mark_ns is not None:
            for buffer in self._buffers:
                buffer.records.settle(over_until(mark_ns))
