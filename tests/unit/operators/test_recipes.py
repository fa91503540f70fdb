"""The recipe for a new window kind (CONTRIBUTING.md), followed step by step: windows of calendar months."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from causal.errors import PipelineError
from operators import Count, Pipeline, Sliding, Tumbling, every, graph
from operators.kinds.windows.assigners import Assigner, Clock, clock_of, count_of
from operators.sinks import JsonLinesSink
from operators.sources import GeneratedSource
from operators.testing import every_crash, run

NS = 1_000_000_000
DAY_NS = 86_400 * NS
MONTHS_MAX = 12


def month_of(time_ns: int) -> int:
    """Return the number of the month in UTC, from the year 0."""
    time = datetime.fromtimestamp(time_ns // NS, UTC)
    return 12 * time.year + time.month - 1


def start_of(month: int) -> int:
    """Return the start of the month with that number, in ns."""
    return int(datetime(month // 12, month % 12 + 1, 1, tzinfo=UTC).timestamp()) * NS


# Step 1: a class with the methods of `Assigner`, whose constructor refuses wrong arguments with the caller's line.


class Months:
    """Windows of `size` calendar months in UTC, one starting every month."""

    def __init__(self, size: int = 1, clock: Clock = "event") -> None:
        where = graph.caller()
        self.clock: Clock = clock_of(where, "Months", clock)
        self.size = count_of(where, "Months", "size", size)
        if self.size > MONTHS_MAX:
            raise PipelineError(f"{where}: Months has size {size}; use at most {MONTHS_MAX}")

    def panes(self, times_ns: Sequence[int]) -> list[Sequence[int]]:
        """See `Assigner`."""
        months = map(month_of, times_ns)
        return [[start_of(each) for each in range(month - self.size + 1, month + 1)] for month in months]

    def end_ns(self, start_ns: int) -> int:
        """See `Assigner`."""
        return start_of(month_of(start_ns) + self.size)


def test_it_is_an_assigner_and_refuses_wrong_arguments() -> None:
    assert isinstance(Months(), Assigner)
    for wrong in (0, 13, 1.0):
        with pytest.raises(PipelineError, match=r"test_recipes\.py:\d+: Months has size"):
            Months(wrong)  # type: ignore[arg-type]
    with pytest.raises(PipelineError, match="Months has clock 'wall'"):
        Months(clock="wall")  # type: ignore[arg-type]


# Steps 2 and 3: the stages of windows whose bounds follow from the time run it, and `.window` accepts it.

TIMES = [datetime(2024, 1 + day // 28, 1 + day % 28, 23, 59, tzinfo=UTC).timestamp() for day in range(0, 28 * 12, 9)]


COUNT = Count()


def pipeline(assigner: Any, contents: Any = COUNT, **options: Any) -> Pipeline:
    monthly = Pipeline("monthly")
    source = monthly.source("visits", GeneratedSource(lambda partition, number: number, count=0))
    timed = source.watermarks("event-time", lambda time: time, out_of_order_s=0)
    timed.key_by(lambda time: "shop").window("months", assigner, contents, **options).sink("out", JsonLinesSink("."))
    return monthly


def rows(assigner: Any, contents: Any = COUNT, times: Sequence[float] = TIMES, crash: Any = None, **more: Any) -> Any:
    return run(pipeline(assigner, contents, **more), {"visits": times}, crash=crash)["out"]


@pytest.mark.parametrize("crash", every_crash(pipeline(Months()), {"visits": TIMES})[::7], ids=str)
def test_a_crash_does_not_show(crash: dict[str, int]) -> None:
    assert sorted(rows(Months(), crash=crash)) == sorted(rows(Months()))


def test_what_is_no_assigner_and_what_uses_the_wall_clock_is_refused() -> None:
    for wrong in (Months, object(), "month"):
        with pytest.raises(PipelineError, match="window 'months' was given .*; pass Tumbling"):
            pipeline(wrong)
    with pytest.raises(PipelineError, match="was given a Months, which uses the wall clock"):
        pipeline(Months(clock="processing"))


# Step 4: a witness for each option, and an oracle.  Its rows in the pages are checked for exported kinds only.


def months(time: float, size: int) -> list[int]:
    """Return the oracle: the windows of a record by the calendar of its date, as numbers of their first months."""
    date = datetime.fromtimestamp(time, UTC)
    return [12 * date.year + date.month - 1 - back for back in range(size)]


@pytest.mark.parametrize("size", [1, 3, 12])
def test_it_counts_what_the_oracle_counts(size: int) -> None:
    expected = Counter(month for time in TIMES for month in months(time, size))
    assert {month_of(int(start) * NS): count for _, count, start, _ in rows(Months(size))} == expected
    assert all(month_of(int(end) * NS) - month_of(int(start) * NS) == size for *_, start, end in rows(Months(size)))


class Days:
    """The windows of `Sliding(size_s=size * 86_400, every_s=86_400)`, without its class."""

    clock: Clock = "event"

    def __init__(self, size: int) -> None:
        self.size = size

    def panes(self, times_ns: Sequence[int]) -> list[Sequence[int]]:
        """See `Assigner`."""
        days = [time_ns // DAY_NS for time_ns in times_ns]
        return [[each * DAY_NS for each in range(day - self.size + 1, day + 1)] for day in days]

    def end_ns(self, start_ns: int) -> int:
        """See `Assigner`."""
        return start_ns + self.size * DAY_NS


def collected(key: str, records: list[float], window: Any) -> list[Any]:
    return [(window.start, window.end, list(records))]


@pytest.mark.parametrize("contents", [Count(), collected], ids=["aggregate", "function"])
@pytest.mark.parametrize(
    "options",
    [{}, {"trigger": every(2)}, {"lateness_s": 86_400.0}, {"delivery": "ordered"}],
    ids=["alone", "trigger", "lateness", "delivery"],
)
@pytest.mark.parametrize("size", [1, 2])
def test_it_has_triggers_lateness_and_delivery_like_those_that_are_built_in(
    contents: Any, options: dict[str, Any], size: int
) -> None:
    built_in: Any = Sliding(size * 86_400, 86_400) if size > 1 else Tumbling(86_400)
    times = [time - 100_000 * (place % 3) for place, time in enumerate(TIMES)]
    ours, theirs = (rows(each, contents, times, **options) for each in (Days(size), built_in))
    assert ours == theirs and len(ours) > len(TIMES) // 2
