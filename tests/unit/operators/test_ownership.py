"""A record of one's own shows nothing of what happens to its source later."""

from __future__ import annotations

import mmap
from array import array
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.errors import OperatorFailed
from causal.records.batch import decode_records
from operators import Operator, ValueState
from operators.records.ownership import copy_containers, kept
from operators.records.reuse import REMEMBERED_MAX, Reuse
from tests.unit.operators.scene import Services, chain_of, listed, planned, records_in

values = st.recursive(
    st.integers() | st.text() | st.none(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


def mutables(value: Any) -> list[int]:
    inner = list(value.values()) if isinstance(value, dict) else list(value) if isinstance(value, (list, tuple)) else []
    here = [id(value)] if isinstance(value, (dict, list)) else []
    return here + [identity for each in inner for identity in mutables(each)]


@given(values)
def test_a_copy_is_equal_and_shares_nothing_that_can_change(value: Any) -> None:
    copied = copy_containers(value)
    assert copied == value
    assert type(copied) is type(value)
    assert not set(mutables(copied)) & set(mutables(value))


def test_objects_that_cannot_be_carried_are_passed_on() -> None:
    thing = object()
    assert copy_containers([thing])[0] is thing


# Buffers, which an operator may fill again for the next record.


class Refilling(Operator):
    """Gives one buffer repeatedly, in a record of any form."""

    def __init__(self, wrap: Callable[[Any], Any], make: Callable[[bytes], Any]) -> None:
        self._wrap = wrap
        self._buffer = make(b"........")

    def _fill(self, record: int) -> Any:
        self._buffer[0] = record
        return self._wrap(self._buffer)


class Yielding(Refilling):
    def process(self, record: Any, ctx: Any) -> Any:
        yield self._fill(record)


class Returning(Refilling):
    def process(self, record: Any, ctx: Any) -> Any:
        return [self._fill(record)]


WRAPS: dict[str, Callable[[Any], Any]] = {
    "bare": lambda buffer: buffer,
    "in a dict": lambda buffer: {"a": buffer},
    "in a dict of many": lambda buffer: {"n": 1, "a": buffer, "s": "x", "t": (1, 2)},
    "in a tuple": lambda buffer: (1, buffer),
    "in a list": lambda buffer: [buffer],
    "deep": lambda buffer: {"a": [({"b": buffer},)]},
}
MAKES: dict[str, Callable[[bytes], Any]] = {
    "bytearray": bytearray,
    "memoryview": lambda body: memoryview(bytearray(body)),
    "array": lambda body: array("B", body),
}


def first_of(value: Any) -> int:
    """Return the first byte of the buffer that is somewhere in it."""
    while not isinstance(value, (bytes, bytearray, memoryview, array)):
        if isinstance(value, dict):
            value = value.get("a", value.get("b"))
        else:
            value = value[-1]
    return int(value[0])


def passed(build: Callable[[Any], Any], name: str, *batches: list[Any]) -> list[Any]:
    """Return the records that leave task `name`, which is given these batches."""
    chain = chain_of(planned(build), f"{name}/0")
    return [record for batch in batches for record in records_in(chain.deliver(0, listed(batch), 0, Services()))]


def mapped(kind: str, fn: Callable[[int], Any], name: str = "fill") -> Callable[[Any], Any]:
    """Return what adds a `map`, or a `flat_map` that gives the same."""
    return lambda stream: getattr(stream, kind)(name, fn if kind == "map" else lambda record: [fn(record)])


def cut(size: int, count: int = 12) -> list[list[int]]:
    return [list(range(first, min(first + size, count + 1))) for first in range(1, count + 1, size)]


KINDS = pytest.mark.parametrize("kind", ["map", "flat_map"])


@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("operator", [Yielding, Returning])
def test_a_record_keeps_what_was_in_the_buffer(operator: Any, wrap: str, make: str) -> None:
    fill = operator(WRAPS[wrap], MAKES[make])
    assert passed(lambda s: s.process("fill", fill).map("first", first_of), "first", [3, 4, 5]) == [3, 4, 5]


def test_a_memory_map_cannot_be_kept(tmp_path: Path) -> None:
    with mmap.mmap(-1, 8) as mapped, pytest.raises(TypeError, match="mmap"):
        copy_containers([mapped])


@pytest.mark.parametrize("value", [{"a": 1, "b": (1, "x")}, (1, ("x", 2.5)), {"d": Decimal(1), "n": None}, 7, [1, [2]]])
def test_what_holds_no_buffer_is_kept_as_it_is(value: Any) -> None:
    assert kept(value) == value and type(kept(value)) is type(value)
    if isinstance(value, (dict, list)):
        assert kept(value) is not value


def test_a_map_that_makes_a_buffer_for_each_is_taken() -> None:
    fresh = mapped("map", lambda n: bytearray([n]))
    assert passed(lambda s: fresh(s).map("first", first_of), "first", [1, 2]) == [1, 2]


ROW: dict[str, Any] = {"n": 0}
LIST: list[Any] = [0]


def filled(record: int) -> Any:
    ROW["n"] = record
    return ROW


def filled_list(record: int) -> Any:
    LIST[0] = record
    return LIST


def of_two(record: int) -> Any:
    row = PAIR[record % 2]
    row["n"] = record
    return row


def nested_list(record: int) -> Any:
    LIST[0] = record
    return {"n": record, "deep": ({"items": LIST},)}


def emptied(record: int) -> Any:
    LIST.clear()
    LIST.append(record)
    return {"n": record, "items": LIST}


PAIR: list[dict[str, Any]] = [{"n": 0}, {"n": 0}]
REFILLED = {
    "dict": (filled, "dict"), "list": (filled_list, "list"), "two in turn": (of_two, "dict"),
    "nested": (nested_list, "list"), "emptied": (emptied, "list"),
}  # fmt: skip


@KINDS
@pytest.mark.parametrize("fn", REFILLED)
@pytest.mark.parametrize("batch", [1, 2, 3, 5, 12])
def test_a_record_that_is_filled_again_is_refused_whatever_the_size_of_the_batches(
    batch: int, fn: str, kind: str
) -> None:
    fill, name = REFILLED[fn]
    line = rf"'fill' emitted the same {name} for several records and changed it.*emit {name}\("
    with pytest.raises(OperatorFailed, match=line):
        passed(mapped(kind, fill), "fill", *cut(batch))


@KINDS
@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("batch", [1, 2, 3])
def test_a_buffer_that_is_filled_again_is_refused_whatever_the_size_of_the_batches(
    batch: int, make: str, kind: str
) -> None:
    buffers = [MAKES[make](b"1234"), MAKES[make](b"5678")]

    def fill(record: int) -> Any:
        buffers[record % 2][0] = record
        return {"body": buffers[record % 2]}

    with pytest.raises(OperatorFailed, match=f"'fill' emitted the same {make} in two records.*emit bytes"):
        passed(lambda s: mapped(kind, fill)(s).map("first", len), "first", *cut(batch))


def test_what_is_remembered_of_records_is_bounded() -> None:
    reuse = Reuse()
    for n in range(1000):
        record = {"n": n, "deep": [[n, {"n": n}], bytearray(1)] + [[each] for each in range(100)]}
        reuse.keep([record])
        reuse.check([record], "x")
    assert len(reuse._copies) == len(reuse._buffers) == REMEMBERED_MAX


@KINDS
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize(
    "fn",
    [
        lambda n: ROW,
        lambda n: {**ROW, "n": n},
        lambda n: ROW if n % 2 else [n],
        lambda n: {"n": n} if n > 1 else ROW,
        lambda n: {"n": n, "same": (LIST, [ROW])},
    ],
)
def test_one_record_for_several_is_taken_as_long_as_it_stays_as_it_is(
    fn: Callable[[int], Any], batch: int, kind: str
) -> None:
    assert passed(mapped(kind, fn), "fill", *cut(batch, 6)) == [fn(n) for n in range(1, 7)]


@KINDS
@pytest.mark.parametrize("failing", [(1,), (2,), (1, 3), (2, 3), (1, 2, 3), (4, 5)])
def test_the_first_record_of_a_batch_may_fail_as_any_other(kind: str, failing: tuple[int, ...]) -> None:
    def fn(record: int) -> Any:
        if record in failing:
            raise ValueError(record)
        return {"n": record} if kind == "map" else [{"n": record}, {"n": -record}]

    stream = planned(lambda s: getattr(s, kind)("some", fn).map("n", lambda r: r["n"]), on_error="dead-letter")
    outputs = chain_of(stream, "n/0").deliver(0, listed([1, 2, 3, 4, 5]), 10, Services())
    records = {ordinal: decode_records(chunk.body) for ordinal, chunk in outputs}
    good = [n for n in range(1, 6) if n not in failing]
    assert records[0] == (good if kind == "map" else [sign * n for n in good for sign in (1, -1)])
    assert [(letter["position"], letter["record"]) for letter in records[1]] == [(9 + n, n) for n in failing]


def test_a_generator_may_yield_one_dict_and_change_it() -> None:
    def thrice(record: int) -> Any:
        row: dict[str, Any] = {"n": record, "deep": [0]}
        for step in range(3):
            row["step"], row["deep"][0] = step, step
            yield row

    rows = passed(lambda s: s.flat_map("thrice", thrice), "thrice", [7])
    assert [(row["step"], row["deep"]) for row in rows] == [(0, [0]), (1, [1]), (2, [2])]


@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("make", MAKES)
def test_a_buffer_is_refused_as_state_when_it_is_put(wrap: str, make: str) -> None:
    class Keeping(Operator):
        total = ValueState[Any]()

        def process(self, record: Any, ctx: Any) -> None:
            self.total.value = WRAPS[wrap](MAKES[make](b"1234"))

    with pytest.raises(OperatorFailed, match="cannot be kept as state: its content can change; use bytes"):
        passed(lambda s: s.key_by(lambda n: n).process("keep", Keeping()), "keep", [1])
