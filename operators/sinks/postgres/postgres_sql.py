"""The SQL statements of a PostgreSQL sink: the one that writes a bundle, and those for the sink's own tables.

A bundle is one statement, and therefore one transaction and one round trip. The statement updates the task's row only
if that row has the incarnation, position and last bundle that the writer knows, and inserts rows and determinants only
if the task's row was updated. The rows are sent as one text with one JSON document per line, which the server splits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

from operators.sinks.contract.account import MARK
from operators.sinks.postgres.postgres_columns import taken_by

TASK, PARTS, REFUSED = "causal_task", "causal_held", "causal_refused"
MINE = "sink = %(sink)s AND task = %(task)s"
"""The condition for rows of one sink task."""


def quoted(name: str) -> str:
    """Return `name` as a quoted identifier; "%" is doubled, because it begins a parameter."""
    return '"' + name.replace('"', '""').replace("%", "%%") + '"'


@dataclass(frozen=True)
class Statements:
    """The statements for one table.

    Args:
        schema, table: the table that receives the rows.
        columns: columns of a user's table, filled from the records' keys; empty for a table that the sink creates.
        place: the columns for the task and the position of a row; empty if the table has none.
        kinds: the types of the table's columns, keyed by column name; see `postgres_columns`.
    """

    schema: str
    table: str
    columns: Sequence[str]
    place: Sequence[str]
    kinds: Mapping[str, str] = field(default_factory=dict)

    generic: ClassVar[Sequence[str]] = ("task", "position", "record")
    """The columns of a table that the sink creates."""
    upsert: ClassVar[bool] = False
    """Whether the table has one row per key; see `postgres_upserts`."""

    @property
    def name(self) -> str:
        """The name under which the sink's accounts are stored."""
        return f"{self.schema}.{self.table}"

    @cached_property
    def rows(self) -> str:
        """The quoted name of the table with the rows."""
        return f"{quoted(self.schema)}.{quoted(self.table)}"

    def ours(self, table: str) -> str:
        """Return the quoted name of one of the sink's own tables, which all sinks that write to this schema share."""
        return f"{quoted(self.schema)}.{table}"

    @cached_property
    def accounts_made(self) -> tuple[str, ...]:
        """The statements that create the sink's own tables."""
        return (
            f"""CREATE TABLE IF NOT EXISTS {self.ours(TASK)}(
                sink text NOT NULL, task text NOT NULL, run text NOT NULL, incarnation bigint NOT NULL,
                next bigint NOT NULL, digest bytea NOT NULL, last bytea NOT NULL, kept_from bigint NOT NULL,
                ended boolean NOT NULL, withdrawn bigint NOT NULL, refused bigint NOT NULL, epochs bytea NOT NULL,
                PRIMARY KEY(sink, task)) WITH (fillfactor = 50)""",
            f"""CREATE TABLE IF NOT EXISTS {self.ours(PARTS)}(
                sink text NOT NULL, task text NOT NULL, sequence bigint NOT NULL, kind smallint NOT NULL,
                epoch bigint NOT NULL, body bytea NOT NULL, PRIMARY KEY(sink, task, sequence))""",
            f"""CREATE TABLE IF NOT EXISTS {self.ours(REFUSED)}(
                sink text NOT NULL, task text NOT NULL, position bigint NOT NULL, reason text NOT NULL,
                PRIMARY KEY(sink, task, position))""",
        )

    @cached_property
    def rows_made(self) -> str:
        """The statement that creates the table of rows for a sink without named columns."""
        return (
            f"CREATE TABLE {self.rows}(task text NOT NULL, position bigint NOT NULL, record jsonb NOT NULL, "
            "PRIMARY KEY(task, position))"
        )

    @cached_property
    def others(self) -> str:
        """The query for the newest other run with accounts of this sink, and for the number of rows of other runs."""
        return f"""SELECT max(run COLLATE "C"), coalesce(sum(next), 0)
            FROM {self.ours(TASK)} WHERE sink = %(sink)s AND run <> %(run)s"""

    @cached_property
    def newest_run(self) -> str:
        """The query for the newest run that has accounts of this sink."""
        return f"""SELECT max(run COLLATE "C") FROM {self.ours(TASK)} WHERE sink = %(sink)s"""

    @cached_property
    def loaded(self) -> str:
        """The query for a task's account; it waits for a pending write and locks the account for the transaction."""
        return f"""SELECT run, incarnation, next, digest, last, kept_from, ended, withdrawn, refused, epochs
            FROM {self.ours(TASK)} WHERE {MINE} FOR UPDATE"""

    @cached_property
    def held_parts(self) -> str:
        """The query for the parts stored for a task, oldest first."""
        return f"""SELECT sequence, kind, epoch, body FROM {self.ours(PARTS)}
            WHERE {MINE} ORDER BY sequence"""

    @cached_property
    def _advance(self) -> str:
        return f"""UPDATE {self.ours(TASK)} SET next = %(next)s::bigint, digest = %(digest)s::bytea,
            last = %(last)s::bytea, ended = %(ended)s::boolean, refused = %(refused)s::bigint,
            withdrawn = %(withdrawn)s::bigint, epochs = %(epochs)s::bytea
            WHERE {MINE} AND run = %(run)s AND incarnation = %(incarnation)s::bigint
            AND next = %(first)s::bigint AND last = %(before)s::bytea RETURNING sink, task"""

    def bundle(self, rows: bool, refused: bool) -> str:
        """Return the statement that advances a task's account and inserts a bundle's data.

        The statement's result is 1, or 0 if nothing changed.

        Args:
            rows, refused: whether the bundle has rows, and refused rows.
        """
        parts = [f"mine AS ({self._advance})"]
        if rows:
            parts += self._insert_all()
        if refused:
            parts.append(
                f"""out AS (INSERT INTO {self.ours(REFUSED)} SELECT mine.sink, mine.task, each.position, each.reason
                FROM mine, unnest(%(out)s::bigint[], %(reasons)s::text[]) AS each(position, reason))"""
            )
        parts.append(self._hold)
        return f"WITH {', '.join(parts)} SELECT count(*)::int FROM mine"

    @cached_property
    def _hold(self) -> str:
        return f"""held AS (INSERT INTO {self.ours(PARTS)}
            SELECT mine.sink, mine.task, each.sequence, each.kind, each.epoch, each.body
            FROM mine, unnest(%(sequences)s::bigint[], %(kinds)s::smallint[], %(held_epochs)s::bigint[],
            %(bodies)s::bytea[]) AS each(sequence, kind, epoch, body))"""

    @cached_property
    def truncated(self) -> str:
        """The statement that discards logs below an epoch and all marks, and inserts the given parts instead.

        Its result is the same as for `bundle`.
        """
        return f"""WITH mine AS (UPDATE {self.ours(TASK)} SET kept_from = %(kept_from)s::bigint
            WHERE {MINE} AND run = %(run)s AND incarnation = %(incarnation)s::bigint RETURNING sink, task),
            gone AS (DELETE FROM {self.ours(PARTS)} AS old USING mine WHERE old.sink = mine.sink
            AND old.task = mine.task AND (old.kind = {MARK} OR old.epoch < %(kept_from)s::bigint)),
            {self._also_truncated()}{self._hold} SELECT count(*)::int FROM mine"""

    @cached_property
    def replaced(self) -> str:
        """The statement that withdraws rows from `%(next)s` on and replaces all stored parts.

        Its result is the same as for `bundle`.
        """
        return f"""WITH mine AS ({self._advance}),
            gone AS (DELETE FROM {self.ours(PARTS)} AS old USING mine
            WHERE old.sink = mine.sink AND old.task = mine.task),
            {self._withdrawn()}noted AS (DELETE FROM {self.ours(REFUSED)} AS old USING mine
            WHERE old.sink = mine.sink AND old.task = mine.task AND old.position >= %(next)s::bigint),
            {self._hold} SELECT count(*)::int FROM mine"""

    def _insert_all(self) -> list[str]:
        """Return the parts of `bundle` that write its rows."""
        return [f"rows AS ({self._insert('mine')})"]

    def _also_truncated(self) -> str:
        """Return further parts of `truncated`."""
        return ""

    def _withdrawn(self) -> str:
        """Return the part of `replaced` that deletes rows."""
        return f"""back AS (DELETE FROM {self.rows} AS old USING mine
            WHERE old.{quoted(self.place[0])} = mine.task AND old.{quoted(self.place[1])} >= %(next)s::bigint), """

    @cached_property
    def refused_below(self) -> str:
        """The query for the number of a task's refused rows below a position."""
        return f"SELECT count(*) FROM {self.ours(REFUSED)} WHERE {MINE} AND position < %(next)s::bigint"

    @cached_property
    def rehearsed(self) -> str:
        """The statement that inserts rows without changing an account, for a transaction that is rolled back."""
        return self._insert("(SELECT %(task)s::text AS task) AS mine")

    def _insert(self, mine: str) -> str:
        """Return an INSERT of the lines in `%(rows)s`, except positions in `%(out)s`, for the task in `mine`."""
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
