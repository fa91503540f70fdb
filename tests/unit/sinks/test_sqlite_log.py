"""SQLite's write-ahead log is copied while bundles are written, begins again, and leaves neither thread nor file."""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from operators.sinks.sqlite import sqlite_log
from operators.sinks.sqlite.sqlite_log import LogCopier

WITHIN_S = 60.0
PAGE_BYTES = 4096


def writer(path: Path) -> sqlite3.Connection:
    """Return a connection that never copies its log on its own."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA wal_autocheckpoint = 0")
    db.execute("CREATE TABLE rows(n INTEGER PRIMARY KEY, text TEXT)")
    return db


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "sqlite-log"]


@pytest.mark.parametrize("name", ["out.db", "no UTF-8 \udcff.db"])
def test_a_log_begins_anew_while_bundles_are_written(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_log, "COPY_BYTES", 16 * PAGE_BYTES)
    monkeypatch.setattr(sqlite_log, "PAGES_KEPT_MAX", 32)
    path = tmp_path / name
    db, copier = writer(path), LogCopier(path)
    salts: set[bytes] = set()
    rows, until_s = 0, time.monotonic() + WITHIN_S
    while len(salts) < 4 and time.monotonic() < until_s:
        copier.before(db)
        db.execute("INSERT INTO rows VALUES(?, ?)", (rows, "x" * 100))
        rows += 1
        copier.wrote(100)
        salts.add((tmp_path / f"{name}-wal").read_bytes()[16:24])
    assert len(salts) == 4  # each life of a log has one of its own
    with closing(sqlite3.connect(path)) as reader:
        assert reader.execute("SELECT count(*), max(n) FROM rows").fetchone() == (rows, rows - 1)
    assert threads() == ["sqlite-log"]
    copier.close()
    db.close()
    assert not threads()
    assert [each.name for each in tmp_path.iterdir()] == [name]


def test_little_needs_no_thread(tmp_path: Path) -> None:
    db, copier = writer(tmp_path / "out.db"), LogCopier(tmp_path / "out.db")
    for n in range(100):
        copier.before(db)
        db.execute("INSERT INTO rows VALUES(?, '')", (n,))
        copier.wrote(100)
    assert not threads()
    copier.close()
    db.close()


def test_a_file_that_is_gone_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_log, "COPY_BYTES", 1)
    copier = LogCopier(tmp_path / "gone.db")
    copier.wrote(100)
    copier.close()
    assert not threads()
    assert not list(tmp_path.iterdir())
