"""`join_table(as_of=True)`, which joins each stream record with the row that was valid at the record's event time.

Both sides are kept until the watermark shows that no older record will arrive on either side. The row that a record is
joined with therefore depends on event times alone, not on which side was faster or how records were batched (D13). Rows
are versions (time, row). If two versions have the same time, the valid one is that on the later channel; on the same
channel, it is the one that arrived later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import lt
from typing import Any

from causal.errors import CausalError
from operators.graph import LEFT, Node
from operators.kinds.joins.join_stage import TimedJoinStage
from operators.kinds.joins.sides import keeps_left
from operators.kinds.joins.waiting import last_over
from operators.records.ownership import copy_containers
from operators.records.seconds import NS_PER_S
from operators.stage.scope import Scope
from operators.stage.watermark_merge import END_NS
from operators.state.due_entries import DueEntries, Slot, in_key_order, slot_of
from operators.state.keyed_tables import KeyedTable
from operators.state.slots import Slots

Revision = tuple[Slot, Any]
"""A version of a row: ((time from which it is valid, *order), row)."""

KEEPS_DELETED_NS = 24 * 3600 * NS_PER_S
"""The time after the watermark for which a deletion is remembered, so that no late row restores the deleted one."""

Derivation = tuple[str, Callable[[Any, Any], Any]]
"""The name of a table's `filter` or `map_values`, and its function (key, value) -> new value, or None for no row."""

_ALWAYS_NS = -(1 << 63)
"""A time before all others."""


