"""The outside world of one sink task, in a PostgreSQL database: see `postgres_sink` for what it promises.

What was asked and not answered may still happen on the server.  Each statement that writes names the account that it
follows, so it happens once or not at all, and after any error the account is read again, behind whatever is under way.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import psycopg

from causal.errors import CausalError, DeterminantsLost, Fenced, Unavailable, invariant
from causal.ports import Bundle, StoreState, WithdrawPoint
from operators.sinks.contract.account import Account, check_newest, fenced, foreign_rows, log_parts, mark_parts
from operators.sinks.postgres.postgres_account import advance, held_columns, loaded, row_columns
from operators.sinks.postgres.postgres_connection import BoundedConnection, connected
from operators.sinks.postgres.postgres_errors import blames_a_row, translated
from operators.sinks.postgres.postgres_refused import refused_rows
from operators.sinks.postgres.postgres_sql import MINE, TASK, Statements
from operators.sinks.postgres.postgres_table import emptied, kinds_of, make_tables

_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended(%(sink)s, 0))"


@dataclass(frozen=True, slots=True)
class Target:
    """The address and options of a sink."""

    dsn: str
    place: str
    schema: str
    table: str
    columns: tuple[str, ...]
    place_columns: tuple[str, ...]
    existing: str
    durability: str
    timeout_ms: int

    def statements(self, schema: str) -> Statements:
        """The statements for a server on which unqualified names are of that schema."""
        return Statements(self.schema or schema, self.table, self.columns, self.place_columns)


class PostgresStore:
    """A store without `withdraw`, for a table whose rows do not have their positions.  One thread at a time."""

    def __init__(self, target: Target, task: str) -> None:
        self._target = target
        self._task = task
        self._run = ""
        self._incarnation = -1
        self._connection: BoundedConnection | None = None
        self._statements = target.statements("public")
        self._account: Account | None = None
        self._acknowledged = 0
        self._sequence = 0

    def open(self, task: str, run: str, incarnation: int) -> StoreState:
        """See `causal.ports.SinkStore.open`; raises `PipelineError` also for a table that is not fit."""
        invariant(task == self._task, "a store is opened by the task it was made for", made_for=self._task, task=task)
        self.close()
        self._run, self._incarnation, self._acknowledged = run, incarnation, 0
        try:
            with self._asking() as db, db.transaction():
                account = self._claimed(db)
            self._account, self._acknowledged = account, account.next
            return account.store_state()
        except BaseException:
            self.close()
            raise

    def _claimed(self, db: BoundedConnection) -> Account:
        """Fence every lower incarnation of this task, in one transaction with the look at what is held."""
        target, statements = self._target, self._statements
        db.execute(_LOCK, self._key)
        make_tables(db, statements, target.place)
        newest, foreign = db.execute(statements.others, {**self._key, "run": self._run}).fetchone()
        check_newest(f"{target.place}: table {statements.name}", self._run, newest)
        if foreign and target.existing == "refuse":
            raise foreign_rows(f"{target.place}: table {statements.name}", "PostgresSink")
        emptied(db, statements, self._run, rows=target.existing == "replace")
        stored = loaded(db, statements, self._key, target.place)
        if stored is None:
            account, self._sequence = Account(self._task, self._run, self._incarnation), 0
            db.execute(
                f"""INSERT INTO {statements.ours(TASK)} VALUES(%(sink)s, %(task)s, %(run)s, %(incarnation)s, 0,
                %(digest)s, %(last)s, 0, false, 0, 0, %(epochs)s)""",
                advance(account, self._key, 0, b""),
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

    def last_bundle(self) -> StoreState:
        """See `causal.ports.SinkStore.last_bundle`."""
        with self._asking() as db:
            self._account = None
            return self._current(db).store_state()

    def write(self, bundle: Bundle) -> None:
        """See `causal.ports.SinkStore.write`."""
        invariant(bundle.incarnation == self._incarnation, "a bundle is its writer's own", task=self._task)
        lines = bundle.rows.count(b"\n")
        invariant(lines == bundle.count, "one line per row", task=self._task, first=bundle.first, lines=lines)
        with self._asking(bundle) as db:
            account = self._current(db)
            first, before, marks = account.next, account.last, len(account.marks)
            fresh = account.take(bundle)
            if fresh is None:
                self._check_owner(db)
                return
            parts = [*log_parts(fresh), *mark_parts(account, marks)]
            parameters = advance(account, self._key, first, before) | held_columns(parts, self._sequence)
            if bundle.count:
                parameters |= row_columns(bundle)
            statement = self._statements.bundle(bool(bundle.count), bool(bundle.refused))
            self._said(db, statement, parameters)
            self._sequence += len(parts)
            self._acknowledged = account.next

    def truncate(self, epoch: int) -> None:
        """See `causal.ports.SinkStore.truncate`."""
        if self._account is not None and epoch <= self._account.kept_from:
            return
        with self._asking() as db:
            account = self._current(db)
            if not account.truncate(epoch):
                self._check_owner(db)
                return
            parts = mark_parts(account, 0)
            owner = {**self._key, "run": self._run, "incarnation": self._incarnation, "kept_from": epoch}
            self._said(db, self._statements.truncated, owner | held_columns(parts, self._sequence))
            self._sequence += len(parts)

    def close(self) -> None:
        """Close the connection; what was written stays."""
        db, self._connection, self._account = self._connection, None, None
        if db is not None:
            db.close()

    # -- the connection ------------------------------------------------------------------------------

    @contextmanager
    def _asking(self, bundle: Bundle | None = None) -> Iterator[BoundedConnection]:
        """A connection for one call, a new one if need be; after any error the account is read again."""
        if self._run == "":
            raise Unavailable(f"the store of sink task {self._task} is not open; open it first")
        try:
            db = self._connected()
            db.deadline_s = time.monotonic() + self._target.timeout_ms / 1000
            try:
                yield db
            except psycopg.Error as problem:
                if bundle is None or db.broken or not blames_a_row(problem):
                    raise
                parameters = {**self._key, **row_columns(bundle), "first": bundle.first}
                raise refused_rows(
                    db, self._statements, parameters, bundle, self._target.place, self._target.timeout_ms
                ) from problem
        except psycopg.Error as problem:
            self._drop()
            raise translated(problem, self._target.place) from problem
        except CausalError:
            self._account = None
            raise
        except BaseException:
            self._drop()
            raise

    def _connected(self) -> BoundedConnection:
        db = self._connection
        if db is None or db.closed or db.broken:
            self._drop()
            target = self._target
            session = connected(target.dsn, target.timeout_ms, target.durability, target.place)
            self._statements = statements = target.statements(session.schema)
            self._connection = db = session.db
            if target.columns:
                self._statements = replace(statements, kinds=kinds_of(db, statements))
        return db

    def _drop(self) -> None:
        """Close a connection on which a call failed: what it has still under way is unknown."""
        db, self._connection, self._account = self._connection, None, None
        if db is not None:
            db.close()

    # -- the account ---------------------------------------------------------------------------------

    @property
    def _key(self) -> dict[str, str]:
        return {"sink": self._statements.name, "task": self._task}

    def _current(self, db: BoundedConnection) -> Account:
        """The account in memory, or read again after a failure; never one of a younger incarnation."""
        if self._account is None:
            with db.transaction():
                self._account = self._locked(db)
        return self._account

    def _locked(self, db: BoundedConnection) -> Account:
        """The stored account, which does not change until the transaction ends."""
        stored = loaded(db, self._statements, self._key, self._target.place)
        if stored is None:
            raise self._not_owner(db)
        account, self._sequence = stored
        account.fence(self._run, self._incarnation)
        if account.next < self._acknowledged:
            raise DeterminantsLost(
                f"{self._target.place}: rows of {self._task} up to {self._acknowledged} were acknowledged, and it has "
                f"rows up to {account.next}: it was restored from a copy, or a standby took over that was behind; "
                "bring them back, or resume (--resume): they come again, perhaps in another order"
            )
        self._account = account
        return account

    def _check_owner(self, db: BoundedConnection) -> None:
        owner = db.execute(
            f"SELECT run, incarnation FROM {self._statements.ours(TASK)} WHERE {MINE}",
            self._key,
        ).fetchone()
        if owner != (self._run, self._incarnation):
            raise self._not_owner(db)

    def _not_owner(self, db: BoundedConnection) -> Fenced:
        """The error of a process that another one has replaced; raises `Superseded` if that one is of a newer run."""
        newest, _ = db.execute(self._statements.others, {**self._key, "run": self._run}).fetchone()
        check_newest(f"{self._target.place}: table {self._statements.name}", self._run, newest)
        return fenced(self._task, self._incarnation)

    def _said(self, db: BoundedConnection, statement: str, parameters: dict[str, Any]) -> None:
        """Perform a statement that changes the stored account, if that is the one that is known."""
        if db.execute(statement, parameters).fetchone()[0] == 1:
            return
        self._account = None
        self._current(db)
        raise Unavailable(f"{self._target.place}: an earlier try of the same was still under way; retry")


class WithdrawingPostgresStore(PostgresStore):
    """A store for a table whose rows have task and position, so that they can be taken back."""

    def withdraw(self, mark: WithdrawPoint) -> StoreState:
        """See `causal.ports.WithdrawingStore.withdraw`."""
        with self._asking() as db:
            account = self._current(db)
            first, before = account.next, account.last
            account.withdraw(mark)
            parts = [*log_parts(account.store_state().logs), *mark_parts(account, 0)]
            parameters = advance(account, self._key, first, before) | held_columns(parts, self._sequence)
            self._said(db, self._statements.replaced, parameters)
            self._sequence += len(parts)
            self._acknowledged = account.next
            return account.store_state()
