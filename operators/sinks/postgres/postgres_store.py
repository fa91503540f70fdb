"""The store of one sink task, in a PostgreSQL database; see `postgres_sink` for its promises."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import psycopg

from causal.errors import CausalError, CorruptData, fenced
from causal.ports import Bundle
from causal.records.values import decode, encode
from operators.sinks.contract.account import Account, Part, check_newest, foreign_rows, mark_parts, take_part
from operators.sinks.contract.account_store import Before, ConnectedStore, WithdrawingConnectedStore, check_lines
from operators.sinks.contract.upserts import undo_floor, undo_limit, undo_obstacle
from operators.sinks.postgres.postgres_connection import BoundedConnection, connected
from operators.sinks.postgres.postgres_errors import blames_a_row, translated
from operators.sinks.postgres.postgres_refused import refused_rows
from operators.sinks.postgres.postgres_sql import MINE, TASK, Statements
from operators.sinks.postgres.postgres_table import check_one_table, emptied, kinds_of, make_tables
from operators.sinks.postgres.postgres_upserts import UpsertStatements

RETURN_MS = 600_000
"""The longest time for which a return to a savepoint may delete rows."""
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended(%(sink)s, 0))"


@dataclass(frozen=True, slots=True)
class Target:
    """The server, table and options of a sink."""

    dsn: str
    place: str
    schema: str
    table: str
    columns: tuple[str, ...]
    place_columns: tuple[str, ...]
    existing: str
    durability: str
    timeout_ms: int
    upsert: bool
    undo_rows: int

    def statements(self, schema: str) -> Statements:
        """Return the statements for a server where unqualified names refer to the given schema."""
        kind = UpsertStatements if self.upsert else Statements
        return kind(self.schema or schema, self.table, self.columns, self.place_columns)


class PostgresStore(ConnectedStore[BoundedConnection]):
    """A store without `withdraw`, for a table without columns for positions. Only one thread may use it at a time."""

    _errors = psycopg.Error
    _losses = "it was restored from a copy, or a standby that lagged took over"

    def __init__(self, target: Target, task: str) -> None:
        super().__init__(task, target.place)
        self._target = target
        self._statements = target.statements("public")
        self._sequence = 0

    @contextmanager
    def _connected(self, bundle: Bundle | None) -> Iterator[BoundedConnection]:
        db = self._connection
        if db is None or db.closed or db.broken:
            db = self._connect()
        db.deadline_s = time.monotonic() + self._target.timeout_ms / 1000
        try:
            yield db
        except psycopg.Error as problem:
            if bundle is None or db.broken or not blames_a_row(problem):
                raise
            parameters = {**self._key, **_row_columns(bundle), "first": bundle.first}
            raise refused_rows(
                db, self._statements, parameters, bundle, self._target.place, self._target.timeout_ms
            ) from problem

    def _connect(self) -> BoundedConnection:
        self._drop()
        target = self._target
        session = connected(target.dsn, target.timeout_ms, target.durability, target.place)
        self._statements = statements = target.statements(session.schema)
        self._connection = db = session.db
        if target.columns:
            self._statements = replace(statements, kinds=kinds_of(db, statements))
        return db

    def _translated(self, problem: psycopg.Error) -> CausalError:
        return translated(problem, self._place)

    # -- the account ---------------------------------------------------------------------------------

    @property
    def _key(self) -> dict[str, str]:
        return {"sink": self._statements.name, "task": self._task}

    def _claimed(self, db: BoundedConnection) -> Account:
        with db.transaction():
            return self._claim(db)

    def _claim(self, db: BoundedConnection) -> Account:
        target, statements = self._target, self._statements
        db.execute(_LOCK, self._key)
        make_tables(db, statements, target.place)
        newest, foreign = db.execute(statements.others, {**self._key, "run": self._run}).fetchone()
        check_newest(f"{target.place}: table {statements.name}", self._run, newest)
        if foreign and target.existing == "refuse":
            raise foreign_rows(f"{target.place}: table {statements.name}", "PostgresSink")
        emptied(db, statements, self._run, rows=target.existing == "replace")
        check_one_table(db, statements, self._task, target.place)
        stored = _stored(db, statements, self._key, target.place)
        if stored is None:
            account, self._sequence = Account(self._task, self._run, self._incarnation), 0
            db.execute(
                f"""INSERT INTO {statements.ours(TASK)} VALUES(%(sink)s, %(task)s, %(run)s, %(incarnation)s, 0,
                %(digest)s, %(last)s, 0, false, 0, 0, %(epochs)s)""",
                _account_columns(account, self._key, 0, b""),
            )
            return account
        account, self._sequence = stored
        if account.incarnation > self._incarnation:
            raise fenced(self._task, self._incarnation)
        account.incarnation = self._incarnation
        db.execute(
            f"UPDATE {statements.ours(TASK)} SET incarnation = %(incarnation)s WHERE {MINE}",
            {**self._key, "incarnation": self._incarnation},
        )
        return account

    def _loaded(self, db: BoundedConnection) -> Account | None:
        with db.transaction():  # the query locks the account until the transaction ends
            stored = _stored(db, self._statements, self._key, self._place)
        if stored is None:
            return None
        account, self._sequence = stored
        return account

    def _owner(self, db: BoundedConnection) -> tuple[str, int] | None:
        owner: tuple[str, int] | None = db.execute(
            f"SELECT run, incarnation FROM {self._statements.ours(TASK)} WHERE {MINE}", self._key
        ).fetchone()
        return owner

    def _check_newest(self, db: BoundedConnection) -> None:
        newest, _ = db.execute(self._statements.others, {**self._key, "run": self._run}).fetchone()
        check_newest(f"{self._place}: table {self._statements.name}", self._run, newest)

    def _advance(
        self, db: BoundedConnection, account: Account, before: Before, parts: Sequence[Part], bundle: Bundle
    ) -> bool:
        check_lines(bundle, self._task)
        parameters = _account_columns(account, self._key, *before)
        if bundle.count:
            parameters |= _row_columns(bundle)
        return self._change(db, self._statements.bundle(bool(bundle.count), bool(bundle.refused)), parameters, parts)

    def _shorten(self, db: BoundedConnection, account: Account, epoch: int) -> bool:
        owner = {**self._key, "run": self._run, "incarnation": self._incarnation, "kept_from": epoch}
        if self._target.upsert:
            marks_from = account.marks[0].next if account.marks else None
            owner["floor"] = undo_floor(account.next, marks_from, self._target.undo_rows)
        return self._change(db, self._statements.truncated, owner, mark_parts(account, 0))

    def _change(self, db: BoundedConnection, statement: str, parameters: dict[str, Any], parts: Sequence[Part]) -> bool:
        """Execute a statement that changes the stored account, and return whether it changed anything."""
        changed: int = db.execute(statement, parameters | _held_columns(parts, self._sequence)).fetchone()[0]
        if changed == 1:
            self._sequence += len(parts)
        return changed == 1


class WithdrawingPostgresStore(WithdrawingConnectedStore[BoundedConnection], PostgresStore):
    """A store for a table that has columns for task and position, so that its rows can be withdrawn."""

    def _take_back(self, db: BoundedConnection, account: Account, before: Before, parts: Sequence[Part]) -> bool:
        parameters, statements = _account_columns(account, self._key, *before), self._statements
        if not isinstance(statements, UpsertStatements):
            return self._change(db, statements.replaced, parameters, parts)
        with db.transaction():
            changed = self._change(db, statements.replaced, parameters, parts)
            if changed:
                statements.take_back(db, self._key, account.next)
        return changed

    def limit(self, rows: int) -> str:
        """See `causal.ports.ReturningStore.limit`."""
        return undo_limit(self._target.undo_rows, rows) if self._target.upsert else ""

    def _obstacle(self, db: BoundedConnection, account: Account, next_: int) -> str:
        statements = self._statements
        if not isinstance(statements, UpsertStatements):
            return ""
        (oldest,) = db.execute(statements.oldest_undo, self._key).fetchone()
        return undo_obstacle(oldest, account.next, next_)

    def _returned(self, db: BoundedConnection, account: Account, next_: int, digest: int) -> None:
        # The rows of hours may have to be deleted.
        db.deadline_s = time.monotonic() + RETURN_MS / 1000
        with db.transaction():
            db.execute("SELECT set_config('statement_timeout', %(ms)s, true)", {"ms": str(RETURN_MS)})
            super()._returned(db, account, next_, digest)

    def _refused_below(self, db: BoundedConnection, next_: int) -> int:
        counted = db.execute(self._statements.refused_below, {**self._key, "next": next_}).fetchone()
        return int(counted[0])


def _stored(
    db: BoundedConnection, statements: Statements, key: Mapping[str, str], place: str
) -> tuple[Account, int] | None:
    """Return a sink task's account and the next free sequence number, or None if there is no account.

    The caller must have begun a transaction.

    Raises:
        CorruptData: the account cannot be read.
    """
    row = db.execute(statements.loaded, key).fetchone()
    if row is None:
        return None
    run, incarnation, next_, digest, last, kept_from, ended, withdrawn, refused, epochs = row
    account = Account(key["task"], run, incarnation, next_, int.from_bytes(digest, "big"), last, kept_from, ended)
    account.withdrawn, account.refused = withdrawn, refused
    sequence = 0
    try:
        account.epochs = dict(decode(epochs))
        for sequence, kind, epoch, body in db.execute(statements.held_parts, key):  # noqa: B007
            take_part(account, kind, epoch, body)
    except (CausalError, TypeError, ValueError) as problem:
        where = f"{statements.schema}.causal_task and causal_held"
        raise CorruptData(f"{place}: {where} of {statements.name}, task {account.task}: {problem}") from None
    return account, sequence + 1


def _account_columns(account: Account, key: Mapping[str, str], first: int, before: bytes) -> dict[str, Any]:
    """Return the parameters that store this account if the stored one is at `first` with last bundle `before`."""
    return {
        **key,
        "run": account.run,
        "incarnation": account.incarnation,
        "first": first,
        "before": before,
        "next": account.next,
        "digest": account.digest.to_bytes(8, "big"),
        "last": account.last,
        "ended": account.ended,
        "refused": account.refused,
        "withdrawn": account.withdrawn,
        "epochs": encode(account.epochs),
    }


def _held_columns(parts: Sequence[Part], sequence: int) -> dict[str, Any]:
    """Return the parameters for the parts, as one list per column."""
    return {
        "sequences": list(range(sequence, sequence + len(parts))),
        "kinds": [kind for kind, _, _ in parts],
        "held_epochs": [epoch for _, epoch, _ in parts],
        "bodies": [body for _, _, body in parts],
    }


def _row_columns(bundle: Bundle) -> dict[str, Any]:
    """Return the parameters for a bundle's rows: one text, and the positions to leave out with the reasons."""
    return {
        "rows": bundle.rows[:-1].decode(),
        "epoch": bundle.epoch,
        "out": [position for position, _ in bundle.refused],
        "reasons": [reason for _, reason in bundle.refused],
    }
