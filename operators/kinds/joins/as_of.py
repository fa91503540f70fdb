"""`join_table(as_of=True)`, which joins each stream record with the row that was valid at the record's event time.

Both sides are kept until the watermark shows that no older record will arrive on either side. The row that a record is
joined with therefore depends on event times alone, not on which side was faster or how records were batched (D13). Rows
are versions (time, row). If two versions have the same time, the valid one is that on the later channel; on the same
channel, it is the one that arrived later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress, repeat
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
from operators.state.due_entries import DueEntries, Entry, Slot, in_key_order, slot_of
from operators.state.keyed_tables import KeyedTable
from operators.state.slots import Slots

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
        late = list(compress(places, map(lt, times, self._floors_ns(keys, places))))
        if late:
            for index in late:
                self._late(records[index])
            on_time = set(places).difference(late)
            times = [time_ns for index, time_ns in zip(places, times, strict=True) if index in on_time]
            places = sorted(on_time)
        if len(places) < len(records):
            records, keys = [records[index] for index in places], [keys[index] for index in places]
        positions = map(self._arrival.first.__add__, places)
        self._waiting.add(keys, list(zip(times, repeat(self._arrival.channel), positions)), records)

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
        """Join and remove the records that are older than the watermark, sorted by time, then in key order."""
        self._reached.advance(mark_ns)
        revisions = sorted(self._versions.take(mark_ns), key=slot_of)
        entries = in_key_order(self._waiting.take(last_over(mark_ns)))
        self._rows.touch(dict.fromkeys(entry[2] for entry in revisions))
        valid, remaining = list[Any](), iter(revisions)
        version = next(remaining, None)
        row_of = self._rows.values.get
        for time_ns, _, key, _, _ in entries:
            while version is not None and version[0] <= time_ns:
                self._replace(version)
                version = next(remaining, None)
            row = row_of(key)
            valid.append(None if row is None else row[3])
        out: list[Any] = []
        self._pair(entries, valid, out)
        while version is not None:
            self._replace(version)
            version = next(remaining, None)
        self._forget(mark_ns)
        return out

    def _replace(self, version: Entry) -> None:
        """Make a version the valid row of its key, unless the valid row is later."""
        _, _, key, (from_ns, *order), row = version
        rows = self._rows.values
        known = rows.get(key)
        if known is not None and order < known[:3]:
            return
        rows[key] = [*order, row]
        if row is None:
            slot = (min(from_ns + KEEPS_DELETED_NS, END_NS), *order)
            if (key, slot) not in self._deleted.values:
                self._deleted.add({(key, slot): 0})

    def _pair(self, entries: Sequence[Entry], valid: Sequence[Any], out: list[Any]) -> None:
        """Append the records for the entries, each with its valid row; entries without a row may have no record."""
        if not entries:
            return
        _, _, keys, _, records = zip(*entries, strict=True)
        if None in valid and not self._alone:
            joined = [row is not None for row in valid]
            keys, records, valid = (tuple(compress(each, joined)) for each in (keys, records, valid))
        self._pairing.add_all(out, keys, records, valid)

    def _forget(self, mark_ns: int) -> None:
        """Remove the rows that were deleted long before the watermark."""
        rows = self._rows.values
        for (key, (_, *order)), _ in self._deleted.take(mark_ns):
            known = rows.get(key)
            if known is not None and known[3] is None and known[:3] == order:
                self._rows.touch((key,))
                del rows[key]

    # Snapshots.

    def tables(self) -> list[KeyedTable]:
        return [self._rows, self._waiting, self._versions, self._deleted.table]


def _first_of(slot: Slot) -> int:
    return slot[0]
