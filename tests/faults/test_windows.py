"""Every kind of window in real processes, each of which is killed, against a plain model of the same records."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.runs import sets
from benchmarks.harness.written import records_in
from tests.faults.job import PIPELINES, Job

WINDOWS = PIPELINES / "windows.py"
COUNT = 2000
BOUND, LATENESS = 50, 500
"""The pipeline's bounds, in hundredths of a second, as all times here."""

Record = tuple[int, int, int]
"""(i, key, time)"""


def records() -> list[Record]:
    """Return what the pipeline's source gives, in order."""
    elements = []
    for i in range(COUNT):
        at = i * 5 - (i % 5) * 10 - (900 if i % 97 == 96 else 0) - (300 if i % 89 == 88 else 0)
        elements.append((i, i % 5 if i // 100 % 3 else 5 + i % 2, max(0, at)))
    return elements


def with_marks() -> Iterable[tuple[Record, int]]:
    """Yield each record with the watermark before it."""
    largest = -(10**9)
    for record in records():
        yield record, largest - BOUND
        largest = max(largest, record[2])


def panes(size: int, every: int, lateness: int) -> tuple[dict[tuple[int, int], list[int]], list[int]]:
    """Return by (key, start) the numbers of the records, and those that are in none because they came too late."""
    contents: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    late = []
    for (i, key, at), mark in with_marks():
        starts = [start for start in range(at // every * every - size, at + 1, every) if start <= at < start + size]
        taken = [start for start in starts if start + size + lateness > mark]
        for start in taken:
            contents[key, start].append(i)
        if not taken:
            late.append(i)
    return dict(contents), late


def sessions(gap: int) -> Counter[tuple[int, int, int, int]]:
    """Return (key, sum, start, end): sessions grow record by record, and close when a mark has passed their end."""
    open_sessions: defaultdict[int, list[list[int]]] = defaultdict(list)
    for (i, key, at), mark in with_marks():
        near = [s for s in open_sessions[key] if s[1] > mark and s[0] < at + gap and at < s[1]]
        if not near and at + gap <= mark:
            continue
        start, end = min([at, *(s[0] for s in near)]), max([at + gap, *(s[1] for s in near)])
        open_sessions[key] = [s for s in open_sessions[key] if s not in near] + [
            [start, end, i + sum(s[2] for s in near)]
        ]
    return Counter((key, s[2], s[0], s[1]) for key, of_key in open_sessions.items() for s in of_key)


def rows_of(out: Path) -> dict[str, list[dict[str, Any]]]:
    by_window: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in records_in(out):
        by_window[row["window"]].append(row)
    return by_window


def hundredths(row: dict[str, Any]) -> tuple[int, int]:
    return round(row["start"] * 100), round(row["end"] * 100)


def run(start: Callable[..., Job], out: Path, kills: list[str], **settings: object) -> dict[str, list[dict[str, Any]]]:
    gate = out.with_name("gate")
    arguments = [*sets(count=COUNT, rate=500, out=out, gate=gate, **settings), *(f"--kill={kill}" for kill in kills)]
    report = start(WINDOWS, *arguments, "--checkpoint-interval", "0.5").finish_killed(gate)
    assert sorted(recovery["task"] for recovery in report["recoveries"]) == sorted(
        kill.partition("@")[0] for kill in kills
    )
    if "clock" not in settings:
        assert report["counts"]["tumbling"]["late"] == len(panes(400, 400, LATENESS)[1])
    return rows_of(out)


def test_windows_of_event_time_whose_processes_are_killed(start: Callable[..., Job], tmp_path: Path) -> None:
    kills = ["late-row/0@0.8", "sliding-row/0@1.2", "session-row/0@1.6", "count-row/0@2.0", "time/0@2.3"]
    rows = run(start, tmp_path / "out.db", kills)

    contents, late = panes(400, 400, LATENESS)
    last = {(row["key"], hundredths(row)[0]): row["value"] for row in rows["tumbling"]}
    assert last == {pane: len(numbers) for pane, numbers in contents.items()}
    assert [row["value"] for row in rows["late"]] == late and late
    assert len(rows["tumbling"]) > len(contents), "some were emitted again"

    contents, _ = panes(600, 200, 0)
    sliding = Counter((row["key"], hundredths(row)[0], tuple(row["value"])) for row in rows["sliding"])
    assert sliding == Counter((key, begun, tuple(numbers)) for (key, begun), numbers in contents.items())

    assert Counter((row["key"], row["value"], *hundredths(row)) for row in rows["session"]) == sessions(200)

    by_key: defaultdict[int, list[int]] = defaultdict(list)
    expected = []
    for i, key, _ in records():
        by_key[key].append(i)
        if len(by_key[key]) % 4 == 0:
            expected.append((key, sum(by_key[key][-10:]) / len(by_key[key][-10:]), len(by_key[key])))
    assert [(row["key"], row["value"], row["end"]) for row in rows["count"]] == expected


@pytest.mark.campaign
def test_windows_of_the_wall_clock_whose_processes_are_killed(start: Callable[..., Job], tmp_path: Path) -> None:
    kills = ["tumbling-row/0@0.8", "sliding-row/0@1.2", "session-row/0@1.6", "global-row/0@2.0", "sliding-row/0@2.4"]
    rows = run(start, tmp_path / "out.db", kills, clock=1)
    for name in ("tumbling", "sliding", "session"):
        panes_of_name = [(row["key"], row["start"]) for row in rows[name]]
        assert len(set(panes_of_name)) == len(panes_of_name), (
            f"no {name} window is emitted twice, or contradicts another"
        )
    sums: Counter[int] = Counter()
    numbers: defaultdict[int, list[int]] = defaultdict(list)
    for i, key, _ in records():
        sums[key] += i
        numbers[key].append(i)
    for name in ("tumbling", "session"):
        totals: Counter[int] = Counter()
        for row in rows[name]:
            totals[row["key"]] += row["value"]
        assert totals == sums, "each record is in one window"
    assert all(round((row["end"] - row["start"]) * 1000) == 400 for row in rows["tumbling"])
    assert all(round(row["end"] * 1000) % 400 == 0 for row in rows["tumbling"])
    twice: defaultdict[int, list[int]] = defaultdict(list)
    for row in rows["sliding"]:
        twice[row["key"]] += row["value"]
    assert {key: sorted(values) for key, values in twice.items()} == {
        key: sorted(values * 2) for key, values in numbers.items()
    }, "each record is in two windows"
    by_key: defaultdict[int, list[int]] = defaultdict(list)
    for row in rows["global"]:
        by_key[row["key"]].append(row["value"])
    assert {key: sum(values) for key, values in by_key.items()} == {key: len(values) for key, values in numbers.items()}
    assert all(value == 70 for values in by_key.values() for value in values[:-1])
