"""Every kind of value put into every kind of Arrow column comes back equal, or is refused: none is changed."""

from __future__ import annotations

import math
import random
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from causal.errors import OperatorFailed
from causal.records.values import NotCarried
from causal.records.vectors import Vectors
from operators.records.exact_types import Misfit, exact_vectors
from operators.sinks.parquet.fitting import columns_of, inferred
from tests.unit.operators import scene
from tests.unit.operators.scene import Services, chain_of
from tests.unit.operators.vector_scene import rows as decoded

SCALARS = [
    pa.bool_(), pa.int8(), pa.int32(), pa.int64(), pa.uint8(), pa.uint64(), pa.float16(), pa.float32(), pa.float64(),
    pa.decimal128(10, 2), pa.decimal128(38, 0), pa.decimal256(50, 10), pa.string(), pa.large_string(), pa.binary(),
    pa.large_binary(), pa.binary(2), pa.timestamp("s"), pa.timestamp("ms"), pa.timestamp("us"), pa.timestamp("ns"),
    pa.timestamp("us", "UTC"), pa.timestamp("ms", "Europe/Vienna"), pa.date32(), pa.date64(), pa.time32("s"),
    pa.time64("us"), pa.duration("ms"), pa.null(),
]  # fmt: skip
KINDS = [
    *SCALARS,
    *(pa.list_(kind) for kind in SCALARS),
    *(pa.struct([("a", kind)]) for kind in SCALARS),
    *(pa.map_(pa.string(), kind) for kind in SCALARS),
    pa.map_(pa.int64(), pa.string()), pa.large_list(pa.float32()), pa.list_(pa.int64(), 2),
    pa.dictionary(pa.int8(), pa.string()), pa.list_(pa.struct([("a", pa.float32())])),
]  # fmt: skip
VIENNA, ZONE = timezone(timedelta(hours=2)), ZoneInfo("Europe/Vienna")
VALUES = [
    None, True, False, 0, 1, -1, 255, 256, 16777217, 1577836800, (1 << 53) + 1, (1 << 63) - 1, 1 << 63, -(1 << 70),
    0.0, -0.0, 0.1, 1.0, 1.5, 65504.0, 65505.0, 16777217.0, 1e300, 5e-324, math.nan, math.inf, -math.inf,
    Decimal("1.25"), Decimal("1.239"), Decimal("5.5"), Decimal("5"), Decimal("1e30"), Decimal("NaN"), Decimal("Inf"),
    Decimal("-0"), "", "a", "ab", "5", "2020-01-01", "\ud800", "\0", b"", b"ab", b"\xff\x00", b"5",
    datetime(2020, 1, 1), datetime(2020, 1, 1, 12, 30), datetime(2020, 1, 1, 0, 0, 0, 1), datetime(1, 1, 1),
    datetime(9999, 12, 31, 23, 59, 59, 999999), datetime(2020, 1, 1, tzinfo=UTC), datetime(2020, 1, 1, tzinfo=VIENNA),
    datetime(2020, 1, 1, 1, 2, 3, 456789, UTC), datetime(2020, 1, 1, fold=1), datetime(1, 1, 1, tzinfo=VIENNA),
    datetime(9999, 12, 31, 23, tzinfo=timezone(-timedelta(hours=14))), datetime(2020, 1, 1, tzinfo=timezone.min),
    datetime(2020, 1, 1, tzinfo=timezone(timedelta(seconds=3605))), datetime(2020, 10, 25, 2, tzinfo=ZONE),
    datetime(2020, 10, 25, 2, tzinfo=ZONE, fold=1), datetime(2020, 1, 1, tzinfo=timezone(timedelta(microseconds=5))),
    date(2020, 1, 1), time(1), timedelta(1), [], [1], [1.5], ["a"], (1, 2), (1577836800,), [None], [16777217.0],
    {}, {"a": 1}, {"a": 1e300}, {"a": b"x"}, {"a": datetime(2020, 1, 1, 5)}, {"b": 1}, {1: "a"}, [{"a": 16777217.0}],
]  # fmt: skip


