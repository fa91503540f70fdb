"""The code of a function shows that a key is one item of the record, or that no argument is changed."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.records.rows import Rows
from operators.kinds.joins.sides import pair
from operators.records.item_keys import RECORD, item_of, keys_in
from operators.records.reading import builds_result, only_reads
from tests.unit.operators.scene import chain_of, give, planned

PLACE = 1


def documented(row: tuple[int, int]) -> int:
    """Return the second."""
    return row[1]


def by_a_global(row: Any) -> Any:
    return row[PLACE]


def with_a_default(row: Any, item: int = 0) -> Any:
    return row[item]


def generated(row: Any) -> Any:
    yield row[0]


async def awaited(row: Any) -> Any:
    return row[0]


def closure_over(item: int) -> Callable[[Any], Any]:
    def closed_over(row: Any) -> Any:
        return row[item]

    return closed_over


@pytest.mark.parametrize(
    ("key_of", "item"),
    [
        (itemgetter(0), 0),
        (itemgetter(7), 7),
        (lambda pair: pair[3], 3),
        (documented, 1),
        (itemgetter(-1), None),
        (itemgetter(8), None),
        (itemgetter(0, 1), None),
        (itemgetter("name"), None),
        (itemgetter(True), None),
        (lambda row: row[True], None),
        (lambda row: row[-1], None),
        (lambda row: row["0"], None),
        (lambda row: row[0][0], None),
        (lambda row: row, RECORD),
        (lambda *row: row[0], None),
        (lambda row: PLACE[0], None),  # type: ignore[index]
        (by_a_global, None),
        (with_a_default, None),
        (generated, None),
        (awaited, None),
        (closure_over(1), None),
        (len, None),
        (None, None),
    ],
)
def test_only_one_item_by_its_number_is_seen(key_of: Any, item: int | None) -> None:
    assert item_of(key_of) == item


rows = st.lists(st.tuples(st.integers(), st.text()), min_size=1)


@given(rows, st.integers(0, 1))
def test_keys_are_those_that_the_function_would_give(records: list[tuple[int, str]], item: int) -> None:
    columns = [list(column) for column in zip(*records, strict=True)]
    assert keys_in(records, item) == keys_in(Rows(columns), item) == [row[item] for row in records]
    keys = keys_in(Rows(columns), item)
    assert keys is not columns[item]


@pytest.mark.parametrize("records", [[(1,), 2], [(1,), ()], Rows([[1, 2]])])
def test_where_a_record_has_no_such_item_the_function_is_to_be_called(records: Any) -> None:
    assert isinstance(keys_in(records, 1), (TypeError, IndexError))


class Ends:
    def __getitem__(self, item: int) -> Any:
        raise StopIteration


def test_an_item_that_ends_an_iteration_is_no_key() -> None:
    assert isinstance(keys_in([(1,), Ends()], 0), RuntimeError)


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_count_by_item_is_the_count_by_any_other_function(parallelism: int) -> None:
    def counted(key_of: Callable[[Any], Any]) -> list[Any]:
        job_plan = planned(lambda s: s.key_by(key_of).count("c", parallelism=parallelism).key_by(key_of).count("d"))
        return [give(chain_of(job_plan, name), [(2, 5), (1, 5), (2, 6)]) for name in ("c/0", "d/0")]

    assert counted(lambda row: row[0]) == counted(lambda row: (row,)[0][0])


# Functions that need no copies of their arguments: those whose code shows that they change none.


RATE = 3
EMPTY: list[Any] = []


def changes(record: Any) -> Any:
    record["n"] = 1
    return record


def named(left: Any, right: Any) -> Any:
    return {"id": left["id"], "names": [each["name"].upper() for each in right], "lag": left["ts"] - right.get("ts", 0)}


def globally(left: Any, right: Any) -> Any:
    global EMPTY
    EMPTY = left


@pytest.mark.parametrize(
    "fn",
    [
        pair,
        named,
        lambda left, right: {**left, **right},
        lambda left, right: left | {"n": round(right["n"] * RATE, 2)},
        lambda left, right: None if right is None else (left[0], sorted(right["names"])),
    ],
)
def test_what_only_reads_is_seen(fn: Callable[..., Any]) -> None:
    assert only_reads(fn)


def test_what_may_change_an_argument_is_seen() -> None:
    closed: list[Any] = []

    def nested(left: Any, right: Any) -> Any:
        def inner() -> None:
            left["n"] = 1

        return inner()

    def in_place(left: Any, right: Any) -> Any:
        left |= right
        return left

    def attribute(left: Any, right: Any) -> Any:
        left.n = 1

    def slices(left: Any, right: Any) -> Any:
        del left[:]

    def default(left: Any, right: Any, fn: Any = changes) -> Any:
        return fn(left)

    functions: list[Callable[..., Any]] = [
        globally, nested, in_place, attribute, slices, default,
        lambda left, right: changes(left),
        lambda left, right: left.update(right),
        lambda left, right: left.pop("n"),
        lambda left, right: closed.append(left),
        lambda left, right: EMPTY.count(left),
        lambda left, right: dict.update(left, right),
        lambda left, right: setattr(left, "n", 1),
        dict,
    ]  # fmt: skip
    assert [fn for fn in functions if only_reads(fn)] == []


def test_a_function_whose_results_are_all_new_is_seen() -> None:
    functions: list[Callable[..., Any]] = [pair, named, lambda left, right: {"left": left, "right": right["n"]}]
    assert all(map(builds_result, functions))


def test_a_function_that_may_return_what_it_received_is_seen() -> None:
    functions: list[Callable[..., Any]] = [
        lambda left, right: right,
        lambda left, right: right["names"],
        lambda left, right: left or {"n": 1},
        lambda left, right: {"n": 1} if left else right,
        lambda left, right: (left, right) if right else left,
    ]
    assert [fn for fn in functions if builds_result(fn)] == []
