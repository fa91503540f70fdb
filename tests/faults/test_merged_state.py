"""Real jobs whose state is merged all the time: killed in the middle of merges, stopped and resumed."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from benchmarks.harness.runs import sets
from benchmarks.harness.written import records_in
from causal.snapshot_files import span_of
from tests.faults.conftest import Start
from tests.faults.job import PIPELINES, Job, wait_for
from tests.faults.pipelines.large_state import KEYS
from tests.faults.test_savepoints import stop
from tests.members import campaign

COUNT = 40_000
LONG = "--checkpoint-interval=0.1"


def expected(count: int) -> list[tuple[int, int, str, str]]:
    lists, maps, rows = defaultdict[int, list[int]](list), defaultdict[int, dict[str, int]](dict), []
    for i in range(count):
        key = i * 7919 % KEYS
        lists[key].append(i)
        maps[key][str(i % 10)] = maps[key].get(str(i % 10), 0) + 1
        rows.append((i, len(lists[key]), str(lists[key][-3:]), str(list(maps[key].items()))))
    return rows


def written(out: Path) -> list[tuple[int, int, str, str]]:
    return sorted((row["i"], row["n"], row["last"], row["digits"]) for row in records_in(out))


def merged(job: Job, ends: str = ".snap") -> set[str]:
    """Return the merged files, or with `.tmp` those that are being written."""
    names = {path.name for path in (job.state / "checkpoints").rglob("m*") if path.name.endswith(ends)}
    return {name for name in names if span_of(name.removesuffix(".tmp")) is not None}


def until_another(job: Job, ends: str) -> None:
    known = merged(job, ends)
    wait_for("another merge", lambda: merged(job, ends) - known)


@pytest.mark.parametrize(("processes", "kept"), [("per-task", "disk"), ("one", "memory"), campaign("one", "disk")])
def test_tasks_that_are_killed_in_the_middle_of_merges_recover_exactly(
    processes: str, kept: str, start: Start, tmp_path: Path
) -> None:
    out = tmp_path / "rows.db"
    settings = sets(out=out, kept=kept, count=COUNT, rate=2000)
    job = start(PIPELINES / "large_state.py", LONG, "--processes", processes, *settings, config={"crash_loop_max": 100})
    task = "remember/0" if processes == "per-task" else "one/0"
    job.until_warm(records=COUNT // 5)
    for ends in (".tmp", ".snap", ".tmp"):
        job.until_warm()
        until_another(job, ends)
        job.replace(task)
    job.finish_well()
    assert written(out) == expected(COUNT)
    left = merged(job) | merged(job, ".tmp")
    assert len(left) < 12, left


def test_a_savepoint_in_the_middle_of_a_merge_has_all_state(start: Start, tmp_path: Path) -> None:
    out = tmp_path / "rows.db"
    settings = sets(out=out, kept="disk", count=COUNT, rate=2000)
    job = start(PIPELINES / "large_state.py", LONG, *settings)
    job.until_warm(records=COUNT // 5)
    wait_for("a merge", lambda: merged(job, ".tmp"))
    stop(job)
    job.start("--resume")
    job.until_warm()
    wait_for("a merged file", lambda: merged(job))
    job.kill_everything()
    job.start("--resume")
    job.finish_well()
    assert written(out) == expected(COUNT)
