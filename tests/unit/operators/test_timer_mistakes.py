"""A timer that would never fire, or at another time than was meant, is refused where it is set."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from causal.errors import OperatorFailed
from operators import BroadcastOperator, Pipeline
from operators.builder.pipeline import Stream
from operators.engine.plan import plan
from tests.unit.operators.scene import NoSink, Services, chain_of, config, give, source

SECOND_NS = 1_000_000_000


class Alarm(BroadcastOperator):
    """Sets a timer at the time that a record is."""

    def __init__(self, clock: str) -> None:
        self.clock = clock

    def process(self, record: Any, ctx: Any) -> None:
        ctx.set_timer(record, clock=self.clock)

    def on_timer(self, name: str, ctx: Any) -> None:
        return None


def alarm(stream: Stream[Any], clock: str = "event", rules: Stream[Any] | None = None) -> Any:
    """Return the chain of an `Alarm` that reads this stream, by rules if there are any."""
    set_by = stream.process("op", Alarm(clock)) if rules is None else stream.broadcast("op", rules, Alarm(clock))
    set_by.sink("out", NoSink())
    return chain_of(plan(stream.pipeline, config()), "op/0")


def begin() -> Stream[Any]:
    return Pipeline("test").source("in", source())


def test_one_of_event_time_is_refused_where_no_watermark_comes() -> None:
    line = (
        r"test_timer_mistakes.py:\d+: operator 'op' sets a timer by event time, but '{}' has none; "
        r'put .watermarks\(name, time\) before it, or give clock="processing" at .*/test_timer_mistakes.py:\d+ in'
    )
    with pytest.raises(OperatorFailed, match=line.format("in")):
        give(alarm(begin()), [1])
    stream = begin()
    dated = stream.map("same", lambda record: record).watermarks("time", float)
    with pytest.raises(OperatorFailed, match=line.format("in")):
        give(alarm(dated.union(stream)), [1])


def test_one_of_event_time_needs_watermarks_but_no_known_time() -> None:
    give(alarm(begin().watermarks("time", float).map("same", lambda record: record)), [1])
    stream = begin()
    rules = stream.pipeline.source("rules", source())
    give(alarm(stream.watermarks("time", float), rules=rules), [1])


def test_one_of_the_wall_clock_needs_no_watermarks() -> None:
    give(alarm(begin(), "processing"), [Services().now_ns() / 1e9 + 60])


def test_a_delay_is_refused_unless_the_clock_of_a_test_begins_at_0() -> None:
    ours_ns = 1_700_000_000 * SECOND_NS
    for delay_s in (60, 0.5, 9e7):
        with pytest.raises(
            OperatorFailed, match=rf"a timer is set to {delay_s} s since 1970; use ctx.now\(\) \+ {delay_s}"
        ):
            give(alarm(begin(), "processing"), [delay_s], Services(start_ns=ours_ns))
        give(alarm(begin(), "processing"), [delay_s], Services())
    chain, services = alarm(begin(), "processing"), Services(start_ns=ours_ns)
    give(chain, [0, -1, 1e8, 1_600_000_000], services)
    assert services.log == [], "the clock is not read for what may be a time"


def test_a_delay_is_a_time_of_events_that_begin_at_0() -> None:
    give(alarm(begin().watermarks("time", float)), [60], Services(start_ns=1_700_000_000 * SECOND_NS))


@pytest.mark.parametrize(
    ("at", "line"),
    [
        (
            datetime(2024, 1, 1, tzinfo=UTC),
            r"which is of type datetime; use seconds since 1970: call \.timestamp\(\) on it at",
        ),
        (datetime(2024, 1, 1), r"call \.replace\(tzinfo=UTC\)\.timestamp\(\) on it at"),
        (timedelta(seconds=60), r"which is of type timedelta; use ctx\.now\(\) \+ duration\.total_seconds\(\) at"),
        (None, r"None, which is of type NoneType; use seconds since 1970, like ctx\.now\(\) at"),
        ("1700000000", "'1700000000', which is of type str; use seconds"),
        (True, "True, which is of type bool; use seconds"),
        (Decimal(1_700_000_000), "which is of type Decimal"),
        (1j, "which is of type complex"),
    ],
)
@pytest.mark.parametrize("clock", ["event", "processing"])
def test_a_time_that_is_no_number_is_refused(at: Any, line: str, clock: str) -> None:
    dated = begin().watermarks("time", lambda record: 0)
    with pytest.raises(OperatorFailed, match=f"TypeError: a timer is set to .*{line}"):
        give(alarm(dated.map("to", lambda record: at), clock), [0])


@pytest.mark.parametrize("at", [1_700_000_000, Fraction(1_700_000_000), np.int64(1_700_000_000), np.float32(1.7e9)])
def test_a_time_may_be_any_real_number(at: Any) -> None:
    chain = alarm(begin().map("to", lambda record: at), "processing")
    give(chain, [0])
    assert abs(chain.next_timer_ns() / SECOND_NS - 1_700_000_000) < 100
