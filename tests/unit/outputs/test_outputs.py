"""Reading back what sinks wrote: which rows there are, that they stay, and one line about what cannot be read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.harness.tally import TallySink
from causal.errors import CorruptData, PipelineError
from causal.ports import SinkStore, StoreState
from operators.outputs import Output, lines, open_output
from operators.sinks import JsonLinesSink, SqliteSink
from operators.sinks.conformance import Subject, after, bundle_at, fill, record_at
from operators.sinks.contract.sink import Sink
from operators.spark.limits import advanced, checked

Make = Callable[[Path], Sink]


def sqlite(directory: Path) -> Sink:
    return SqliteSink(directory / "out", existing="replace")


def in_lines(directory: Path) -> Sink:
    return JsonLinesSink(directory / "out", existing="replace")


def in_files(directory: Path) -> Sink:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed: there are no Parquet files")
    from operators.sinks.parquet.parquet_sink import ParquetSink

    return ParquetSink(directory / "out", existing="replace", publish_s=1e-9)


KINDS = pytest.mark.parametrize("make", [sqlite, in_lines, in_files])


def subject_of(sink: Sink) -> Subject:
    return Subject(sink, lambda task: None)


@contextmanager
def opened(sink: Sink, task: str = "out/0", run: str = "run-1") -> Iterator[tuple[Subject, SinkStore, StoreState]]:
    subject = subject_of(sink)
    store, state = subject.opened(1, run, task)
    try:
        yield subject, store, state
    finally:
        store.close()


def looked(output: Output) -> Output:
    output.look()
    return output


def read(output: Output, task: str, start: int, stop: int) -> list[tuple[int, Any]]:
    """(position, record) of each row, with the hint as another process would have it."""
    read_rows: list[tuple[int, Any]] = []
    for positions, rows in output.rows(task, start, stop, output.hint(task, start)):
        places = positions if isinstance(positions, (range, tuple)) else positions.to_pylist()
        records = map(json.loads, rows) if isinstance(rows, list) else rows.to_pylist()
        read_rows += zip(places, records, strict=True)
    return read_rows


def expected(task: str, start: int, stop: int) -> list[tuple[int, Any]]:
    return [(position, record_at(task, position)) for position in range(start, stop)]


@KINDS
def test_rows_of_every_task_are_there_at_once_by_position(make: Make, tmp_path: Path) -> None:
    sink = make(tmp_path)
    with opened(sink) as (subject, store, state), opened(sink, "out/1") as (_, other, other_state):
        output = looked(open_output(tmp_path / "out"))
        assert output.ends(False) == {"out/0": 0, "out/1": 0} and output.run == "run-1"
        state = fill(subject, store, state, 50)
        fill(subject, other, other_state, 20, 1, "out/1")
        assert output.ends(False) == {"out/0": 0, "out/1": 0}, "as of the last look"
        assert looked(output).ends(False) == {"out/0": 50, "out/1": 20}
        for start, stop in ((0, 50), (0, 1), (13, 37), (49, 50), (50, 50)):
            assert read(output, "out/0", start, stop) == expected("out/0", start, stop)
        fill(subject, store, state, 90)
        assert looked(output).ends(False)["out/0"] == 90
        assert read(output, "out/0", 40, 90) == expected("out/0", 40, 90)
        assert read(looked(open_output(tmp_path / "out")), "out/1", 0, 20) == expected("out/1", 0, 20)


@KINDS
def test_rows_that_may_be_taken_back_are_not_shown(make: Make, tmp_path: Path) -> None:
    with opened(make(tmp_path)) as (subject, store, state):
        for number in range(6):
            bundle = bundle_at(subject, state, 10)
            depends = ((0, number // 2, state.next + 1),)
            store.write(replace(bundle, epoch=number // 2, logs=(), depends=depends))
            state = after(state, bundle)
        output = looked(open_output(tmp_path / "out"))
        assert (output.ends(False), output.ends(True)) == ({"out/0": 0}, {"out/0": 60})
        store.truncate(2)
        assert looked(output).ends(False) == {"out/0": 40}
        marks = store.last_bundle().marks
        store.withdraw(marks[1])  # type: ignore[attr-defined]
        assert (looked(output).ends(False), output.ends(True)) == ({"out/0": 40}, {"out/0": marks[1].next})
        state = store.last_bundle()
        bundle = bundle_at(subject, state, 10)
        store.write(replace(bundle, epoch=2, logs=(), depends=((0, 2, 1),)))
        assert looked(output).ends(True) == {"out/0": marks[1].next + bundle.count}
        assert read(output, "out/0", 30, 40) == expected("out/0", 30, 40)


@KINDS
def test_another_run_is_distinguished(make: Make, tmp_path: Path) -> None:
    sink = make(tmp_path)
    for run, rows in (("run-1", 30), ("run-2", 10)):
        with opened(sink, run=run) as (subject, store, state):
            fill(subject, store, state, rows)
            output = looked(open_output(tmp_path / "out"))
            assert (output.run, output.ends(False)) == (run, {"out/0": rows})


def test_lines_of_a_bundle_that_are_not_in_place_yet_are_not_shown(tmp_path: Path) -> None:
    with opened(in_lines(tmp_path)) as (subject, store, state):
        fill(subject, store, state, 20)
    path = tmp_path / "out" / "out-0.jsonl"
    whole = path.read_bytes()
    path.write_bytes(
        b"".join(whole.splitlines(keepends=True)[:14]) + b'{"half": '
    )  # as a kill after the journal leaves it
    output = looked(open_output(tmp_path / "out"))
    assert output.ends(False) == {"out/0": 14} and read(output, "out/0", 3, 14) == expected("out/0", 3, 14)
    with pytest.raises(CorruptData, match="has lost rows"):
        read(output, "out/0", 0, 15)
    path.write_bytes(whole)
    assert looked(output).ends(False) == {"out/0": 20} and read(output, "out/0", 0, 20) == expected("out/0", 0, 20)


def test_where_lines_begin_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "_SCANNED_BYTES", 100)
    monkeypatch.setattr(lines, "LINES_AT_ONCE", 7)
    with opened(in_lines(tmp_path)) as (subject, store, state):
        output = open_output(tmp_path / "out")
        for rows in (60, 61, 300):
            state = fill(subject, store, state, rows)
            assert looked(output).ends(False) == {"out/0": rows}
            assert read(output, "out/0", 0, rows) == expected("out/0", 0, rows)
            line, byte = output.hint("out/0", rows - 1)
            assert 0 < rows - line < 10 and byte > 100
            assert read(output, "out/0", rows - 3, rows) == expected("out/0", rows - 3, rows)


@pytest.mark.parametrize("kind", ["nothing", "text", "directory", "tally", "empty database"])
def test_what_no_sink_wrote_is_told_in_one_line(kind: str, tmp_path: Path) -> None:
    place = tmp_path / "place"
    if kind == "text":
        place.write_text("hello")
    elif kind == "directory":
        place.mkdir()
    elif kind == "tally":
        with opened(TallySink(place)):
            pass
    elif kind == "empty database":
        import sqlite3

        db = sqlite3.connect(place)
        db.execute("CREATE TABLE mine(a)")
        db.close()
    with pytest.raises(PipelineError, match=r"place .*use the file of (a SqliteSink|one)"):
        if kind in ("tally", "empty database"):
            looked(open_output(place))
        else:
            open_output(place)


counts = st.dictionaries(st.sampled_from(["a/0", "a/1", "b/0"]), st.integers(0, 50))


@given(start=counts, more=counts, rows_max=st.none() | st.integers(1, 60))
def test_a_batch_has_its_rows_and_no_task_waits_for_ever(
    start: dict[str, int], more: dict[str, int], rows_max: int | None
) -> None:
    ends = {task: start.get(task, 0) + more.get(task, 0) for task in sorted(frozenset(start).union(more))}
    reached = advanced(start, ends, rows_max)
    rows = {task: reached[task] - start.get(task, 0) for task in ends}
    total = sum(ends.values()) - sum(start.values())
    assert all(0 <= rows[task] <= ends[task] - start.get(task, 0) for task in ends)
    assert sum(rows.values()) == (total if rows_max is None else min(total, rows_max))
    waiting = [task for task in ends if ends[task] > start.get(task, 0)]
    if rows_max is None or rows_max >= len(waiting):
        assert all(rows[task] for task in waiting)


def test_an_offset_of_other_rows_is_refused() -> None:
    assert checked({"run": "r", "a/0": 3}, "r", {"a/0": 5, "a/1": 1}, "p") == {"a/0": 3}
    with pytest.raises(PipelineError, match="rows of a different run.*new checkpoint"):
        checked({"run": "q", "a/0": 3}, "r", {"a/0": 5}, "p")
    with pytest.raises(PipelineError, match="ends at 2 for task a/0, but the query has read up to 3"):
        checked({"run": "r", "a/0": 3}, "r", {"a/0": 2}, "p")
