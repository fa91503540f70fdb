"""The records of a stream of changes: each row change once, in the order of commits, whatever is sent again.

A `Position` states how much of the stream is stored. It is published in one step with the records, so a stream that
begins anywhere before it, as after any failure, continues exactly after it: whole transactions are passed over by the
place of their commit, and the beginning of a large transaction, whose records do not fit into one batch, by the number
of its changes.

A record is a dict:

    operation      "snapshot", "insert", "update", "delete" or "truncate"
    table          "schema.name"
    before         dict of the row before the change, or only of its key columns; None if the server does not send it
    after          dict of the row after the change; None for a delete or truncate
    unchanged      only if there are any: the names of columns that `after` lacks, because the update did not change
                   them and the server does not send their large values (TOAST)
    transaction    the id of the transaction; None in a snapshot
    number         the number of the change in its transaction, from 0; changes of other tables count, too
    lsn            the place of the commit in the write-ahead log; in a snapshot, the place from which changes follow
    committed_at   the time of the commit, or of the snapshot, in seconds since 1970
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from causal.errors import CorruptData, PipelineError
from causal.records.values import NotCarried, encode
from operators.sources.postgres.column_values import Convert, conversion_of
from operators.sources.postgres.pgoutput import (
    EPOCH_US,
    UNCHANGED,
    Begin,
    Change,
    Column,
    Commit,
    Data,
    Malformed,
    Relation,
    Truncate,
    Unchanged,
    Values,
    parsed,
)

US_PER_S = 1_000_000
RAW_CHARACTERS_MAX = 1 << 10
"""The characters of a row that no record can hold which a dead letter shows."""
TABLES_MAX = 100_000
"""The most tables of which a stream keeps the columns."""


@dataclass(frozen=True, slots=True)
class Position:
    """The place up to which a stream is stored.

    Attributes:
        lsn: all transactions whose commits lie before it are stored.
        commit_lsn: the commit of a later transaction of which a part is stored; 0 for none.
        changes: the number of its changes in that part.
    """

    lsn: int
    commit_lsn: int = 0
    changes: int = 0


@dataclass(frozen=True, slots=True)
class Note:
    """The note of each batch: the server and the slot that it is from, and the position that it reaches."""

    system: str
    slot: str
    position: Position

    def text(self) -> str:
        """Return the note as JSON."""
        position = self.position
        return json.dumps([self.system, self.slot, position.lsn, position.commit_lsn, position.changes])


def note_of(text: str) -> Note | None:
    """Return the note with this text; None if nothing has been published."""
    if not text:
        return None
    try:
        system, slot, lsn, commit_lsn, changes = json.loads(text)
        return Note(str(system), str(slot), Position(int(lsn), int(commit_lsn), int(changes)))
    except (TypeError, ValueError) as problem:
        raise CorruptData(f"the ingest log has a note {text[:100]!r} of another program ({problem})") from None


class Table:
    """The conversion of the rows of one table."""

    def __init__(self, schema: str, name: str, columns: Sequence[Column]) -> None:
        self.name = f"{schema}.{name}"
        self._columns: list[tuple[str, Convert | None]] = [
            (column.name, conversion_of(column.type_oid)) for column in columns
        ]
        self._keys = [index for index, column in enumerate(columns) if column.in_key]

    def row(self, values: Sequence[str | None | Unchanged]) -> dict[str, Any]:
        """Return a row without its unchanged columns."""
        self._check(values)
        return {
            name: value if value is None or convert is None else convert(value)  # type: ignore[arg-type]
            for (name, convert), value in zip(self._columns, values, strict=True)
            if value is not UNCHANGED
        }

    def key(self, values: Values) -> dict[str, Any]:
        """Return the key columns of a row; the server sends NULL for all others."""
        self._check(values)
        row = self.row(values)
        return {name: row[name] for name, _ in (self._columns[index] for index in self._keys) if name in row}

    def unchanged(self, values: Values) -> list[str]:
        """Return the names of the columns whose values are not sent."""
        return [name for (name, _), value in zip(self._columns, values, strict=True) if value is UNCHANGED]

    def _check(self, values: Sequence[object]) -> None:
        if len(values) != len(self._columns):
            raise Malformed(f"a row of {self.name} has {len(values)} values for {len(self._columns)} columns")


def encoded(record: dict[str, Any], row_bytes_max: int) -> bytes:
    """Return a record as it is stored or, if no record may hold it, what `ChangesReader` returns as a bad row."""
    where = f"{record['table']}, {record['operation']} {record['number']} of transaction {record['transaction']}"
    try:
        data = encode(record)
    except NotCarried as problem:
        return encode([where, str(problem), str(record)[:RAW_CHARACTERS_MAX]])
    if len(data) > row_bytes_max:
        why = f"{len(data):,} bytes, more than row_bytes_max ({row_bytes_max:,})"
        return encode([where, why, str({**record, "before": None, "after": None})])
    return data


class Changes:
    """The records of a stream, from the message after a position.

    Args:
        is_read: whether changes of the table with this OID become records.
        position: the position after the last stored record.
        row_bytes_max: the size of a record above which it becomes a bad row.
    Attributes:
        position: the position to publish with the records of `take`.
        bytes: the size of the records that `take` would return.
    """

    def __init__(self, is_read: Callable[[int], bool], position: Position, row_bytes_max: int) -> None:
        self.position = position
        self.bytes = 0
        self._is_read = is_read
        self._row_bytes_max = row_bytes_max
        self._tables: dict[int, Table] = {}
        self._entries: list[bytes] = []
        self._begun: Begin | None = None
        self._passed_over = 0
        """The number of changes of the current transaction that are stored already."""
        self._number = 0
        """The number of the next change in its transaction."""

    @property
    def between_transactions(self) -> bool:
        """Whether the last transaction is complete."""
        return self._begun is None

    def take(self) -> list[bytes]:
        """Return the encoded records since the last call; publish them with `position`."""
        entries, self._entries, self.bytes = self._entries, [], 0
        return entries

    def reached(self, lsn: int) -> None:
        """Advance to `lsn`, before which the server has sent everything."""
        if self._begun is None and not self.position.commit_lsn and lsn > self.position.lsn:
            self.position = Position(lsn)

    def add(self, data: Data) -> None:
        """Take the next message.

        Raises:
            Malformed: it is not a message of the protocol, or not in its order.
            PipelineError: the server has passed over the rest of a transaction of which a part is stored.
        """
        message = parsed(data.payload)
        if type(message) is Change:
            self._change(message)
        elif type(message) is Begin:
            self._begin(message)
        elif type(message) is Commit:
            self._commit(message)
        elif type(message) is Relation:
            if len(self._tables) >= TABLES_MAX and message.oid not in self._tables:
                raise PipelineError(f"the publication has more than {TABLES_MAX:,} tables; name fewer")
            self._tables[message.oid] = Table(message.schema, message.name, message.columns)
        elif type(message) is Truncate:
            for oid in message.oids:
                self._record(oid, "truncate", None, None, [])

    def _begin(self, begin: Begin) -> None:
        if self._begun is not None:
            raise Malformed("a transaction begins within another one")
        partly = self.position.commit_lsn
        if partly and begin.commit_lsn > partly:
            raise PipelineError(
                "the server no longer has the rest of a transaction of which the job has read a part; begin again "
                "with a new --state-dir"
            )
        self._begun = begin
        self._number = 0
        self._passed_over = self.position.changes if begin.commit_lsn == partly else 0

    def _commit(self, commit: Commit) -> None:
        if self._begun is None or self._begun.commit_lsn != commit.commit_lsn:
            raise Malformed("a commit ends no transaction")
        if self._number < self._passed_over:
            raise PipelineError(
                f"the server sends {self._number:,} changes of a transaction of which the job has read "
                f"{self._passed_over:,}: its publication was changed; begin again with a new --state-dir"
            )
        is_stored = self._begun.commit_lsn < self.position.lsn
        self._begun = None
        if not is_stored:
            self.position = Position(commit.end_lsn)

    def _change(self, change: Change) -> None:
        table = self._table(change.oid)
        before = table.row(change.before) if change.before is not None else None
        if change.key is not None:
            before = table.key(change.key)
        after, unchanged = None, []
        if change.after is not None:
            after = table.row(change.after)
            unchanged = table.unchanged(change.after) if UNCHANGED in change.after else []
            if unchanged and change.before is not None and before is not None:
                # With REPLICA IDENTITY FULL the row before the change has the values of unchanged columns.
                after |= {name: before[name] for name in unchanged if name in before}
                unchanged = [name for name in unchanged if name not in after]
        self._record(change.oid, change.kind, before, after, unchanged)

    def _record(
        self,
        oid: int,
        operation: str,
        before: dict[str, Any] | None,
        after: dict[str, Any] | None,
        unchanged: list[str],
    ) -> None:
        begin, table = self._begun, self._table(oid)
        if begin is None:
            raise Malformed("a change is outside a transaction")
        number, self._number = self._number, self._number + 1
        if begin.commit_lsn < self.position.lsn or number < self._passed_over:
            return
        if self._is_read(oid):
            record: dict[str, Any] = {
                "operation": operation,
                "table": table.name,
                "before": before,
                "after": after,
                "transaction": begin.transaction,
                "number": number,
                "lsn": begin.commit_lsn,
                "committed_at": (begin.committed_us + EPOCH_US) / US_PER_S,
            }
            if unchanged:
                record["unchanged"] = unchanged
            entry = encoded(record, self._row_bytes_max)
            self._entries.append(entry)
            self.bytes += len(entry)
        self.position = Position(self.position.lsn, begin.commit_lsn, number + 1)

    def _table(self, oid: int) -> Table:
        table = self._tables.get(oid)
        if table is None:
            raise Malformed(f"a change is of table {oid}, whose columns were not sent")
        return table


def snapshot_entries(
    table: Table, rows: Iterable[Sequence[str | None]], first: int, lsn: int, taken_at_s: float, row_bytes_max: int
) -> Iterable[bytes]:
    """Yield the encoded records of rows of a snapshot; `first` is the number of the first of them."""
    for number, row in enumerate(rows, first):
        record = {
            "operation": "snapshot",
            "table": table.name,
            "before": None,
            "after": table.row(row),
            "transaction": None,
            "number": number,
            "lsn": lsn,
            "committed_at": taken_at_s,
        }
        yield encoded(record, row_bytes_max)
