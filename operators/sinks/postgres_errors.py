"""PostgreSQL's errors in our families: which of them may be tried again, which blame a row, what to do about each."""

from __future__ import annotations

import psycopg

from causal.errors import CausalError, CorruptData, PipelineError, Unavailable
from operators.sinks.postgres_columns import words_of

_WORDS_MAX = 400
_ROW_CLASSES = ("22", "23", "44")
"""Data exceptions, integrity constraints, the check option of a view."""
_ROW_STATES = ("P0001", "P0004", "21000", "54000", "54011")
"""What a trigger raises; a row twice in one command; an index entry or a row that is too large."""
_MENDS = {
    "53100": "no space is left on the server: make room",
    "53200": "the server is out of memory: give it more, or take work from it",
    "53300": "the server has no connection left: raise max_connections or close some",
    "25006": "the server takes no writes: give the address of the primary",
    "42P01": "a table is gone: put it back",
    "42703": "a column is gone: put it back",
    "3F000": "a schema is gone: put it back",
    "55P03": "another session holds a lock for too long: end it",
    "57014": "the server took too long: end what keeps it busy, or raise timeout_ms",
    "57P03": "the server is starting, stopping or recovering: wait for it",
    "25P03": "the server ended an idle transaction",
}
_FOR_GOOD = {
    "28": "give a role that may connect",
    "3D000": "make the database, or name another one in dsn",
    "42501": "grant the role what it lacks",
}
_FOR_GOOD_WORDS = ("authentication failed", "does not exist", "no pg_hba.conf entry", "no password supplied")


def one_line(problem: BaseException) -> str:
    """The server's words, bounded."""
    diag = getattr(problem, "diag", None)
    primary, detail = getattr(diag, "message_primary", None), getattr(diag, "message_detail", None)
    told = f"{primary}; {detail}" if primary and detail else primary or str(problem)
    line = words_of(" ".join(str(told).split())) or type(problem).__name__
    return line if len(line) <= _WORDS_MAX else line[:_WORDS_MAX] + "…"


def blames_a_row(problem: psycopg.Error) -> bool:
    """Whether some row of the statement is the reason, and would be for ever."""
    state = problem.sqlstate
    if state is None:
        return isinstance(problem, psycopg.DataError)
    return state.startswith(_ROW_CLASSES) or state in _ROW_STATES


def translated(problem: psycopg.Error, place: str) -> CausalError:
    """The error of ours that says what to do about one of PostgreSQL's."""
    state, words = problem.sqlstate, one_line(problem)
    if state is None:
        return _unconnected(words, place)
    if state in ("XX001", "XX002"):
        return CorruptData(f"{place}: {words} ({state}); it is not used any further: restore the database")
    mend = next((mend for start, mend in _FOR_GOOD.items() if state.startswith(start)), None)
    if mend is not None:
        return PipelineError(f"{place}: {words} ({state}); {mend}")
    mend = _MENDS.get(state, "nothing was written, or the same may be written again")
    return Unavailable(f"{place}: {words} ({state}); {mend}")


def _unconnected(words: str, place: str) -> CausalError:
    """A connection that could not be made, or broke: the driver gives no state, only the server's words."""
    if "FATAL" in words and any(word in words for word in _FOR_GOOD_WORDS):
        return PipelineError(f"{place}: {words}; give a dsn that the server accepts")
    return Unavailable(f"{place} cannot be reached: {words}; start it, or look at the network and the dsn")
