"""Bodies of vectors from outside are checked before use, and pyarrow is only needed where there are vectors."""

from __future__ import annotations

import struct
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.errors import PeerViolation, PipelineError
from causal.records import vectors
from causal.records.batch import RECORDS, Chunk, decode_records, encode_records, pack_chunks, unpack_chunks
from causal.records.values import NotCarried, encode
from causal.records.vectors import Vectors
from operators import Pipeline
from operators.sources import ArrowSource
from tests.unit.operators.scene import NoSink, source

needs_arrow = pytest.mark.skipif(
    find_spec("pyarrow") is None or find_spec("numpy") is None, reason="pyarrow or NumPy is not installed"
)

COLUMNS = {"k": [1, None, 3], "s": ["a", "ßß", None], "b": [True, None, False], "f": [0.5, 1.5, None]}


def body(rows: int, schema: Any, shape: bytes, *columns: bytes) -> bytes:
    header = encode(schema)
    head = struct.pack("<B3xII", 2, rows, len(header)) + header + shape
    return head + bytes(-len(head) % 8) + b"".join(column + bytes(-len(column) % 8) for column in columns)


def shape(*numbers: int) -> bytes:
    return struct.pack("<" + "BI" * (len(numbers) // 2), *numbers)


INTS = [["k", "int64"]]
TEXT = [["s", "string"]]


@needs_arrow
def test_a_body_is_laid_out_as_its_page_says() -> None:
    assert encode_records(Vectors.of({"k": [1, 2]})) == body(2, INTS, shape(0, 0), struct.pack("<2q", 1, 2))
    assert encode_records(Vectors.of({"k": [None]})) == body(1, [["k", "null"]], shape(0, 0), bytes(1))
    nulls = body(2, TEXT, shape(1, 1), b"\x02", struct.pack("<3i", 0, 0, 1), b"x")
    assert encode_records(Vectors.of({"s": [None, "x"]})) == nulls
    assert decode_records(nulls).batch.to_pylist() == [{"s": None}, {"s": "x"}]


@needs_arrow
@pytest.mark.parametrize(
    ("damaged", "message"),
    [
        (b"\x02", "ends inside its header"),
        (struct.pack("<B3xII", 2, 1, 1 << 31), "no schema"),
        (body(1, {}, b""), "no schema"),
        (body(1, [], b""), "no schema"),
        (body(1, [["k"]], shape(0, 0), bytes(8)), "a malformed column"),
        (body(1, [["k", "int64"], ["k", "int64"]], shape(0, 0, 0, 0), bytes(8), bytes(8)), "a malformed column"),
        (body(1, [["k", "list<item: int64>"]], shape(0, 0), bytes(8)), "unknown type"),
        (body(1, [["k", ["timestamp", "weeks", ""]]], shape(0, 0), bytes(8)), "unknown type"),
        (body(1, [["k", ["decimal128", True, 0]]], shape(0, 0), bytes(16)), "unknown type"),
        (body(1, [["\ud800", "int64"]], shape(0, 0), bytes(8)), "an invalid column"),
        (body(1, INTS, b""), "ends inside its header"),
        (body(1, INTS, shape(2, 0), bytes(8)), "unknown shape"),
        (body(1, INTS, shape(0, 8), bytes(8)), "unknown shape"),
        (body((1 << 32) - 1, [["k", "null"]], shape(0, 0), bytes(8)), "claims .* bytes, but the batch has"),
        (body(1, INTS, shape(0, 0), bytes(16)), "claims .* bytes, but the batch has"),
        (body((1 << 32) - 1, INTS, shape(0, 0), bytes(8)), "claims .* bytes, but the batch has"),
        (body(1, TEXT, shape(0, (1 << 32) - 1), bytes(8)), "claims .* bytes, but the batch has"),
        (body(1, TEXT, shape(0, 1), struct.pack("<2i", 0, 99), b"x"), "is damaged"),
        (body(2, TEXT, shape(0, 1), struct.pack("<3i", 0, 1, 0), b"x"), "is damaged"),
        (body(1, TEXT, shape(0, 1), struct.pack("<2i", -5, 1), b"x"), "is damaged"),
        (body(1, TEXT, shape(0, 1), struct.pack("<2i", 0, 1), b"\xff"), "is damaged"),
        (body(1, [["d", ["decimal128", 1, 0]]], shape(0, 0), b"\x7f" * 16), "is damaged"),
    ],
)
def test_what_is_no_body_is_refused(damaged: bytes, message: str) -> None:
    with pytest.raises(PeerViolation, match=message) as caught:
        decode_records(damaged)
    assert "\n" not in str(caught.value)


@needs_arrow
@given(st.data())
def test_a_damaged_body_is_refused_or_is_rows(data: st.DataObject) -> None:
    sound = bytearray(Vectors.of(COLUMNS).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        sound[data.draw(st.integers(1, len(sound) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(1, len(sound)))
    for damaged in (bytes(sound), bytes(sound[:cut])):
        try:
            vectors = decode_records(damaged)
        except PeerViolation:
            continue
        assert len(vectors.encode()) <= len(damaged) + 64
        assert len(vectors.batch.to_pydict()) == vectors.batch.num_columns


@needs_arrow
def test_vectors_travel_in_chunks_like_any_records() -> None:
    vectors = Vectors.of(COLUMNS)
    [chunk] = unpack_chunks(pack_chunks([Chunk(RECORDS, len(vectors), encode_records(vectors))]))
    assert chunk.count == 3 and decode_records(chunk.body).batch.equals(vectors.batch)


@needs_arrow
@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("list", "column 'x': vectors cannot hold list<.*>; cast it to a string, a number, a timestamp or decimal128"),
        ("dictionary", "vectors cannot hold dictionary"),
        ("duration", "vectors cannot hold duration"),
        ("half", "vectors cannot hold halffloat"),
    ],
)
def test_types_that_cannot_be_carried(kind: str, message: str) -> None:
    import pyarrow as pa

    columns = {
        "list": pa.array([[1]]),
        "dictionary": pa.array(["a"]).dictionary_encode(),
        "duration": pa.array([1], pa.duration("s")),
        "half": pa.array([1.0], pa.float16()),
    }
    with pytest.raises(NotCarried, match=message):
        Vectors.of({"x": columns[kind]})


@needs_arrow
def test_names_must_be_unique_and_short() -> None:
    import pyarrow as pa

    one = pa.array([1])
    with pytest.raises(NotCarried, match="two columns are called 'x'; rename one"):
        Vectors.of(pa.RecordBatch.from_arrays([one, one], names=["x", "x"]))
    with pytest.raises(NotCarried, match="has a name of 2000 characters"):
        Vectors.of(pa.RecordBatch.from_arrays([one], names=["x" * 2000]))


# Without pyarrow.


def missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "find_spec", lambda name: None if name == "pyarrow" else object())


def test_a_source_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    missing(monkeypatch)
    message = r"test_vector_bytes\.py:\d+: ArrowSource needs pyarrow; run `pip install -e '\.\[arrow\]'`"
    with pytest.raises(PipelineError, match=message):
        ArrowSource(lambda partition, start, stop: {}, 1)


def test_to_vectors_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    missing(monkeypatch)
    with pytest.raises(
        PipelineError, match=r"test_vector_bytes\.py:\d+: to_vectors 'v' needs pyarrow; run `pip install"
    ):
        Pipeline("test").source("in", source()).to_vectors("v", {"k": "int64"}).sink("out", NoSink())


def test_a_body_that_cannot_be_read_here_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "causal.records.columns", raising=False)
    with pytest.raises(
        PeerViolation, match="vectors have arrived, but this process cannot read them .*run `pip install"
    ):
        decode_records(b"\x02" + bytes(40))


def test_rows_do_not_import_pyarrow() -> None:
    program = (
        "import operators, operators.engine.plan, operators.sources, operators.sinks, operators.runtime.image, sys;"
        "sys.exit(bool({'pyarrow', 'numpy'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


# Mistakes in a pipeline.


@needs_arrow
@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda v, r: v.map("x", str),
            "map 'x' works on rows, but 'v' emits vectors; use map_batches, or put .to_rows",
        ),
        (lambda v, r: v.key_by("k").reduce("x", max), "reduce 'x' works on rows, but 'v' emits vectors"),
        (
            lambda v, r: r.map_batches("x", str),
            r"map_batches 'x' works on vectors, but 'r' emits rows; put .to_vectors\(",
        ),
        (lambda v, r: r.key_by(str).sum("x", "k"), "sum 'x' works on vectors, but 'r' emits rows"),
        (lambda v, r: v.key_by(str), "key_by on vectors was given the class str; pass the name of a column"),
        (lambda v, r: r.key_by("k"), "key_by was given a str; pass a function"),
        (lambda v, r: v.count("x"), "count 'x' works per key; put .key_by"),
        (lambda v, r: v.key_by("k").sum("x", str), "sum 'x' was given the class str; pass the name of a column"),
        (
            lambda v, r: v.key_by("k").map_batches("x", str),
            "map_batches 'x' follows key_by, but keeps no state per key",
        ),
        (lambda v, r: r.to_vectors("x", ["k"]), "schema of to_vectors 'x': a list is not a schema; use"),
        (lambda v, r: r.to_vectors("x", {"k": "int65"}), "schema of to_vectors 'x': "),
        (lambda v, r: r.to_vectors("x", {}), "vectors have 1 to 1024 columns, not 0"),
        (
            lambda v, r: v.union(r).sink("out", NoSink()).check(),
            "operator 'out' reads a stream of rows and one of vectors; put .to_rows",
        ),
        (
            lambda v, r: v.key_by("k").union(v.key_by("l")).count("x").sink("out", NoSink()).check(),
            "operator 'x' reads streams that are keyed by different columns .k, l.; call key_by after the union",
        ),
    ],
)
def test_a_mistake_is_one_line(build: Any, message: str) -> None:
    pipeline = Pipeline("test")
    rows = pipeline.source("r", source())
    vectors = pipeline.source("v", ArrowSource(lambda partition, start, stop: {}, 1))
    with pytest.raises(PipelineError, match=message) as caught:
        rows.sink("rows-out", NoSink())
        vectors.sink("vectors-out", NoSink())
        build(vectors, rows)
    assert "test_vector_bytes.py:" in str(caught.value) and "\n" not in str(caught.value)
