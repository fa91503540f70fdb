"""Routes of their own kind: what goes to all tasks."""

from __future__ import annotations

from operators.failures import NO_KEY
from operators.routing import BroadcastRoute


def fail(index: int, key: object, problem: Exception) -> None:
    raise AssertionError((index, key is NO_KEY, problem))


def test_a_broadcast_route_gives_every_channel_all_records_in_order() -> None:
    route = BroadcastRoute("rules", [2, 0, 5])
    route.add([1, 2], fail)
    route.add([3], fail)
    assert route.drain() == [(2, [1, 2, 3]), (0, [1, 2, 3]), (5, [1, 2, 3])]
    assert route.drain() == []
