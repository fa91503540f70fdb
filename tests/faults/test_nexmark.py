"""Every Nexmark query in real processes, which are killed: its rows are those of the model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.harness.runs import sets
from examples.nexmark import check, queries
from examples.nexmark.terms import Terms
from tests.faults.job import PIPELINES, Job, causal_output
from tests.members import members

NEXMARK = PIPELINES / "held_nexmark.py"
SETTINGS = {
    "events": "2500",
    "rate": "1000",
    "events_per_s": "200",
    "out_of_order": "20",
    "window_s": "4",
    "every_s": "2",
    "gap_s": "1",
    "clock_s": "0.5",
    "auction_skip": "7",
}
KILLS = ("0.6", "1.1", "1.6")
ALWAYS = (5,)
"""A join, windows of event time, and windows of the clock."""


def tasks_of(query: int) -> list[str]:
    """Return the tasks of a query, as `causal plan` names them."""
    plan = causal_output(PIPELINES, "plan", str(NEXMARK), "--json", *sets(**SETTINGS, query=query))
    return [task["task"] for task in json.loads(plan)["tasks"]]


@pytest.mark.parametrize("query", members(sorted(queries.BUILT), *ALWAYS))
def test_a_query_whose_processes_are_killed(start: Callable[..., Job], tmp_path: Path, query: int) -> None:
    out, tasks = tmp_path / "out.db", tasks_of(query)
    gate = tmp_path / "gate"
    victims = [tasks[(query + step * 2) % len(tasks)] for step in range(2)] + [tasks[-1]]
    kills = [f"--kill={task}@{moment}" for task, moment in zip(victims, KILLS, strict=True)]
    settings = sets(**SETTINGS, query=query, out=out, gate=gate)
    report = start(NEXMARK, *settings, *kills, "--checkpoint-interval", "0.5").finish_killed(gate)
    assert sorted(recovery["task"] for recovery in report["recoveries"]) == sorted(victims)
    rows = check.rows_of(out)
    result = check.compare(query, rows, check.read_events(SETTINGS), Terms.of_settings(SETTINGS))
    assert result == {"rows": len(rows), "lost": 0, "false": 0} and rows
