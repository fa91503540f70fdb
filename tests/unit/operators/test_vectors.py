"""Operators on vectors do what the row path does, however rows are batched, and replay to the same bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed: there are no vectors")
pytest.importorskip("numpy", reason="NumPy is not installed: there are no vectors")

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.harness.tally import TallySink
from causal.errors import OperatorFailed
from causal.ports import Chain
from causal.records.rows import joined
from causal.records.values import encode
from causal.records.vectors import Vectors
from operators import Pipeline
from operators.engine.plan import plan
from operators.kinds.vectors.number_table import NumberTable
from operators.records.arrow_rows import rows_of
from operators.records.keys import key_group, task_of_group
from operators.sinks import JsonLinesSink
from operators.sinks.contract.sink import Sink
from operators.source import SourceContext
from operators.sources import ArrowSource
from tests.unit.operators import scene
from tests.unit.operators.scene import NoSink, Services, chain_of, parts_of
from tests.unit.operators.vector_scene import arrow_source, give, listed, packed, planned, rows, vectors

INTS = st.integers(-(1 << 63), (1 << 63) - 1)
KEYS = {
    "int64": st.one_of(st.integers(-3, 3), INTS),
    "uint8": st.integers(0, 255),
    "uint64": st.integers(0, (1 << 64) - 1),
    "string": st.text(st.characters(codec="utf-8"), max_size=3),
    "double": st.floats(allow_nan=False),
    "bool": st.booleans(),
}


def keyed_rows(kind: str, values: st.SearchStrategy[Any], nulls: bool = True) -> st.SearchStrategy[list[list[Any]]]:
    key = KEYS[kind] if not nulls else st.one_of(st.none(), KEYS[kind])
    row = st.fixed_dictionaries({"k": key, "v": values})
    return st.lists(st.lists(row, min_size=1, max_size=40), min_size=1, max_size=5)


def key_of(row: Any) -> Any:
    return row["k"]


def on_vectors(build: Callable[[Any], Any]) -> Chain:
    return chain_of(planned(lambda stream: build(stream.key_by("k"))), "op/0")


def on_rows(build: Callable[[Any], Any]) -> Chain:
    return chain_of(scene.planned(lambda stream: build(stream.key_by(key_of))), "op/0")


def test_a_hot_key_is_added_up_in_order_of_arrival() -> None:
    values = [1e16, 1.0, -1e16, 1.0] * 50
    batch = [{"k": place % 3 == 0, "v": value} for place, value in enumerate(values)]
    sums = give(on_vectors(lambda s: s.sum("op", "v")), vectors(batch, k="bool", v="double"))
    state = {True: 0.0, False: 0.0}
    for row, emitted in zip(batch, sums, strict=True):
        state[bool(row["k"])] += row["v"]
        assert emitted["sum"] == state[bool(row["k"])]


def test_many_keys_find_their_slots_again() -> None:
    chain = on_vectors(lambda s: s.count("op"))
    keys = [(place * 0x9E3779B9) % (1 << 40) - (1 << 39) for place in range(70_000)]
    for turn in (1, 2):
        emitted = give(chain, Vectors.of({"k": keys}))
        assert [row["k"] for row in emitted] == keys and {row["count"] for row in emitted} == {turn}


def test_a_sum_beyond_64_bits_stops_and_one_within_does_not() -> None:
    chain = on_vectors(lambda s: s.sum("op", "v"))
    close = [{"k": 1, "v": (1 << 62)}, {"k": 1, "v": (1 << 62) - 1}, {"k": 2, "v": -(1 << 63)}]
    assert [row["sum"] for row in give(chain, vectors(close, k="int64", v="int64"))] == [
        1 << 62,
        (1 << 63) - 1,
        -1 << 63,
    ]
    with pytest.raises(OperatorFailed, match="operator 'op'.*a sum exceeds a signed 64-bit integer"):
        give(chain, vectors([{"k": 1, "v": 1}], k="int64", v="int64"))


@pytest.mark.parametrize(
    ("build", "batch", "message"),
    [
        (lambda s: s.sum("op", "v"), {"k": [1], "v": pa.array([None], pa.int64())}, "column 'v' has nulls; filter"),
        (
            lambda s: s.sum("op", "v"),
            {"k": [1], "v": ["a"]},
            "column 'v' has type string; sum accepts integers and floats",
        ),
        (
            lambda s: s.sum("op", "v"),
            {"k": [1], "v": pa.array([1 << 63], pa.uint64())},
            "exceeds a signed 64-bit integer",
        ),
        (lambda s: s.sum("op", "w"), {"k": [1], "v": [1]}, "column .+w.+ does not exist; the columns are k, v"),
        (lambda s: s.count("op"), {"v": [1]}, "column 'k' does not exist"),
        (lambda s: s.count("op"), {"k": [float("nan")]}, "a key is NaN"),
    ],
)
def test_what_a_fold_cannot_take_is_one_line(build: Any, batch: Any, message: str) -> None:
    with pytest.raises(OperatorFailed, match=message) as caught:
        give(on_vectors(build), Vectors.of(batch))
    assert "operator 'op'" in str(caught.value) and "\n" not in str(caught.value)


def test_integers_then_floats_in_one_column() -> None:
    chain = on_vectors(lambda s: s.sum("op", "v"))
    give(chain, vectors([{"k": 1, "v": 2}], k="int64", v="int64"))
    with pytest.raises(
        OperatorFailed, match="column 'v' has type double, but its state so far has type int64; keep one type"
    ):
        give(chain, vectors([{"k": 1, "v": 2.0}], k="int64", v="double"))


# Stages without state.


def test_map_batches_and_filter() -> None:
    def doubled(batch: Any) -> Any:
        return {"k": pc.multiply(batch.column("k"), 2), "odd": pc.bit_wise_and(batch.column("k"), 1)}

    job_plan = planned(lambda s: s.filter("some", lambda b: pc.greater(b.column("k"), 1)).map_batches("op", doubled))
    chain = chain_of(job_plan, "op/0")
    emitted = rows(chain.deliver(0, listed(Vectors.of({"k": [1, None, 2, 3]})), 0, Services()))
    assert emitted == [{"k": 4, "odd": 0}, {"k": 6, "odd": 1}]
    assert chain.deliver(0, listed(Vectors.of({"k": [1, 0]})), 0, Services()) == []


@pytest.mark.parametrize(
    "returned", [None, {"k": pa.array([], pa.int64())}, pa.table({"k": pa.chunked_array([[1], [2]])})]
)
def test_map_batches_may_give_nothing_or_a_table(returned: Any) -> None:
    chain = chain_of(planned(lambda s: s.map_batches("op", lambda batch: returned)), "op/0")
    expected = [{"k": 1}, {"k": 2}] if isinstance(returned, pa.Table) else []
    assert give(chain, Vectors.of({"k": [5]})) == expected


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda s: s.map_batches("op", lambda b: [1]), "a list is not a batch; use a pyarrow RecordBatch, a Table or"),
        (lambda s: s.map_batches("op", lambda b: {"x": [[1]]}), r"column 'x': vectors cannot hold list.*; cast it"),
        (lambda s: s.map_batches("op", lambda b: {"x": [1], "y": []}), "a dict cannot be converted to columns"),
        (lambda s: s.map_batches("op", lambda b: {}), "vectors have 1 to 1024 columns, not 0"),
        (lambda s: s.map_batches("op", lambda b: 1 // 0), "ZeroDivisionError"),
        (
            lambda s: s.filter("op", lambda b: [True, False]),
            "filter returned 2 values of type bool for 1 rows; return a boolean for each row",
        ),
        (lambda s: s.filter("op", lambda b: b.column("k")), "filter returned 1 values of type int64 for 1 rows"),
    ],
)
def test_a_wrong_answer_is_one_line(build: Any, message: str) -> None:
    with pytest.raises(OperatorFailed, match=message) as caught:
        give(chain_of(planned(build), "op/0"), Vectors.of({"k": [5]}))
    assert "operator 'op', positions 0 to 0 of partition 0 of source 'in'" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_two_schemas_in_one_delivery_are_refused() -> None:
    chain = chain_of(planned(lambda s: s.map_batches("op", lambda b: b)), "op/0")
    chunks = packed(Vectors.of({"k": [1]})) + packed(Vectors.of({"k": ["a"]}))
    with pytest.raises(
        OperatorFailed,
        match=r"columns of a batch \(k string\) differ from those of earlier batches of its stream \(k int64\); give",
    ):
        chain.deliver(0, chunks, 0, Services())


def test_a_delivery_of_several_chunks_is_one_batch() -> None:
    seen: list[int] = []
    chain = chain_of(planned(lambda s: s.map_batches("op", lambda b: seen.append(b.num_rows))), "op/0")
    chain.deliver(0, listed(Vectors.of({"k": [1, 2]})) + packed(Vectors.of({"k": [3]})), 0, Services())
    assert seen == [3]


def test_other_columns_within_a_window_are_refused() -> None:
    chain = windowed()
    chain.deliver(0, packed(Vectors.of({"k": [1], "v": [1]})), 0, Services())
    with pytest.raises(OperatorFailed, match=r"operator 'op'.*columns of a batch \(k int64\) differ from"):
        chain.deliver(0, packed(Vectors.of({"k": [1]})), 0, Services())


def test_a_key_column_that_is_missing_is_one_line() -> None:
    job_plan = planned(lambda s: s.map_batches("other", lambda b: {"l": [1]}).key_by("k").count("op"))
    with pytest.raises(
        OperatorFailed, match="key_by before 'op': column 'k' does not exist; the columns are l; correct"
    ):
        chain_of(job_plan, "other/0").deliver(0, listed(Vectors.of({"k": [1]})), 0, Services())


def test_a_stream_used_twice() -> None:
    pipeline = Pipeline("test")
    stream = pipeline.source("in", arrow_source())
    stream.filter("odd", lambda b: pc.equal(pc.bit_wise_and(b.column("k"), 1), 1)).sink("odds", NoSink())
    stream.sink("all", NoSink())
    [odd, whole] = chain_of(plan(pipeline, scene.config()), "odd/0").deliver(
        0, listed(Vectors.of({"k": [1, 2, 3]})), 0, Services()
    )
    assert (rows([odd]), rows([whole])) == ([{"k": 1}, {"k": 3}], [{"k": 1}, {"k": 2}, {"k": 3}])


# Sources.


def read(source: ArrowSource, position: int, count_max: int) -> Any:
    batch = source.open(0, SourceContext("in", Path(), 0)).read(position, count_max)
    assert batch is not None
    return batch


def test_a_source_gives_vectors_by_position() -> None:
    batch = read(arrow_source(), 7, 100)
    assert batch.ended and batch.records.batch.to_pydict() == {"k": [7, 8, 9]}


@pytest.mark.parametrize(
    ("returned", "message"),
    [({"k": [1]}, "1 element instead of 10"), ([1], "a list is not a batch"), ({"k": [[1]] * 10}, "column 'k'")],
)
def test_a_source_that_gives_something_else_is_named(returned: Any, message: str) -> None:
    with pytest.raises(
        OperatorFailed, match=rf"source 'in', partition 0, elements 0 to 9: .*{message}.*; correct read\("
    ):
        read(ArrowSource(lambda partition, start, stop: returned, 10), 0, 10)


# Borders.


def test_there_and_back() -> None:
    schema = {"k": "int64", "name": "string", "at": "timestamp[us]"}
    job_plan = scene.planned(lambda s: s.to_vectors("in-v", schema).to_rows("back").map("op", lambda r: r))
    chain = chain_of(job_plan, "op/0")
    records = [{"k": 1, "name": "a", "at": None}, {"k": None, "name": "ä", "at": None}]
    assert scene.give(chain, records) == records
    assert scene.give(chain, [(2, "b", None)]) == [{"k": 2, "name": "b", "at": None}]


def test_a_record_that_fits_no_column_is_named_or_set_aside() -> None:
    bad = [{"k": 1}, {"k": "x"}, {"l": 1}, 5, {"k": 2}]
    chain = chain_of(scene.planned(lambda s: s.to_vectors("op", {"k": "int64"})), "op/0")
    with pytest.raises(OperatorFailed, match=r"operator 'op', position 1 of .*record \{'k': 'x'\}"):
        scene.give(chain, bad)
    lenient = scene.planned(lambda s: s.to_vectors("op", {"k": "int64"}), on_error="dead-letter")
    outputs = chain_of(lenient, "op/0").deliver(0, scene.listed(bad), 0, Services())
    assert rows(outputs[:1]) == [{"k": 1}, {"k": 2}]
    assert [letter["position"] for letter in rows(outputs[1:])] == [1, 2, 3]


NANOSECONDS = pa.array([0, 2001, 3000], pa.timestamp("ns"))


def test_a_row_that_no_record_holds_is_named_on_its_way_to_rows_or_a_sink(tmp_path: Path) -> None:
    def planned_with(build: Callable[[Any], Any], **settings: Any) -> Any:
        pipeline = Pipeline("test")
        build(pipeline.source("in", arrow_source())).sink("out", JsonLinesSink(tmp_path))
        return plan(pipeline, scene.config(**settings))

    chunks = packed(Vectors.of({"t": NANOSECONDS}))
    back = planned_with(lambda s: s.to_rows("back").map("op", lambda r: r))
    with pytest.raises(OperatorFailed, match=r"operator 'back'.*2001 ns .*; change or drop such values in a map_batch"):
        chain_of(back, "op/0").deliver(0, chunks, 0, Services())
    with pytest.raises(OperatorFailed, match=r"operator 'out', position 1 .*2001 ns since 1970 is not a whole number"):
        chain_of(planned_with(lambda s: s), "out/0").deliver(0, chunks, 0, Services())
    lenient = planned_with(lambda s: s, on_error="dead-letter")
    (_, kept), (_, letters) = chain_of(lenient, "out/0").deliver(0, chunks, 0, Services())
    assert (kept.count, letters.count) == (2, 1)


def test_a_row_behind_a_filter_of_vectors_has_no_position() -> None:
    job_plan = planned(
        lambda s: s.filter("some", lambda b: pc.greater(b.column("k"), 1)).to_rows("rows").map("op", lambda r: 1 // 0)
    )
    with pytest.raises(OperatorFailed, match=r"operator 'op', positions 0 to 1 of .*record \{'k': 2\}"):
        chain_of(job_plan, "op/0").deliver(0, listed(Vectors.of({"k": [1, 2]})), 0, Services())


# Where rows go.


@pytest.mark.parametrize("kind", KEYS)
@given(data=st.data())
def test_a_key_has_the_task_that_it_has_as_a_row(kind: str, data: st.DataObject) -> None:
    chain = chain_of(planned(lambda s: s.key_by("k").sum("op", "v", parallelism=3)), "in/0")
    for batch in data.draw(keyed_rows(kind, st.just(0))):
        outputs = chain.deliver(0, listed(vectors(batch, k=kind, v="int64")), 0, Services())
        for ordinal, chunk in outputs:
            expected = [row for row in batch if task_of_group(key_group(row["k"], 128), 3, 128) == ordinal]
            assert rows([(ordinal, chunk)]) == expected
        assert sum(chunk.count for _, chunk in outputs) == len(batch)


@pytest.mark.parametrize(
    ("build", "columns"),
    [
        (lambda s: s.key_by("k").count("op", parallelism=2), ["k"]),
        (lambda s: s.key_by("k").max("op", "v", parallelism=2), ["k", "v"]),
        (lambda s: s.key_by("v").sum("op", "v", parallelism=2), ["v"]),
        (lambda s: s.key_by("k").sum("op", "absent", parallelism=2), ["w", "k", "v"]),
        (lambda s: s.key_by("k").window("op", 1, lambda b, w: b, parallelism=2), ["w", "k", "v"]),
    ],
    ids=["count", "fold", "fold of the key", "absent", "any function"],
)
def test_only_columns_that_are_looked_at_travel(build: Any, columns: list[str]) -> None:
    batch = {name: [1, 2, 3, 4, 5, 6, 7, 8] for name in ("w", "k", "v")}
    outputs = chain_of(planned(build), "in/0").deliver(0, listed(Vectors.of(batch)), 0, Services())
    assert len(outputs) == 2
    assert all(list(row) == columns for row in rows(outputs))
    assert sorted(row[columns[-1]] for row in rows(outputs)) == batch["k"]


def test_a_key_that_is_nan_is_set_aside() -> None:
    job_plan = planned(lambda s: s.key_by("k").count("op", parallelism=2), on_error="dead-letter")
    batch = Vectors.of({"k": [1.0, float("nan"), 2.0]})
    outputs = chain_of(job_plan, "in/0").deliver(0, listed(batch), 0, Services())
    letters = [row for row in rows(outputs) if "error" in row]
    assert [row["k"] for row in rows(outputs) if "error" not in row] in ([1.0, 2.0], [2.0, 1.0])
    assert len(letters) == 1 and "a key is NaN" in letters[0]["error"]


def test_without_keys_whole_batches_go_in_turn() -> None:
    def fresh() -> Chain:
        pipeline = Pipeline("test")
        pipeline.source("in", arrow_source()).sink("out", NoSink(), parallelism=2)
        return chain_of(plan(pipeline, scene.config()), "in/0")

    def turns(chain: Chain, count: int) -> list[int]:
        batch = listed(Vectors.of({"k": [1, 2]}))
        return [ordinal for _ in range(count) for ordinal, _ in chain.deliver(0, batch, 0, Services())]

    chain, again = fresh(), fresh()
    assert turns(chain, 3) == [0, 1, 0]
    again.restore(parts_of(chain, full=True))
    assert turns(again, 2) == [1, 0]


# Sinks.

CELLS = st.fixed_dictionaries(
    {
        "i": st.one_of(st.none(), INTS),
        "f": st.one_of(st.none(), st.floats()),
        "s": st.one_of(st.none(), st.text(st.characters(codec="utf-8"))),
        "plain": st.one_of(st.none(), st.text("abcß", max_size=4)),
        "b": st.one_of(st.none(), st.booleans()),
        "x": st.one_of(st.none(), st.binary(max_size=4)),
        'odd"name': st.one_of(st.none(), st.datetimes().map(lambda at: at.replace(fold=0))),
        "d": st.one_of(st.none(), st.decimals(-1000, 1000, places=2)),
    }
)
SCHEMA = pa.schema(
    [("i", pa.int64()), ("f", pa.float64()), ("s", pa.string()), ("plain", pa.large_string()), ("b", pa.bool_()),
     ("x", pa.binary()), ('odd"name', pa.timestamp("us")), ("d", pa.decimal128(8, 2))]
)  # fmt: skip


@given(st.lists(CELLS, min_size=1, max_size=8))
def test_a_sink_writes_what_it_writes_of_rows(records: list[Any]) -> None:
    batch = Vectors.of(pa.RecordBatch.from_pylist(records, schema=SCHEMA))
    sink = NoSink()
    expected = sink.encode(rows_of(batch.batch, 0, len(batch)))
    assert sink.encode_vectors(batch) == expected
    assert sink.encode_vectors(batch[1:]) == expected[expected.index(b"\n") + 1 :]
    assert len(expected.splitlines()) >= len(records) and json.loads(expected.split(b"\n")[0])


def test_a_sink_with_an_encoding_of_its_own_is_given_rows() -> None:
    class Csv(NoSink):
        def encode(self, records: Any) -> bytes:
            return "".join(",".join(map(str, record.values())) + "\n" for record in records).encode()

    assert Csv().encode_vectors(Vectors.of({"a": [1, 2], "b": ["x", None]})) == b"1,x\n2,None\n"


def test_a_sink_task_counts_rows() -> None:
    job_plan = planned(lambda s: s)
    [(ordinal, chunk)] = chain_of(job_plan, "out/0").deliver(0, packed(Vectors.of({"k": [1, 2]})), 0, Services())
    assert (ordinal, chunk.count, chunk.body) == (0, 2, b'{"k": 1}\n{"k": 2}\n')
    assert TallySink("x").encode_vectors(Vectors.of({"k": [1, 2]})) == b"\x02\0\0\0"
    assert Sink.encode_vectors is NoSink.encode_vectors


# Bytes.


@given(st.lists(CELLS, min_size=1, max_size=20), st.data())
def test_bytes_are_a_function_of_the_rows(records: list[Any], data: st.DataObject) -> None:
    whole = Vectors.of(pa.RecordBatch.from_pylist(records, schema=SCHEMA))
    start = data.draw(st.integers(0, len(records) - 1))
    stop = data.draw(st.integers(start + 1, len(records)))
    alone = Vectors.of(pa.RecordBatch.from_pylist(records[start:stop], schema=SCHEMA))
    cut = data.draw(st.integers(start, stop))
    pieces = [piece for piece in (whole[start:cut], whole[cut:stop]) if len(piece)]
    body = alone.encode()
    assert whole[start:stop].encode() == body == joined(pieces).encode() == Vectors.decode(body).encode()
    assert Vectors.decode(memoryview(b"xxx" + body)[3:]).batch.equals(alone.batch)


def test_what_is_under_a_null_does_not_show() -> None:
    bits = pa.py_buffer(b"\xfd")
    one = pa.Array.from_buffers(pa.int32(), 3, [bits, pa.py_buffer(bytes(range(12)))])
    other = pa.Array.from_buffers(
        pa.int32(), 3, [pa.py_buffer(b"\x05"), pa.py_buffer(bytes(range(4)) + b"zzzz" + bytes(range(8, 12)))]
    )
    assert one.equals(other)
    assert Vectors.of({"x": one}).encode() == Vectors.of({"x": other}).encode()


def test_names_of_a_schema_with_metadata_do_not_show() -> None:
    plain = Vectors.of({"x": [1]})
    annotated = pa.record_batch({"x": [1]}, metadata={"pandas": "much"})
    assert Vectors.of(annotated).encode() == plain.encode()


# Snapshots.


def test_a_snapshot_is_read_by_either_path() -> None:
    batch = [{"k": key, "v": 0} for key in (5, 7, 5, -1)]
    fast, slow = on_vectors(lambda s: s.count("op")), on_rows(lambda s: s.count("op"))
    give(fast, vectors(batch, k="int64", v="int64"))
    scene.give(slow, batch)
    again_fast, again_slow = on_vectors(lambda s: s.count("op")), on_rows(lambda s: s.count("op"))
    again_slow.restore(parts_of(fast, full=True))
    again_fast.restore(parts_of(slow, full=True))
    assert scene.give(again_slow, batch[:1]) == [(5, 3)]
    assert give(again_fast, vectors(batch[1:2], k="int64", v="int64")) == [{"k": 7, "count": 2}]


@pytest.mark.parametrize("kind", ["int64", "string"])
@given(data=st.data())
def test_incremental_snapshots_restore_to_the_same_bytes(kind: str, data: st.DataObject) -> None:
    batches = data.draw(keyed_rows(kind, st.sampled_from([0.1, 0.2, -0.3, 1e300])))
    chain = on_vectors(lambda s: s.sum("op", "v"))
    files = [parts_of(chain, full=True)]
    for batch in batches:
        give(chain, vectors(batch, k=kind, v="double"))
        files.append(parts_of(chain))
    again = on_vectors(lambda s: s.sum("op", "v"))
    for parts in files:
        again.restore(parts)
    more = vectors([row for batch in batches for row in batch], k=kind, v="double")
    assert again.deliver(0, packed(more), 0, Services()) == chain.deliver(0, packed(more), 0, Services())

    def canonical(of: Chain) -> list[bytes]:
        fresh = on_vectors(lambda s: s.sum("op", "v"))
        fresh.restore(parts_of(of, full=True))
        return parts_of(fresh, full=True)

    assert canonical(again) == canonical(chain)


def test_a_snapshot_holds_what_was_touched_and_not_what_follows() -> None:
    chain = on_vectors(lambda s: s.count("op"))
    give(chain, Vectors.of({"k": list(range(5000))}))
    full = chain.snapshot(True)
    while not full.step(1000):
        give(chain, Vectors.of({"k": [4999]}))
    give(chain, Vectors.of({"k": [7]}))
    rest = parts_of(chain)
    assert sum(map(len, rest)) < 400
    again = on_vectors(lambda s: s.count("op"))
    again.restore(full.parts())
    assert give(again, Vectors.of({"k": [4999, 7]})) == [{"k": 4999, "count": 2}, {"k": 7, "count": 2}]
    late = on_vectors(lambda s: s.count("op"))
    late.restore(full.parts())
    late.restore(rest)
    assert give(late, Vectors.of({"k": [7]})) == [{"k": 7, "count": 3}]


# Windows.


def totals(batch: Any, window: Any) -> Any:
    table = pa.table(batch).group_by("k", use_threads=False).aggregate([("v", "sum")])
    return table.append_column("end", pa.array([window.end] * table.num_rows))


def windowed() -> Chain:
    return chain_of(planned(lambda s: s.key_by("k").window("op", 1.0, totals)), "op/0")


def test_a_window_holds_what_arrived_until_it_fires() -> None:
    chain, services = windowed(), Services()
    for batch in ([(1, 10), (2, 20)], [(1, 1)]):
        columns = Vectors.of({"k": [k for k, _ in batch], "v": [v for _, v in batch]})
        assert chain.deliver(0, packed(columns), 0, services) == []
    due_ns = chain.next_timer_ns()
    assert due_ns == 1001_000_000_000
    assert rows(chain.fire(due_ns, services)) == [
        {"k": 1, "v_sum": 11, "end": 1001.0},
        {"k": 2, "v_sum": 20, "end": 1001.0},
    ]
    assert chain.next_timer_ns() is None and chain.finish(services) == []
    assert [kind for kind, _ in services.log] == ["clock", "window"]


@given(st.lists(st.lists(st.integers(-5, 5), min_size=1, max_size=30), min_size=1, max_size=6), st.data())
def test_an_open_window_survives_restores(batches: list[list[int]], data: st.DataObject) -> None:
    services = Services()
    chain = chain_of(planned(lambda s: s.key_by("k").window("op", 1.0, lambda batch, window: batch)), "op/0")
    files = [parts_of(chain, full=True)]
    for batch in batches:
        chain.deliver(0, packed(Vectors.of({"k": batch})), 0, services)
        if data.draw(st.booleans()):
            full = data.draw(st.booleans())
            files = [] if full else files
            files.append(parts_of(chain, full=full))
        if data.draw(st.integers(0, 4)) == 0 and chain.next_timer_ns() is not None:
            chain.fire(chain.next_timer_ns() or 0, services)
    files.append(parts_of(chain))
    again = chain_of(planned(lambda s: s.key_by("k").window("op", 1.0, lambda batch, window: batch)), "op/0")
    for parts in files:
        again.restore(parts)
    assert parts_of(again, full=True) == parts_of(chain, full=True)
    assert again.finish(Services()) == chain.finish(services)


# Replay.


@pytest.mark.parametrize("values", [[3, -(1 << 63), (1 << 63) - 1], [3, 0.5, -1e300], [0.25]])
def test_a_restored_table_of_numbers_contains_them_exactly(values: list[Any]) -> None:
    fragment = encode([list(range(len(values))), values, []])
    table = NumberTable("t", 8)
    table.load(fragment)
    table.settle()
    restored = [table.inspect(key) for key in range(len(values))]
    assert restored == values and {type(each) for each in restored} == {
        type(max(values, key=lambda each: type(each) is float))
    }
