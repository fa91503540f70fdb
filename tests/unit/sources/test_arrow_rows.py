"""Every type that Spark writes becomes a value that a record can hold, or is refused by name."""

from __future__ import annotations

import math
import sys
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed: there are no rows to convert")

import pyarrow as pa

from causal.errors import PipelineError
from causal.records.values import decode, encode
from operators.records.arrow_rows import Unheld, check_carried, rows_of, shown_row

NOON = datetime(2026, 1, 2, 12, 0, 0, 5, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
MAP = "not a dict, because a key is repeated or NaN"
EPOCH = datetime(1970, 1, 1)
NOON_US = (NOON.replace(tzinfo=None) - EPOCH) // MICROSECOND
FIRST_US, LAST_US = (datetime.min - EPOCH) // MICROSECOND, (datetime.max - EPOCH) // MICROSECOND
NS, US = pa.timestamp("ns"), pa.timestamp("us", tz="Europe/Berlin")


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
        (pa.timestamp("ns"), NOON.replace(tzinfo=None), NOON.replace(tzinfo=None)),
        (pa.timestamp("ns", tz="Europe/Berlin"), NOON, NOON),
        (pa.timestamp("ns", tz="No/Such_Zone"), NOON_US * 1000, NOON),
        (pa.timestamp("ms", tz="+02:00"), NOON_US // 1000, NOON.replace(microsecond=0)),
        (pa.timestamp("s"), -1, datetime(1969, 12, 31, 23, 59, 59)),
        (pa.timestamp("us", tz="Europe/Berlin"), LAST_US, datetime.max.replace(tzinfo=UTC)),
        (pa.timestamp("us"), FIRST_US, datetime.min),
        (pa.timestamp("us", tz="America/New_York"), FIRST_US, datetime.min.replace(tzinfo=UTC)),
        (pa.date64(), date(1969, 12, 31), datetime(1969, 12, 31)),
        (pa.list_(pa.timestamp("ns")), [1000, None], [datetime(1970, 1, 1, 0, 0, 0, 1), None]),
        (pa.large_list(pa.timestamp("ns")), [1000], [datetime(1970, 1, 1, 0, 0, 0, 1)]),
        (pa.list_(pa.timestamp("ns"), 1), [1000], [datetime(1970, 1, 1, 0, 0, 0, 1)]),
        (pa.struct([("t", pa.list_(pa.timestamp("ns")))]), {"t": [0]}, {"t": [datetime(1970, 1, 1)]}),
        (pa.map_(pa.timestamp("ns"), pa.timestamp("ns")), [(0, None)], {datetime(1970, 1, 1): None}),
        (pa.dictionary(pa.int8(), pa.string()), "ä", "ä"),
        (pa.list_(pa.dictionary(pa.int8(), pa.string())), ["ä", None], ["ä", None]),
        (pa.large_string(), "ä", "ä"),
        (pa.string_view(), "ä", "ä"),
        (pa.large_binary(), b"\xff", b"\xff"),
        (pa.binary_view(), b"\xff", b"\xff"),
        (pa.binary(2), b"\xff\0", b"\xff\0"),
        (pa.float16(), 1.5, 1.5),
        (pa.uint64(), 2**64 - 1, 2**64 - 1),
        (pa.decimal256(76, 2), Decimal("1" * 74 + ".50"), Decimal("1" * 74 + ".50")),
    ],
    ids=str,
)
def test_a_value_arrives_plain_and_survives_a_snapshot(kind: pa.DataType, stored: Any, expected: Any) -> None:
    value = row(kind, stored)
    assert value == expected and type(value) is type(expected)
    again = decode(encode(value))
    assert again == value and repr(again) == repr(value)
    assert row(kind, None) is None


