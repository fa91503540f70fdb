"""Tasks are killed while records are held for their order: the one order of event times comes out, and nothing else.

The model knows nothing of the runtime: which records are late follows from each source alone, the rest is sorted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.runs import sets
from benchmarks.harness.written import records_in
from tests.faults.job import PIPELINES, Job
from tests.faults.pipelines.ordered import BOUND_S, NAMES, PER_S, link, record
from tests.members import members

Start = Callable[..., Job]
COUNT, RATE = 400, 150


def micros(seconds: float) -> int:
    return round(seconds * 1e6)


def in_order() -> tuple[list[Any], int]:
    """Return all records that are not late, in the order of time, source and number; and how many are late."""
    kept, late = [], 0
    for place, name in enumerate(NAMES):
        largest = None
        for number in range(COUNT):
            row = record(name, number)
            if largest is not None and micros(row[2]) < micros(largest) - micros(BOUND_S):
                late += 1
            else:
                kept.append((micros(row[2]), place, number, row))
            largest = row[2] if largest is None else max(largest, row[2])
    return [row for _, _, _, row in sorted(kept)], late


def chained() -> list[Any]:
    rows, last = [], ""
    for row in in_order()[0]:
        last = link(last, row)
        rows.append(["link", *row, last])
    return rows


def standing(revisions: list[Any]) -> list[Any]:
    """Return the rows that stand after all revisions, in the order of event time; none contradicts what was there."""
    rows: dict[tuple[Any, ...], Any] = {}
    for place, old, new in revisions:
        assert rows.pop(tuple(place), None) == old
        if new is not None:
            rows[tuple(place)] = new
    return [rows[place] for place in sorted(rows)]


def counted() -> Counter[Any]:
    counts = Counter((name, int(record(name, n)[2] // PER_S) + 1) for name in NAMES for n in range(COUNT))
    return Counter({("count", *which, count): 1 for which, count in counts.items()})


def killed(start: Start, out: Path, kills: tuple[str, ...], **settings: object) -> dict[str, Any]:
    """Return the report of a job that ended after all of these kills."""
    gate = out.with_name("gate")
    arguments = [*sets(out=out, rate=RATE, count=COUNT, gate=gate, **settings), *(f"--kill={kill}" for kill in kills)]
    return start(PIPELINES / "ordered.py", *arguments, "--checkpoint-interval", "0.3").finish_killed(gate)


KILLS = {
    "no task": (),
    "one after the other": ("chain/0@0.4", "left-time/0@0.8", "chain/0@1.1", "out/0@1.4", "stretch/0@1.6"),
    "together": ("chain/0@0.7", "left-time/0@0.7", "right-time/0@0.7", "out/0@0.7", "stretch/1@0.7", "counts/0@0.7"),
}


@pytest.mark.parametrize("name", members(KILLS, "together"))
@pytest.mark.campaign
def test_the_order_is_that_of_the_event_times_whatever_dies(start: Start, tmp_path: Path, name: str) -> None:
    out = tmp_path / "ordered.db"
    report = killed(start, out, KILLS[name])
    assert list(records_in(out)) == chained()
    assert Counter(map(tuple, records_in(Path(f"{out}.counts")))) == counted()
    assert report["counts"]["chain"]["late"] == in_order()[1] > 0
    assert len(report["recoveries"]) == len(KILLS[name])
    logged = report["tasks"]["chain/0"]["determinant_bytes"]
    assert logged.get("order", 0) == 0, "an ordered task logs no order"


def test_speculation_amounts_to_the_same_whatever_dies(start: Start, tmp_path: Path) -> None:
    out = tmp_path / "ordered.db"
    kills = ("revisions/0@0.4", "right-time/0@0.8", "revisions/0@1.1", "out/0@1.1", "left-time/0@1.5")
    report = killed(start, out, kills, delivery="speculative")
    rows = list(records_in(out))
    assert standing(rows) == chained()
    assert report["counts"]["chain"]["late"] == in_order()[1]
    assert report["counts"]["chain"]["revised"] > 0 and len(rows) > len(chained())
    assert len(report["recoveries"]) == len(kills)
