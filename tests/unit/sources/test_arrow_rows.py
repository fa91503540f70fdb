"""Every type that Spark writes becomes a value that a record can hold, or is refused by name."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed: there are no rows to convert")

import pyarrow as pa

from causal.errors import PipelineError
from causal.records.values import decode, encode
from operators.records.arrow_rows import check_carried, rows_of

NOON = datetime(2026, 1, 2, 12, 0, 0, 5, tzinfo=UTC)


def row(kind: pa.DataType, value: Any) -> Any:
    (only,) = rows_of(pa.table({"v": pa.array([value], kind)}), 0, 1)
    return only["v"]


@pytest.mark.parametrize(
    ("kind", "stored", "expected"),
    [
        (pa.int64(), 7, 7),
        (pa.bool_(), True, True),
        (pa.null(), None, None),
        (pa.float64(), 0.1, 0.1),
        (pa.string(), "ä\0", "ä\0"),
        (pa.binary(), b"\xff\0", b"\xff\0"),
        (pa.decimal128(10, 2), Decimal("1.50"), Decimal("1.50")),
        (pa.timestamp("us", tz="UTC"), NOON, NOON),
        (pa.timestamp("us", tz="Europe/Berlin"), NOON, NOON),
        (pa.timestamp("us"), NOON.replace(tzinfo=None), NOON.replace(tzinfo=None)),
        (pa.date32(), date(2026, 1, 2), datetime(2026, 1, 2)),
        (pa.list_(pa.date32()), [date(2026, 1, 2), None], [datetime(2026, 1, 2), None]),
        (pa.map_(pa.string(), pa.int64()), [("a", 1), ("b", None)], {"a": 1, "b": None}),
        (pa.struct([("t", pa.timestamp("us", tz="UTC")), ("n", pa.int64())]), {"t": NOON, "n": 1}, {"t": NOON, "n": 1}),
        (pa.map_(pa.date32(), pa.list_(pa.date32())), [(date(2026, 1, 2), [])], {datetime(2026, 1, 2): []}),
    ],
    ids=str,
)
def test_a_value_arrives_plain_and_survives_a_snapshot(kind: pa.DataType, stored: Any, expected: Any) -> None:
    value = row(kind, stored)
    assert value == expected and type(value) is type(expected)
    again = decode(encode(value))
    assert again == value and repr(again) == repr(value)
    assert row(kind, None) is None


def test_text_that_is_not_utf8_is_replaced_wherever_it_is() -> None:
    broken = pa.array([b"caf\xe9", b"good", None], pa.binary())
    text = pa.Array.from_buffers(pa.string(), 3, broken.buffers())
    listed = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), text)
    nested = pa.StructArray.from_arrays([text, listed], ["s", "l"])
    rows = rows_of(pa.table({"plain": text, "nested": nested}), 0, 3)
    assert [r["plain"] for r in rows] == ["caf\ufffd", "good", None]
    assert [r["nested"] for r in rows] == [
        {"s": "caf\ufffd", "l": ["caf\ufffd"]},
        {"s": "good", "l": ["good"]},
        {"s": None, "l": [None]},
    ]


def test_a_range_across_chunks_is_the_rows_of_that_range() -> None:
    table = pa.concat_tables([pa.table({"n": [0, 1, 2]}), pa.table({"n": [3, 4]})])
    assert rows_of(table, 2, 2) == [{"n": 2}, {"n": 3}]


@pytest.mark.parametrize("kind", [pa.duration("us"), pa.time64("us"), pa.list_(pa.duration("us"))], ids=str)
def test_a_type_that_no_record_holds_is_refused_by_column(kind: pa.DataType) -> None:
    with pytest.raises(PipelineError, match=r"column gap(\[\])?: records cannot hold .*; cast it"):
        check_carried(pa.schema([("n", pa.int64()), ("gap", kind)]))


def test_two_columns_of_one_name_are_refused() -> None:
    with pytest.raises(PipelineError, match="two columns are called 'n'"):
        check_carried(pa.schema([("n", pa.int64()), ("n", pa.string())]))
