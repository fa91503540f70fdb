"""The translation of PostgreSQL's errors: which ones may be retried, which ones a row causes, and the remedies."""

from __future__ import annotations

import re

import psycopg

from causal.errors import CausalError, CorruptData, PipelineError, Unavailable
from operators.sinks.postgres.postgres_columns import words_of

_WORDS_MAX = 400
_ROW_CLASSES = ("22", "23", "44")
"""The classes of data exceptions, integrity constraints and the check option of a view."""
_ROW_STATES = ("P0001", "P0004", "21000", "54000", "54011")
"""The states of a trigger's error, a row twice in one command, and an index entry or a row that is too large."""
_REMEDIES = {
    "53100": "no space is left on the server: free space",
    "53200": "the server is out of memory: give it more memory, or reduce its load",
    "53300": "the server has no free connection: raise max_connections or close some",
    "25006": "the server accepts no writes: use the address of the primary",
    "42P01": "a table is missing: restore it",
    "42703": "a column is missing: restore it",
    "3F000": "a schema is missing: restore it",
    "55P03": "another session has held a lock for too long: end that session",
    "57014": "the server took too long: reduce its load, or raise timeout_ms",
    "57P03": "the server is starting, stopping or recovering: wait for it",
    "25P03": "the server ended an idle transaction",
}
_FOR_GOOD = {
    "28": "use a role that may connect",
    "3D000": "create the database, or name another one in dsn",
    "42501": "grant the role the missing privilege",
}
_FOR_GOOD_WORDS = ("authentication failed", "does not exist", "no pg_hba.conf entry", "no password supplied")

_NEVER = re.compile(r"\binvalid \w+ (value|number)\b")
"""Finds what the driver says of a dsn with which no connection can be tried."""


def one_line(problem: BaseException) -> str:
    """Return the server's message as one line of limited length."""
    diag = getattr(problem, "diag", None)
    primary, detail = getattr(diag, "message_primary", None), getattr(diag, "message_detail", None)
    text = f"{primary}; {detail}" if primary and detail else primary or str(problem)
    line = words_of(" ".join(str(text).split())) or type(problem).__name__
    return line if len(line) <= _WORDS_MAX else line[:_WORDS_MAX] + "…"


def blames_a_row(problem: psycopg.Error) -> bool:
    """Return whether a row of the statement caused the error, so that every retry would fail."""
    state = problem.sqlstate
    if state is None:
        return isinstance(problem, psycopg.DataError)
    return state.startswith(_ROW_CLASSES) or state in _ROW_STATES


def translated(problem: psycopg.Error, place: str) -> CausalError:
    """Return the project's error, with a remedy, for a PostgreSQL error."""
    state, words = problem.sqlstate, one_line(problem)
    if state is None:
        return _unconnected(words, place)
    if state in ("XX001", "XX002"):
        return CorruptData(f"{place}: {words} ({state}); the job stops using it: restore the database")
    remedy = next((remedy for start, remedy in _FOR_GOOD.items() if state.startswith(start)), None)
    if remedy is not None:
        return PipelineError(f"{place}: {words} ({state}); {remedy}")
    remedy = _REMEDIES.get(state, "either nothing was written, or the write can be repeated safely")
    return Unavailable(f"{place}: {words} ({state}); {remedy}")


def _unconnected(words: str, place: str) -> CausalError:
    """Return the error for a connection that failed or broke.

    The driver reports only the server's message for such errors, without a state.
    """
    if _NEVER.search(words):
        return PipelineError(f"{place}: {words}; correct the dsn")
    if "FATAL" in words and any(phrase in words for phrase in _FOR_GOOD_WORDS):
        return PipelineError(f"{place}: {words}; use a dsn that the server accepts")
    return Unavailable(f"{place} cannot be reached: {words}; start it, or check the network and the dsn")
