"""`JsonLinesSink` as users see it, beyond the promises that every sink makes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.errors import CorruptData, InvariantViolation, PipelineError
from causal.ports import Bundle
from causal.storage import file_journal as locked_journal
from causal.storage.framing import bodies, framed
from operators.sinks import JsonLinesSink
from operators.sinks.conformance import EPOCH_ROWS, expect_held, fill
from tests.unit.sinks.test_conformance import lines


def test_one_file_per_task_named_after_it(tmp_path: Path) -> None:
    subject = lines(tmp_path)
    for task in ("out/0", "out/1"):
        store, state = subject.opened(task=task)
        fill(subject, store, state, 3, task=task)
        store.close()
    visible = sorted(path.name for path in (tmp_path / "out").iterdir() if not path.name.startswith("."))
    assert visible == ["out-0.jsonl", "out-1.jsonl"]
    first = (tmp_path / "out" / "out-0.jsonl").read_text().splitlines()[0]
    assert json.loads(first) == {"task": "out/0", "n": 0, "text": ""}


def test_a_line_is_one_record_whatever_is_in_it(tmp_path: Path) -> None:
    records = ["a\nb", "\u2028\u0085", {"half": "\ud800"}, None]
    sink = JsonLinesSink(tmp_path)
    store = sink.open_store("out/0", tmp_path)
    store.open("out/0", "run-1", 1)
    store.write(Bundle(0, len(records), sink.encode(records), 1, 0, 1, ()))
    store.close()
    lines_of_file = sink.path_of("out/0").read_text().removesuffix("\n").split("\n")
    assert [json.loads(line) for line in lines_of_file] == records


def test_rows_that_are_not_lines_are_refused(tmp_path: Path) -> None:
    subject = lines(tmp_path)
    store, _ = subject.opened()
    with pytest.raises(InvariantViolation, match="one line per row"):
        store.write(Bundle(0, 3, b"1\n2\n", 1, 0, 1, ()))
    subject.expect_rows(0, "a refused bundle leaves nothing")
    store.close()


def test_the_journal_does_not_grow_without_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locked_journal, "JOURNAL_BYTES_MAX", 5000)
    subject = lines(tmp_path)
    store, state = subject.opened()
    journal = tmp_path / "out" / ".out-0.journal"
    largest = 0
    while state.next < 20 * EPOCH_ROWS:
        state = fill(subject, store, state, state.next + 7)
        largest = max(largest, journal.stat().st_size)
        if state.next // EPOCH_ROWS > 2:
            store.truncate(state.next // EPOCH_ROWS - 1)
    assert largest < 8000 < (tmp_path / "out" / "out-0.jsonl").stat().st_size
    store.truncate(19)
    assert journal.stat().st_size < 2000
    store.close()
    store, state = subject.opened()
    subject.expect_rows(state.next, "a journal that was rewritten loses nothing")
    expect_held(subject, state, "a journal that was rewritten loses nothing", kept_from=19)
    store.close()


def test_rows_that_were_deleted_leave_room_for_the_next_run(tmp_path: Path) -> None:
    subject = lines(tmp_path)
    store, state = subject.opened()
    fill(subject, store, state, 5)
    store.close()
    subject.opened(2)[0].close()
    (tmp_path / "out" / "out-0.jsonl").unlink()
    with pytest.raises(CorruptData, match=r"out-0\.jsonl has lost rows"):
        subject.opened(3)
    store, state = subject.opened(run="run-2")
    fill(subject, store, state, 3)
    subject.expect_rows(3, "what was deleted by hand is in no one's way")
    store.close()


def test_names_that_make_the_same_file_are_refused(tmp_path: Path) -> None:
    subject = lines(tmp_path)
    subject.opened(task="a/b/0")[0].close()
    with pytest.raises(PipelineError, match="belongs to sink task a/b/0"):
        subject.opened(task="a-b/0")


WHERE = Path("a.journal")


@given(st.lists(st.binary(max_size=40), max_size=6), st.integers(0, 400))
def test_a_journal_that_was_cut_gives_the_whole_records_before_the_cut(records: list[bytes], cut: int) -> None:
    stored = b"".join(map(framed, records))[:cut]
    read, sound = bodies(stored, WHERE)
    assert read == records[: len(read)]
    assert b"".join(map(framed, read)) == stored[:sound]
    assert len(read) == len(records) or len(stored) < sum(len(framed(r)) for r in records[: len(read) + 1])


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=4), st.data())
def test_a_changed_byte_is_never_believed(records: list[bytes], data: st.DataObject) -> None:
    stored = bytearray(b"".join(map(framed, records)))
    place = data.draw(st.integers(0, len(stored) - 1))
    stored[place] ^= data.draw(st.integers(1, 255))
    try:
        read, _ = bodies(bytes(stored), WHERE)
    except CorruptData:
        return
    assert read == records[:-1], "only the last record can pass for a torn one"


def test_zeros_at_the_end_are_a_torn_tail() -> None:
    assert bodies(framed(b"x") + bytes(100), WHERE) == ([b"x"], len(framed(b"x")))
