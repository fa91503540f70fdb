"""A sink that writes rows to a table of a PostgreSQL database, each exactly once, readable at any moment.

A bundle is one statement, and so one transaction: rows, position, digest, determinants, the check of the incarnation.
A reader sees all of it or nothing, and a zombie changes nothing.  Several sink tasks, and sinks, share one database.

    PostgresSink(dsn)                                          output(task text, position bigint, record jsonb)
    PostgresSink(dsn, table="sales.totals", columns=["k", "n"])
                                                               a table of yours: these columns from the records' keys

In the schema of the table lie `causal_task` (one row per sink and task: run, incarnation, next position, digest),
`causal_held` (determinants of epochs that no complete checkpoint covers yet) and `causal_refused` (rows that were put
aside, with the reason).

A value of a record becomes a column's as `json_populate_record` says: a key that is missing gives NULL, one that is no
column is left out.  A row with a value that its column cannot keep unchanged (`postgres_columns`), or that breaks a
type, a constraint or a trigger, is refused, with its position and the server's words; what becomes of it is the job's
setting `on_error`.

Durability. Each acknowledged bundle is flushed to the server's disk, with either setting: with synchronous_commit=off,
which would be enough for a client's death, kill -9 of one process of the server loses acknowledged commits, so it is
turned on for the session where a role has it off. "os" also refuses a server that has fsync or full_page_writes off. A
standby of the server that takes over must not lag: use synchronous replication. If it did, rows that were acknowledged
are missing, and with them the order in which this task consumed its inputs: the job ends with a line about it. A
sink task that dies together with the server cannot know it, and resumes from the stored rows.

Needs psycopg 3.3 (extra `postgres`), PostgreSQL 12 or later, and one session per task: not a pooler per transaction.
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

if TYPE_CHECKING:
    from operators.sinks.postgres.postgres_store import Target

EXISTING = ("refuse", "replace", "append")
_GENERIC_PLACE = ("task", "position")
_encode = json_encoder(before_bytes="\\x")


class PostgresSink(Sink):
    """A sink whose rows are in a table of a PostgreSQL database.

    Needs: extra `postgres`, PostgreSQL 12 or later.
    Readers: table `output(task, position, record jsonb)`, or columns of a table of yours.
    Step: one statement, which is one transaction.
    Fence: its row is updated only for its incarnation, position and last bundle.
    Server: yes: commits are synchronous, whatever the role is set to.
    Power: yes, if the server has `fsync` and `full_page_writes`, which `durability="os"` checks.
    Limits: one session per task, so no pooler per transaction; rows can be withdrawn (below full sharing depth) only if
    the table has their places; after a failover to a standby that lagged, the job ends.

    Args:
        dsn: as libpq takes it, e.g. "postgresql://user@host/db"; parts that it omits come from the environment (PGHOST,
            PGPASSFILE, …).  Passwords are better kept there: a pipeline file is no place for them.
        table: "name" or "schema.name".  Without `columns` it is created; with `columns` it must exist.
        columns: names of columns of the table, filled from the keys of records that are dicts.
        place_columns: two more columns of it for the task and the position of a row.  Below full sharing depth
            rows can be withdrawn only with them (without `columns` they always exist).
        existing: what to do with rows of an earlier run: "refuse" to start, "replace" them, or, for a table with
            `columns`, "append" to them.
        durability: "process" or "os" (see the module); none: the job's.
        timeout_ms: for each call; then it counts as `Unavailable`, and is retried.
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
    ) -> None:
        _check_said(table, columns, place_columns, existing, durability, timeout_ms)
        self.dsn = dsn
        schema, _, name = table.rpartition(".")
        self._place_columns = tuple(place_columns) if columns else _GENERIC_PLACE
        self.durability = durability
        self.existing: str = existing
        self._said = (schema, name, tuple(columns), self._place_columns, existing, "", timeout_ms)

    def encode(self, records: Sequence[Any]) -> bytes:
        r"""See `Sink.encode`; for a table with columns bytes are `\x` and hexadecimal digits, as PostgreSQL says it."""
        if not self._said[2]:
            return super().encode(records)
        return "".join([_encode(record) + "\n" for record in records]).encode("utf-8", "backslashreplace")

    def encode_vectors(self, vectors: Vectors) -> bytes:
        """Return the rows that `encode` returns for those of `vectors`, made column by column."""
        from operators.sinks.contract.json_columns import json_lines

        return json_lines(vectors, _encode if self._said[2] else encode_json)

    def open_store(self, task: str, job_directory: Path) -> SinkStore:
        """Return the store of one sink task; nothing is connected before its `open`."""
        _needs_psycopg()
        from operators.sinks.postgres.postgres_store import PostgresStore, WithdrawingPostgresStore

        return (WithdrawingPostgresStore if self._place_columns else PostgresStore)(self._target(), task)

    def check(self) -> None:
        """Raise `PipelineError` for what is wrong with the dsn or the table; an unavailable server is waited for."""
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
        raise PipelineError(f'{said}: table is no name; give "name" or "schema.name"')
    check_choice(said, "existing", existing, EXISTING)
    check_durability(said, durability)
    check_range(said, "timeout_ms", timeout_ms, 1, WAIT_MS_MAX)
    if isinstance(columns, str) or isinstance(place_columns, str):
        raise PipelineError(f"{said}: columns and place_columns are lists of names, not one text")
    if len(place_columns) not in (0, 2) or (place_columns and not columns):
        raise PipelineError(f"{said}: place_columns are two columns of a table with columns: task and position")
    every = [*columns, *place_columns]
    if len(dict.fromkeys(every)) != len(every) or not all(every):
        raise PipelineError(f"{said}: a column is named twice, or has no name: {every}")
    if existing == "replace" and columns and not place_columns:
        raise PipelineError(f"{said}: rows of another run are not known without place_columns; give them, or append")
    if existing == "append" and (not columns or place_columns):
        raise PipelineError(f"{said}: rows are appended to a table with columns and without place_columns")


def _needs_psycopg() -> None:
    try:
        import psycopg  # noqa: F401
    except ImportError as problem:
        raise PipelineError(
            f"PostgresSink needs psycopg ({problem}); pip install -e '.[postgres]' in the checkout"
        ) from None
