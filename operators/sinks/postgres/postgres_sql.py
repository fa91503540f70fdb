"""The statements of a PostgreSQL sink, as text: what is written for a bundle, in one statement, and the tables of ours.

A bundle is one statement, so it is one transaction and one round trip: the row of its task advances only for the
incarnation, position and last bundle that the writer knows, and rows and determinants are inserted for the row that
advanced.  The rows travel as one text, one JSON document per line, and are taken apart by the server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from operators.sinks.contract.account_parts import MARK
from operators.sinks.postgres.postgres_columns import taken_by

MINE = "sink = %(sink)s AND task = %(task)s"
"""The condition for rows of one sink task."""
_THEIRS = "old.sink = mine.sink AND old.task = mine.task"


def quoted(name: str) -> str:
    """An identifier, whatever characters it has; "%" is doubled, because it begins a parameter."""
    return '"' + name.replace('"', '""').replace("%", "%%") + '"'


class Statements:
    """The statements about one table.  Those that change an account yield 1, or 0 where they changed nothing.

    Args:
        schema, table: where the rows go; our tables are in the same schema, shared by all sinks there.
        columns: of a table of the user's, filled from the records' keys; empty for a table that the sink makes.
        place: its columns that take the task and the position of a row; empty if it has none.
    """

    def __init__(self, schema: str, table: str, columns: Sequence[str], place: Sequence[str]) -> None:
        self.schema = schema
        self.table = table
        self.columns = columns
        self.place = place
        self.kinds: Mapping[str, str] = {}
        """The types of the columns, by name; see `postgres_columns`."""
        self.name = f"{schema}.{table}"
        """The name under which the sink's accounts are kept."""
        self.rows = f"{quoted(schema)}.{quoted(table)}"
        """The quoted name of the table with the rows, and of ours."""
        self.tasks, self.parts, self.refused = (
            f"{quoted(schema)}.causal_{each}" for each in ("task", "held", "refused")
        )
        self.accounts_made = (
            f"""CREATE TABLE IF NOT EXISTS {self.tasks}(
                sink text NOT NULL, task text NOT NULL, run text NOT NULL, incarnation bigint NOT NULL,
                next bigint NOT NULL, digest bytea NOT NULL, last bytea NOT NULL, kept_from bigint NOT NULL,
                ended boolean NOT NULL, withdrawn bigint NOT NULL, refused bigint NOT NULL, epochs bytea NOT NULL,
                PRIMARY KEY(sink, task)) WITH (fillfactor = 50)""",
            f"""CREATE TABLE IF NOT EXISTS {self.parts}(
                sink text NOT NULL, task text NOT NULL, sequence bigint NOT NULL, kind smallint NOT NULL,
                epoch bigint NOT NULL, body bytea NOT NULL, PRIMARY KEY(sink, task, sequence))""",
            f"""CREATE TABLE IF NOT EXISTS {self.refused}(
                sink text NOT NULL, task text NOT NULL, position bigint NOT NULL, reason text NOT NULL,
                PRIMARY KEY(sink, task, position))""",
        )
        self.rows_made = f"""CREATE TABLE {self.rows}(
            task text NOT NULL, position bigint NOT NULL, record jsonb NOT NULL, PRIMARY KEY(task, position))"""
        """Makes the table for rows of a sink that names no columns."""
        self.rest = f"SELECT withdrawn, refused, epochs FROM {self.tasks} WHERE {MINE}"
        self.stored_parts = f"SELECT sequence, kind, epoch, body FROM {self.parts} WHERE {MINE} ORDER BY sequence"
        self._advance = f"""UPDATE {self.tasks} SET next = %(next)s::bigint, digest = %(digest)s::bytea,
            last = %(last)s::bytea, ended = %(ended)s::boolean, refused = %(refused)s::bigint,
            withdrawn = %(withdrawn)s::bigint, epochs = %(epochs)s::bytea
            WHERE {MINE} AND run = %(run)s AND incarnation = %(incarnation)s::bigint
            AND next = %(first)s::bigint AND last = %(before)s::bytea RETURNING sink, task"""
        self._hold = f"""held AS (INSERT INTO {self.parts}
            SELECT mine.sink, mine.task, each.sequence, each.kind, each.epoch, each.body
            FROM mine, unnest(%(sequences)s::bigint[], %(kinds)s::smallint[], %(held_epochs)s::bigint[],
            %(bodies)s::bytea[]) AS each(sequence, kind, epoch, body))"""
        self.truncated = f"""WITH mine AS (UPDATE {self.tasks} SET kept_from = %(kept_from)s::bigint
            WHERE {MINE} AND run = %(run)s AND incarnation = %(incarnation)s::bigint RETURNING sink, task),
            gone AS (DELETE FROM {self.parts} AS old USING mine
            WHERE {_THEIRS} AND (old.kind = {MARK} OR old.epoch < %(kept_from)s::bigint)),
            {self._hold} SELECT count(*)::int FROM mine"""
        """Forgets logs below an epoch and all marks, and inserts what is held instead."""
        if place:
            task, position = map(quoted, place)
            behind = f"WHERE old.{task} = mine.task AND old.{position} >= %(next)s::bigint"
            self.rows_removed = f"DELETE FROM {self.rows} AS old USING (SELECT %(task)s::text AS task) AS mine {behind}"
            self.replaced = f"""WITH mine AS ({self._advance}),
                gone AS (DELETE FROM {self.parts} AS old USING mine WHERE {_THEIRS}),
                back AS (DELETE FROM {self.rows} AS old USING mine {behind}),
                noted AS (DELETE FROM {self.refused} AS old USING mine
                WHERE {_THEIRS} AND old.position >= %(next)s::bigint),
                {self._hold} SELECT count(*)::int FROM mine"""
            """Takes rows from `%(next)s` on back, forgets all that is held, and holds this instead."""

    def bundle(self, rows: bool, refused: bool) -> str:
        """Advances the account of a task and inserts what came.

        Args:
            rows, refused: whether the bundle has any.
        """
        parts = [f"mine AS ({self._advance})"]
        if rows:
            parts.append(f"rows AS ({self._insert('mine')})")
        if refused:
            parts.append(
                f"""out AS (INSERT INTO {self.refused} SELECT mine.sink, mine.task, each.position, each.reason
                FROM mine, unnest(%(out)s::bigint[], %(reasons)s::text[]) AS each(position, reason))"""
            )
        parts.append(self._hold)
        return f"WITH {', '.join(parts)} SELECT count(*)::int FROM mine"

    def rehearsed(self) -> str:
        """Inserts rows without any account, in a transaction that is rolled back."""
        return self._insert("(SELECT %(task)s::text AS task) AS mine")

    def _insert(self, mine: str) -> str:
        """Inserts the lines of `%(rows)s`, but those whose place is in `%(out)s`, for the task in `mine`."""
        source = f"""{mine}, unnest(string_to_array(%(rows)s::text, E'\\n')) WITH ORDINALITY AS each(line, number)"""
        kept = "WHERE %(first)s::bigint + each.number - 1 <> ALL(%(out)s::bigint[])"
        at = ["mine.task", "%(first)s::bigint + each.number - 1"] if self.place else []
        if not self.columns:
            names, values = "task, position, record", ", ".join([*at, "each.line::jsonb"])
            return f"INSERT INTO {self.rows}({names}) SELECT {values} FROM {source} {kept}"
        names = ", ".join(map(quoted, [*self.place, *self.columns]))
        values = ", ".join(
            [*at, *(taken_by(column, self.kinds.get(column), quoted(column)) for column in self.columns)]
        )
        parsed = f"""LATERAL json_populate_record(NULL::{self.rows}, each.line::json) AS taken,
            LATERAL (SELECT each.line::jsonb AS j OFFSET 0) AS doc"""
        return f"INSERT INTO {self.rows}({names}) SELECT {values} FROM {source}, {parsed} {kept}"
