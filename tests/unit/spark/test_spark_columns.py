"""Rows as Spark's columns: what JSON wrote as text is turned back, and what does not fit is refused with its place."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed: there is no Spark to read for")

import pyarrow as pa

from causal.errors import PipelineError
from operators.sinks.contract.sink import encode_json
from operators.spark.columns import columns_of_piece, json_of_piece, sampled

RECORD = {
    "i": 1, "x": 1.5, "s": "ä", "b": b"\xff\x00", "t": datetime(2026, 1, 2, 3, 4, 5, 6, UTC),
    "local": datetime(2026, 1, 2), "d": Decimal("1.25"), "l": [1, 2], "m": {"k": "v"}, "on": True,
}  # fmt: skip
SCHEMA = pa.schema(
    [
        ("i", pa.int32()), ("x", pa.float64()), ("s", pa.string()), ("b", pa.binary()),
        ("t", pa.timestamp("us", "UTC")), ("local", pa.timestamp("us")), ("d", pa.decimal128(10, 2)),
        ("l", pa.list_(pa.int64())), ("m", pa.struct([("k", pa.string())])), ("on", pa.bool_()),
        ("absent", pa.int64()), ("_task", pa.string()), ("_position", pa.int64()),
    ]
)  # fmt: skip


def written(*records: Any) -> tuple[range, list[Any]]:
    return range(5, 5 + len(records)), [encode_json(record).encode() + b"\n" for record in records]


def test_everything_that_a_record_holds_comes_back() -> None:
    batch = columns_of_piece("out/0", written(RECORD, {"i": None, "m": None}), SCHEMA)
    assert batch.schema == SCHEMA
    first, second = batch.to_pylist()
    assert first == {**RECORD, "absent": None, "_task": "out/0", "_position": 5}
    assert second == dict.fromkeys(SCHEMA.names) | {"_task": "out/0", "_position": 6}


def test_arrow_rows_are_cast_to_the_schema() -> None:
    rows = pa.RecordBatch.from_pydict({"i": pa.array([1, None], pa.uint8()), "s": ["a", "b"], "left": [1, 2]})
    schema = pa.schema([("s", pa.string()), ("i", pa.int64()), ("none", pa.string()), ("_position", pa.int64())])
    batch = columns_of_piece("out/0", (pa.array([3, 7]), rows), schema)
    assert batch.to_pydict() == {"s": ["a", "b"], "i": [1, None], "none": [None, None], "_position": [3, 7]}
    texts = json_of_piece(
        "out/0",
        (pa.array([3, 7]), rows),
        pa.schema([("task", pa.string()), ("position", pa.int64()), ("record", pa.string())]),
    )
    assert texts.to_pylist()[1] == {"task": "out/0", "position": 7, "record": '{"i": null, "s": "b", "left": 2}'}


def test_lists_are_columns_by_place_and_a_text_column_takes_anything() -> None:
    schema = pa.schema([("key", pa.string()), ("n", pa.int64())])
    assert columns_of_piece("out/0", written(("a", 1), ("b", 2)), schema).to_pydict() == {
        "key": ["a", "b"],
        "n": [1, 2],
    }
    anything = columns_of_piece("out/0", written({"key": {"x": [1]}}), schema)
    assert anything.to_pydict() == {"key": ['{"x": [1]}'], "n": [None]}


@pytest.mark.parametrize(
    ("record", "kind", "said"),
    [
        ({"c": "a"}, pa.int64(), "column c"),
        ({"c": 1.5}, pa.int64(), "column c"),
        ({"c": 1}, pa.bool_(), "column c"),
        ({"c": "soon"}, pa.timestamp("us", "UTC"), "column c"),
        ({"c": "soon"}, pa.date32(), "column c"),
        ({"c": "no hex"}, pa.binary(), "column c"),
        ({"c": "1.255"}, pa.decimal128(5, 2), "column c"),
        ({"c": 1 << 40}, pa.int32(), "column c"),
        (["a", "b"], pa.string(), "not objects with these columns"),
        ("text", pa.string(), "not objects with these columns"),
    ],
)
def test_what_does_not_fit_is_told_with_its_place(record: Any, kind: pa.DataType, said: str) -> None:
    with pytest.raises(PipelineError, match=rf"rows of out/0 from 5 on .*{said}"):
        columns_of_piece("out/0", written(record), pa.schema([("c", kind)]))


def test_dates_and_numbers_in_texts() -> None:
    schema = pa.schema([("d", pa.date32()), ("n", pa.decimal128(5, 1)), ("x", pa.float64())])
    assert columns_of_piece("out/0", written({"d": "2026-01-02", "n": 3, "x": 2}), schema).to_pylist() == [
        {"d": date(2026, 1, 2), "n": Decimal("3.0"), "x": 2.0}
    ]


class Sampled:
    """An output of these JSON records."""

    run = ""
    ended = False

    def __init__(self, *records: Any) -> None:
        self.records = records

    def look(self) -> None: ...

    def ends(self, uncovered: bool) -> dict[str, int]:
        return {"out/0": len(self.records)}

    def withdrawn(self) -> dict[str, int]:
        return {"out/0": 0}

    def hint(self, task: str, position: int) -> Any:
        return None

    def rows(self, task: str, start: int, stop: int, hint: Any = None) -> Any:
        yield written(*self.records[start:stop])


def test_a_schema_is_that_of_the_rows() -> None:
    columns_read = sampled(Sampled({"a": 1, "none": None}, {"b": "x", "l": [1.5]}), "p", False)
    assert {field.name: str(field.type) for field in columns_read}.keys() == {"a", "none", "b", "l"}
    assert [str(columns_read.field(name).type) for name in ("a", "none", "b")] == ["int64", "string", "string"]
    with pytest.raises(PipelineError, match="has no rows from which to infer"):
        sampled(Sampled(), "p", False)
    with pytest.raises(PipelineError, match="its records have no columns"):
        sampled(Sampled("text"), "p", False)
