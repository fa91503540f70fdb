"""The recipe for a new window kind (CONTRIBUTING.md), followed: windows of calendar months."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from operators import Count, Pipeline, Tumbling
from operators.sinks import JsonLinesSink
from operators.sources import GeneratedSource
from operators.testing import every_crash, run

NS = 1_000_000_000


def _month(year: int, month: int) -> int:
    """The start of that month in ns."""
    return int(datetime(year + (month - 1) // 12, (month - 1) % 12 + 1, 1, tzinfo=UTC).timestamp()) * NS


class Months(Tumbling):
    """Windows of calendar months in UTC."""

    def __init__(self) -> None:
        super().__init__(size_s=28 * 86_400)

    def starts(self, times_ns: Sequence[int]) -> list[int]:
        times = [datetime.fromtimestamp(time_ns // NS, UTC) for time_ns in times_ns]
        return [_month(time.year, time.month) for time in times]

    def end_ns(self, start_ns: int) -> int:
        start = datetime.fromtimestamp(start_ns // NS, UTC)
        return _month(start.year, start.month + 1)


TIMES = [datetime(2024, 1 + day // 28, 1 + day % 28, 23, 59, tzinfo=UTC).timestamp() for day in range(0, 28 * 12, 9)]


def pipeline() -> Pipeline:
    monthly = Pipeline("monthly")
    source = monthly.source("visits", GeneratedSource(lambda partition, number: number, count=0))
    timed = source.watermarks("event-time", lambda time: time)
    timed.key_by(lambda time: "shop").window("months", Months(), Count()).sink("out", JsonLinesSink("."))
    return monthly


def rows(crash: dict[str, int] | None = None) -> list[Any]:
    return list(run(pipeline(), {"visits": TIMES}, crash=crash)["out"])


def test_each_month_is_counted() -> None:
    expected = Counter(datetime.fromtimestamp(time, UTC).month for time in TIMES)
    assert {datetime.fromtimestamp(start, UTC).month: count for _, count, start, _ in rows()} == expected
    assert {datetime.fromtimestamp(end, UTC).day for *_, end in rows()} == {1}


@pytest.mark.parametrize("crash", every_crash(pipeline(), {"visits": TIMES})[::7], ids=str)
def test_a_crash_does_not_show(crash: dict[str, int]) -> None:
    assert sorted(rows(crash)) == sorted(rows())
