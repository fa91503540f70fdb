"""`ParquetSink` as users see it, beyond the promises that every sink makes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed: there are no Parquet files")

import pyarrow as pa
import pyarrow.dataset as dataset
import pyarrow.parquet as pq

from causal.errors import PipelineError, RowRefused
from causal.ports import Bundle, StoreState
from causal.records.rows import Rows
from causal.records.vectors import Vectors
from causal.storage import file_journal as locked_journal
from operators.sinks import conformance
from operators.sinks.conformance import EPOCH_ROWS, Subject, after, bundle_at, expect_held, fill, returning, withdrawal
from operators.sinks.conformance.crashes import dies_at_every_step_of_a_write, stops_zombies_that_wake_up
from operators.sinks.conformance.successions import dies_at_every_step_of_a_replacement
from operators.sinks.conformance.zombies import fences_zombies_at_every_step_of_a_write
from operators.sinks.parquet import parquet_rolling
from operators.sinks.parquet.manifest import load_manifest
from operators.sinks.parquet.parquet_reading import ParquetOutput
from operators.sinks.parquet.parquet_sink import ParquetSink, publish, read
from tests.unit.sinks.bounded import in_bounds
from tests.unit.sinks.parquet_scene import (
    parquet,
    parquet_abandoned_on_disk,
    parquet_in_small_files,
    plain_rows,
    rows_of,
)

ALL = conformance.CHECKS + withdrawal.CHECKS + returning.CHECKS
STEP_BY_STEP = (dies_at_every_step_of_a_write, fences_zombies_at_every_step_of_a_write)
CHECKS = tuple(check for check in ALL if check is not stops_zombies_that_wake_up)


@pytest.mark.parametrize(
    "check", in_bounds(CHECKS, *STEP_BY_STEP, dies_at_every_step_of_a_replacement), ids=lambda check: check.__name__
)
def test_it_conforms_when_nobody_closes_it(check: Callable[[Subject], None], tmp_path: Path) -> None:
    check(parquet_abandoned_on_disk(tmp_path))


def test_zombies_that_wake_up_are_fenced(tmp_path: Path) -> None:
    stops_zombies_that_wake_up(parquet(tmp_path, publish_s=0.01), stops=3)


@pytest.mark.parametrize("check", in_bounds(CHECKS, STEP_BY_STEP[1]), ids=lambda check: check.__name__)
def test_it_conforms_when_each_bundle_makes_a_file(check: Callable[[Subject], None], tmp_path: Path) -> None:
    subject = parquet_in_small_files(tmp_path)
    if check.__name__ != "takes_a_half_written_bundle_for_nothing":  # a closed store has nothing in its journal
        check(subject)


def write(sink: ParquetSink, *pieces: Any, state: StoreState | None = None, run: str = "run-1") -> StoreState:
    """Return one bundle of these pieces, each encoded as one event's output, by a store that is closed again."""
    store = sink.open_store("out/0", sink.directory)
    state = store.open("out/0", run, 1)
    encode: dict[type, Callable[[Any], bytes]] = {Rows: sink.encode_rows, Vectors: sink.encode_vectors}
    encode_records: Callable[[Any], bytes] = sink.encode
    rows = b"".join(encode.get(type(piece), encode_records)(piece) for piece in pieces)
    try:
        store.write(Bundle(state.next, sum(map(len, pieces)), rows, state.next + 1, 0, 1, ()))
        return store.last_bundle()
    finally:
        store.close()


def test_rows_are_seen_at_once_by_us_and_in_whole_files_by_others(tmp_path: Path) -> None:
    subject = parquet(tmp_path, publish_s=3600)
    store, state = subject.opened()
    fill(subject, store, state, 30)
    directory = tmp_path / "out"
    assert read(directory).num_rows == 30 and plain_rows(directory) == []
    store.close()
    assert [path.name for path in directory.glob("*.parquet")] == ["out-0-000000000000-000000000030.parquet"]
    table = dataset.dataset(directory).to_table()  # passes over _causal on its own
    assert table.equals(read(directory)) and table.column("n").to_pylist() == list(range(30))


