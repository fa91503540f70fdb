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

Durability.  Each acknowledged bundle is flushed to the server's disk, with either setting: with synchronous_commit=off,
which would be enough for a client's death, kill -9 of one process of the server loses acknowledged commits, so it is
turned on for the session where a role has it off.  "os" also refuses a server that has fsync or full_page_writes off.
A standby of the server that takes over must not lag: use synchronous replication.  If it did, rows that were
acknowledged are missing, and with them the order in which this task took its inputs: the job ends and says so.  A sink
task that dies together with the server cannot know it, and resumes from what is there.

Needs psycopg 3.3 (extra `postgres`), PostgreSQL 12 or later, and one session per task: not a pooler per transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from causal.errors import PipelineError
from causal.records.vectors import Vectors
from operators.sinks.contract.options import WAIT_MS_MAX, check_choice, check_durability, check_range
from operators.sinks.contract.sink import encode_json, json_encoder
from operators.sinks.databases.database import Database
from operators.sinks.databases.database_sink import DatabaseSink, require_client

EXISTING = ("refuse", "replace", "append")
_GENERIC_PLACE = ("task", "position")
_encode = json_encoder(before_bytes="\\x")


class PostgresSink(DatabaseSink):
    """A sink whose rows are in a table of a PostgreSQL database.

    Args:
        dsn: as libpq takes it, e.g. "postgresql://user@host/db"; what it leaves out comes from the environment (PGHOST,
            PGPASSFILE, …).  Passwords are better kept there: a pipeline file is no place for them.
        table: "name" or "schema.name".  Without `columns` it is made; with `columns` it must be there.
        columns: names of columns of the table, filled from the keys of records that are dicts.
        place_columns: two more columns of it that take the task and the position of a row.  Below full sharing depth
            rows can be taken back only with them (without `columns` they are always there).
        existing: what to do with rows of an earlier run: "refuse" to start, "replace" them, or, for a table with
            `columns`, "append" to them.
        durability: "process" or "os" (see the module); none: the job's.
        timeout_ms: for each call; then it counts as `Unavailable`, and is retried.
    """

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
        self.schema, _, self.table = table.rpartition(".")
        self.columns = tuple(columns)
        self.place_columns = tuple(place_columns) if columns else _GENERIC_PLACE
        self.existing = existing
        self.durability = durability
        self.timeout_ms = timeout_ms

    def encode(self, records: Sequence[Any]) -> bytes:
        r"""See `Sink.encode`; for a table with columns bytes are `\x` and hexadecimal digits, as PostgreSQL says it."""
        if not self.columns:
            return super().encode(records)
        return "".join([_encode(record) + "\n" for record in records]).encode("utf-8", "backslashreplace")

    def encode_vectors(self, vectors: Vectors) -> bytes:
        """The rows that `encode` returns for those of `vectors`, made column by column."""
        from operators.sinks.contract.json_columns import json_lines

        return json_lines(vectors, _encode if self.columns else encode_json)

    def database(self, task: str) -> Database[Any]:
        """See `DatabaseSink.database`."""
        require_client("PostgresSink", "psycopg", "psycopg", "postgres")
        from operators.sinks.postgres.postgres_database import PostgresDatabase

        return PostgresDatabase(self, task)


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
