"""The translation of SQLite errors: which ones may be retried, and the remedy for each."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from causal.errors import CausalError, CorruptData, PipelineError, Unavailable


def code_of(problem: sqlite3.Error) -> int:
    """Return SQLite's primary result code, or 0 if the driver itself raised the error."""
    return getattr(problem, "sqlite_errorcode", 0) & 0xFF


def translated(problem: sqlite3.Error, path: Path) -> CausalError:
    """Return the project's error, with a remedy, for a SQLite error."""
    code = code_of(problem)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return Unavailable(f"{path} has been locked by another process for too long; stop that process")
    if code == sqlite3.SQLITE_FULL:
        return Unavailable(f"{path}: no space is left; nothing was written; free space")
    if code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOMEM):
        return Unavailable(f"{path}: {problem}; nothing was written; check the disk, its space and the directory")
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
        return PipelineError(f"{path} cannot be written: {problem}; grant write permission to it and its directory")
    if code == sqlite3.SQLITE_NOTADB:
        return PipelineError(f"{path} is not a SQLite file; use another path")
    if code == sqlite3.SQLITE_CORRUPT:
        return CorruptData(f"{path}: {problem}; the job stops using it: restore it or use another path")
    if code == sqlite3.SQLITE_ERROR:
        return Unavailable(f"{path}: {problem}; its tables were changed while the job was running: restore them")
    return Unavailable(f"{path}: {type(problem).__name__}: {problem}")
