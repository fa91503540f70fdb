"""`window_table`, whose rows by (key, start, end) are revised by every record that is not too late.

Stream time is the watermark if the stream has watermarks. Otherwise it is the largest time of this task's records so
far, updated record by record, so that it does not depend on batches.  A record is too late for a window that has ended
by stream time if the record is older than stream time by more than the grace. A window is removed when every record
that could still belong to it is too late.  The watermark that is passed on is stream time minus the grace, because no
later record revises anything older.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any

from causal.errors import CausalError, invariant
from operators.graph import Node, time_of_inputs, watermarked
from operators.kinds.tables.attempts import value_or_none
from operators.kinds.tables.revisions import Revision
from operators.kinds.tables.sameness import same
from operators.kinds.tables.table_aggregates import ABSENT, AggregateRow
from operators.kinds.tables.unsettled import RowStage
from operators.kinds.windows.aggregates import Aggregate, keeps_records
from operators.kinds.windows.assigners import Session, Sliding, Tumbling
from operators.records.keys import canonical_key
from operators.records.ownership import copy_containers
from operators.records.seconds import seconds_of
from operators.stage.event_times import times_of
from operators.stage.scope import Scope
from operators.stage.stages import SelectingStage, without
from operators.stage.watermark_merge import END_NS, IDLE_NS, over_until
from operators.state.keyed_tables import KeyedTable
from operators.state.slots import Slots


class WindowTableStage(SelectingStage, RowStage):
    """One task of `window_table`."""

    def __init__(self, node: Node, scope: Scope) -> None:
        super().__init__(node.name, scope)
        time_of = time_of_inputs(node)
        invariant(time_of is not None, "a windowed table is checked before it is built", operator=node.name)
        self._time_of: Callable[[Any], Any] = time_of  # type: ignore[assignment]
        self.makes_marks = not all(watermarked(edge.source) for edge in node.edges)
        self._assigner: Tumbling | Sliding = node.options["assigner"]  # of sessions, a subclass knows the bounds
        self._aggregate: Aggregate[Any, Any] = node.subject
        self._row = AggregateRow(self._aggregate, scope.failures.set_aside, self.own_row)
        self._grace_ns: int = node.options["grace_ns"]
        self._tags = scope.tags
        self._stream_ns: int | None = None
        self._forgotten_ns: int | None = None
        """The time up to which ended windows have been removed, even if the grace has changed since."""
        self._begin_settled(node, scope, itemgetter(0))
        sessions = isinstance(node.options["assigner"], Session)
        self._slots = Slots(
            f"{node.name}:panes", node.name, scope.config.key_groups, lambda slot: self._bounds(slot)[1], sessions
        )
        self._ready: list[tuple[Any, int | None]] = []
        self._kept: list[int] = []

    # Records.

    def run(self, records: list[Any], keys: list[Any] | None) -> list[Revision]:
        keys = keys or []
        invariant(len(keys) == len(records), "a table has a key for each record", operator=self.name)
        times, lost = times_of(
            self._time_of, records, lambda index, problem: self.failed(index, records[index], problem, keys[index])
        )
        places: Sequence[int] = without(range(len(records)), lost) if lost else range(len(records))
        panes = self._panes(times)
        self._slots.touch([(keys[at], start) for at, starts in zip(places, panes, strict=True) for start in starts])
        self._kept = []
        out: list[Revision] = []
        for index, time_ns, starts in zip(places, times, panes, strict=True):
            self._one(index, keys[index], records[index], time_ns, starts, out)
        if not self.makes_marks:
            return out
        self._forget()
        self._ready.append((out, None if self._stream_ns is None else self._stream_ns - self._grace_ns))
        return []

    def _one(self, index: int, key: Any, record: Any, time_ns: int, starts: Sequence[int], out: list[Revision]) -> None:
        """Add a record to the windows for which it is not too late."""
        if self.makes_marks and (self._stream_ns is None or time_ns > self._stream_ns):
            self._stream_ns = time_ns
        stream_ns, end_of = self._stream_ns, self._assigner.end_ns
        if stream_ns is not None and (over_ns := self._over_ns(time_ns, stream_ns)) is not None:
            starts = [start for start in starts if end_of(start) > over_ns]
            if not starts:
                self._count_late(record)
                return
        shared = len(starts) > 1 and keeps_records(self._aggregate)
        try:
            changes = [self._changed((key, start), copy_containers(record) if shared else record) for start in starts]
        except CausalError:
            raise
        except Exception as problem:
            self.failed(index, record, problem, key)  # the record was added to none of its windows
            return
        for start, (accumulator, old, new) in zip(starts, changes, strict=True):
            fresh = (key, start) not in self._slots.values
            self._slots.values[key, start] = accumulator
            if fresh:
                self._slots.added(((key, start),))
            if self.unsettled.values:
                old = self._sent(self._key_of((key, start)), old)
            if not same(old, new):
                self._kept.append(index)
                out.append(self._revision(self._key_of((key, start)), old, new))

    def _panes(self, times: Sequence[int]) -> Sequence[Sequence[Any]]:
        """Return the slots to which records at these times belong."""
        return self._assigner.panes(times)

    def _bounds(self, slot: Any) -> tuple[int, int]:
        """Return the start and end of the window in a slot."""
        return slot, self._assigner.end_ns(slot)

    def _count_late(self, record: Any) -> None:
        self.count("late", 1)
        if "late" in self._tags:
            self.aside.setdefault("late", []).append(record)

    def _key_of(self, pair: tuple[Any, Any]) -> Any:
        """Return the key of a window's row."""
        key, slot = pair
        start_ns, end_ns = self._bounds(slot)
        return canonical_key((key, seconds_of(start_ns), seconds_of(end_ns)))

    def _over_ns(self, time_ns: int, stream_ns: int) -> int | None:
        """Return the time up to which windows are closed for a record with this time; None if all are still open."""
        open_ns = stream_ns - self._grace_ns
        if time_ns < open_ns:
            return stream_ns
        forgotten_ns = self._forgotten_ns
        return forgotten_ns if forgotten_ns is not None and forgotten_ns > open_ns else None

    def _changed(self, pair: tuple[Any, int], record: Any) -> tuple[Any, Any, Any]:
        """Return (accumulator, old, new) of a window's row with one record added, without changing state."""
        accumulator = self._slots.values.get(pair, ABSENT)
        old = self._row.sent(accumulator)
        accumulator = self._row.added(accumulator, record)
        return accumulator, old, self._row(pair, accumulator)

    def _forget(self) -> None:
        if self._stream_ns is not None:
            until_ns = self._stream_ns - self._grace_ns
            taken = self._slots.take(until_ns)
            if self._forgotten_ns is None or until_ns > self._forgotten_ns:
                self._forgotten_ns = until_ns
            if self.unsettled.values:
                self._forget_sent([self._key_of(pair) for pair, _ in taken])

    # Event time.

    def pieces(self) -> list[tuple[Any, int | None]]:
        ready, self._ready = self._ready, []
        return ready

    def advance(self, mark_ns: int) -> list[Any]:
        if mark_ns == END_NS:
            self._slots.take(over_until(END_NS))
        else:
            self._stream_ns = mark_ns if self._stream_ns is None else max(self._stream_ns, mark_ns)
            self._forget()
        return []

    def passes(self, mark_ns: int) -> int | None:
        if mark_ns in (END_NS, IDLE_NS):
            return mark_ns
        return None if self._stream_ns is None else self._stream_ns - self._grace_ns

    # Snapshots.

    def tables(self) -> list[KeyedTable]:
        return [self._slots.table, self.unsettled]

    def rows(self) -> Iterable[tuple[Any, Any]]:
        return ((self._key_of(pair), value_or_none(self._row.sent, kept)) for pair, kept in self._slots.values.items())

    def header(self) -> dict[str, Any]:
        return {"stream_ns": self._stream_ns, "forgotten_ns": self._forgotten_ns}

    def load_header(self, header: dict[str, Any], full: bool) -> None:
        super().load_header(header, full)
        self._stream_ns = header.get("stream_ns")
        self._forgotten_ns = header.get("forgotten_ns")

    def merge_headers(self, headers: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Adopt the latest stream time: no task may reopen a window that another task has removed."""
        return {name: _latest(headers, name) for name in ("stream_ns", "forgotten_ns")}


def _latest(headers: Sequence[dict[str, Any]], name: str) -> int | None:
    times_ns = [header[name] for header in headers if header.get(name) is not None]
    return max(times_ns, default=None)
