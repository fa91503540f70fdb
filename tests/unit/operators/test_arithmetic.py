"""One rule about NaN, zero and equal values for all aggregates, on rows and on vectors: bytes, not only values."""

from __future__ import annotations

import math
import struct
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.records.values import decode, encode
from causal.records.vectors import Vectors
from operators import Aggregate, Max, Mean, Min, Sum, Tumbling
from operators.records.arithmetic import settled, shifted, total_of
from tests.unit.operators.join_scene import Task
from tests.unit.operators.test_tables import planned_table, windowed
from tests.unit.operators.test_vectors import on_vectors
from tests.unit.operators.vector_scene import give

NAN = float("nan")
MINUS_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000001))[0]
FLOATS = [NAN, MINUS_NAN, 0.0, -0.0, math.inf, -math.inf, 1.0, -2.5]
NUMBERS = [*FLOATS, 0, 1, True, False]
EXACT = [Decimal("NaN"), Decimal("-NaN7"), Decimal("0"), Decimal("-0.00"), Decimal("1"), Decimal("1.00"), 1, 0, True]


def itself(record: Any) -> Any:
    return record


def bytes_of(aggregate: Aggregate[Any, Any], accumulated: Any) -> bytes:
    return encode(accumulated if aggregate.result is None else aggregate.result(accumulated))


def of_all(aggregate: Aggregate[Any, Any], values: list[Any]) -> Any:
    return reduce(aggregate.add, values, aggregate.initial())


def expected(kind: type, values: list[Any]) -> Any:
    """Compute the result in plain Python, independently, from the guide."""
    nans = [value for value in values if value != value]
    if kind in (Min, Max):
        if nans:
            return Decimal("NaN") if any(type(value) is Decimal for value in nans) else NAN
        best = min(values) if kind is Min else max(values)
        equal = [value.copy_abs() if type(value) is Decimal and not value else value for value in values]
        equal = [0.0 if type(value) is float and not value else value for value in equal if value == best]
        return min(equal, key=lambda value: (type(value).__name__, encode(value)))
    total = sum(values)
    if kind is Mean:
        total = total / len(values)
    if total != total:
        return Decimal("NaN") if type(total) is Decimal else NAN
    return abs(total) if not total and type(total) is not int else total


@pytest.mark.parametrize("kind", [Min, Max, Sum, Mean])
@given(data=st.data())
def test_an_aggregate_of_rows_is_what_its_values_are(kind: type, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.sampled_from(data.draw(st.sampled_from([NUMBERS, EXACT]))), min_size=1, max_size=6))
    aggregate = kind(itself)
    wanted = encode(expected(kind, values))
    assert bytes_of(aggregate, of_all(aggregate, values)) == wanted
    cut = data.draw(st.integers(0, len(values)))
    if 0 < cut < len(values):
        merged = aggregate.merge(of_all(aggregate, values[:cut]), of_all(aggregate, values[cut:]))
        assert bytes_of(aggregate, merged) == wanted
    if kind in (Min, Max):
        shuffled = data.draw(st.permutations(values))
        assert bytes_of(aggregate, of_all(aggregate, shuffled)) == wanted


@pytest.mark.parametrize("kind", [Min, Max, Sum, Mean])
@given(data=st.data())
def test_what_is_taken_back_leaves_no_trace(kind: type, data: st.DataObject) -> None:
    """Numbers that floats add exactly, NaN and infinities among them: the rest is as if the others had never come."""
    choice = data.draw(st.sampled_from([NUMBERS, EXACT]))
    aggregate = kind(itself).retracting()
    accumulated, there = aggregate.initial(), list[Any]()
    for value in data.draw(st.lists(st.sampled_from(choice), max_size=20)):
        if bool(there) and data.draw(st.booleans()):
            accumulated = aggregate.subtract(accumulated, there.pop(data.draw(st.integers(0, len(there) - 1))))
        accumulated = aggregate.add(accumulated, value)
        there.append(value)
        if kind in (Min, Max):
            assert bytes_of(aggregate, accumulated) == encode(expected(kind, there))
        else:
            result, wanted = aggregate.result(accumulated), expected(kind, there)
            assert result == wanted or (result != result and wanted != wanted)
            assert encode(result) == encode(settled(result))
    for value in there:
        accumulated = aggregate.subtract(accumulated, value)
    assert accumulated == aggregate.initial()


