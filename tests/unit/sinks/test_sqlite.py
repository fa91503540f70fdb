"""`SqliteSink` as users see it, beyond the promises that every sink makes."""

from __future__ import annotations

import json
import sqlite3
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.tally import TallySink
from causal.errors import CorruptData, InvariantViolation, PipelineError, Unavailable
from causal.ports import Bundle
from causal.records.values import NotCarried, decode, encode
from operators.sinks import SqliteSink
from operators.sinks.conformance import EPOCH_ROWS, Subject, expect_held, fill, record_at
from operators.sinks.sqlite.sqlite_errors import translated
from operators.sinks.sqlite.sqlite_rows import AT_ONCE
from tests.unit.sinks.test_conformance import rows_in_sqlite, sqlite, tally


def query(path: Path, text: str) -> list[Any]:
    db = sqlite3.connect(path)
    try:
        return db.execute(text).fetchall()
    finally:
        db.close()


def test_the_table_is_the_one_that_was_promised(tmp_path: Path) -> None:
    subject = sqlite(tmp_path)
    store, state = subject.opened()
    fill(subject, store, state, 3)
    columns = query(tmp_path / "out.db", "SELECT name, type FROM pragma_table_info('output')")
    assert columns == [("task", "TEXT"), ("position", "INTEGER"), ("record", "TEXT")]
    first = query(tmp_path / "out.db", "SELECT * FROM output ORDER BY position LIMIT 1")
    assert [(t, p, json.loads(r)) for t, p, r in first] == [("out/0", 0, record_at("out/0", 0))]
    store.close()


def test_any_record_becomes_one_row_of_valid_json(tmp_path: Path) -> None:
    records = [
        {"text": "a\nb\r\u2028\u0085\x00", "half": "\ud800", "whole": "\U0001f600"},
        [1, 2.5, None, True],
        (1, "x"),
        "text",
        b"\x00\xff",
        Decimal("1.10"),
        datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        1 << 80,
    ]
    sink = SqliteSink(tmp_path / "out.db")
    store = sink.open_store("out/0", tmp_path)
    store.open("out/0", "run-1", 1)
    store.write(Bundle(0, len(records), sink.encode(records), 1, 0, 1, ()))
    store.close()
    stored = rows_in_sqlite(sink.path, "out/0")
    assert stored[:2] == records[:2]
    assert stored[2:] == [[1, "x"], "text", "00ff", "1.10", "2026-01-02T03:04:05+00:00", 1 << 80]


def test_a_record_that_is_not_json_is_refused_when_it_is_encoded(tmp_path: Path) -> None:
    with pytest.raises(NotCarried, match="object cannot be written as JSON"):
        SqliteSink(tmp_path / "out.db").encode([{"x": object()}])


def test_rows_that_are_not_lines_are_refused(tmp_path: Path) -> None:
    subject = sqlite(tmp_path)
    store, _ = subject.opened()
    with pytest.raises(InvariantViolation, match="one line per row"):
        store.write(Bundle(0, 3, b"1\n2\n", 1, 0, 1, ()))
    subject.expect_rows(0, "a refused bundle leaves nothing")
    store.close()


def many(subject: Subject, count: int) -> Bundle:
    """A first bundle of more rows than an epoch of the kit has."""
    rows = subject.sink.encode([record_at("out/0", place) for place in range(count)])
    return Bundle(0, count, rows, 1, 0, 1, ())


@pytest.mark.parametrize("count", [1, AT_ONCE - 1, AT_ONCE, AT_ONCE + 1, 3 * AT_ONCE + 5])
def test_every_row_of_a_bundle_is_at_its_position_however_many_there_are(tmp_path: Path, count: int) -> None:
    subject = sqlite(tmp_path)
    store, _ = subject.opened()
    store.write(many(subject, count))
    rows = query(tmp_path / "out.db", "SELECT position, record FROM output ORDER BY position")
    assert [(place, json.loads(text)) for place, text in rows] == [
        (place, record_at("out/0", place)) for place in range(count)
    ]
    store.close()


def test_a_users_trigger_that_passes_over_a_row_passes_over_no_other(tmp_path: Path) -> None:
    subject = sqlite(tmp_path)
    store, _ = subject.opened()
    query(
        tmp_path / "out.db",
        """CREATE TRIGGER quiet BEFORE INSERT ON output WHEN NEW.position = 40
        BEGIN SELECT RAISE(IGNORE); END""",
    )
    store.write(many(subject, 3 * AT_ONCE))
    rows = query(tmp_path / "out.db", "SELECT position FROM output ORDER BY position")
    assert [place for (place,) in rows] == [place for place in range(3 * AT_ONCE) if place != 40]
    store.close()


def test_a_row_that_is_there_already_is_told_and_nothing_of_its_bundle_is_stored(tmp_path: Path) -> None:
    subject = sqlite(tmp_path)
    store, _ = subject.opened()
    db = sqlite3.connect(tmp_path / "out.db")
    with db:
        db.execute("INSERT INTO output(task, position, record) VALUES('out/0', ?, '0')", (AT_ONCE + 3,))
    db.close()
    bundle = many(subject, 3 * AT_ONCE)
    with pytest.raises(CorruptData, match="holds rows of out/0 that no bundle wrote"):
        store.write(bundle)
    assert query(tmp_path / "out.db", "SELECT position FROM output") == [(AT_ONCE + 3,)]
    store.close()


