"""`join_table`, which joins each stream record with the table's row for its key when the record is delivered.

With `wait`, a record is held back until its row can no longer change, either because the table's inputs have ended or
because event time has passed the record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from operators.graph import LEFT, RIGHT, Node
from operators.kinds.joins.join_stage import JoinStage
from operators.kinds.joins.sides import keeps_left, time_of_side
from operators.kinds.joins.waiting import Waiting, WaitingStage
from operators.stage.scope import Scope
from operators.stage.watermark_merge import END_NS
from operators.state.keyed_tables import KeyedTable


class RowJoinStage(WaitingStage, JoinStage):
    """One task of a join of a stream (left) with a table (right); the table's rows are in `<name>:rows`."""

    def __init__(self, node: Node, scope: Scope) -> None:
        super().__init__(node, scope)
        self._wait(node, scope)
        self._time_of = time_of_side(node, LEFT)
        self._alone = keeps_left(node.options["how"])
        self._rows = KeyedTable(f"{node.name}:rows", node.name, scope.config.key_groups)

    def join_side(self, side: int, records: list[Any], keys: list[Any]) -> list[Any]:
        if side == RIGHT:
            self._revise(records, keys)
            return []
        if self._waiting is None:
            return self._joined(keys, records, range(len(records)))
        self._ready.append((self._joined(*self._waiting.overdue(), None), None))
        self._ready.append((self._unless_waiting(self._waiting, records, keys), None))
        return []

    def _revise(self, revisions: Sequence[Any], keys: Sequence[Any]) -> None:
        self._rows.touch(keys)
        rows = self._rows.values
        for revision in revisions:
            key, new = revision[0], revision[2]
            if new is None:
                rows.pop(key, None)
            else:
                rows[key] = new

    def _joined(self, keys: Sequence[Any], records: Sequence[Any], places: Sequence[int] | None) -> list[Any]:
        """Join each record with its row; `places` are the records' places in the event, or None if they waited."""
        rows, alone, pairing, out = self._rows.values, self._alone, self._pairing, list[Any]()
        for at, (key, record) in enumerate(zip(keys, records, strict=True)):
            row = rows.get(key)
            if row is not None or alone:
                pairing.add(out, key, record, row, None if places is None else places[at])
        return out

    def _unless_waiting(self, waiting: Waiting, records: list[Any], keys: list[Any]) -> list[Any]:
        """Hold back the records that must wait; join and return the others."""
        times: Sequence[int] = [END_NS] * len(records)
        places: Sequence[int] = range(len(records))
        if self._time_of is not None:
            places, times = self._timed(self._time_of, records, keys)
        later, now = list[tuple[int, int]](), list[int]()
        for place, time_ns in zip(places, times, strict=True):
            if waiting.waits(time_ns):
                later.append((place, time_ns))
            else:
                now.append(place)
        waiting.add(
            [keys[place] for place, _ in later],
            [time_ns for _, time_ns in later],
            [records[place] for place, _ in later],
        )
        self.count("held_back", len(later))
        return self._joined([keys[place] for place in now], [records[place] for place in now], now)

    # Event time, with `wait`.

    def ended(self, input: int) -> None:
        if self._waiting is not None:
            keys, records = self._waiting.ended(input)
            self._ready.append((self._joined(keys, records, None), None))

    def advance(self, mark_ns: int) -> list[Any]:
        if self._waiting is not None:
            keys, records = self._waiting.passed(mark_ns)
            self._ready.append((self._joined(keys, records, None), None))
        return []

    # Snapshots.

    def tables(self) -> list[KeyedTable]:
        return [self._rows] if self._waiting is None else [self._rows, self._waiting.entries]
