"""`latency` counts a document when a reader has seen all of its rows, and its run with kills says what is wrong."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.measured import figure
from benchmarks.harness.runs import RunFailed
from benchmarks.harness.sink_reader import Seen, reading
from benchmarks.latency import latency
from benchmarks.latency.latency import INTERVALS_MS, SHARES
from benchmarks.peers.programs import index_documents
from benchmarks.peers.programs.index_documents import name_of
from benchmarks.report import goals

DOCUMENTS = [{"a": [0, 2], "b": [1]}, {"a": [0]}]
ROWS = [
    {"word": "a", "document": name_of(0), "positions": [0, 2], "documents": 1, "occurrences": 2},
    {"word": "a", "document": name_of(1), "positions": [0], "documents": 2, "occurrences": 3},
    {"word": "b", "document": name_of(0), "positions": [1], "documents": 1, "occurrences": 1},
]


def test_a_document_is_there_with_its_last_row_and_counts_from_when_it_was_due() -> None:
    seen = [Seen(1_005_000_000, "changes/0", 0, 2), Seen(1_030_000_000, "changes/0", 2, 1)]
    assert latency.latencies(ROWS, seen, [2, 1], 980_000_000) == [50.0, 5.0]
    assert latency.latencies(ROWS, seen[:1], [2, 1], 980_000_000)[0] is None
    again = [*ROWS[:2], ROWS[0]]
    assert latency.latencies(again, seen, [2, 1], 0)[0] is None, "the same row again is no other row"


def test_rows_that_are_wrong_are_counted() -> None:
    assert index_documents.wrong(ROWS, DOCUMENTS) == {"lost": 0, "doubled": 0, "contradicted": 0}
    assert index_documents.wrong(ROWS[:2], DOCUMENTS)["lost"] == 1
    assert index_documents.wrong([*ROWS, ROWS[2]], DOCUMENTS) == {"lost": 0, "doubled": 1, "contradicted": 1}
    assert index_documents.wrong([{**ROWS[0], "positions": [5, 6]}, *ROWS[1:]], DOCUMENTS)["contradicted"] == 1


def test_ratios_are_of_runs_beside_each_other() -> None:
    runs_of = {f"none.{each}.{name}_ms": [10.0, 20.0] for each in INTERVALS_MS for name in SHARES}
    runs_of |= {f"causal.{each}.{name}_ms": [11.0, 18.0] for each in INTERVALS_MS for name in SHARES}
    ratios = latency._ratios(runs_of, ["none", "causal"])
    assert sorted(ratios["causal_over_none.p99"]["runs"]) == [0.9] * 3 + [1.1] * 3
    assert ratios["causal.p50_1000_over_50"]["median"] == 1.0


def test_the_corpus_has_words_in_every_document_and_says_when_it_is_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(index_documents.expected(40))
    monkeypatch.setattr(index_documents, "CORPUS", index_documents.CORPUS / "json")
    with pytest.raises(ValueError, match="give fewer seconds"):
        index_documents.texts(1_000_000)


def written(database: Path, first: int, records: list[Any]) -> None:
    with sqlite3.connect(database) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE IF NOT EXISTS causal_task(task TEXT PRIMARY KEY)")
        connection.execute("CREATE TABLE IF NOT EXISTS output(task TEXT, position INTEGER, record TEXT)")
        connection.execute("INSERT OR IGNORE INTO causal_task VALUES('out/0')")
        rows = ((first + at, json.dumps(record)) for at, record in enumerate(records))
        connection.executemany("INSERT INTO output VALUES('out/0', ?, ?)", rows)
    connection.close()


def test_the_reader_sees_every_row_once_in_its_order(tmp_path: Path) -> None:
    database = tmp_path / "out.db"
    with reading(database, tmp_path / "seen", whole=True) as reader:
        written(database, 0, ["a", "b"])
        written(database, 2, ["c"])
        written(database, 5, ["behind a hole"])
        seen = reader.end()
    assert [each.rows for each in seen if each.first == 5] == [('"behind a hole"',)]
    assert "".join(json.loads(text) for each in seen for text in each.rows if each.first < 5) == "abc"
    assert [each.at_ns for each in seen] == sorted(each.at_ns for each in seen)


def test_a_reader_that_fails_says_so(tmp_path: Path) -> None:
    (tmp_path / "out.db").write_text("no database")
    with reading(tmp_path / "out.db", tmp_path / "seen") as reader, pytest.raises(RunFailed, match="not a database"):
        reader.end()


def test_goals_look_at_the_worst_percentile_and_interval() -> None:
    figures = {f"causal_over_none.{name}": figure([1.0]) for name in SHARES} | {"causal_over_none.p95": figure([1.2])}
    figures |= {f"causal.{each}.p99_ms": figure([float(each)]) for each in INTERVALS_MS}
    figures |= {"causal.p50_1000_over_50": figure([1.05]), "epoch.p50_1000_over_50": figure([9.0])}
    result = {"benchmark": "latency", "command": "latency", "figures": figures}
    rows = [row for row in goals.judged({"latency": result}, {}) if row["benchmark"] == "latency"]
    assert [(row["value"], row["met"]) for row in rows] == [(1.2, False), (1.05, True), (1000.0, False), (9.0, True)]
