"""A sharing depth of f masks f neighbours that die at the same moment: no other task goes back, no row is withdrawn."""

from __future__ import annotations

import json
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.runs import sets
from tests.faults.conftest import Start
from tests.faults.job import PIPELINES, Job
from tests.members import members

COUNT = 2400
ROW = ("read/0", "a/0", "b/0", "c/0", "d/0", "out/0")


def begin(start: Start, directory: Path, depth: str, *arguments: str, count: int = COUNT) -> Job:
    settings = sets(out=directory / "rows", count=count, gate=directory / "gate")
    job = start(PIPELINES / "row.py", *settings, "--sharing-depth", depth, "--checkpoint-interval", "600", *arguments)
    job.until_warm(records=200, checkpoints=0)
    return job


def assert_linked(directory: Path, count: int = COUNT) -> None:
    """Every record once, in order, and each row made from the one that was visible before it."""
    (path,) = (directory / "rows").glob("*.jsonl")
    before = ""
    rows: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["i"] for row in rows] == list(range(count))
    for row in rows:
        content = repr((before, row["i"], row["seen"], row["dice"]))
        assert row["before"] == before and row["hash"] == blake2b(content.encode(), digest_size=8).hexdigest(), row
        before = row["hash"]


DEPTHS = [("1", 1), ("2", 2), ("3", 3), ("full", 6)]


@pytest.mark.parametrize(("depth", "dead"), members(DEPTHS, ("2", 2)))
def test_f_neighbours_together(start: Start, tmp_path: Path, depth: str, dead: int) -> None:
    job = begin(start, tmp_path, depth)
    groups = [ROW[first : first + dead] for first in range(0, len(ROW) - dead + 1, max(1, dead - 1))]
    for tasks in groups:
        job.until_warm(checkpoints=0)  # a task that has not collected yet cannot stand in for another
        job.replace(*tasks)
    (tmp_path / "gate").touch()
    report = job.finish_well()
    recovered = [recovery["task"] for recovery in report["recoveries"]]
    assert sorted(recovered) == sorted(task for tasks in groups for task in tasks)
    assert {recovery["mode"] for recovery in report["recoveries"]} <= {"standby", "cold"}
    assert report["withdrawn"] == 0
    assert_linked(tmp_path)


def test_one_more_than_the_depth(start: Start, tmp_path: Path) -> None:
    """b and c die, which held b's determinants: d and out depend on them and go back, read and a do not."""
    job = begin(start, tmp_path, "1")
    job.replace("b/0", "c/0")
    (tmp_path / "gate").touch()
    report = job.finish_well()
    back = {recovery["task"]: recovery["why"] for recovery in report["recoveries"] if recovery["mode"] == "rollback"}
    assert {"d/0", "out/0"} <= set(back) and not {"read/0", "a/0"} & set(back), back
    assert "lost" in back["d/0"]
    assert report["withdrawn"] > 0
    assert_linked(tmp_path)


def test_one_more_than_the_depth_before_a_sink_that_cannot_take_rows_back(start: Start, tmp_path: Path) -> None:
    """It is said when the job begins, and what was put out is never contradicted: the job ends in one line."""
    job = begin(start, tmp_path, "1", "--set", f"put={tmp_path / 'put'}")
    job.strike("b/0", "c/0")
    status, said = job.finish()
    first, *_, last = said.splitlines()
    assert status == 1
    refused = "causal: sink 'out' cannot withdraw rows, so the job ends if more tasks fail at the same time than --shar"
    assert first.startswith(refused)
    assert "out/0: visible rows depend on lost determinants, and its sink cannot withdraw rows" in last
    rows = [json.loads(line) for line in (tmp_path / "put").read_text().splitlines()]
    assert len(rows) > 100 and [row["before"] for row in rows] == ["", *[row["hash"] for row in rows[:-1]]]