def test_a_reader_with_an_old_view_does_not_stop_the_writer(tmp_path: Path) -> None:
    subject = sqlite(tmp_path)
    store, state = subject.opened()
    state = fill(subject, store, state, 5)
    reader = sqlite3.connect(tmp_path / "out.db", isolation_level=None)
    reader.execute("BEGIN")
    assert reader.execute("SELECT count(*) FROM output").fetchone() == (5,)
    fill(subject, store, state, 50)
    assert reader.execute("SELECT count(*) FROM output").fetchone() == (5,)
    reader.execute("COMMIT")
    assert reader.execute("SELECT count(*) FROM output").fetchone() == (50,)
    reader.close()
    store.close()


def test_truncated_determinants_leave_the_file(tmp_path: Path) -> None:
    subject = sqlite(tmp_path)
    store, state = subject.opened()
    fill(subject, store, state, 3 * EPOCH_ROWS)
    assert query(tmp_path / "out.db", "SELECT epoch, first FROM causal_epoch") == [(0, 0), (1, 40), (2, 80)]
    store.truncate(2)
    assert query(tmp_path / "out.db", "SELECT DISTINCT epoch FROM causal_log") == [(2,)]
    assert query(tmp_path / "out.db", "SELECT epoch, first FROM causal_epoch") == [(2, 80)]
    store.close()


def test_determinants_that_an_earlier_version_wrote_as_tuples_are_read_alike(tmp_path: Path) -> None:
    subject = sqlite(tmp_path)
    store, state = subject.opened()
    fill(subject, store, state, EPOCH_ROWS + 5)
    before = store.last_bundle()
    store.close()
    db = sqlite3.connect(tmp_path / "out.db")
    with db:
        for place, (deltas,) in enumerate(db.execute("SELECT deltas FROM causal_log ORDER BY sequence").fetchall()):
            tuples = encode([tuple(delta) for delta in decode(deltas)])
            db.execute("UPDATE causal_log SET deltas = ? WHERE sequence = ?", (tuples, place))
    db.close()
    store, again = subject.opened(2)
    assert again == before and len(again.logs) > 2
    expect_held(subject, again, "what the earlier version held")
    store.close()


def test_a_run_that_wrote_nothing_leaves_room_for_the_next(tmp_path: Path) -> None:
    subject = sqlite(tmp_path)
    subject.opened()[0].close()
    store, state = subject.opened(run="run-2")
    fill(subject, store, state, 2)
    subject.expect_rows(2, "an empty file belongs to the next run")
    store.close()


def test_other_tables_may_share_the_file(tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / "out.db")
    db.execute("CREATE TABLE words(word)")
    db.commit()
    db.close()
    subject = sqlite(tmp_path)
    store, state = subject.opened()
    fill(subject, store, state, 2)
    subject.expect_rows(2, "a file with other tables is fine")
    store.close()


def test_a_file_that_may_only_be_read_is_told_as_such(tmp_path: Path) -> None:
    sqlite(tmp_path).opened()[0].close()
    db = sqlite3.connect(f"file:{tmp_path}/out.db?mode=ro", uri=True)
    with pytest.raises(sqlite3.Error) as caught:
        db.execute("DELETE FROM output")
    db.close()
    error = translated(caught.value, tmp_path / "out.db")
    assert type(error) is PipelineError
    assert "cannot be written" in str(error)
    assert "write permission" in str(error)


def test_a_full_file_is_told_as_such(tmp_path: Path) -> None:
    subject = sqlite(tmp_path)
    store, state = subject.opened()
    store._connection.execute("PRAGMA max_page_count = 1")  # type: ignore[attr-defined]
    with pytest.raises(Unavailable, match="no space is left; nothing was written"):
        while True:
            state = fill(subject, store, state, state.next + 7)
    store.close()
    store, state = subject.opened()
    subject.expect_rows(state.next, "rows and position agree after the file was full")
    expect_held(subject, state, "determinants and position agree after the file was full")
    fill(subject, store, state, state.next + 7)
    store.close()


def test_a_tally_counts_without_json(tmp_path: Path) -> None:
    sink = TallySink(tmp_path / "tally.db")
    assert sink.encode([object(), object()]) == sink.encode([1, 2]) != sink.encode([1])
    subject = tally(tmp_path)
    store, state = subject.opened()
    fill(subject, store, state, 9)
    assert query(tmp_path / "tally.db", "SELECT task, rows, ended FROM tally") == [("out/0", 9, 0)]
    store.close()


def test_columns_of_a_users_own_do_no_harm(tmp_path: Path) -> None:
    subject = sqlite(tmp_path)
    store, state = subject.opened()
    state = fill(subject, store, state, 5)
    query(tmp_path / "out.db", "ALTER TABLE output ADD COLUMN seen INTEGER DEFAULT 0")
    fill(subject, store, state, 8)
    subject.expect_rows(8, "a column more does no harm")
    store.close()
