"""The store of a sink is away for a while, or for good: the job waits where people can see it, and loses nothing."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.torture_processes import kill
from tests.faults.conftest import Start
from tests.faults.job import PIPELINES, Job, causal
from tests.unit.sinks.test_conformance import locked_database

OUTAGE = PIPELINES / "outage.py"
COUNT = 2000


def rows_of(path: Path) -> list[dict[str, Any]]:
    with sqlite3.connect(path) as database:
        return [json.loads(record) for (record,) in database.execute("SELECT record FROM output ORDER BY position")]


def assert_exact(path: Path) -> None:
    rows = rows_of(path)
    assert [row["i"] for row in rows] == list(range(COUNT))
    assert [row["n"] for row in rows] == [i // 7 + 1 for i in range(COUNT)]


def waited_for(job: Job) -> dict[str, Any]:
    """What the supervisor's view says of the sink that waits."""

    def waiting(view: dict[str, Any]) -> dict[str, Any] | None:
        [told] = [task["waiting"] for task in view["tasks"] if task["task"] == "out/0"]
        return dict(told, at_ns=view["at_ns"]) if told else None

    return job.until("out/0 waits for its store", waiting)


@contextmanager
def stuck(directory: Path) -> Iterator[None]:
    """Writes that do not come back."""
    (directory / "stuck").touch()
    yield
    (directory / "stuck").unlink()


def test_a_locked_store_throttles_the_job_and_every_task_can_die_meanwhile(start: Start, tmp_path: Path) -> None:
    out = tmp_path / "out.db"
    job = start(OUTAGE)
    job.until_warm(records=50)
    with locked_database(out):
        told = waited_for(job)
        assert "out.db is locked by another process" in told["reason"]
        assert 0 <= told["at_ns"] - told["since_ns"] < 60e9
        before = rows_of(out)
        status, _ = causal(tmp_path, "status", "--state-dir", str(job.state))
        assert status == 0
        for task in ("number/0", "out/0", "numbers/0"):  # those upstream recover although the store is still away
            pid = job.pid_of(task)
            kill(pid)
            job.until_replaced(pid)
        waited_for(job)
        assert rows_of(out) == before
    report = job.finish_well()
    assert sorted(recovery["task"] for recovery in report["recoveries"]) == ["number/0", "numbers/0", "out/0"]
    assert not any(task["waiting"] for task in (job.view() or {})["tasks"])
    assert_exact(out)


def test_a_write_that_does_not_come_back_is_no_hang_as_long_as_it_may_take(start: Start, tmp_path: Path) -> None:
    job = start(OUTAGE, config={"suspect_after_ms": 800})
    job.until_warm(records=50)
    with stuck(tmp_path):
        told = waited_for(job)
        assert told["reason"] == "a call has not come back"
        job.until("that lasts", lambda view: view["at_ns"] - told["since_ns"] > 2_500_000_000)
        [line] = [task for task in (job.view() or {})["tasks"] if task["task"] == "out/0"]
        assert line["waiting"]["since_ns"] == told["since_ns"] and line["incarnation"] == 1
    report = job.finish_well()
    assert report["recoveries"] == []
    assert_exact(tmp_path / "out.db")


def test_a_store_that_never_comes_back_ends_the_job_in_one_line_and_resume_goes_on(
    start: Start, tmp_path: Path
) -> None:
    job = start(OUTAGE, config={"sink_patience_s": 1.5, "suspect_after_ms": 600})
    job.until_warm(records=50)
    with locked_database(tmp_path / "out.db"):
        status, said = job.finish()
    assert status == 1 and len(said.splitlines()) == 1, said
    assert "sink task out/0: its store has been away for 1 s (sink_patience_s is 1.5)" in said.replace(
        "for 2 s", "for 1 s"
    )
    assert "out.db is locked by another process" in said and "--resume" in said
    job.start("--resume")
    job.until_written(100)
    with stuck(tmp_path):
        status, said = job.finish()
    assert status == 1 and len(said.splitlines()) == 1, said
    assert "a call has not come back; when it is back, go on with --resume" in said
    job.start("--resume")
    job.finish_well()
    assert_exact(tmp_path / "out.db")
