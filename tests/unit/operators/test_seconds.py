"""One conversion between seconds and nanoseconds, exact for what fits a float, wherever a user meets a time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators import Operator, Pipeline
from operators.kinds.windows import Count, Tumbling
from operators.records.seconds import all_ns_of_seconds, ns_of_seconds, seconds_of
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource
from operators.stage.event_times import ns_of
from operators.testing import run

MICROSECONDS = st.integers(-(1 << 33) * 10**6, (1 << 33) * 10**6)
"""The range in which a float of seconds separates any two microseconds."""


@given(MICROSECONDS)
def test_microseconds_come_back(at_us: int) -> None:
    at_s = at_us / 10**6
    assert ns_of_seconds(at_s) == at_us * 1000 == ns_of(at_s)
    assert seconds_of(at_us * 1000) == at_s


@given(st.integers(-(1 << 33) * 1000, (1 << 33) * 1000))
def test_milliseconds_come_back_as_they_were_spelled(at_ms: int) -> None:
    spelled = float(f"{at_ms}e-3")
    assert seconds_of(ns_of_seconds(spelled)) == spelled


@given(st.lists(MICROSECONDS, max_size=5), st.booleans())
def test_many_at_once_are_each_by_itself(at_us: list[int], whole: bool) -> None:
    seconds: list[float] = [float(each // 10**6) if whole else each / 10**6 for each in at_us]
    assert all_ns_of_seconds(seconds) in (None, [ns_of_seconds(at_s) for at_s in seconds])


def test_what_cannot_be_converted_at_once_is_said() -> None:
    assert all_ns_of_seconds([1.0, float("nan")]) is None
    assert all_ns_of_seconds([1.0, 5e9]) is None
    assert all_ns_of_seconds([float("-inf")]) is None
    assert all_ns_of_seconds([]) == []


@given(MICROSECONDS)
def test_a_datetime_is_the_time_that_its_seconds_are(at_us: int) -> None:
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at_us)
    assert ns_of(at) == ns_of_seconds(at_us / 10**6)


TIMES = [1700000140.378, 1700000000.001, 1700000123.456789, 0.1, -0.3, 4294967297.000001]


class Seen(Operator):
    """Emits every time that an operator can ask for."""

    def process(self, record: Any, ctx: Any) -> Any:
        ctx.set_timer(record, "at", clock="event")
        yield ("record", ctx.event_time())

    def on_timer(self, name: str, ctx: Any) -> Any:
        yield ("timer", ctx.event_time(), ctx.watermark())


@pytest.mark.parametrize("at_s", TIMES)
def test_an_operator_sees_the_times_of_its_records(at_s: float) -> None:
    pipeline = Pipeline("seen")
    stream = pipeline.source("in", GeneratedSource(lambda p, i: 0, count=0)).watermarks("time", lambda r: r)
    stream.process("seen", Seen()).sink("out", SqliteSink("out.db"))
    assert run(pipeline, {"in": [at_s]})["out"] == [("record", at_s), ("timer", at_s, at_s)]


@pytest.mark.parametrize("at_s", TIMES)
@pytest.mark.parametrize("size_s", [0.007, 0.1, 5, 3600])
def test_windows_of_a_stream_and_of_a_table_have_the_same_bounds(at_s: float, size_s: float) -> None:
    pipeline = Pipeline("bounds")
    source = pipeline.source("in", GeneratedSource(lambda p, i: 0, count=0)).watermarks("time", lambda r: r)
    keyed, assigner = source.key_by(lambda r: "k"), Tumbling(size_s)
    rows = keyed.window("w", assigner, lambda key, records, window: [(key, window.start, window.end)])
    rows.sink("rows", SqliteSink("a.db"))
    table = source.key_by(lambda r: "k").window_table("t", Tumbling(size_s), Count())
    table.to_stream("s", lambda key, n: key).sink("table", SqliteSink("b.db"))
    result = run(pipeline, {"in": [at_s]})
    assert result["rows"] == result["table"]
    assert result["rows"][0][1] <= at_s < result["rows"][0][2]
