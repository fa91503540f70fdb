"""The rows and the account of one sink task in a PostgreSQL database: see `postgres_sink` for what it promises."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import psycopg

from causal.errors import CausalError, RowRefused, Unavailable
from causal.logs.log import LogDelta
from causal.ports import Bundle
from causal.records.values import decode, encode
from operators.sinks.contract.account import Account
from operators.sinks.contract.account_parts import Part, log_parts, mark_parts, take_part, whole_parts
from operators.sinks.databases.database import Before, SqlDatabase, check_lines
from operators.sinks.databases.refused_search import refused_rows
from operators.sinks.postgres.postgres_connection import BoundedConnection, connected, place_of
from operators.sinks.postgres.postgres_errors import blames_a_row, one_line, translated
from operators.sinks.postgres.postgres_sql import MINE, Statements
from operators.sinks.postgres.postgres_table import accounts_are_there, check_table, kinds_of, make_tables

if TYPE_CHECKING:
    from operators.sinks.postgres.postgres_sink import PostgresSink

_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended(%(sink)s, 0))"


class PostgresDatabase(SqlDatabase[BoundedConnection]):
    """The rows of one task in a table, and its account in the tables beside it."""

    failure = psycopg.Error
    lost = "it was restored from a copy, or a standby took over that was behind"
    parameter = "%({})s"
    of_sink = "sink = %(sink)s"
    of_task = MINE
    locking = " FOR UPDATE"

    def __init__(self, sink: PostgresSink, task: str) -> None:
        super().__init__(sink, task, place_of(sink.dsn))
        self.withdraws = bool(sink.place_columns)
        self._dsn = sink.dsn
        self._schema = sink.schema
        self._timeout_ms = sink.timeout_ms
        self._table = (sink.table, sink.columns, sink.place_columns)
        self._name(sink.schema or "public")

    @property
    def output(self) -> str:
        return f"{self.place}: table {self._sql.name}"

    def _name(self, schema: str) -> None:
        """Name the tables: the schema of an unqualified name is known once there is a connection."""
        self._sql = Statements(schema, *self._table)
        self.tasks, self.beside = self._sql.tasks, (self._sql.parts, self._sql.refused)

    def key(self, task: str = "") -> dict[str, Any]:
        return {"sink": self._sql.name} | super().key(task)

    def numbers(self, account: Account) -> dict[str, Any]:
        more = {"withdrawn": account.withdrawn, "refused": account.refused, "epochs": encode(account.epochs)}
        return super().numbers(account) | more

    def execute(self, statement: str, parameters: Mapping[str, Any]) -> Any:
        return self.db.execute(statement, parameters)

    # -- the connection ------------------------------------------------------------------------------

    def connect(self) -> None:
        db = self.connection
        if db is None or db.closed or db.broken:
            self.close()
            self.connection, schema = connected(self._dsn, self._timeout_ms, self.durability, self.place)
            self._name(self._schema or schema)
            if self._sql.columns:
                self._sql.kinds = kinds_of(self.db, self._sql)
        self._begin_waiting()

    def _begin_waiting(self) -> None:
        self.db.deadline_s = time.monotonic() + self._timeout_ms / 1000

    def translated(self, problem: Exception) -> CausalError:
        return translated(problem, self.place)

    # -- the tables ----------------------------------------------------------------------------------

    def check(self) -> None:
        check_table(self.db, self._sql, self.place)

    def accounts(self) -> list[tuple[str, str, int]]:
        return super().accounts() if accounts_are_there(self.db, self._sql) else []

    def claim(self, run: str, incarnation: int) -> Account:
        """See `Database.claim`; claims of one sink wait for each other."""
        with self.db.transaction():
            self.execute(_LOCK, self.key())
            return super().claim(run, incarnation)

    def make_tables(self) -> None:
        make_tables(self.db, self._sql, self.place)

    def remove_rows(self, task: str, first: int) -> None:
        self.execute(self._sql.rows_removed, {"task": task, "next": first})

    # -- the account ---------------------------------------------------------------------------------

    def load(self) -> Account | None:
        with self.db.transaction():
            return super().load()

    def load_rest(self, account: Account) -> None:
        with self.decoding(f"{self._sql.schema}.causal_task and causal_held of {self._sql.name}, task {self.task}"):
            account.withdrawn, account.refused, epochs = self.execute(self._sql.rest, self.key()).fetchone()
            account.epochs = dict(decode(epochs))
            for sequence, kind, epoch, body in self.execute(self._sql.stored_parts, self.key()):
                take_part(account, kind, epoch, body)
                self.sequence = sequence + 1

    def append(self, before: Before, account: Account, fresh: Iterable[LogDelta], bundle: Bundle) -> bool:
        """See `Database.append`; one statement, and so one transaction and one round trip."""
        check_lines(bundle, self.task)
        parts = [*log_parts(fresh), *mark_parts(account, before.marks)]
        parameters = self._advanced(before, account) | self._part_columns(parts)
        if bundle.count:
            parameters |= _rows(bundle, bundle.rows[:-1].decode(), [position for position, _ in bundle.refused])
        try:
            return self._change(self._sql.bundle(bool(bundle.count), bool(bundle.refused)), parameters)
        except psycopg.Error as problem:
            if self.db.broken or not blames_a_row(problem):
                raise
            raise self._refusal(bundle) from problem

    def truncate(self, account: Account) -> bool:
        parameters = self.numbers(account) | self._part_columns(mark_parts(account, 0))
        return self._change(self._sql.truncated, {**parameters, "kept_from": account.kept_from})

    def withdraw(self, before: Before, account: Account) -> bool:
        parameters = self._advanced(before, account) | self._part_columns(whole_parts(account))
        return self._change(self._sql.replaced, parameters)

    def _change(self, statement: str, parameters: dict[str, Any]) -> bool:
        return bool(self.execute(statement, parameters).fetchone()[0] == 1)

    def _advanced(self, before: Before, account: Account) -> dict[str, Any]:
        """The parameters for the row of the account, and for the one that it follows."""
        return self.numbers(account) | {"first": before.next, "before": before.last}

    def _part_columns(self, parts: Sequence[Part]) -> dict[str, Any]:
        """The parameters for parts behind those that are stored, by column."""
        start = self.sequence
        self.sequence += len(parts)
        return {
            "sequences": list(range(start, self.sequence)),
            "kinds": [kind for kind, _, _ in parts],
            "held_epochs": [epoch for _, epoch, _ in parts],
            "bodies": [body for _, _, body in parts],
        }

    # -- refused rows --------------------------------------------------------------------------------

    def _refusal(self, bundle: Bundle) -> CausalError:
        """The error that names refused rows of a bundle that could not be written."""

        def reason_of(lines: Sequence[str], out: Sequence[int]) -> str | None:
            problem = self._rehearsed(_rows(bundle, "\n".join(lines), out))
            return problem and f"{self.place}: {one_line(problem)} ({problem.sqlstate or 'driver'})"

        refused = refused_rows(bundle, reason_of)
        if not refused:
            return Unavailable(f"{self.place}: a row of {self._sql.name} was refused and would be taken now; retrying")
        return RowRefused(*refused[0], *refused[1:])

    def _rehearsed(self, rows: dict[str, Any]) -> psycopg.Error | None:
        """The server's error for these rows, which are taken back again; None if it takes them."""
        self._begin_waiting()
        try:
            with self.db.transaction(force_rollback=True):
                self.db.execute(self._sql.rehearsed(), self.key() | rows)
                self.db.execute("SET CONSTRAINTS ALL IMMEDIATE")
        except psycopg.Error as problem:
            if self.db.broken or not blames_a_row(problem):
                raise
            return problem
        return None


def _rows(bundle: Bundle, text: str, out: Sequence[int]) -> dict[str, Any]:
    """The parameters for rows of a bundle: one text, and the positions that are left out."""
    reasons = [reason for _, reason in bundle.refused]
    return {"first": bundle.first, "rows": text, "out": list(out), "reasons": reasons}