INTS = st.integers() | st.booleans()
ALL_FLOATS = st.lists(INTS | st.floats() | st.sampled_from([0.1, 1e17, 1e308, -1e308, 5e-324]), min_size=1, max_size=9)
DECIMALS = st.builds(
    lambda digits, exponent: Decimal(digits).scaleb(exponent), st.integers(-999, 999), st.integers(-60, 60)
)
ALL_DECIMALS = st.lists(
    INTS
    | DECIMALS
    | st.sampled_from([Decimal(each) for each in ("1E+99999", "-1E+99999", "1E-9999", "NaN", "-Infinity")]),
    min_size=1,
    max_size=9,
)


def exact_sum(values: list[Any]) -> Any:
    """Compute the sum of numbers, rounded once, as one of the type that `sum` returns."""
    of: Any = next((kind for kind in (Decimal, float) if any(type(value) is kind for value in values)), int)
    special = [value for value in values if type(value) in (float, Decimal) and not math.isfinite(value)]
    if special:
        return settled(of(sum(special)))
    total = sum(map(Fraction, values))
    if of is Decimal:
        with localcontext(prec=200_000):
            exact = sum((Decimal(value) for value in values), Decimal(0))
        return settled(+exact)
    try:
        return of(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


@given(st.sampled_from([ALL_FLOATS, ALL_DECIMALS]).flatmap(lambda values: st.tuples(values, values)), st.data())
def test_a_sum_of_a_table_is_the_exact_sum_of_what_is_there(drawn: tuple[list[Any], list[Any]], data: Any) -> None:
    """The sum is rounded once, however much came and went, and is restored from a snapshot between."""
    aggregate, (gone, there) = Sum(itself).retracting(), drawn
    assert aggregate.result is not None and aggregate.subtract is not None
    accumulated = of_all(aggregate, data.draw(st.permutations([*gone, *there])))
    assert encode(aggregate.result(accumulated)) == encode(exact_sum([*gone, *there]))
    for value in data.draw(st.permutations(gone)):
        accumulated = aggregate.subtract(accumulated, decode(encode(value)))
        accumulated = decode(encode(accumulated))
    assert encode(aggregate.result(accumulated)) == encode(exact_sum(there))
    assert accumulated == of_all(aggregate, there) or any(type(value) is float for value in there)


@pytest.mark.parametrize(
    "before, gone, left",
    [
        (0.25, 0.25, 0.0),
        (0.5, 2, -1.5),
        (math.inf, 1.0, math.inf),
        ([0.25, 0, 1, 0, 0], math.inf, 0.25),
        ([Decimal("3.25"), 0, 0, 0, 1], Decimal("0.25"), 3),
        ([Decimal("3.25"), 0, 0, 0, 2], Decimal("0.25"), Decimal("3.00")),
        ([5, 0, 1, 0], math.inf, 5),
    ],
)
def test_a_total_of_an_older_version_goes_on(before: Any, gone: Any, left: Any) -> None:
    assert encode(total_of(before)) == encode(total_of(shifted(shifted(before, 7, 1), 7, -1)))
    assert encode(total_of(shifted(before, gone, -1))) == encode(left)


def test_a_value_in_which_nan_hides_has_no_place_in_an_order() -> None:
    for aggregate in [Min(itself), Max(itself), Min(itself).retracting(), Max(itself).retracting()]:
        with pytest.raises(ValueError, match="which contains NaN and therefore cannot be ordered; filter it out"):
            aggregate.add(aggregate.initial(), (1, (NAN, 2)))


@pytest.mark.parametrize("kind", [Min, Max])
def test_groups_of_a_table_with_nan_go_on(kind: type) -> None:
    def build(stream: Any) -> Any:
        return stream.table("t").group_by("g", lambda key, row: "all").aggregate("n", kind(lambda row: row[2]))

    job_plan = planned_table(build)
    above, below = Task(job_plan, "g/0"), Task(job_plan, "revisions/0")
    for record in [("a", 0, 1.0), ("b", 0, NAN), ("c", 0, 2.0), ("b", 0, 3.0), ("b", 0, MINUS_NAN), ("b", 0, 1.5)]:
        below.give(0, *above.give(0, record))
        below.restore(False)
    assert [row[2] for row in below.out][-1] == (1.0 if kind is Min else 2.0)
    assert {struct.pack("<d", row[2]) for row in below.out if row[2] != row[2]} == {struct.pack("<d", NAN)}


def test_a_windowed_row_has_the_one_nan() -> None:
    task = windowed(Tumbling(5), Sum(lambda row: row[2]))
    task.give(0, ("k", 1, MINUS_NAN))
    assert struct.pack("<d", task.out[-1][2]) == struct.pack("<d", NAN)


@pytest.mark.parametrize("fold", ["sum", "min", "max"])
@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(FLOATS)), min_size=1, max_size=60), st.data())
def test_vectors_give_the_same_bytes_however_they_are_cut(
    fold: str, rows: list[tuple[int, float]], data: st.DataObject
) -> None:
    def folded(cuts: list[int]) -> bytes:
        chain, out = on_vectors(lambda s: getattr(s, fold)("op", "v")), list[Any]()
        for start, end in zip([0, *cuts], [*cuts, len(rows)]):
            if start < end:
                batch = {"k": [key for key, _ in rows[start:end]], "v": pa.array([v for _, v in rows[start:end]])}
                out += give(chain, Vectors.of(batch))
        return encode([[row["k"], row[fold]] for row in out])

    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=5)))
    whole = folded([])
    assert folded(cuts) == whole == folded(list(range(1, len(rows))))
    state: dict[int, float] = {}
    step = {"sum": np.add, "min": np.minimum, "max": np.maximum}[fold]
    with np.errstate(invalid="ignore"):
        wanted = []
        for key, value in rows:
            state[key] = float(step(state[key], value)) if key in state else value
            wanted.append([key, settled(state[key])])
    assert whole == encode(wanted)


