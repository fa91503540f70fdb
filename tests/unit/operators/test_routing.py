"""Routes of their own kind: what goes to all tasks, and what goes to the one task that there is."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any

import pytest

from causal.records.batch import encode_records
from causal.records.rows import Rows
from operators.records.keys import Unroutable
from operators.stage.failures import NO_KEY
from operators.stage.routing import BroadcastRoute, KeyedRoute, StraightRoute


def fail(index: int, key: object, problem: Exception) -> None:
    raise AssertionError((index, key is NO_KEY, problem))


def test_a_broadcast_route_gives_every_channel_all_records_in_order() -> None:
    route = BroadcastRoute("rules", [2, 0, 5])
    route.add([1, 2], fail)
    route.add([3], fail)
    assert route.drain() == [(2, [1, 2, 3]), (0, [1, 2, 3]), (5, [1, 2, 3])]
    assert route.drain() == []


def called(record: Any) -> Any:
    return (record,)[0][0]


ROWS = [(1, "a"), ("b", 2), (None, 3), (2.5, 4)]


@pytest.mark.parametrize("key_of", [itemgetter(0), called])
@pytest.mark.parametrize("batch", [ROWS, Rows([list(column) for column in zip(*ROWS, strict=True)])])
def test_one_task_is_given_what_several_would_be_given_together(key_of: Callable[[Any], Any], batch: Any) -> None:
    route = StraightRoute("count", [3], key_of, 16)
    route.add(batch, fail)
    [(ordinal, records)] = route.drain()
    assert ordinal == 3 and encode_records(records) == encode_records(ROWS)
    assert route.drain() == []
    route.add(batch, fail)
    route.add(ROWS[:1], fail)
    [(_, records)] = route.drain()
    assert records == [*ROWS, ROWS[0]]


@pytest.mark.parametrize("kind", [StraightRoute, KeyedRoute])
@pytest.mark.parametrize("key_of", [itemgetter(0), called])
def test_records_without_a_way_are_told_of_by_place_and_the_others_go(kind: Any, key_of: Callable[[Any], Any]) -> None:
    lost: list[tuple[int, Any, type]] = []
    route = kind("count", [0], key_of, 16)
    nan = float("nan")
    rows = [(1, "a"), ([], "b"), (2, "c"), (nan, "d"), ({}, "e")]
    route.add(rows, lambda index, key, problem: lost.append((index, key, type(problem))))
    assert lost == [(1, [], Unroutable), (3, nan, Unroutable), (4, {}, Unroutable)]
    assert route.drain() == [(0, [(1, "a"), (2, "c")])]
    lost.clear()
    route.add([(3,), 4, ()], lambda index, key, problem: lost.append((index, key, type(problem))))
    assert [(index, kind) for index, _, kind in lost] == [(1, TypeError), (2, IndexError)]
    assert route.drain() == [(0, [(3,)])]
    route.add([([], 1)], lambda index, key, problem: None)
    assert route.drain() == []
