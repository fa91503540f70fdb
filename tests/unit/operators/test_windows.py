"""Tumbling processing-time windows: contents by firing, ends by one reading per window, order by first arrival."""

from __future__ import annotations

from typing import Any

import pytest

from causal.errors import OperatorFailed, ReplayDivergence
from operators import Window
from tests.unit.operators.scene import Services, chain_of, give, keyed, parts_of, planned, records_in

SECOND = 1_000_000_000


def values_of_window(key: Any, records: list[Any], window: Window) -> Any:
    yield (key, [record[1] for record in records], window.start, window.end)


def windowed(fn: Any = values_of_window) -> Any:
    return keyed(lambda s: s.window("w", 10, fn), "w/0")


def test_a_window_holds_what_came_between_its_opening_and_its_firing() -> None:
    chain, services = windowed(), Services(start_ns=1003 * SECOND)
    assert chain.next_timer_ns() is None
    assert give(chain, [("a", 1), ("b", 2)], services) == []
    assert chain.next_timer_ns() == 1010 * SECOND
    services.clock_ns = 1009 * SECOND
    give(chain, [("a", 3)], services)
    assert chain.fire(1009 * SECOND, services) == []
    assert records_in(chain.fire(1010 * SECOND + 5, services)) == [
        ("a", [1, 3], 1000.0, 1010.0),
        ("b", [2], 1000.0, 1010.0),
    ]
    assert chain.next_timer_ns() is None
    services.clock_ns = 1034 * SECOND
    give(chain, [("b", 4)], services)
    assert records_in(chain.fire(1040 * SECOND, services)) == [("b", [4], 1030.0, 1040.0)]


def test_the_log_has_one_reading_and_one_interval_per_window() -> None:
    chain, services = windowed(), Services(start_ns=1003 * SECOND)
    for number in range(50):
        give(chain, [("a", number), ("b", number)], services)
    chain.fire(1010 * SECOND, services)
    give(chain, [("a", 1)], services)
    chain.finish(services)
    kinds = [kind for kind, _ in services.log]
    assert kinds == ["clock", "window", "clock", "window"]
    assert [answer for kind, answer in services.log if kind == "window"] == [
        (0, 1010 * SECOND, ((0, 100),)),
        (0, 1020 * SECOND, ((100, 1),)),
    ]


def test_an_end_is_never_used_twice_even_when_the_clock_steps_back() -> None:
    chain, services = windowed(), Services(start_ns=1003 * SECOND)
    give(chain, [("a", 1)], services)
    chain.fire(1010 * SECOND, services)
    services.clock_ns = 1008 * SECOND
    give(chain, [("a", 2)], services)
    assert chain.next_timer_ns() == 1020 * SECOND


def test_the_end_of_the_input_fires_what_is_open() -> None:
    assert windowed().finish(Services()) == []
    chain, services = windowed(), Services(start_ns=1003 * SECOND)
    give(chain, [("a", 1)], services)
    assert records_in(chain.finish(services)) == [("a", [1], 1000.0, 1010.0)]
    assert chain.finish(services) == []


def test_without_key_by_there_is_one_window_per_task() -> None:
    chain = chain_of(planned(lambda s: s.window("w", 10, lambda k, rs, w: [(k, rs)])), "w/0")
    services = Services()
    give(chain, [1, 2], services)
    assert records_in(chain.finish(services)) == [(None, [1, 2])]


def test_contents_survive_by_increments_and_keep_their_order() -> None:
    live, standby = windowed(), windowed()
    services = Services(start_ns=1003 * SECOND)
    give(live, [(key, 0) for key in "qwertyuiop"], services)
    standby.restore(parts_of(live))
    give(live, [(key, 1) for key in "poiuytrewqz"], services)
    standby.restore(parts_of(live))
    log = len(services.log)
    expected = live.fire(1010 * SECOND, services)
    assert [row[0] for row in records_in(expected)] == [*"qwertyuiopz"]
    assert standby.fire(1010 * SECOND, Services(services.log[log:])) == expected
    assert parts_of(live)[1:] == parts_of(standby)[1:] == []


def test_a_delta_holds_only_what_came_since() -> None:
    live, services = windowed(), Services()
    give(live, [(key, "x" * 100) for key in range(200)], services)
    first = sum(map(len, parts_of(live)))
    give(live, [("k", 1)], services)
    assert sum(map(len, parts_of(live))) < first / 10
    assert sum(map(len, parts_of(live, full=True))) >= first


def test_a_window_that_fired_is_gone_from_what_is_restored() -> None:
    live, standby = windowed(), windowed()
    services = Services(start_ns=1003 * SECOND)
    give(live, [("a", 1)], services)
    standby.restore(parts_of(live))
    live.fire(1010 * SECOND, services)
    services.clock_ns = 1011 * SECOND
    give(live, [("a", 2)], services)
    standby.restore(parts_of(live))
    assert records_in(standby.fire(1020 * SECOND, Services())) == [("a", [2], 1010.0, 1020.0)]


def test_a_function_that_changes_its_records_does_not_change_a_snapshot() -> None:
    def spoil(key: Any, records: list[Any], window: Window) -> Any:
        for record in records:
            record[1].append("spoilt")
        return [records]

    live, standby = windowed(spoil), windowed(spoil)
    services = Services(start_ns=1003 * SECOND)
    give(live, [("a", [])], services)
    job = live.snapshot(full=True)
    expected = live.fire(1010 * SECOND, services)
    assert job.step(10)
    standby.restore(job.parts())
    assert standby.fire(1010 * SECOND, Services()) == expected


def test_a_replay_that_differs_from_the_log_is_told() -> None:
    live, services = windowed(), Services(start_ns=1003 * SECOND)
    give(live, [("a", 1), ("a", 2)], services)
    live.fire(1010 * SECOND, services)
    again, replay = windowed(), Services(services.log)
    give(again, [("a", 1)], replay)
    with pytest.raises(ReplayDivergence, match="a window fires as"):
        again.fire(1010 * SECOND, replay)


def test_records_that_cannot_be_kept_name_operator_and_key() -> None:
    chain = chain_of(planned(lambda s: s.map("o", lambda r: {1}).window("w", 1, lambda k, rs, w: None)), "w/0")
    give(chain, [1], Services())
    with pytest.raises(OperatorFailed, match="operator 'w', among keys None: .* a set does not keep its order"):
        parts_of(chain)
