"""The SQL statements of a PostgreSQL sink with `upsert=True`: one row per key, and what undoes its changes.

As for other rows, a bundle is one statement. Its parts see the table as it was before: one remembers the rows of the
keys that the bundle changes, one deletes rows, and one writes rows. A withdrawal is a transaction of a few statements.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from operators.sinks.contract.upserts import Undo, restored
from operators.sinks.postgres.postgres_connection import BoundedConnection
from operators.sinks.postgres.postgres_sql import MINE, Statements

UNDO = "causal_undo"
_ENTRIES = "unnest(%(tasks)s::text[], %(positions)s::bigint[], %(keys)s::text[], %(records)s::text[])"


@dataclass(frozen=True)
class UpsertStatements(Statements):
    """The statements for a table with one row per key."""

    generic = ("key", "record")
    upsert = True

    @cached_property
    def undo(self) -> str:
        """The quoted name of the table with the rows as they were before they changed."""
        return self.ours(UNDO)

    @cached_property
    def rows_made(self) -> str:
        """See `Statements.rows_made`."""
        return f'CREATE TABLE {self.rows}(key text COLLATE "C" PRIMARY KEY, record jsonb NOT NULL)'

    @cached_property
    def undo_made(self) -> str:
        """The statement that creates the table of undo entries, unless it exists."""
        return f"""CREATE TABLE IF NOT EXISTS {self.undo}(
            sink text NOT NULL, task text NOT NULL, position bigint NOT NULL, key text COLLATE "C" NOT NULL,
            epoch bigint NOT NULL, record jsonb, PRIMARY KEY(sink, task, position, key))"""

    @cached_property
    def _changes(self) -> str:
        """The last line of each key, except lines at positions in `%(out)s`."""
        return """changes AS (SELECT DISTINCT ON (at.key) at.key, substr(each.line, length(at.key) + 2) AS record
            FROM unnest(string_to_array(%(rows)s::text, E'\\n')) WITH ORDINALITY AS each(line, number),
            LATERAL (SELECT split_part(each.line, E'\\t', 1) COLLATE "C" AS key) AS at
            WHERE %(first)s::bigint + each.number - 1 <> ALL(%(out)s::bigint[])
            ORDER BY at.key, each.number DESC)"""

    def _gone(self, mine: str) -> str:
        return f"""gone AS (DELETE FROM {self.rows} AS old USING {mine}changes
            WHERE old.key = changes.key AND changes.record = '')"""

    def _written(self, mine: str) -> str:
        return f"""INSERT INTO {self.rows}(key, record)
            SELECT changes.key, changes.record::jsonb FROM {mine}changes WHERE changes.record <> ''
            ON CONFLICT (key) DO UPDATE SET record = EXCLUDED.record"""

    def _insert_all(self) -> list[str]:
        remembered = f"""undo AS (INSERT INTO {self.undo}
            SELECT mine.sink, mine.task, %(first)s::bigint, changes.key, %(epoch)s::bigint, old.record
            FROM mine CROSS JOIN changes LEFT JOIN {self.rows} AS old ON old.key = changes.key)"""
        return [self._changes, remembered, self._gone("mine, "), f"rows AS ({self._written('mine, ')})"]

    def _also_truncated(self) -> str:
        return f"""old AS (DELETE FROM {self.undo} AS old USING mine WHERE old.sink = mine.sink
            AND old.task = mine.task AND old.position < %(floor)s::bigint), """

    def _withdrawn(self) -> str:
        return ""

    @cached_property
    def rehearsed(self) -> str:
        """See `Statements.rehearsed`."""
        return f"WITH {self._changes}, {self._gone('')} {self._written('')}"

    @cached_property
    def oldest_undo(self) -> str:
        """The query for the position of a task's oldest undo entry."""
        return f"SELECT min(position) FROM {self.undo} WHERE {MINE}"

    def take_back(self, db: BoundedConnection, key: Mapping[str, Any], next_: int) -> None:
        """Undo what a task's bundles from position `next_` on have changed, inside a transaction."""
        at = {**key, "next": next_}
        entries = db.execute(
            f"""SELECT task, epoch, position, key, record::text FROM {self.undo} WHERE sink = %(sink)s AND epoch >=
            (SELECT min(epoch) FROM {self.undo} WHERE {MINE} AND position >= %(next)s::bigint)
            ORDER BY epoch DESC, position DESC""",
            at,
        )
        back = restored(map(Undo._make, entries), key["task"], next_)
        others = {
            "sink": key["sink"],
            "tasks": [task for task, _, _ in back.others],
            "positions": [position for _, position, _ in back.others],
            "keys": [name for _, _, name in back.others],
            "records": list(back.others.values()),
        }
        db.execute(
            f"""UPDATE {self.undo} AS old SET record = each.record::jsonb FROM {_ENTRIES} AS
            each(task, position, key, record) WHERE old.sink = %(sink)s AND old.task = each.task
            AND old.position = each.position AND old.key = each.key""",
            others,
        )
        rows = {"keys": list(back.rows), "records": list(back.rows.values())}
        db.execute(f"DELETE FROM {self.rows} WHERE key = ANY(%(keys)s::text[])", rows)
        db.execute(
            f"""INSERT INTO {self.rows}(key, record) SELECT each.key, each.record::jsonb
            FROM unnest(%(keys)s::text[], %(records)s::text[]) AS each(key, record) WHERE each.record IS NOT NULL""",
            rows,
        )
        db.execute(f"DELETE FROM {self.undo} WHERE {MINE} AND position >= %(next)s::bigint", at)
