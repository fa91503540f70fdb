"""Every kind of window in real processes, each of which is killed, against a plain model of the same records."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tests.faults.job import PIPELINES, Job

WINDOWS = PIPELINES / "windows.py"
COUNT = 3000
BOUND, LATENESS = 50, 500
"""Of the pipeline, in hundredths of a second, as all times here."""

Record = tuple[int, int, int]
"""(i, key, time)"""


def records() -> list[Record]:
    """What the pipeline's source gives, in order."""
    found = []
    for i in range(COUNT):
        at = i * 5 - (i % 5) * 10 - (900 if i % 97 == 96 else 0) - (300 if i % 89 == 88 else 0)
        found.append((i, i % 5 if i // 100 % 3 else 5 + i % 2, max(0, at)))
    return found


def with_marks() -> Iterable[tuple[Record, int]]:
    """Each record with the watermark before it."""
    largest = -(10**9)
    for record in records():
        yield record, largest - BOUND
        largest = max(largest, record[2])


def panes(size: int, every: int, lateness: int) -> tuple[dict[tuple[int, int], list[int]], list[int]]:
    """By (key, start) the numbers of the records, and those that are in none because they came too late."""
    held: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    late = []
    for (i, key, at), mark in with_marks():
        starts = [start for start in range(at // every * every - size, at + 1, every) if start <= at < start + size]
        taken = [start for start in starts if start + size + lateness > mark]
        for start in taken:
            held[key, start].append(i)
        if not taken:
            late.append(i)
    return dict(held), late


def sessions(gap: int) -> Counter[tuple[int, int, int, int]]:
    """(key, sum, start, end): sessions grow record by record, and are closed when a mark has passed their end."""
    held: defaultdict[int, list[list[int]]] = defaultdict(list)
    for (i, key, at), mark in with_marks():
        near = [s for s in held[key] if s[1] > mark and s[0] < at + gap and at < s[1]]
        if not near and at + gap <= mark:
            continue
        start, end = min([at, *(s[0] for s in near)]), max([at + gap, *(s[1] for s in near)])
        held[key] = [s for s in held[key] if s not in near] + [[start, end, i + sum(s[2] for s in near)]]
    return Counter((key, s[2], s[0], s[1]) for key, told in held.items() for s in told)


def rows_of(out: Path) -> dict[str, list[dict[str, Any]]]:
    found: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    with sqlite3.connect(out) as db:
        for (row,) in db.execute("SELECT record FROM output ORDER BY task, position"):
            told = json.loads(row)
            found[told["window"]].append(told)
    return found


def hundredths(row: dict[str, Any]) -> tuple[int, int]:
    return round(row["start"] * 100), round(row["end"] * 100)


def run(start: Callable[..., Job], out: Path, kills: list[str], *settings: str) -> dict[str, list[dict[str, Any]]]:
    gate = out.with_name("gate")
    told = [f"count={COUNT}", "rate=500", f"out={out}", f"gate={gate}", *settings]
    arguments = [part for setting in told for part in ("--set", setting)]
    arguments += [part for kill in kills for part in ("--kill", kill)]
    job = start(WINDOWS, *arguments, "--checkpoint-interval", "0.5")
    job.until_killed()
    gate.touch()
    report = job.finish_well()
    assert sorted(told["task"] for told in report["recoveries"]) == sorted(kill.partition("@")[0] for kill in kills)
    if not any("clock" in setting for setting in settings):
        assert report["counts"]["tumbling"]["late"] == len(panes(400, 400, LATENESS)[1])
    return rows_of(out)


def test_windows_of_event_time_whose_processes_are_killed(start: Callable[..., Job], tmp_path: Path) -> None:
    kills = ["late-row/0@0.8", "sliding-row/0@1.2", "session-row/0@1.6", "count-row/0@2.0", "time/0@2.3"]
    rows = run(start, tmp_path / "out.db", kills)

    held, late = panes(400, 400, LATENESS)
    last = {(row["key"], hundredths(row)[0]): row["value"] for row in rows["tumbling"]}
    assert last == {pane: len(numbers) for pane, numbers in held.items()}
    assert [row["value"] for row in rows["late"]] == late and late
    assert len(rows["tumbling"]) > len(held), "some were told again"

    held, _ = panes(600, 200, 0)
    told = Counter((row["key"], hundredths(row)[0], tuple(row["value"])) for row in rows["sliding"])
    assert told == Counter((key, begun, tuple(numbers)) for (key, begun), numbers in held.items())

    assert Counter((row["key"], row["value"], *hundredths(row)) for row in rows["session"]) == sessions(200)

    by_key: defaultdict[int, list[int]] = defaultdict(list)
    expected = []
    for i, key, _ in records():
        by_key[key].append(i)
        if len(by_key[key]) % 4 == 0:
            expected.append((key, sum(by_key[key][-10:]) / len(by_key[key][-10:]), len(by_key[key])))
    assert [(row["key"], row["value"], row["end"]) for row in rows["count"]] == expected


def test_windows_of_the_wall_clock_whose_processes_are_killed(start: Callable[..., Job], tmp_path: Path) -> None:
    kills = ["tumbling-row/0@0.8", "sliding-row/0@1.2", "session-row/0@1.6", "global-row/0@2.0", "sliding-row/0@2.4"]
    rows = run(start, tmp_path / "out.db", kills, "clock=1")
    for name in ("tumbling", "sliding", "session"):
        told = [(row["key"], row["start"]) for row in rows[name]]
        assert len(set(told)) == len(told), f"no {name} window is told twice, or contradicts another"
    sums: Counter[int] = Counter()
    numbers: defaultdict[int, list[int]] = defaultdict(list)
    for i, key, _ in records():
        sums[key] += i
        numbers[key].append(i)
    for name in ("tumbling", "session"):
        found: Counter[int] = Counter()
        for row in rows[name]:
            found[row["key"]] += row["value"]
        assert found == sums, "each record is in one window"
    assert all(round((row["end"] - row["start"]) * 1000) == 400 for row in rows["tumbling"])
    assert all(round(row["end"] * 1000) % 400 == 0 for row in rows["tumbling"])
    twice: defaultdict[int, list[int]] = defaultdict(list)
    for row in rows["sliding"]:
        twice[row["key"]] += row["value"]
    assert {key: sorted(told) for key, told in twice.items()} == {
        key: sorted(told * 2) for key, told in numbers.items()
    }, "each record is in two windows"
    by_key: defaultdict[int, list[int]] = defaultdict(list)
    for row in rows["global"]:
        by_key[row["key"]].append(row["value"])
    assert {key: sum(told) for key, told in by_key.items()} == {key: len(told) for key, told in numbers.items()}
    assert all(value == 70 for told in by_key.values() for value in told[:-1])