def same(put: Any, read: Any) -> bool:
    """Return whether what was read is what was put, as the guide says it."""
    if isinstance(put, datetime) and type(read) is date:
        return put == datetime(read.year, read.month, read.day)
    if isinstance(put, datetime) and put.tzinfo is None:
        return isinstance(read, datetime) and read.tzinfo is None and (put, put.fold) == (read, read.fold)
    if isinstance(put, datetime):
        return isinstance(read, datetime) and read.tzinfo is not None and put.astimezone(UTC) == read.astimezone(UTC)
    if isinstance(put, (list, tuple)):
        return isinstance(read, list) and len(put) == len(read) and all(map(same, put, read))
    if isinstance(put, dict) and isinstance(read, list):
        return list(put) == [key for key, _ in read] and all(same(put[key], value) for key, value in read)
    if isinstance(put, dict):
        return isinstance(read, dict) and all(same(put.get(key), read[key]) for key in read) and set(put) <= set(read)
    if isinstance(put, bool) or isinstance(read, bool):
        return put is read
    if isinstance(put, float) and (math.isnan(put) or not put):
        return isinstance(read, float) and (math.isnan(put) or math.copysign(1, put) == math.copysign(1, read))
    if isinstance(put, Decimal) and not put:
        return isinstance(read, Decimal) and put.is_signed() == read.is_signed()
    if isinstance(put, (int, float, Decimal)):
        return isinstance(read, (int, float, Decimal)) and put == read
    return type(put) is type(read) and put == read


def kept(value: Any, kind: pa.DataType) -> bool:
    """Return whether it is accepted, and then is read back as it was."""
    try:
        [read] = columns_of([{"v": value}], pa.schema([("v", kind)])).column(0).to_pylist()
    except Misfit:
        return False
    assert same(value, read), f"{value!r} in {kind} is read as {read!r}"
    return True


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_no_value_is_changed(kind: pa.DataType) -> None:
    shaped = [*VALUES, *([value] for value in VALUES), *({"a": value} for value in VALUES)]
    assert sum(kept(value, kind) for value in shaped), "null at least"


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1, pa.float64()), (5, pa.decimal128(10, 2)), (16777216.0, pa.float32()), (-0.0, pa.float32()),
        (math.nan, pa.float32()), (math.inf, pa.float16()), (datetime(2020, 1, 1), pa.date32()),
        (datetime(2020, 1, 1, tzinfo=VIENNA), pa.timestamp("us", "UTC")), ((1, 2), pa.list_(pa.int64())),
        (datetime(2020, 1, 1, 0, 0, 0, 2000), pa.timestamp("ms")), ("a", pa.dictionary(pa.int8(), pa.string())),
        (b"ab", pa.binary(2)), ({"k": 1}, pa.map_(pa.string(), pa.int64())),
    ],
)  # fmt: skip
def test_what_can_be_kept_is_taken(value: Any, kind: pa.DataType) -> None:
    assert kept(value, kind)


def test_random_numbers_and_times_are_kept_or_refused() -> None:
    chance = random.Random(5)
    for _ in range(3000):
        value: Any = chance.choice(
            [
                chance.getrandbits(chance.randrange(1, 70)),
                math.ldexp(chance.getrandbits(chance.randrange(1, 54)), chance.randrange(-60, 60)),
                datetime(2020, 1, 1) + timedelta(microseconds=chance.randrange(10) * 10 ** chance.randrange(12)),
                Decimal(chance.randrange(10**6)).scaleb(-chance.randrange(8)),
            ]
        )
        kept(value, chance.choice(SCALARS))


CARRIED = [kind for kind in SCALARS if kind not in (pa.float16(), pa.binary(2), pa.null(), pa.date64())
           and not str(kind).startswith(("time32", "time64", "duration", "decimal256"))]  # fmt: skip


def rows_and_back(stream: Any, kind: pa.DataType) -> Any:
    return stream.to_vectors("in-v", {"v": kind}).to_rows("back").map("op", lambda r: r)


