"""The search for rows that PostgreSQL refuses, by inserting ever fewer rows in transactions that are rolled back.

The server reports that a statement failed and which value caused this, but not which row contains the value.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import psycopg

from causal.errors import CausalError, RowRefused, Unavailable
from causal.ports import Bundle
from operators.sinks.postgres.postgres_connection import BoundedConnection
from operators.sinks.postgres.postgres_errors import blames_a_row, one_line
from operators.sinks.postgres.postgres_sql import Statements

ROWS_MAX = 8
"""The most rows named together; a bundle with more of them comes again without these."""


def refused_rows(
    db: BoundedConnection,
    statements: Statements,
    parameters: Mapping[str, Any],
    bundle: Bundle,
    place: str,
    timeout_ms: int,
) -> CausalError:
    """Return the error that names the refused rows of a bundle that could not be written.

    Args:
        parameters: the parameters of the bundle's rows.
        timeout_ms: the time limit for each trial.
    Raises:
        psycopg.Error: the server failed during the search.
    """
    lines = bundle.rows[:-1].decode().split("\n")
    out = [position for position, _ in bundle.refused]
    refused: list[tuple[int, str]] = []

    def problem_of(count: int) -> psycopg.Error | None:
        """Return the server's error for the first `count` rows without those in `out`, or None if it accepts them."""
        db.deadline_s = time.monotonic() + timeout_ms / 1000
        return _rehearsed(db, statements, {**parameters, "rows": "\n".join(lines[:count]), "out": out})

    while len(refused) < ROWS_MAX and (problem := problem_of(bundle.count)) is not None:
        taken, failing = 0, bundle.count
        while failing - taken > 1:
            middle = (taken + failing) // 2
            problem_then = problem_of(middle)
            if problem_then is None:
                taken = middle
            else:
                failing, problem = middle, problem_then
        position = bundle.first + failing - 1
        refused.append((position, f"{place}: {one_line(problem)} ({problem.sqlstate or 'driver'})"))
        out.append(position)
    if not refused:
        return Unavailable(f"{place}: a row of {statements.name} was refused but would be accepted now; retrying")
    return RowRefused(*refused[0], *refused[1:])


def _rehearsed(db: BoundedConnection, statements: Statements, parameters: Mapping[str, Any]) -> psycopg.Error | None:
    try:
        with db.transaction(force_rollback=True):
            db.execute(statements.rehearsed, parameters)
            db.execute("SET CONSTRAINTS ALL IMMEDIATE")
    except psycopg.Error as problem:
        if db.broken or not blames_a_row(problem):
            raise
        return problem
    return None
