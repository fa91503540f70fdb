"""Timers: one per key and name, in the order (time, when set), as before the firing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from causal.errors import OperatorFailed
from operators import Operator
from operators.state.timers import CHAIN_PER_EVENT_MAX
from tests.unit.operators.scene import Services, chain_of, give, keyed, planned, records_in

SECOND = 1_000_000_000


class Alarm(Operator):
    """A record is (key, at_s, name), or (key, None, name) to clear."""

    def process(self, record: Any, ctx: Any) -> None:
        if record[1] is None:
            ctx.clear_timer(record[2])
        else:
            ctx.set_timer(record[1], record[2])

    def on_timer(self, name: str, ctx: Any) -> Any:
        ctx.state["fired"] = ctx.state.get("fired", 0) + 1
        if name == "again":
            ctx.set_timer(1, "again")
        if name == "rival":
            ctx.clear_timer("victim")
        yield (ctx.key, name, ctx.state["fired"])


def alarm() -> Any:
    return keyed(lambda s: s.process("alarm", Alarm()), "alarm/0")


def fire(chain: Any, at_s: float) -> list[Any]:
    return records_in(chain.fire(int(at_s * SECOND), Services()))


def test_one_that_is_set_for_a_time_that_has_passed_waits_for_the_next_firing() -> None:
    chain = alarm()
    give(chain, [("a", 2, "again")])
    assert fire(chain, 2) == [("a", "again", 1)]
    assert chain.next_timer_ns() == SECOND


def test_those_that_set_one_another_for_one_time_fire_at_most_so_often_in_one_event() -> None:
    chain = alarm()
    give(chain, [("a", 1, "again"), ("b", 2, "x")])
    fired = fire(chain, 2)
    assert [key for key, _, _ in fired] == ["a"] * (CHAIN_PER_EVENT_MAX + 1) + ["b"]
    assert chain.next_timer_ns() == SECOND


class Steps(Operator):
    """Timers that set others: each name is the times, in seconds, of those that follow."""

    def process(self, record: Any, ctx: Any) -> None:
        for name in record[1:]:
            self._set(name, ctx)

    def on_timer(self, name: str, ctx: Any) -> Iterator[Any]:
        yield (ctx.key, name)
        _, _, rest = name.partition(" ")
        if rest:
            self._set(rest, ctx)

    def _set(self, name: str, ctx: Any) -> None:
        ctx.set_timer(float(name.split(" ")[0]), name)


def test_each_time_the_earliest_fires_also_of_those_that_timers_set() -> None:
    chain = keyed(lambda s: s.process("steps", Steps()), "steps/0")
    give(chain, [("a", "1 2 3", "4"), ("b", "2 2 5", "3")])
    assert fire(chain, 4) == [
        ("a", "1 2 3"), ("b", "2 2 5"), ("a", "2 3"), ("b", "2 5"), ("b", "3"), ("a", "3"), ("a", "4")
    ]  # fmt: skip
    assert fire(chain, 9) == [("b", "5")]


class Ticks(Operator):
    """Passes records on, and emits every second tick from `first_s` on; the first record starts it."""

    def __init__(self, first_s: int) -> None:
        self.first_s = first_s

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        if record == ("start",):
            ctx.set_timer(self.first_s, str(self.first_s))
        yield record

    def on_timer(self, name: str, ctx: Any) -> Iterator[Any]:
        yield (int(name),)
        ctx.set_timer(int(name) + 2, str(int(name) + 2))


def test_of_two_operators_of_one_task_too_the_earliest_fires_first() -> None:
    chain = chain_of(planned(lambda s: s.process("odd", Ticks(1)).process("even", Ticks(2))), "even/0")
    assert give(chain, [("start",)]) == [("start",)]
    assert fire(chain, 7.5) == [(1,), (2,), (3,), (4,), (5,), (6,), (7,)]
    assert chain.next_timer_ns() == 8 * SECOND


def test_one_that_is_cleared_while_others_fire_does_not() -> None:
    chain = alarm()
    give(chain, [("a", 1, "rival"), ("a", 2, "victim"), ("b", 2, "victim")])
    assert fire(chain, 2) == [("a", "rival", 1), ("b", "victim", 1)]


def test_replaced_timers_do_not_pile_up() -> None:
    chain = alarm()
    give(chain, [("a", 1 + n, "t") for n in range(10_000)])
    assert len(chain._root.stage._timers._heap) < 100
    assert chain.next_timer_ns() == 10_000 * SECOND


@pytest.mark.parametrize("record", [("a", "soon", "t"), ("a", float("inf"), "t"), ("a", 1e10, "t"), ("a", 1, 7)])
def test_what_is_no_time_or_name_is_refused(record: Any) -> None:
    with pytest.raises(OperatorFailed, match="operator 'alarm', key 'a', position 0"):
        give(alarm(), [record])
