"""Event time at the limits of its 64 bits: a time is refused or counts, and no window or watermark leaves them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.records.batch import watermark
from operators import Count, Pipeline, Session, Sliding, Tumbling, every, every_s
from operators.stage.event_times import ns_of
from operators.testing import run
from tests.unit.operators.scene import NoSink, source

LIMIT_S = 8_999_999_999
times = st.lists(st.integers(-LIMIT_S, LIMIT_S) | st.sampled_from([-LIMIT_S, LIMIT_S]), min_size=1, max_size=4)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@given(st.datetimes(timezones=st.sampled_from([None, UTC])))
def test_a_datetime_is_exact_or_refused(time: datetime) -> None:
    since = (time.replace(tzinfo=UTC) - EPOCH).total_seconds()
    if abs(since) < LIMIT_S:
        assert ns_of(time) == (time.replace(tzinfo=UTC) - EPOCH) // (EPOCH.resolution) * 1000
        watermark(ns_of(time))
    elif abs(since) > LIMIT_S + 1:
        with pytest.raises(ValueError, match="after 1684 and before 2255"):
            ns_of(time)


@pytest.mark.parametrize(
    "build, windows",
    [
        (lambda stream: stream.window("w", Tumbling(1e9), Count()), 1),
        (lambda stream: stream.window("w", Tumbling(1e9), Count(), lateness_s=1e9), 1),
        (lambda stream: stream.window("w", Tumbling(1e9), Count(), trigger=every(9)), 1),
        (lambda stream: stream.window("w", Tumbling(1e9), Count(), trigger=every_s(10)), 1),
        (lambda stream: stream.window("w", Session(1e9), Count()), 1),
        (lambda stream: stream.window("w", Sliding(1e9, 5e8), Count()), 2),
        (lambda stream: stream.window("w", Sliding(1e9, 1e8), Count()), 10),
        (
            lambda stream: stream.window_table("w", Tumbling(1e9), Count(), grace_s=1e9)
            .suppress("s", until="closed")
            .to_stream("t"),
            1,
        ),
    ],
)  # fmt: skip
@given(times)
def test_every_window_is_emitted_however_far_its_end_is(
    build: Callable[[Any], Any], windows: int, times: list[int]
) -> None:
    """The last rows of windows have all records, although the marks of a job and of its tasks are far from them."""
    pipeline = Pipeline("limits")
    stream = pipeline.source("in", source(1)).watermarks("time", lambda record: record, out_of_order_s=1e9)
    build(stream.key_by(lambda record: record)).sink("out", NoSink())
    rows = run(pipeline, {"in": sorted(times)})["out"]
    last = {row[0] if isinstance(row[0], tuple) else (row[0], *row[2:]): row[1] for row in rows}
    assert sum(last.values()) == windows * len(times)


@pytest.mark.parametrize("how", ["inner", "outer"])
@given(times)
def test_joins_at_the_limits_pass_their_watermarks_on(how: Any, times: list[int]) -> None:
    pipeline = Pipeline("limits")
    sides = [
        pipeline.source(name, source(1)).watermarks(f"{name}-time", lambda record: record).key_by(lambda record: 1)
        for name in ("left", "right")
    ]
    near = sides[0].join("near", sides[1], within=(-1e9, 1e9), how=how, fn=lambda left, right: [left, right])
    same = sides[0].window_join("same", sides[1], Tumbling(1e9), how=how, fn=lambda left, right: [left, right])
    for name, joined in (("near", near), ("same", same)):
        joined.sink(f"{name}-out", NoSink())
        later = joined.timed(lambda pair: max(time for time in pair if time is not None)).key_by(lambda pair: 1)
        later.window(f"{name}-w", Tumbling(1e9), Count()).sink(f"{name}-counts", NoSink())
    rows = run(pipeline, {"left": sorted(times), "right": sorted(times)})
    pairs = [[left, right] for left in times for right in times]
    assert sum(row[1] for row in rows["near-counts"]) == len(rows["near-out"])
    assert sum(row[1] for row in rows["same-counts"]) == len(rows["same-out"])
    assert sorted(rows["near-out"]) == sorted(pair for pair in pairs if abs(pair[0] - pair[1]) <= 1_000_000_000)
    assert sorted(rows["same-out"]) == sorted(pair for pair in pairs if pair[0] // 10**9 == pair[1] // 10**9)
