"""Tables in a store: the text of keys, what undo entries give back, and the files that `upsert=True` takes."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.errors import PipelineError
from causal.ports import Bundle, ReturningStore
from operators.outputs import open_output
from operators.records.keys import canonical_key
from operators.sinks import SqliteSink
from operators.sinks.conformance import EPOCH_ROWS, Subject, fill
from operators.sinks.conformance.returning import returns_to_a_savepoint
from operators.sinks.contract import Sink
from operators.sinks.contract.key_text import key_text
from operators.sinks.contract.refusals import limit_of, obstacle
from operators.sinks.contract.upserts import Undo, latest, restored
from tests.unit.sinks.test_conformance import keys_in_sqlite, upserts

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.binary(max_size=3), st.text(max_size=3),
    st.sampled_from(
        ["7", "null", "NaN", "-1", " 1", '"a"', "[1]", '{"bytes": "00"}', "1e5", "Infinity", "", "9" * 5000]
    ),
    st.datetimes(), st.datetimes(timezones=st.just(UTC)), st.decimals(allow_nan=False),
)  # fmt: skip
keys = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=4).map(canonical_key)


@given(keys, keys)
def test_the_text_of_a_key_names_it_alone(one: Any, other: Any) -> None:
    texts = [key_text(key) for key in (one, other)]
    assert (texts[0] == texts[1]) == (one == other)
    for text in texts:
        assert "\t" not in text and "\n" not in text
        text.encode()


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("ann", "ann"), ("7", '"7"'), (7, "7"), (("a", 0, 2.5), '["a", 0, 2.5]'), (None, "null"), ("", ""),
        ("2026-01-02", "2026-01-02"), (b"\0\xff", '{"bytes": "00ff"}'), ("a\tb", '"a\\tb"'), ("zwölf", "zwölf"),
        (datetime(2026, 1, 2, tzinfo=UTC), '{"datetime": "2026-01-02T00:00:00+00:00"}'),
        (Decimal("0.1000000000000000000001"), '{"decimal": "0.1000000000000000000001"}'),
    ],
)  # fmt: skip
def test_texts_are_those_of_the_guide(key: Any, text: str) -> None:
    assert key_text(key) == text


def test_only_the_last_revision_of_a_key_in_a_bundle_counts() -> None:
    rows = Sink.encode(upserting_sink(), [("a", None, 1), ("b", None, 2), ("a", 1, None), ("c", None, 3)])
    bundle = Bundle(10, 4, rows, 0, 0, 1, (), refused=((13, "a reason"),))
    assert list(latest(bundle).items()) == [("b", "2"), ("a", None)]


def upserting_sink() -> Sink:
    return SqliteSink("never.db", upsert=True)


@pytest.mark.parametrize("seed", range(30))
def test_tasks_return_in_any_order_although_keys_moved_between_them(seed: int) -> None:
    """A world of two tasks and three keys, which move at each epoch; each task returns to a savepoint of both."""
    chance = Random(seed)
    table: dict[str, str | None] = dict.fromkeys("xyz")
    entries: list[Undo] = []
    positions = {"out/0": 0, "out/1": 0}
    savepoint, before = dict(positions), dict(table)
    for epoch in range(6):
        owners = {key: chance.choice(list(positions)) for key in table}
        if epoch == 2:
            savepoint, before = dict(positions), dict(table)
        for _ in range(chance.randrange(6)):
            key = chance.choice("xyz")
            task = owners[key]
            entries.append(Undo(task, epoch, positions[task], key, table[key]))
            positions[task] += 1
            table[key] = chance.choice([None, f"{epoch}-{positions[task]}"])
    for task in chance.sample(list(positions), 2):
        newest = sorted(entries, key=lambda entry: (entry.epoch, entry.position), reverse=True)
        back = restored(newest, task, savepoint[task])
        table.update(back.rows)
        kept = [entry for entry in entries if entry.task != task or entry.position < savepoint[task]]
        entries = [e._replace(record=back.others.get((e.task, e.position, e.key), e.record)) for e in kept]
    assert table == before


@pytest.fixture
def subject(tmp_path: Path) -> Iterator[Subject]:
    yield upserts(tmp_path)


def test_the_table_is_the_one_that_was_promised(subject: Subject, tmp_path: Path) -> None:
    store, state = subject.opened()
    fill(subject, store, state, 3)
    store.close()
    with closing(sqlite3.connect(tmp_path / "out.db")) as db:
        columns = db.execute("SELECT name, type, pk FROM pragma_table_info('output')").fetchall()
        assert columns == [("key", "TEXT", 1), ("record", "TEXT", 0)]
        assert db.execute("SELECT record FROM output WHERE key = ?", ('["out/0", 0]',)).fetchone()


def test_undo_entries_are_bounded_and_a_return_beyond_them_is_refused(tmp_path: Path) -> None:
    subject = upserts(tmp_path, undo_rows=50)
    store, state = subject.opened()
    assert isinstance(store, ReturningStore)
    assert limit_of(store, 50) == ""
    assert limit_of(store, 51) == "withdraws at most about its last 50 revisions (undo_rows)"
    state = fill(subject, store, state, 30)
    early = state
    assert obstacle(store, early.next) == ""
    state = fill(subject, store, state, 4 * EPOCH_ROWS)
    store.truncate(4)
    reason = obstacle(store, early.next)
    assert reason == "keeps overwritten rows only from revision 115 on (undo_rows=), and revision 30 was asked for"
    with closing(sqlite3.connect(tmp_path / "out.db")) as db:
        assert db.execute("SELECT min(position) FROM causal_undo").fetchone() == (115,)
    assert obstacle(store, 3 * EPOCH_ROWS) == ""
    subject.expect_rows(state.next, "a question changes nothing")
    store.close()


def test_without_undo_rows_only_what_is_there_can_stay(tmp_path: Path) -> None:
    subject = upserts(tmp_path, undo_rows=0)
    store, state = subject.opened()
    state = fill(subject, store, state, 2 * EPOCH_ROWS)
    store.truncate(2)
    assert obstacle(store, state.next) == "" != obstacle(store, state.next - 1)
    store.close()


def test_a_file_of_the_other_form_is_refused(tmp_path: Path) -> None:
    for first, second in ((False, True), (True, False)):
        path = tmp_path / f"{first}.db"
        SqliteSink(path, upsert=first).open_store("out/0", tmp_path).open("out/0", "run-1", 1)
        store = SqliteSink(path, upsert=second, existing="replace").open_store("out/0", tmp_path)
        with pytest.raises(PipelineError, match=f"one row per {'key' if first else 'revision'}.*use another path"):
            store.open("out/0", "run-2", 1)


def test_two_tables_do_not_share_a_file(subject: Subject) -> None:
    store, state = subject.opened()
    other, _ = subject.opened(task="out/1")
    other.close()
    with pytest.raises(PipelineError, match="already has the table of sink 'out'; use another path for sink 'more'"):
        subject.opened(task="more/0")
    fill(subject, store, state, 5)
    store.close()


def test_revisions_that_conflict_only_when_merged_are_all_taken(subject: Subject, tmp_path: Path) -> None:
    """The rule of a user: two keys never have the same record at a time."""
    store, _ = subject.opened()
    with closing(sqlite3.connect(tmp_path / "out.db")) as db:
        db.execute("CREATE UNIQUE INDEX once ON output(record)")
    encode = subject.sink.encode
    store.write(Bundle(0, 1, encode([("a", None, 1)]), 1, 0, 1, ()))
    swapped = encode([("a", 1, 9), ("b", None, 1), ("a", 9, 2)])
    store.write(Bundle(1, 3, swapped, 2, 0, 1, ()))
    assert keys_in_sqlite(tmp_path / "out.db", "") == {"a": 2, "b": 1}
    store.close()


def test_a_table_has_no_order_to_be_read_by(subject: Subject, tmp_path: Path) -> None:
    subject.opened()[0].close()
    with pytest.raises(PipelineError, match="one row per key.*SELECT key, record FROM output"):
        open_output(tmp_path / "out.db").look()


def test_a_row_is_shown_with_its_key() -> None:
    sink = upserting_sink()
    rows = sink.encode([("a", None, {"n": 1}), (("b", 2), 1, None)])
    shown = [sink.shown_row(rows, index) for index in range(2)]
    assert json.loads(json.dumps(shown)) == [{"key": "a", "record": {"n": 1}}, {"key": '["b", 2]', "record": None}]


def test_the_kit_sees_a_store_that_forgets_too_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("operators.sinks.sqlite.sqlite_store.undo_floor", lambda *_: 1 << 60)
    monkeypatch.setattr("operators.sinks.sqlite.sqlite_store.undo_obstacle", lambda *_: "")
    with pytest.raises(AssertionError, match="rows after the savepoint are gone"):
        returns_to_a_savepoint(upserts(tmp_path))