@pytest.mark.parametrize("kind", CARRIED, ids=str)
def test_rows_that_become_vectors_and_rows_again_are_the_same_or_refused(kind: pa.DataType) -> None:
    build = partial(rows_and_back, kind=kind)
    plan, lenient = scene.planned(build), scene.planned(build, on_error="dead-letter")
    taken = []
    for value in VALUES:
        try:
            (row,) = scene.give(chain_of(plan, "op/0"), [{"v": value}])
        except OperatorFailed as problem:
            assert "operator 'in-v'" in str(problem) and "column 'v' has type" in str(problem), problem
            assert "\n" not in str(problem)
            continue
        taken.append(value)
        assert same(value, row["v"]), f"{value!r} in {kind} is read as {row['v']!r}"
    assert taken, "null at least"
    rows = [{"v": value} for value in VALUES]
    outputs = chain_of(lenient, "op/0").deliver(0, scene.listed(rows), 0, Services())
    read = [row["v"] for row in decoded(outputs[:1])]
    assert len(read) == len(taken) and all(map(same, taken, read)), "the others are set aside"


def test_columns_that_are_lists_are_kept_or_refused() -> None:
    for values in [*([value] for value in VALUES), *([a, b] for a in VALUES for b in VALUES)]:
        try:
            read = exact_vectors({"v": values}).batch.column(0).to_pylist()
        except (Misfit, NotCarried):
            continue
        assert all(map(same_column, values, read)), f"{values!r} is read as {read!r}"


def same_column(put: Any, read: Any) -> bool:
    return put == read if type(put) is date and type(read) is date else same(put, read)


CASTS = [
    (pa.array([1e300]), pa.float32(), False),
    (pa.array([0.1]), pa.float32(), False),
    (pa.array([0.5, None, math.nan, -0.0]), pa.float32(), True),
    (pa.array([(1 << 53) + 1]), pa.float64(), False),
    (pa.array([7]), pa.float32(), True),
    (pa.array([7]), pa.decimal128(21, 2), True),
    (pa.array([0.15]), pa.decimal128(10, 2), False),
    (pa.array([Decimal("0.1")]), pa.float64(), False),
    (pa.array([Decimal("0.15")]), pa.decimal128(10, 1), False),
    (pa.array([datetime(2020, 1, 1, 1)]), pa.date32(), False),
    (pa.array([datetime(2020, 1, 1)]), pa.date32(), True),
    (pa.array([datetime(2020, 1, 1, tzinfo=UTC)]), pa.timestamp("us"), False),
    (pa.array([datetime(2020, 1, 1)]), pa.timestamp("us", "UTC"), False),
    (pa.array([datetime(2020, 1, 1, tzinfo=UTC)]), pa.timestamp("ms", "Europe/Vienna"), True),
    (pa.array([datetime(2020, 1, 1, 0, 0, 0, 1)]), pa.timestamp("ms"), False),
    (pa.array(["a"]), pa.large_string(), True),
]


@pytest.mark.parametrize(("column", "kind", "fits"), CASTS)
def test_columns_of_vectors_keep_their_values_too(column: pa.Array, kind: pa.DataType, fits: bool) -> None:
    vectors, schema = Vectors.of({"v": column}), pa.schema([("v", kind)])
    if not fits:
        with pytest.raises(Misfit, match="column 'v' has type"):
            columns_of(vectors, schema)
        return
    read = columns_of(vectors, schema).column(0).to_pylist()
    assert all(map(same, column.to_pylist(), read))


def test_an_inferred_column_keeps_the_values_that_made_it() -> None:
    for values in [*([value] for value in VALUES), *([a, b] for a in VALUES for b in VALUES)]:
        records = [{"v": value} for value in values]
        try:
            schema = inferred(records, None)
            read = columns_of(records, schema).column(0).to_pylist()
        except Misfit:
            continue
        assert all(map(same, values, read)), f"{values!r} in {schema.field(0).type} is read as {read!r}"
