"""A refused row stops the job with one line, or becomes a dead letter once, whichever process or store fails."""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from causal.errors import InvariantViolation, OperatorFailed, RowRefused, Unavailable
from causal.ports import Bundle, SinkStore, StoreState, WithdrawingStore
from operators.sinks import JsonLinesSink, SqliteSink
from operators.sinks.conformance import Subject, bundle_at, fill
from operators.sinks.contract.refusals import RefusingStore, refusing
from operators.sinks.contract.refused_rows import RefusedRows
from operators.sinks.sqlite.sqlite_rows import AT_ONCE
from tests.unit.sinks.test_conformance import rows_in_sqlite

TASK, RUN = "out/0", "run-1"


class Ruled(SqliteSink):
    """Refuses every row with an `n` of 3, 13, 23 …; counts the rows that it gets."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory / "out.db", busy_ms=50)
        self.letters: Path | None = directory / "letters"

    def open_store(self, task: str, job_directory: Path) -> SinkStore:
        letters = None if self.letters is None else RefusedRows(self.letters, task, RUN)
        return refusing(super().open_store(task, job_directory), self, "out", task, letters)

    def rule(self) -> None:
        db = sqlite3.connect(self.path)
        db.execute(
            """CREATE TRIGGER rule BEFORE INSERT ON output WHEN json_extract(NEW.record, '$.n') % 10 = 3
            BEGIN SELECT RAISE(ABORT, 'no threes'); END"""
        )
        db.close()


def ruled(directory: Path) -> tuple[Ruled, Subject]:
    sink = Ruled(directory)
    return sink, Subject(sink, lambda task: rows_in_sqlite(sink.path, task))


def letters_in(sink: Ruled) -> list[dict[str, Any]]:
    assert sink.letters is not None
    return [json.loads(line) for line in (sink.letters / "refused-out-0.jsonl").read_text().splitlines()]


def numbers(sink: Ruled) -> list[int]:
    return [row["n"] for row in rows_in_sqlite(sink.path, TASK)]


def test_a_refused_row_stops_the_job_with_its_place_and_the_stores_words(tmp_path: Path) -> None:
    sink, subject = ruled(tmp_path)
    sink.letters = None
    store, state = subject.opened()
    sink.rule()
    with pytest.raises(OperatorFailed) as caught:
        store.write(bundle_at(subject, state, 7))
    line = str(caught.value)
    assert line.startswith("sink 'out', position 3 of out/0: its store refused the row: no threes; record {")
    assert '"n": 3' in line and line.endswith(
        "or resume with --on-error dead-letter to write such rows to the dead letters"
    )
    assert len(line.splitlines()) == 1
    assert numbers(sink) == []
    store.close()


def test_refused_rows_are_put_aside_counted_and_told_in_the_file(tmp_path: Path) -> None:
    sink, subject = ruled(tmp_path)
    store, state = subject.opened()
    sink.rule()
    state = fill(subject, store, state, 30)
    assert numbers(sink) == [n for n in range(30) if n % 10 != 3]
    letters = letters_in(sink)
    assert [letter["position"] for letter in letters] == [3, 13, 23]
    assert letters[0]["record"] == {"task": TASK, "n": 3, "text": "zwölf" * 3}
    assert {(x["operator"], x["task"], x["key"], x["error"]) for x in letters} == {
        ("out", TASK, None, "RowRefused: no threes")
    }
    db = sqlite3.connect(sink.path)
    assert db.execute("SELECT task, position, reason FROM causal_refused ORDER BY position").fetchall() == [
        (TASK, position, "no threes") for position in (3, 13, 23)
    ]
    db.close()
    assert isinstance(store, RefusingStore) and store.refused == 3
    store.close()
    again, state = subject.opened(2)
    assert isinstance(again, RefusingStore) and again.refused == state.refused == 3
    again.close()


def test_refused_rows_among_many_of_one_bundle_are_found(tmp_path: Path) -> None:
    sink, subject = ruled(tmp_path)
    store, _ = subject.opened()
    sink.rule()
    rows = sink.encode([{"n": n} for n in range(3 * AT_ONCE)])
    store.write(Bundle(0, 3 * AT_ONCE, rows, 1, 0, 1, ()))
    assert numbers(sink) == [n for n in range(3 * AT_ONCE) if n % 10 != 3]
    assert [letter["position"] for letter in letters_in(sink)] == list(range(3, 3 * AT_ONCE, 10))
    store.close()


def test_letters_that_cannot_be_written_hold_the_bundle_back(tmp_path: Path) -> None:
    sink, subject = ruled(tmp_path)
    store, state = subject.opened()
    sink.rule()
    assert sink.letters is not None
    sink.letters.write_text("in the way")
    with pytest.raises(Unavailable, match="the dead letter cannot be written"):
        store.write(bundle_at(subject, state, 5))
    assert numbers(sink) == []
    os.unlink(sink.letters)
    store.write(bundle_at(subject, state, 5))
    assert numbers(sink) == [0, 1, 2, 4] and len(letters_in(sink)) == 1
    store.close()


class Losing:
    """Takes a bundle, and loses every other acknowledgement."""

    def __init__(self, inner: SinkStore) -> None:
        self._inner = inner
        self._lose = True
        self.open, self.last_bundle, self.truncate, self.close = (
            inner.open, inner.last_bundle, inner.truncate, inner.close
        )  # fmt: skip

    def write(self, bundle: Bundle) -> None:
        self._inner.write(bundle)
        self._lose = not self._lose
        if not self._lose:
            raise Unavailable("the line went dead")


def test_a_bundle_comes_again_without_the_same_rows_when_its_acknowledgement_was_lost(tmp_path: Path) -> None:
    sink, subject = ruled(tmp_path)
    inner = SqliteSink.open_store(sink, TASK, tmp_path)
    store = refusing(Losing(inner), sink, "out", TASK, RefusedRows(tmp_path / "letters", TASK, RUN))
    assert not isinstance(store, WithdrawingStore), "only where what it wraps is one"
    state = store.open(TASK, RUN, 1)
    sink.rule()
    for count in (5, 5):
        bundle = bundle_at(subject, state, count)
        with pytest.raises(Unavailable):
            store.write(bundle)
        store.write(bundle)
        state = StoreState(bundle.first + bundle.count, bundle.digest, ())
    assert numbers(sink) == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    assert store.refused == store.last_bundle().refused == 1
    store.close()


def test_a_store_that_refuses_what_is_left_out_is_broken(tmp_path: Path) -> None:
    class Stubborn(Losing):
        def write(self, bundle: Bundle) -> None:
            raise RowRefused(1, "never")

    sink = JsonLinesSink(tmp_path / "out")
    letters = RefusedRows(tmp_path / "letters", TASK, RUN)
    store = refusing(Stubborn(sink.open_store(TASK, tmp_path)), sink, "out", TASK, letters)
    with pytest.raises(InvariantViolation, match="does not refuse a row that is left out"):
        store.write(Bundle(0, 2, b"1\n2\n", 0, 0, 1, ()))


def test_a_trigger_that_rolls_everything_back_refuses_one_row_at_a_time(tmp_path: Path) -> None:
    sink, subject = ruled(tmp_path)
    store, state = subject.opened()
    db = sqlite3.connect(sink.path)
    db.execute(
        """CREATE TRIGGER rule BEFORE INSERT ON output WHEN json_extract(NEW.record, '$.n') % 10 IN (3, 4)
        BEGIN SELECT RAISE(ROLLBACK, 'gone'); END"""
    )
    db.close()
    fill(subject, store, state, 10)
    assert numbers(sink) == [0, 1, 2, 5, 6, 7, 8, 9]
    assert [letter["position"] for letter in letters_in(sink)] == [3, 4]
    store.close()


def test_a_store_of_somebodys_own_may_call_its_parts_as_it_likes(tmp_path: Path) -> None:
    sink, subject = ruled(tmp_path)
    inner = SqliteSink.open_store(sink, TASK, tmp_path)
    inner.pending = []  # type: ignore[attr-defined]
    store = refusing(inner, sink, "out", TASK, None)
    store.write(bundle_at(subject, store.open(TASK, RUN, 1), 5))
    assert numbers(sink) == [0, 1, 2, 3, 4]
    store.close()