def test_files_are_cut_by_size_and_a_file_once_there_never_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_rolling, "GROUP_BYTES", 2000)
    monkeypatch.setattr(locked_journal, "JOURNAL_BYTES_MAX", 4000)
    subject = parquet(tmp_path, publish_s=3600, file_bytes=4000)
    store, state = subject.opened()
    directory, journal = tmp_path / "out", tmp_path / "out" / "_causal" / "out-0.journal"
    known: dict[str, bytes] = {}
    largest = 0
    while state.next < 20 * EPOCH_ROWS:
        state = fill(subject, store, state, state.next + 7)
        store.truncate(state.next // EPOCH_ROWS)
        largest = max(largest, journal.stat().st_size)
        for path in directory.glob("*.parquet"):
            assert known.setdefault(path.name, path.read_bytes()) == path.read_bytes()
        assert len(plain_rows(directory)) <= state.next
    assert 4 < len(known) < 60 and largest < 20_000
    store.close()
    assert [row["n"] for row in plain_rows(directory)] == list(range(state.next))
    assert [row["n"] for row in rows_of(directory)] == list(range(state.next))
    again, state = subject.opened(2)
    expect_held(subject, state, "a journal that was rewritten loses nothing", kept_from=state.next // EPOCH_ROWS)
    again.close()


def test_vectors_rows_and_dicts_of_one_bundle_are_one_table(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path / "out", {"key": "string", "n": "int64"})
    vectors = Vectors.of({"key": pa.array(["a", None]), "n": pa.array([1, 2], pa.int32())})
    assert sink.encode_rows(Rows([["b"], [3]])) == sink.encode([("b", 3)])
    write(sink, vectors, Rows([["b"], [3]]), [{"n": 4}], [["c", 5]])
    assert read(tmp_path / "out").to_pydict() == {"key": ["a", None, "b", None, "c"], "n": [1, 2, 3, 4, 5]}


def test_vectors_become_no_python_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*args: object) -> None:
        raise AssertionError("code looks at single rows")

    monkeypatch.setattr("operators.sinks.parquet.fitting._parts", never)
    sink = ParquetSink(tmp_path / "out")
    write(sink, Vectors.of({"x": pa.array(range(1000), pa.int16())}), Vectors.of({"x": pa.array([7], pa.int16())}))
    assert read(tmp_path / "out").schema == pa.schema([("x", pa.int16())])
    assert pq.read_table(next((tmp_path / "out").glob("*.parquet"))).num_rows == 1001


def test_the_schema_is_that_of_the_first_bundle_and_stays(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path / "out")
    at = datetime(2026, 1, 2, 3, 4, 5, 6, UTC)
    first = {
        "i": 1,
        "x": 1.5,
        "s": "a",
        "b": b"\xff",
        "t": at,
        "d": Decimal("1.25"),
        "l": [1],
        "m": {"k": "v"},
        "none": None,
    }
    write(sink, [first, {"i": 2, "more": True}])
    schema = read(tmp_path / "out").schema
    assert [str(field.type) for field in schema] == [
        "int64", "double", "string", "binary", "timestamp[us, tz=UTC]", "decimal128(38, 2)", "list<element: int64>"
        if "element" in str(schema.field("l").type) else "list<item: int64>",
        "struct<k: string>", "string", "bool",
    ]  # fmt: skip
    rows = read(tmp_path / "out").to_pylist()
    assert rows[0] == {**first, "more": None} and rows[1]["more"] is True
    for wrong, said in (
        ({"i": 1.5}, "column 'i' has type int64, not float"),
        ({"i": True}, "column 'i' has type int64"),
        ({"i": 1 << 70}, "column 'i' has type int64"),
        ({"s": b"a"}, "column 's' has type string, not bytes"),
        ({"s": "\ud800"}, "column 's' has type string"),
        ({"b": "a"}, "column 'b' has type binary, not str"),
        ({"l": [1.5]}, r"column 'l\[\]' has type int64, not float"),
        ({"m": {"other": 1}}, "has no field 'other'"),
        ({"d": Decimal("1.001")}, "column 'd' has type decimal"),
        ({"unknown": 1}, "column 'unknown' is not in the schema of the files"),
        (("a", "tuple"), "the number of values is 2, but the number of columns is 10"),
        ("text", "a str has no columns; use dicts"),
    ):
        with pytest.raises(RowRefused, match=said) as refused:
            write(sink, [{"i": 3}, wrong, {"i": 4}])
        assert [position for position, _ in refused.value.rows] == [3]
    assert len(read(tmp_path / "out")) == 2, "a refused row changes nothing"


def test_tuples_need_names_and_vectors_of_other_columns_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RowRefused, match="a tuple has no columns; use dicts, or name the parts of tuples"):
        write(ParquetSink(tmp_path / "a"), [(1, 2), (3, 4)])
    sink = ParquetSink(tmp_path / "b", columns=["key", "n"])
    write(sink, [("a", 1), ("b", 2)])
    assert read(tmp_path / "b").to_pydict() == {"key": ["a", "b"], "n": [1, 2]}
    for wrong, said in (
        (Vectors.of({"key": ["a"], "m": [1]}), "column 'm' is not in the schema of the files"),
        (Vectors.of({"key": [1]}), "column 'key' has type string, not int64"),
        (Vectors.of({"n": pa.array([1 << 63], pa.uint64())}), "column 'n' has type int64"),
        (Vectors.of({"n": pa.array([1.5])}), "column 'n' has type int64"),
    ):
        with pytest.raises(RowRefused, match=said):
            write(sink, wrong)
    strict = ParquetSink(tmp_path / "c", pa.schema([pa.field("n", pa.int64(), nullable=False)]))
    with pytest.raises(RowRefused, match="column 'n' must have a value"):
        write(strict, [{"n": 1}, {}])