def test_a_mean_is_a_float_again_once_the_decimals_are_retracted() -> None:
    mean = Mean(itself).retracting()
    accumulated = mean.initial()
    for value in (1, Decimal("0.5"), 0, Decimal("NaN"), 1):
        accumulated = mean.add(accumulated, value)
    assert mean.result is not None and mean.subtract is not None
    assert str(mean.result(accumulated)) == "NaN" and type(mean.result(accumulated)) is Decimal
    for value in (Decimal("NaN"), Decimal("0.5")):
        accumulated = mean.subtract(accumulated, value)
    assert (accumulated, mean.result(accumulated)) == ((2, 3), 2 / 3)


def test_a_total_of_a_snapshot_that_did_not_count_decimals_stays_one() -> None:
    for before in (Decimal(3), [Decimal(3), 0, 0, 0]):
        total = shifted(shifted(before, Decimal("0.5"), 1), Decimal("0.5"), -1)
        assert type(total_of(total)) is Decimal and total_of(total) == 3
    assert total_of([2, 1, 0, 0]) != total_of([2, 1, 0, 0]) and shifted([2, 1, 0, 0], float("nan"), -1) == 2


@pytest.mark.parametrize("value", [Fraction(1, 2), np.float32(0.5), np.int64(1000)])
def test_a_sum_of_a_table_takes_other_numbers_beside_floats(value: Any) -> None:
    aggregate = Sum(itself).retracting()
    assert aggregate.result is not None and aggregate.subtract is not None
    accumulated = of_all(aggregate, [value, 0.25])
    assert aggregate.result(accumulated) == float(value) + 0.25
    assert aggregate.result(aggregate.subtract(accumulated, value)) == 0.25