class AsOfStage(TimedJoinStage):
    """One task of a join of a stream (left) with versions of rows (right).

    State: `<name>:held` contains the waiting records by (key, order), where an order is (event time, `Arrival.channel`,
    position there); `<name>:versions` contains the rows that are not yet valid for every future record, by (key,
    (valid from, *order)); `<name>:rows` contains each key's valid row as [*order, row], where row is None if it was
    deleted; `<name>:deleted` contains the time at which each deletion is forgotten.
    """

    def __init__(self, node: Node, scope: Scope) -> None:
        super().__init__(node, scope)
        name, key_groups = node.name, scope.config.key_groups
        self._derivations: Sequence[Derivation] = node.options["derivations"]
        """The functions that are applied to convert a record of the table's stream to a row."""
        self._arrival = scope.arrival
        self._alone = keeps_left(node.options["how"])
        self._waiting = DueEntries(f"{name}:held", name, key_groups)
        self._versions = DueEntries(f"{name}:versions", name, key_groups)
        self._deleted = Slots(f"{name}:deleted", name, key_groups, _first_of)
        self._rows = KeyedTable(f"{name}:rows", name, key_groups)

    # Records.

    def join_side(self, side: int, records: list[Any], keys: list[Any]) -> list[Any]:
        places, times = self._timed(self._times[side], records, keys)
        if side == LEFT:
            self._hold(records, keys, places, times)
        else:
            self._revise(records, keys, places, times)
        return []

    def _floor_ns(self, key: Any) -> int:
        """Return the time below which a record is late: the higher of its channel's and the task's watermark."""
        known = [mark_ns for mark_ns in (self._arrival.mark_ns, self._reached.of(key)) if mark_ns is not None]
        return max(known, default=_ALWAYS_NS)

    def _floors_ns(self, keys: list[Any], places: Sequence[int]) -> Sequence[int]:
        """Return the time below which each record is late."""
        if self._reached.differs:
            return [self._floor_ns(keys[place]) for place in places]
        return [self._floor_ns(None)] * len(places)

    def _hold(self, records: list[Any], keys: list[Any], places: Sequence[int], times: Sequence[int]) -> None:
        floors_ns, channel, first = self._floors_ns(keys, places), self._arrival.channel, self._arrival.first
        kept, slots = list[int](), list[Slot]()
        for index, time_ns, floor_ns in zip(places, times, floors_ns, strict=True):
            if time_ns < floor_ns:
                self._late(records[index])
            else:
                kept.append(index)
                slots.append((time_ns, channel, first + index))
        self._waiting.add([keys[index] for index in kept], slots, [records[index] for index in kept])

    def _revise(self, records: list[Any], keys: list[Any], places: Sequence[int], times: Sequence[int]) -> None:
        floors_ns, channel, first = self._floors_ns(keys, places), self._arrival.channel, self._arrival.first
        slots = [
            (max(time_ns, floor_ns), time_ns, channel, first + index)
            for index, time_ns, floor_ns in zip(places, times, floors_ns, strict=True)
        ]
        self.count("late_rows", sum(map(lt, times, floors_ns)))
        rows = [self._derived(keys[index], records[index], index) for index in places]
        self._versions.add([keys[index] for index in places], slots, rows)

    def _derived(self, key: Any, value: Any, index: int) -> Any:
        for name, derive in self._derivations:
            if value is None:
                return None
            try:
                value = copy_containers(derive(key, value))
            except CausalError:
                raise
            except Exception as problem:
                self.failures.failed(name, key, self.root_index(index), value, problem)
                return None
        return value

    # Event time.

    def advance(self, mark_ns: int) -> list[Any]:
        self._reached.advance(mark_ns)
        revisions: dict[Any, list[Revision]] = {}
        for _, _, key, slot, row in sorted(self._versions.take(mark_ns), key=slot_of):
            revisions.setdefault(key, []).append((slot, row))
        out = self._released(mark_ns, revisions)
        self._settle(mark_ns, revisions)
        return out

    def _released(self, mark_ns: int, revisions: Mapping[Any, Sequence[Revision]]) -> list[Any]:
        """Join and remove the records that are older than the watermark, sorted by time, then in key order."""
        out: list[Any] = []
        rows, alone, pair = self._rows.values, self._alone, self._pairing.add
        cursors = {key: _Cursor(rows.get(key), of_key) for key, of_key in revisions.items()}
        for time_ns, _, key, _, record in in_key_order(self._waiting.take(last_over(mark_ns))):
            if key in cursors:
                cursor = cursors[key]
                row = cursor.row_at(time_ns) if cursor.next_ns <= time_ns else cursor.row
            else:
                row = rows[key][3] if key in rows else None
            if row is not None or alone:
                pair(out, key, record, row)
        return out

    def _settle(self, mark_ns: int, revisions: Mapping[Any, Sequence[Revision]]) -> None:
        """Replace each changed row with the row that is valid at the watermark."""
        rows = self._rows.values
        self._rows.touch(revisions)
        gone: dict[Any, Any] = {}
        for key, (from_ns, *order), row in ((key, *each) for key, of_key in revisions.items() for each in of_key):
            known = rows.get(key)
            if known is not None and order < known[:3]:
                continue
            rows[key] = [*order, row]
            if row is None:
                gone[key, (min(from_ns + KEEPS_DELETED_NS, END_NS), *order)] = 0
        self._deleted.add({pair: value for pair, value in gone.items() if pair not in self._deleted.values})
        for (key, (_, *order)), _ in self._deleted.take(mark_ns):
            known = rows.get(key)
            if known is not None and known[3] is None and known[:3] == order:
                self._rows.touch((key,))
                del rows[key]

    # Snapshots.

    def tables(self) -> list[KeyedTable]:
        return [self._rows, self._waiting, self._versions, self._deleted.table]


class _Cursor:
    """An iterator over the rows of one key in time order.

    Attributes:
        row: the row that is valid before `next_ns`; None if there is none.
    """

    __slots__ = ("row", "next_ns", "_order", "_revisions", "_next")

    def __init__(self, known: Sequence[Any] | None, revisions: Sequence[Revision]) -> None:
        self._order: list[int] = [_ALWAYS_NS] if known is None else list(known[:3])
        self.row: Any = None if known is None else known[3]
        self._revisions = revisions
        self._next = 0
        self.next_ns = revisions[0][0][0] if revisions else END_NS

    def row_at(self, time_ns: int) -> Any:
        """Return the row that is valid at a time, or None; the time must not be before that of the previous call."""
        revisions = self._revisions
        while self._next < len(revisions) and revisions[self._next][0][0] <= time_ns:
            (_, *order), row = revisions[self._next]
            self._next += 1
            if order > self._order:
                self._order, self.row = order, row
        self.next_ns = revisions[self._next][0][0] if self._next < len(revisions) else END_NS
        return self.row


def _first_of(slot: Slot) -> int:
    return slot[0]
