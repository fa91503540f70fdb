"""A column whose values are all None in one batch and typed in another: the size of batches changes no row.

The columns of each batch come from lists, so that Arrow infers their types again for each batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed: there are no vectors")
pytest.importorskip("numpy", reason="NumPy is not installed: there are no vectors")

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import example, given
from hypothesis import strategies as st

from causal.errors import CausalError
from causal.records.batch import decode_records, encode_records
from causal.records.columns import common_schema
from causal.records.values import NotCarried, encode
from causal.records.vectors import Vectors
from operators import Pipeline
from operators.records.exact_types import exact_vectors
from operators.sinks.parquet.blocks import block
from operators.sinks.parquet.bundle_columns import batches_of, schema_of
from operators.sources import ArrowSource
from operators.testing import run
from tests.oracles.frame import AnySink

KINDS: dict[str, list[Any]] = {
    "int": [0, 1, -7],
    "float": [0.5, -0.0, 1e300],
    "str": ["", "a"],
    "bytes": [b"", b"x"],
    "bool": [True, False],
    "time": [datetime(2026, 1, 1), datetime(2026, 1, 2)],
    "instant": [datetime(2026, 1, 1, tzinfo=UTC)],
    "decimal": [Decimal("1.5"), Decimal("-2.0")],
    "list": [[1], [], [None]],
    "dict": [{"a": None}, {"a": 1}],
}
BATCHES = (1, 2, 3)
Row = dict[str, Any]


def _flagged(batch: Any) -> list[Any]:
    """Return flags whose type Arrow infers: a batch may have none but None."""
    return [None if value is None else value != 0 for value in batch.column("v").to_pylist()]


def _last(batch: Any, window: Any) -> Row:
    return {name: [batch.column(name).to_pylist()[-1]] for name in ("k", "v")} | {"n": [batch.num_rows]}


SHAPES: dict[str, Callable[[Any], Any]] = {
    "rows": lambda stream: stream,
    "filter": lambda stream: stream.filter("f", _flagged),
    "copies": lambda stream: stream.map_batches("c", lambda batch: {n: batch.column(n) for n in ("k", "v")}),
    "count": lambda stream: stream.key_by("k").count("a", parallelism=2),
    "sum": lambda stream: stream.key_by("k").sum("a", "v", parallelism=2),
    "max of keys": lambda stream: stream.key_by("v").max("a", "k", parallelism=1),
    "window": lambda stream: stream.window("w", 3600, _last, parallelism=1),
    "window of keys": lambda stream: stream.key_by("k").window("w", 3600, _last, parallelism=1),
}


def rows_of(shape: str, rows: Sequence[Row], batch: int, crash: bool) -> list[bytes] | str:
    """Return the rows in a fixed order, or that they are refused; of two reasons, a task may meet either one first."""

    def listed(part: pa.RecordBatch) -> Row:
        places = part.column("i").to_pylist()
        return {name: [rows[place][name] for place in places] for name in ("k", "v")}

    pipeline = Pipeline("p")
    source = ArrowSource(lambda partition, start, stop: {"i": pa.array(range(start, stop))}, len(rows))
    SHAPES[shape](pipeline.source("in", source).map_batches("m", listed)).to_rows("r").sink("out", AnySink())
    crashes = {"out/0": 1} if crash else {}
    try:
        result = run(pipeline, batch=batch, checkpoint_every=1, crash=crashes)["out"]
    except CausalError as problem:
        if "never happened" in str(problem):
            return rows_of(shape, rows, batch, False)
        assert any(reason in str(problem) for reason in ("has nulls", "accepts integers", "vectors cannot hold"))
        return "refused"
    return sorted(map(encode, result)) if shape in ("count", "sum") else [encode(row) for row in result]


def columns(draw: Any) -> list[Row]:
    length = draw(st.integers(1, 7))
    columns = []
    for _ in range(2):
        kind = st.sampled_from([None, *KINDS[draw(st.sampled_from(sorted(KINDS)))]])
        columns.append(draw(st.lists(kind, min_size=length, max_size=length)))
    return [{"k": key, "v": value} for key, value in zip(*columns, strict=True)]


@given(st.sampled_from(sorted(SHAPES)), st.composite(columns)(), st.sampled_from(BATCHES), st.booleans())
@example("count", [{"k": None, "v": 1}, {"k": "a", "v": 1}], 1, False)
@example("window", [{"k": None, "v": None}, {"k": 1, "v": 0.5}, {"k": None, "v": 1.5}], 1, True)
@example("filter", [{"k": 1, "v": None}, {"k": 1, "v": 2}], 1, False)
@example("sum", [{"k": 1, "v": None}, {"k": 1, "v": 2}], 1, False)
def test_the_size_of_batches_changes_no_row(shape: str, rows: list[Row], batch: int, crash: bool) -> None:
    assert rows_of(shape, rows, batch, crash) == rows_of(shape, rows, len(rows), False)


PLAIN = [kind for kind in sorted(KINDS) if kind not in ("list", "dict")]


@given(st.sampled_from(PLAIN), st.lists(st.integers(0, 3), min_size=1, max_size=5), st.data())
def test_pieces_are_joined_and_written_as_one_batch(kind: str, sizes: list[int], data: st.DataObject) -> None:
    values = [data.draw(st.lists(st.sampled_from([None, *KINDS[kind]]), min_size=n, max_size=n)) for n in sizes]
    pieces = [exact_vectors({"x": each}) for each in values]
    whole = exact_vectors({"x": [value for each in values for value in each]})
    assert pieces[0].joined(pieces).batch.to_pydict() == whole.batch.to_pydict()
    for piece in pieces:
        assert decode_records(encode_records(piece)).batch.equals(piece.batch)
    blocks = b"".join(block(piece) for piece in pieces if len(piece))
    if blocks:
        schema = schema_of(blocks, 0, [], None)
        batches = batches_of(blocks, 0, [], schema)
        assert [row for batch in batches for row in batch.to_pylist()] == whole.batch.to_pylist()


def test_only_a_column_without_a_type_takes_another_one() -> None:
    none, number, text = (pa.schema([("x", kind)]) for kind in (pa.null(), pa.int64(), pa.string()))
    assert common_schema(none, number) == common_schema(number, none) == number
    for known, coming in (
        (number, text),
        (number, pa.schema([("y", pa.null())])),
        (number, pa.schema([*number, *none])),
    ):
        with pytest.raises(NotCarried, match="give all batches the same columns"):
            common_schema(known, coming)
    with pytest.raises(NotCarried, match="cannot hold list"):
        Vectors.of({"x": [[None]]})
    assert pc.sum(Vectors.of({"x": []}).batch.column("x")).as_py() is None
