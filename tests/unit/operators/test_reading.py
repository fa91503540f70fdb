"""Functions that need no copies of their arguments: those whose code shows that they change none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from operators.kinds.joins.sides import pair
from operators.records.reading import only_reads

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
