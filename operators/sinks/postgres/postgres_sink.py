"""A sink that writes rows to a table of a PostgreSQL database, each exactly once, readable at any moment.

A bundle is one statement, and therefore one transaction: rows, position, digest, determinants, and the check of the
incarnation. A reader sees all of it or nothing, and a zombie changes nothing. Several sinks and sink tasks may share
one database.

    PostgresSink(dsn)                                          output(task text, position bigint, record jsonb)
    PostgresSink(dsn, table="sales.totals", columns=["k", "n"])
                                                               your own table: these columns from the records' keys
    PostgresSink(dsn, upsert=True)                             output(key text, record jsonb): one row per key

The table's schema also contains `causal_task` (one row per sink and task: run, incarnation, next position, digest),
`causal_held` (determinants of epochs that no complete checkpoint covers yet) and `causal_refused` (rows that were set
aside, with the reason).

A record's values are converted to columns by the rules of `json_populate_record`: a missing key results in NULL, and a
key without a column is ignored. A row is refused, with its position and the server's message, if a column cannot keep
its value unchanged (`postgres_columns`) or if it violates a type, a constraint or a trigger; the job's setting
`on_error` determines what happens to the row.

Durability. With either setting, each acknowledged bundle is flushed to the server's disk. With synchronous_commit=off,
acknowledged commits would survive the death of a client but not a kill -9 of a single server process; if a role has the
setting off, the sink turns it on for its connection. "os" also refuses a server that has fsync or full_page_writes off.
A standby server that takes over must not lag, so use synchronous replication. If the standby lagged, acknowledged rows
are missing, and with them the order in which this task consumed its inputs; the job then ends with an error that says
so. A sink task that dies together with the server cannot detect this, and resumes from the stored rows.

Needs psycopg 3.3 (extra `postgres`), PostgreSQL 12 or later, and one connection per task, not a transaction pooler.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from causal.errors import PipelineError, Unavailable
from causal.ports import SinkStore
from causal.records.vectors import Vectors
from operators.sinks.contract.options import WAIT_MS_MAX, check_choice, check_durability, check_range
from operators.sinks.contract.sink import Sink, encode_json, json_encoder
from operators.sinks.contract.upserts import UNDO_ROWS, UNDO_ROWS_MAX

if TYPE_CHECKING:
    from operators.sinks.postgres.postgres_store import Target

EXISTING = ("refuse", "replace", "append")
_GENERIC_PLACE = ("task", "position")
_encode = json_encoder(before_bytes="\\x")


class PostgresSink(Sink):
    """A sink that writes rows to a table of a PostgreSQL database.

    Needs: extra `postgres`, PostgreSQL 12 or later.
    Readers: table `output(task, position, record jsonb)`, or columns of a table of yours; `output(key, record jsonb)`
    with `upsert`.
    Step: one statement, which is one transaction.
    Fence: its row is updated only for its incarnation, position and last bundle.
    Server: yes: commits are synchronous, whatever the role is set to.
    Power: yes, if the server has `fsync` and `full_page_writes`, which `durability="os"` checks.
    Limits: one session per task, so no pooler per transaction; rows can be withdrawn (below full sharing depth) only if
    the table has their places; after a failover to a standby that lagged, the job ends.

    Args:
        dsn: a libpq connection string, such as "postgresql://user@host/db". Missing parts are taken from the
            environment (PGHOST, PGPASSFILE, …), which is also the better place for passwords.
        table: "name" or "schema.name". Without `columns`, the sink creates the table; with `columns`, it must exist.
        columns: names of the table's columns, which are filled from the keys of records that are dicts.
        place_columns: two further columns of the table, for the task and the position of a row. Below full sharing
            depth, rows can be withdrawn only with these columns (without `columns` they always exist).
        existing: what to do with rows of an earlier run: "refuse" to start, "replace" them, or, for a table with
            `columns`, "append" to them.
        durability: "process" or "os" (see the module); by default, the job's.
        timeout_ms: the time limit for each call; a call that exceeds it raises `Unavailable` and is retried.
        upsert: keep one row per key of a table, for `table.sink`; the sink creates the table, without `columns`.
        undo_rows: with `upsert`, how many of its latest revisions a task can undo for a return to a savepoint.
    """

    everywhere = True

    def __init__(
        self,
        dsn: str,
        table: str = "output",
        columns: Sequence[str] = (),
        place_columns: Sequence[str] = (),
        existing: str = "refuse",
        durability: str | None = None,
        timeout_ms: int = 2000,
        upsert: bool = False,
        undo_rows: int = UNDO_ROWS,
    ) -> None:
        _check_said(table, columns, place_columns, existing, durability, timeout_ms)
        self.dsn = dsn
        schema, _, name = table.rpartition(".")
        if upsert and columns:
            raise PipelineError(f"PostgresSink({table!r}): upsert=True writes key and record; leave columns out")
        check_range(f"PostgresSink({table!r})", "undo_rows", undo_rows, 0, UNDO_ROWS_MAX)
        self.upsert = upsert
        self._place_columns = tuple(place_columns) if columns else () if upsert else _GENERIC_PLACE
        self.durability = durability
        self.existing: str = existing
        self._said = (schema, name, tuple(columns), self._place_columns, existing, "", timeout_ms, upsert, undo_rows)

    def encode(self, records: Sequence[Any]) -> bytes:
        r"""See `Sink.encode`; for a table with columns, bytes become `\x` and hexadecimal digits, as in PostgreSQL."""
        if not self._said[2]:
            return super().encode(records)
        return "".join([_encode(record) + "\n" for record in records]).encode("utf-8", "backslashreplace")

    def encode_vectors(self, vectors: Vectors) -> bytes:
        """Return the rows that `encode` returns for the rows of `vectors`, encoded column by column."""
        from operators.sinks.contract.json_columns import json_lines

        return json_lines(vectors, _encode if self._said[2] else encode_json)

    def open_store(self, task: str, job_directory: Path) -> SinkStore:
        """Return the store of one sink task; the store connects only when it is opened."""
        _needs_psycopg()
        from operators.sinks.postgres.postgres_store import PostgresStore, WithdrawingPostgresStore

        withdraws = self._place_columns or self.upsert
        return (WithdrawingPostgresStore if withdraws else PostgresStore)(self._target(), task)

    def check(self) -> None:
        """Raise `PipelineError` for mistakes in the dsn or the table.

        An unavailable server is not an error here: the job will wait for it.
        """
        _needs_psycopg()
        import psycopg

        from operators.sinks.postgres.postgres_connection import connected
        from operators.sinks.postgres.postgres_errors import translated
        from operators.sinks.postgres.postgres_table import checked

        target = self._target()
        try:
            session = connected(target.dsn, target.timeout_ms, target.durability, target.place)
            try:
                checked(session.db, target.statements(session.schema), target.place)
            finally:
                session.db.close()
        except psycopg.Error as problem:
            error = translated(problem, target.place)
            if not isinstance(error, Unavailable):
                raise error from problem
        except Unavailable:
            return

    def newest_run(self) -> str | None:
        """Return the newest run that has written to the table."""
        _needs_psycopg()
        import psycopg

        from operators.sinks.postgres.postgres_connection import connected
        from operators.sinks.postgres.postgres_errors import translated
        from operators.sinks.postgres.postgres_table import accounts_are_there

        target = self._target()
        try:
            session = connected(target.dsn, target.timeout_ms, target.durability, target.place)
            try:
                statements = target.statements(session.schema)
                if not accounts_are_there(session.db, statements):
                    return None
                newest: str | None = session.db.execute(statements.newest_run, {"sink": statements.name}).fetchone()[0]
                return newest
            finally:
                session.db.close()
        except psycopg.Error as problem:
            raise translated(problem, target.place) from problem

    def _target(self) -> Target:
        from operators.sinks.postgres.postgres_connection import place_of
        from operators.sinks.postgres.postgres_store import Target

        said = Target(self.dsn, place_of(self.dsn), *self._said)
        return replace(said, existing=self.existing, durability=self.durability or "process")


def _check_said(
    table: str,
    columns: Sequence[str],
    place_columns: Sequence[str],
    existing: str,
    durability: str | None,
    timeout_ms: int,
) -> None:
    said = f"PostgresSink({table!r})"
    if not table or table.count(".") > 1 or not all(table.split(".")):
        raise PipelineError(f'{said}: table is not a valid name; use "name" or "schema.name"')
    check_choice(said, "existing", existing, EXISTING)
    check_durability(said, durability)
    check_range(said, "timeout_ms", timeout_ms, 1, WAIT_MS_MAX)
    if isinstance(columns, str) or isinstance(place_columns, str):
        raise PipelineError(f"{said}: columns and place_columns must be lists of names, not one string")
    if len(place_columns) not in (0, 2) or (place_columns and not columns):
        raise PipelineError(
            f"{said}: place_columns must be two of the columns: one for the task and one for the position"
        )
    every = [*columns, *place_columns]
    if len(dict.fromkeys(every)) != len(every) or not all(every):
        raise PipelineError(f"{said}: a column is named twice, or has no name: {every}")
    if existing == "replace" and columns and not place_columns:
        raise PipelineError(
            f"{said}: rows of another run cannot be recognized without place_columns; pass place_columns, or "
            'existing="append"'
        )
    if existing == "append" and (not columns or place_columns):
        raise PipelineError(f'{said}: existing="append" needs columns, and does not allow place_columns')


def _needs_psycopg() -> None:
    try:
        import psycopg  # noqa: F401
    except ImportError as problem:
        raise PipelineError(
            f"PostgresSink needs psycopg ({problem}); run `pip install -e '.[postgres]'` in the checkout"
        ) from None