def test_a_row_that_was_refused_is_in_no_file_and_its_position_counts(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path / "out", {"n": "int64"})
    store = sink.open_store("out/0", tmp_path)
    store.open("out/0", "run-1", 1)
    for at in range(0, 40, 4):
        rows = sink.encode([{"n": at}, {"n": "x"}]) + sink.encode_vectors(Vectors.of({"n": [at + 2, at + 3]}))
        refused = ((at + 1, "text"), (at + 2, "why not"))
        store.write(Bundle(at, 4, rows, at + 1, 0, 1, (), refused=refused))
        if at == 20:
            store.publish()  # type: ignore[attr-defined]
    kept = [n for n in range(40) if n % 4 in (0, 3)]
    for _ in range(2):  # half of it still in the journal, then all in files
        output = ParquetOutput(tmp_path / "out")
        output.look()
        assert output.ends(True) == {"out/0": 40}
        batches = list(output.rows("out/0", 3, 38))
        assert [n for positions, _ in batches for n in positions.to_pylist()] == kept[1:-1]
        assert [row["n"] for _, batch in batches for row in batch.to_pylist()] == kept[1:-1]
        store.close()
    assert [row["n"] for row in plain_rows(tmp_path / "out")] == kept
    assert sink.shown_row(rows, 1) == {"n": "x"} and sink.shown_row(rows, 3) == {"n": 39}


def test_below_full_depth_a_file_has_only_rows_that_stay(tmp_path: Path) -> None:
    subject = parquet_in_small_files(tmp_path)
    store, state = subject.opened()
    for number in range(9):
        plain = bundle_at(subject, state, 10)
        depends = ((0, number // 3, state.next + 1),)
        store.write(replace(plain, epoch=number // 3, logs=(), depends=depends))
        state = after(state, plain)
        if number in (2, 5):
            store.truncate(number // 3)
    directory = tmp_path / "out"
    assert state.next == 90 and len(rows_of(directory, uncovered=False)) == 30 and len(plain_rows(directory)) <= 30
    state = store.last_bundle()
    store.truncate(1)
    assert len(plain_rows(directory)) == len(rows_of(directory, uncovered=False)) == state.marks[0].next == 30
    assert len(rows_of(directory)) == 90
    store.withdraw(state.marks[1])  # type: ignore[attr-defined]
    assert len(rows_of(directory)) == state.marks[1].next < 90 and len(plain_rows(directory)) == 30
    store.close()
    publish(directory)
    assert len(plain_rows(directory)) == 30
    publish(directory, ended=True)
    assert [row["n"] for row in plain_rows(directory)] == list(range(state.marks[1].next))
    store, reopened = subject.opened(2)
    with pytest.raises(PipelineError, match="published as rows of a job that has ended"):
        store.withdraw(reopened.marks[0])  # type: ignore[attr-defined]
    store.close()


def test_a_writer_goes_on_beside_somebody_who_publishes(tmp_path: Path) -> None:
    subject = parquet(tmp_path, publish_s=3600)
    store, state = subject.opened()
    state = fill(subject, store, state, 20)
    publish(tmp_path / "out")
    assert len(plain_rows(tmp_path / "out")) == 20
    fill(subject, store, state, 45)
    subject.expect_rows(45, "the process that has it open continues")
    store.close()
    assert [row["n"] for row in plain_rows(tmp_path / "out")] == list(range(45))


def test_two_tasks_agree_on_one_schema_and_one_manifest(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path / "out")
    for number, record in enumerate(({"n": 1}, {"n": 2})):
        store = sink.open_store(f"out/{number}", tmp_path)
        store.open(f"out/{number}", "run-1", 1)
        store.write(Bundle(0, 1, sink.encode([record]), 1, 0, 1, ()))
        store.close()
    store = sink.open_store("out/2", tmp_path)
    store.open("out/2", "run-1", 1)
    with pytest.raises(RowRefused, match="column 'n' has type int64, not float"):
        store.write(Bundle(0, 1, sink.encode([{"n": 1.5}]), 1, 0, 1, ()))
    store.close()
    assert read(tmp_path / "out").to_pydict() == {"n": [1, 2]}
    manifest = json.loads((tmp_path / "out" / "_causal" / "manifest.json").read_text())
    assert manifest["files"] == {"out/0": [[0, 1]], "out/1": [[0, 1]]} and manifest["columns"] == [["n", "int64"]]


def test_another_schema_than_that_of_the_files_is_refused(tmp_path: Path) -> None:
    write(ParquetSink(tmp_path / "out"), [{"n": 1}])
    with pytest.raises(PipelineError, match="its files differ from ParquetSink's schema"):
        write(ParquetSink(tmp_path / "out", {"n": "string"}), [{"n": "1"}])
    write(ParquetSink(tmp_path / "out", {"n": "int64"}), [{"n": 2}])
    assert rows_of(tmp_path / "out") == [{"n": 1}, {"n": 2}]


def test_where_no_sink_wrote_there_is_nothing_to_read(tmp_path: Path) -> None:
    for reading in (read, publish):
        with pytest.raises(PipelineError, match="was not written by a ParquetSink"):
            reading(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_empty_output_has_no_columns_yet(tmp_path: Path) -> None:
    store = ParquetSink(tmp_path / "out").open_store("out/0", tmp_path)
    store.open("out/0", "run-1", 1)
    store.close()
    assert read(tmp_path / "out").num_rows == 0
    assert load_manifest(tmp_path / "out").schema is None  # type: ignore[union-attr]
