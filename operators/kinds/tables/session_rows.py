"""`window_table` with `Session`, whose rows by (key, start, end) replace one another as sessions grow and merge.

A record that extends a session, or joins several, deletes their rows and adds one row with the new bounds. The state of
a session is its accumulator by (key, (start, end)). A record is too late if it is older than stream time by more than
the grace, and the session that it would be in has ended by stream time. A session is removed when its end plus the
grace has been passed by stream time; a record that would have reached it then begins another, or is late.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from causal.errors import CausalError
from operators.graph import Node
from operators.kinds.tables.revisions import Revision
from operators.kinds.tables.sameness import same
from operators.kinds.tables.table_aggregates import ABSENT
from operators.kinds.tables.windowed import WindowTableStage
from operators.stage.scope import Scope
from operators.state.due_index import Pair

_Bounds = tuple[int, int]


class SessionTableStage(WindowTableStage):
    """One task of `window_table` with `Session`."""

    def __init__(self, node: Node, scope: Scope) -> None:
        super().__init__(node, scope)
        self._gap_ns: int = node.options["assigner"].gap_ns

    def _panes(self, times: Sequence[int]) -> list[Sequence[Any]]:
        return [()] * len(times)

    def _bounds(self, slot: Any) -> _Bounds:
        start_ns, end_ns = slot
        return start_ns, end_ns

    def _one(self, index: int, key: Any, record: Any, time_ns: int, _: Sequence[Any], out: list[Revision]) -> None:
        """Add a record to the session that it extends, to all that it joins, or to a new one, unless it is too late."""
        if self.makes_marks and (self._stream_ns is None or time_ns > self._stream_ns):
            self._stream_ns = time_ns
            self._forget()
        reached = [(key, slot) for slot in self._slots.of(key) if self._reaches(slot, time_ns)]
        bounds = time_ns, time_ns + self._gap_ns
        for _, slot in reached:
            bounds = min(bounds[0], slot[0]), max(bounds[1], slot[1])
        stream_ns = self._stream_ns
        over_ns = None if stream_ns is None else self._over_ns(time_ns, stream_ns)
        if over_ns is not None and bounds[1] <= over_ns:
            self._count_late(record)
            return
        into = (key, bounds)
        before = [(pair, self._row.sent(self._slots.values[pair])) for pair in reached]
        try:
            accumulator = self._merged(reached, record)
            new = self._row(into, accumulator)
        except CausalError:
            raise
        except Exception as problem:
            self.failed(index, record, problem, key)  # the record shapes no session
            return
        self._slots.remove([pair for pair in reached if pair != into])
        if into in self._slots.values:
            self._slots.touch((into,))
            self._slots.values[into] = accumulator
        else:
            self._slots.add({into: accumulator})
        self._revised(index, [(pair, old, None) for pair, old in before if pair != into], out)
        self._revised(index, [(into, next((old for pair, old in before if pair == into), None), new)], out)

    def _reaches(self, slot: _Bounds, time_ns: int) -> bool:
        """Return whether a record at this time belongs to an open session; one that is over may not be removed yet."""
        over = self._stream_ns is not None and slot[1] <= self._stream_ns - self._grace_ns
        return not over and slot[0] < time_ns + self._gap_ns and time_ns < slot[1]

    def _merged(self, reached: Sequence[Pair], record: Any) -> Any:
        """Return the accumulator of these sessions with one record added, without changing theirs."""
        accumulator = ABSENT
        for pair in reached:
            known = self._slots.values[pair]
            accumulator = known if accumulator is ABSENT else self._row.merged(accumulator, known)
        return self._row.added(accumulator, record)

    def _revised(self, index: int, changes: Sequence[tuple[Pair, Any, Any]], out: list[Revision]) -> None:
        for pair, old, new in changes:
            name = self._key_of(pair)
            if self.unsettled.values:
                old = self._sent(name, old)
            if not same(old, new):
                self._kept.append(index)
                out.append(self._revision(name, old, new))
