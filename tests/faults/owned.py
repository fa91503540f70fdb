"""Two jobs on one sink, each with its own directory: what becomes of the older one, and of the newer one's rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks.harness.runs import sets
from causal.config import JobConfig
from tests.faults.conftest import POOL
from tests.faults.job import PIPELINES, Job
from tests.faults.test_bad_input import one_line

Rows = Callable[[], list[tuple[str, int]]]
"""Reads what a user sees in the sink now: (job, number) of each row, in the order of the numbers."""
COUNT = 600


def owner(directory: Path, who: str, kind: str, where: str, *arguments: str, **settings: str) -> Job:
    """Return a job that writes into the sink, and ends when `let_end` says so."""
    (directory / who).mkdir()
    values = {"who": who, "kind": kind, "where": where, "gate": str(directory / f"{who}.gate"), **settings}
    return Job(
        directory / who, PIPELINES / "owned.py", *sets(**values), "--checkpoint-interval", "0.3", *POOL, *arguments
    )


def let_end(job: Job) -> None:
    job.directory.with_suffix(".gate").touch()


def the_newer_job_owns_the_sink(older: Job, newer: Job, rows: Rows) -> None:
    """The older one ends with one line, cannot be resumed, and touches nothing of the newer one."""
    older.start().until_warm(records=100)
    newer.start().until_warm(records=100)
    status, said = older.finish()
    line = one_line(said)
    run = JobConfig.load(newer.state).run
    assert status == 1 and "belongs to a newer run" in line and run in line, said
    assert recoveries(older) <= 2, older.log_tails()  # each sink task is fenced once at most, and then learns why
    newer.until_written(records=200)
    status, said = older.start("--resume").finish()
    assert status == 1 and run in one_line(said), said
    newer.replace("out/0")
    let_end(newer)
    newer.finish_well()
    assert rows() == [("newer", i) for i in range(COUNT)]
    status, said = older.start("--resume").finish()
    assert status == 1 and run in one_line(said), said
    assert rows() == [("newer", i) for i in range(COUNT)]
    let_end(older)
    older.start().finish_well()  # a new run of the same job is the newest
    assert rows() == [("older", i) for i in range(COUNT)]


def recoveries(job: Job) -> int:
    """Return how many tasks of the job, which has ended, took the place of one that had ended before."""
    view = job.view()
    assert view is not None
    return len(view["recoveries"])