@pytest.mark.parametrize(
    ("kind", "stored", "place", "why"),
    [
        (NS, 1001, "v: 1001 ns since 1970", "not a whole number of microseconds"),
        (NS, -1, "v: -1 ns since 1970", "not a whole number of microseconds"),
        (US, LAST_US + 1, f"v: {LAST_US + 1} us since 1970", "not a time in years 1 to 9999"),
        (US, FIRST_US - 1, f"v: {FIRST_US - 1} us since 1970", "not a time in years 1 to 9999"),
        (pa.timestamp("s"), 2**62, f"v: {2**62} s since 1970", "not a time in years 1 to 9999"),
        (pa.date32(), 2**31 - 1, f"v: {2**31 - 1} days since 1970", "not a day in years 1 to 9999"),
        (pa.date64(), pa.array([-1]).view(pa.date64())[0], "v: -1 ms since 1970", "no midnight"),
        (pa.list_(NS), [None, 1], "v[]: 1 ns since 1970", "not a whole number of microseconds"),
        (pa.struct([("t", NS)]), {"t": 1}, "v.t: 1 ns since 1970", "not a whole number of microseconds"),
        (pa.map_(pa.string(), pa.int64()), [("a", 1), ("a", 2)], "v: [('a', 1), ('a', 2)]", MAP),
        (pa.map_(pa.float64(), pa.int64()), [(math.nan, 1)], "v: [(nan, 1)]", MAP),
        (pa.map_(NS, pa.int64()), [(1, 2)], "v key: 1 ns since 1970", "not a whole number of microseconds"),
        (pa.map_(pa.int64(), NS), [(1, 2)], "v[]: 2 ns since 1970", "not a whole number of microseconds"),
    ],
    ids=str,
)
def test_a_value_that_datetime_does_not_have_is_refused_by_column(
    kind: pa.DataType, stored: Any, place: str, why: str
) -> None:
    with pytest.raises(Unheld) as refused:
        row(kind, stored)
    assert str(refused.value) == f"column {place} is {why}"
    table = pa.table({"v": pa.array([stored], kind), "n": [7]})
    shown = shown_row(table, 0)
    assert f"column {place}" in str(shown) and shown["n"] == 7
    assert decode(encode(shown)) == shown


@pytest.mark.parametrize("pandas", [True, False], ids=["with pandas", "without"])
def test_times_are_the_same_whether_pandas_is_installed_or_not(pandas: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if pandas:
        pytest.importorskip("pandas", reason="pandas is not installed: it is one of the two cases")
    else:
        monkeypatch.setitem(sys.modules, "pandas", None)
    value = row(pa.timestamp("ns", tz="UTC"), NOON_US * 1000)
    assert (type(value), value) == (datetime, NOON)


def test_text_that_is_not_utf8_is_refused_or_repaired_wherever_it_is() -> None:
    broken = pa.array([b"caf\xe9", b"good", None], pa.binary())
    text = pa.Array.from_buffers(pa.string(), 3, broken.buffers())
    listed = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), text)
    nested = pa.StructArray.from_arrays([text, listed], ["s", "l"])
    table = pa.table({"plain": text, "nested": nested})
    for name in table.column_names:
        with pytest.raises(Unheld, match=rf"column {name}.*caf.xe9.* is not UTF-8"):
            rows_of(table.select([name]), 0, 3)
    assert rows_of(table, 1, 2) == rows_of(table, 0, 3, repairs=True)[1:]
    rows = rows_of(table, 0, 3, repairs=True)
    assert [r["plain"] for r in rows] == ["caf\ufffd", "good", None]
    assert [r["nested"] for r in rows] == [
        {"s": "caf\ufffd", "l": ["caf\ufffd"]},
        {"s": "good", "l": ["good"]},
        {"s": None, "l": [None]},
    ]


def test_a_range_across_chunks_is_the_rows_of_that_range() -> None:
    table = pa.concat_tables([pa.table({"n": [0, 1, 2]}), pa.table({"n": [3, 4]})])
    assert rows_of(table, 2, 2) == [{"n": 2}, {"n": 3}]


@pytest.mark.parametrize(
    "kind",
    [pa.duration("us"), pa.time32("s"), pa.time64("us"), pa.list_(pa.duration("us")), pa.list_view(pa.int64())],
    ids=str,
)
def test_a_type_that_no_record_holds_is_refused_by_column(kind: pa.DataType) -> None:
    with pytest.raises(PipelineError, match=r"column gap(\[\])?: records cannot contain .*; cast it"):
        check_carried(pa.schema([("n", pa.int64()), ("gap", kind)]))


def test_a_map_whose_keys_no_dict_has_is_refused() -> None:
    with pytest.raises(PipelineError, match="column m: records cannot contain map<"):
        check_carried(pa.schema([("m", pa.map_(pa.list_(pa.int64()), pa.int64()))]))


def test_two_fields_of_one_name_are_refused() -> None:
    with pytest.raises(PipelineError, match="column s: two of its fields have the same name"):
        check_carried(pa.schema([("s", pa.struct([("n", pa.int64()), ("n", pa.string())]))]))


def test_two_columns_of_one_name_are_refused() -> None:
    with pytest.raises(PipelineError, match="two columns are named 'n'"):
        check_carried(pa.schema([("n", pa.int64()), ("n", pa.string())]))
