"""`join_table(as_of=True)`: each record of a stream with the row that was valid at the event time of the record.

Both sides are kept until the watermark says that nothing older will arrive on either: then the row of a record follows
from event times alone, whichever side was faster and however records were batched (D13).  Rows are versions
(time, row); of two versions of one time that of the later channel, or the later one on the same channel, is valid.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from causal.errors import CausalError
from operators.graph import LEFT, Node
from operators.kinds.joins.join_stage import TimedJoinStage
from operators.kinds.joins.sides import keeps_left
from operators.records.ownership import copy_containers
from operators.records.seconds import NS_PER_S
from operators.stage.scope import Scope
from operators.stage.watermark_merge import END_NS
from operators.state.keyed_tables import KeyedTable
from operators.state.slots import Slots

_STEP_NS = 1000
"""Times are whole microseconds."""
KEEPS_DELETED_NS = 24 * 3600 * NS_PER_S
"""A deleted row is remembered so long after the watermark, so that no older row that is late replaces it."""

Order = tuple[int, int, int]
"""(event time, input channel, position there) of a version, or of a record."""
Derivation = tuple[str, Callable[[Any, Any], Any]]
"""Name of a `filter` or `map_values` of a table, and (key, value) -> another value, None for no row."""

_FIRST: Order = (-(1 << 63), 0, 0)


class AsOfStage(TimedJoinStage):
    """One task of a join of a stream (left) with versions of rows (right).

    State: `<name>:held` has the records that wait by (key, order); `<name>:versions` the rows that are not yet valid
    for every future record, by (key, (from when, *order)); `<name>:rows` by key the row that is valid, as
    [*order, row], row None where it was deleted; `<name>:deleted` when a deletion is forgotten.
    """

    def __init__(self, node: Node, scope: Scope) -> None:
        super().__init__(node, scope)
        name, key_groups = node.name, scope.config.key_groups
        self._derivations: Sequence[Derivation] = node.options["derivations"]
        """Applied one after the other, they make a row from a record of the table's stream."""
        self._arrival = scope.arrival
        self._alone = keeps_left(node.options["how"])
        self._waiting = Slots(f"{name}:held", name, key_groups, lambda slot: min(slot[0] + _STEP_NS, END_NS))
        self._versions = Slots(f"{name}:versions", name, key_groups, _first_of, by_key=True)
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

    def _floor_ns(self) -> int | None:
        """Returns the time below which a record is late: the watermark of its channel, after idleness of the task."""
        known = [mark_ns for mark_ns in (self._arrival.mark_ns, self._mark_ns) if mark_ns is not None]
        return max(known, default=None)

    def _hold(self, records: list[Any], keys: list[Any], places: Sequence[int], times: Sequence[int]) -> None:
        floor_ns, arrival, fresh = self._floor_ns(), self._arrival, dict[Any, Any]()
        for index, time_ns in zip(places, times, strict=True):
            if floor_ns is not None and time_ns < floor_ns:
                self._late(records[index])
                continue
            pair = keys[index], (time_ns, arrival.input, arrival.first + index)
            fresh[_unused(self._waiting, fresh, pair)] = records[index]
        self._waiting.add(fresh)

    def _revise(self, records: list[Any], keys: list[Any], places: Sequence[int], times: Sequence[int]) -> None:
        floor_ns, arrival, late, fresh = self._floor_ns(), self._arrival, 0, dict[Any, Any]()
        for index, time_ns in zip(places, times, strict=True):
            from_ns = time_ns if floor_ns is None else max(time_ns, floor_ns)
            late += from_ns > time_ns
            row = self._derived(keys[index], records[index], index)
            pair = keys[index], (from_ns, time_ns, arrival.input, arrival.first + index)
            fresh[_unused(self._versions, fresh, pair)] = row
        self.count("late_rows", late)
        self._versions.add(fresh)

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
        self._mark_ns = mark_ns
        out = self._released(mark_ns)
        self._settle(mark_ns)
        return out

    def _released(self, mark_ns: int) -> list[Any]:
        """Joins and removes the records that are older than the watermark, by time and key order."""
        out: list[Any] = []
        cursors: dict[Any, _Cursor] = {}
        for (key, order), record in self._waiting.take(mark_ns):
            cursor = cursors.get(key)
            if cursor is None:
                cursor = cursors[key] = _Cursor(self._rows.values.get(key), self._versions, key)
            row = cursor.row_at(order[0])
            if row is not None or self._alone:
                self._pairing.add(out, key, record, row)
        return out

    def _settle(self, mark_ns: int) -> None:
        """Replaces rows by those that are valid from the watermark on."""
        due = self._versions.take(mark_ns)
        rows = self._rows.values
        self._rows.touch([key for (key, _), _ in due])
        gone: dict[Any, Any] = {}
        for (key, (from_ns, *order)), row in due:
            known = rows.get(key)
            if known is not None and tuple(order) < tuple(known[:3]):
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
        return [self._rows, self._waiting.table, self._versions.table, self._deleted.table]

    def merge_headers(self, headers: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Takes the least watermark of the tasks, so that nothing that one of them may still release is late."""
        marks = [header["mark"] for header in headers]
        mark = None if None in marks else min(marks, default=None)
        return super().merge_headers([{**header, "mark": mark} for header in headers])


class _Cursor:
    """Iterates over the versions of one key in the order of time."""

    def __init__(self, known: Sequence[Any] | None, versions: Slots, key: Any) -> None:
        self._key = key
        self._values = versions.values
        self._slots = versions.of(key)
        self._next = 0
        self._order: tuple[int, ...] = _FIRST if known is None else tuple(known[:3])
        self._row = None if known is None else known[3]

    def row_at(self, time_ns: int) -> Any:
        """Returns the row that is valid at a time, not below the time of the last call; None for none."""
        slots = self._slots
        while self._next < len(slots) and slots[self._next][0] <= time_ns:
            slot = slots[self._next]
            self._next += 1
            if slot[1:] > self._order:
                self._order, self._row = slot[1:], self._values[self._key, slot]
        return self._row


def _first_of(slot: tuple[int, ...]) -> int:
    return slot[0]


def _unused(slots: Slots, fresh: dict[Any, Any], pair: tuple[Any, tuple[int, ...]]) -> tuple[Any, tuple[int, ...]]:
    """Returns the pair, or a later one where it is taken: a rescale renumbers channels and positions."""
    while pair in slots.values or pair in fresh:
        key, slot = pair
        pair = key, (*slot[:-1], slot[-1] + (1 << 48))
    return pair
