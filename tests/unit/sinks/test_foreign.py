"""Files of a sink that another program has changed are named and never used: a table of changes and refusals.

Rows of an earlier run are here, too, and places that belong to other programs.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.harness.tally import TallySink
from causal.errors import CausalError, CorruptData, Fenced, PipelineError, Unavailable
from causal.records.values import encode
from causal.storage.framing import framed
from operators.sinks import ParquetSink
from operators.sinks.conformance import Subject, bundle_at, fill
from tests.unit.sinks.parquet_scene import plain_rows, subject_of
from tests.unit.sinks.test_conformance import lines, sqlite, tally

Make = Callable[[Path], Subject]
Harm = Callable[[Path], object]


def parquet(directory: Path) -> Subject:
    return subject_of(ParquetSink(directory / "out", busy_ms=50))


def query(text: str) -> Harm:
    """Return a change of a SQLite file."""

    def act(path: Path) -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute(text)

    return act


def add(text: str) -> Harm:
    return lambda path: path.write_text((path.read_text() if path.exists() else "") + text)


def cut(size: int) -> Harm:
    return lambda path: os.truncate(path, max(0, path.stat().st_size + size))


def move_away(path: Path) -> None:
    path.rename(path.with_name("kept"))


@dataclass(frozen=True)
class Case:
    """A harm to a file of a store, and how it is refused: by `open` of the next process, or by a `write` under way."""

    make: Make
    file: str
    harm: Harm
    error: type[CausalError]
    words: str
    rows: int = 5
    """Rows that are there before; none if 0, and the store was never opened if below."""
    writes: bool = False


ROWS, JOURNAL = "out/out-0.jsonl", "out/.out-0.journal"
DATABASE = "out.db"
CASES = {
    "sqlite, moved": Case(sqlite, DATABASE, move_away, Unavailable, "was moved, replaced or deleted", writes=True),
    "sqlite, a table renamed": Case(
        sqlite, DATABASE, query("ALTER TABLE output RENAME TO elsewhere"), Unavailable,
        "no such table: output; its tables were changed .* restore them", writes=True,
    ),
    "sqlite, determinants": Case(
        sqlite, DATABASE, query("UPDATE causal_log SET deltas = x'c1'"), CorruptData,
        r"out\.db: tables causal_log and causal_mark of task out/0",
    ),
    "sqlite, a later version": Case(
        sqlite, DATABASE, query("PRAGMA user_version = 9"), PipelineError, "later version", rows=0
    ),
    "sqlite, no database": Case(
        sqlite, DATABASE, add("Dear diary, " * 100), PipelineError, r"out\.db is not a SQLite file", rows=-1
    ),
    "sqlite, a table of another program": Case(
        lambda path: sqlite(path, existing="replace"), DATABASE, query("CREATE TABLE output AS SELECT 7 AS mine"),
        PipelineError, "has a table output that was not created by a sink", rows=-1,
    ),
    "sqlite, another kind of sink": Case(
        sqlite, DATABASE, lambda path: TallySink(path).open_store("out/0", path).open("out/0", "run-1", 1),
        PipelineError, "another kind of sink", rows=-1,
    ),
    "lines, no run": Case(lines, ROWS, add("{}\n"), PipelineError, "holds rows of another run", rows=-1),
    "lines, rows added": Case(lines, ROWS, add("{}\n"), CorruptData, "rows that no bundle wrote"),
    "lines, an earlier version": Case(
        lines, JOURNAL, lambda path: path.write_bytes(framed(encode(["out/0", b"", 0]))), PipelineError,
        r"\.out-0\.journal was written by an earlier version .* finish its job", rows=-1,
    ),
    "lines, moved": Case(lines, ROWS, move_away, Unavailable, "was moved, replaced or deleted", writes=True),
    "lines, emptied": Case(
        lines, ROWS, cut(-10**9), CorruptData,
        "has lost rows that were written: it has 0 bytes, but at least .* log rotation", writes=True,
    ),
    "lines, cut": Case(lines, ROWS, cut(-1), CorruptData, "has lost rows that were written", writes=True),
    "lines, written to": Case(lines, ROWS, add("{}\n"), CorruptData, "has rows that no bundle wrote", writes=True),
    "parquet, no run": Case(
        lambda path: subject_of(ParquetSink(path / "out", existing="replace")), "out/mine.parquet", add("mine"),
        PipelineError, r"contains mine\.parquet, which no run wrote", rows=-1,
    ),
    "parquet, journal deleted": Case(
        parquet, "out/_causal/out-0.journal", Path.unlink, Fenced, "", writes=True
    ),
    "parquet, journal deleted, then": Case(
        parquet, "out/_causal/out-0.journal", Path.unlink, CorruptData, r"out-0\.journal is missing"
    ),
}  # fmt: skip


def content(file: Path) -> object:
    """Return what a user reads in it; None if there is no such file."""
    if not file.exists() or file.name != DATABASE:
        return file.read_bytes() if file.exists() else None
    with closing(sqlite3.connect(file)) as db, suppress(sqlite3.Error):
        return db.execute("SELECT * FROM output").fetchall()
    return None


@pytest.mark.parametrize("name", CASES)
def test_harm_that_others_did_is_named_and_changes_nothing(name: str, tmp_path: Path) -> None:
    """A file or table that was only moved or renamed is used again once it is back."""
    case = CASES[name]
    subject, file = case.make(tmp_path), tmp_path / case.file
    file.parent.mkdir(parents=True, exist_ok=True)
    if case.rows >= 0:
        store, state = subject.opened()
        state = fill(subject, store, state, case.rows)
        if case.make is parquet:
            store.publish()  # type: ignore[attr-defined]
        if not case.writes:
            store.close()
    case.harm(file)
    before = content(file)
    with pytest.raises(case.error, match=case.words or None):
        store.write(bundle_at(subject, state, 3)) if case.writes else subject.opened(2)
    assert content(file) == before
    if case.error is Unavailable:
        back = query("ALTER TABLE elsewhere RENAME TO output")
        file.with_name("kept").rename(file) if case.harm is move_away else back(file)
        (tmp_path / "out" / ".out-0.lock").unlink(missing_ok=True)
        store.write(bundle_at(subject, state, 3))
        subject.expect_rows(8, "what was put back is gone on with")
    if case.writes:
        store.close()
        with pytest.raises(Unavailable, match="not open"):
            store.write(bundle_at(subject, state, 1))


@pytest.mark.parametrize("make", [lines, parquet])
def test_a_changed_byte_of_a_journal_or_manifest_is_never_believed(make: Make, tmp_path: Path) -> None:
    subject = make(tmp_path)
    store, state = subject.opened()
    state = fill(subject, store, state, 20)
    if make is parquet:
        store.publish()  # type: ignore[attr-defined]
        fill(subject, store, state, 40)
    else:
        store.close()
    for path in [tmp_path / JOURNAL] if make is lines else (tmp_path / "out" / "_causal").glob("*.j*"):
        whole = path.read_bytes()
        for place in range(0, len(whole) // 2, max(1, len(whole) // 40)):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
            with pytest.raises((CorruptData, PipelineError), match=path.name if make is lines else str(tmp_path)):
                subject.opened(2)
        path.write_bytes(whole)
    if make is lines:
        subject.opened(2)[0].close()
        subject.expect_rows(20, "the rows are as they were")
        return
    (file,) = (tmp_path / "out").glob("*.parquet")
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(CorruptData, match=r"out-0-0+-0+20\.parquet is missing or damaged"):
        subject.read("out/0")


@pytest.mark.parametrize("make", [sqlite, tally, lines, parquet])
def test_rows_of_an_earlier_run_are_refused_or_replaced_with_those_of_all_tasks(make: Make, tmp_path: Path) -> None:
    """The kit has what becomes of the task itself."""
    subject = make(tmp_path)
    for task in ("out/0", "out/1"):
        store, state = subject.opened(task=task)
        fill(subject, store, state, 12, task=task)
        store.close()
    name = type(subject.sink).__name__
    for task in ("out/0", "out/7"):
        with pytest.raises(PipelineError, match=rf"holds rows of another run.*--resume.*{name}.*existing=\"replace\""):
            subject.opened(run="run-2", task=task)
    subject.expect_rows(12, "a refused run changes nothing")
    subject.sink.existing = "replace"
    if make is parquet:
        (tmp_path / "out" / "mine.parquet").write_bytes(b"")
    store, state = subject.opened(run="run-2")
    assert (state.next, state.digest, state.logs) == (0, 0, ())
    fill(subject, store, state, 4)
    store.close()
    if make in (sqlite, tally):
        with closing(sqlite3.connect(subject.sink.path)) as db:  # type: ignore[attr-defined]
            assert db.execute("SELECT task, run FROM causal_task").fetchall() == [("out/0", "run-2")]
            assert db.execute("SELECT count(DISTINCT task) FROM causal_log").fetchall() == [(1,)]
    elif make is lines:
        assert sorted(path.name for path in (tmp_path / "out").glob("*.jsonl")) == ["out-0.jsonl"]
    else:
        (tmp_path / "out" / "mine.parquet").unlink()  # what no sink wrote stays
        assert len(plain_rows(tmp_path / "out")) == 4
