"""The store of a sink is unavailable for a while, or permanently: the job waits, says so, and loses nothing.

Another process has locked it, moved it, changed its tables, or filled its disk; or it just does not answer.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.runs import sets
from benchmarks.harness.written import lines_in, records_in
from tests.faults.conftest import Start
from tests.faults.job import NUMBERED, Job, assert_numbered, causal
from tests.soak.disk import SmallDisk, permitted
from tests.unit.sinks.test_conformance import locked_database

COUNT = 6000
STICKING: dict[str, object] = {"sink": "sticking", "count": COUNT}


def begun(start: Start, directory: Path, sink: dict[str, object] = {}, **config: Any) -> Job:  # noqa: B006
    """Return a job that has written something, and runs until `let_end`."""
    job = start(NUMBERED, *sets(**{**STICKING, **sink}, gate=directory / "gate"), config=config)
    job.until_warm(records=50)
    return job


def let_end(directory: Path) -> None:
    """Make the source emit its remaining records, and end."""
    (directory / "gate").touch()


def waited_for(job: Job) -> dict[str, Any]:
    """Return what the supervisor's view says of the sink that waits."""

    def waiting(view: dict[str, Any]) -> dict[str, Any] | None:
        [entry] = [task["waiting"] for task in view["tasks"] if task["task"] == "out/0"]
        return dict(entry, at_ns=view["at_ns"]) if entry else None

    return job.until("out/0 waits for its store", waiting)


@contextmanager
def stuck(directory: Path) -> Iterator[None]:
    """Make writes not return."""
    (directory / "stuck").touch()
    yield
    (directory / "stuck").unlink()


@pytest.mark.campaign
def test_a_store_that_is_locked_or_changed_throttles_the_job_and_every_task_can_die_meanwhile(
    start: Start, tmp_path: Path
) -> None:
    out = tmp_path / "out.db"
    job = begun(start, tmp_path)
    with locked_database(out):
        state = waited_for(job)
        assert "out.db has been locked by another process" in state["reason"]
        assert 0 <= state["at_ns"] - state["since_ns"] < 60e9
        before = list(records_in(out))
        status, _ = causal(tmp_path, "status", "--state-dir", str(job.state))
        assert status == 0
        for task in ("number/0", "out/0", "numbers/0"):  # those upstream recover although the store is unavailable
            job.replace(task)
        waited_for(job)
        assert list(records_in(out)) == before
    job.until_written(len(before) + 10)
    with sqlite3.connect(out, timeout=30) as database:
        database.execute("ALTER TABLE output RENAME TO elsewhere")
    job.until("it is named", lambda view: "no such table" in waited_for(job)["reason"])
    assert "restore them" in waited_for(job)["reason"]
    with sqlite3.connect(out, timeout=30) as database:
        database.execute("ALTER TABLE elsewhere RENAME TO output")
        database.execute("ALTER TABLE output ADD COLUMN note TEXT")  # what does no harm does not stop it
    let_end(tmp_path)
    report = job.finish_well()
    assert sorted(recovery["task"] for recovery in report["recoveries"]) == ["number/0", "numbers/0", "out/0"]
    assert not any(task["waiting"] for task in (job.view() or {})["tasks"])
    assert_numbered(records_in(out), COUNT)


@pytest.mark.campaign
def test_a_write_that_does_not_come_back_is_no_hang_as_long_as_it_may_take(start: Start, tmp_path: Path) -> None:
    job = begun(start, tmp_path, heartbeat_timeout_ms=4000)
    with stuck(tmp_path):
        state = waited_for(job)
        assert state["reason"] == "a call has not returned"
        job.until("that lasts", lambda view: view["at_ns"] - state["since_ns"] > 9_000_000_000)
        [line] = [task for task in (job.view() or {})["tasks"] if task["task"] == "out/0"]
        assert line["waiting"]["since_ns"] == state["since_ns"] and line["incarnation"] == 1
    let_end(tmp_path)
    report = job.finish_well()
    assert report["recoveries"] == []
    assert_numbered(records_in(tmp_path / "out.db"), COUNT)


@pytest.mark.campaign
def test_a_store_that_never_comes_back_ends_the_job_in_one_line_and_can_be_resumed(
    start: Start, tmp_path: Path
) -> None:
    job = begun(start, tmp_path, sink_retry_timeout_s=1.5)
    with locked_database(tmp_path / "out.db"):
        status, said = job.finish()
    assert status == 1 and len(said.splitlines()) == 1, said
    assert "sink task out/0: its store has been unavailable for " in said and "(sink_retry_timeout_s is 1.5): " in said
    assert "out.db has been locked by another process" in said and "--resume" in said
    job.start("--resume")
    job.until_written(100)
    with stuck(tmp_path):
        status, said = job.finish()
    assert status == 1 and len(said.splitlines()) == 1, said
    assert "a call has not returned; restart the job with --resume when the store is available again" in said
    let_end(tmp_path)
    job.start("--resume")
    job.finish_well()
    assert_numbered(records_in(tmp_path / "out.db"), COUNT)


@pytest.mark.campaign
def test_a_full_disk_of_a_sink_is_waited_for_and_ends_the_job_in_one_line_if_there_is_no_room(
    start: Start, tmp_path: Path
) -> None:
    if not permitted(tmp_path):
        pytest.skip("mounting a small disk is not permitted here (root can)")
    disk = SmallDisk(tmp_path / "small", 4 << 20)
    try:
        lines = tmp_path / "small" / "rows"
        job = begun(start, tmp_path, {"sink": "lines", "out": lines}, sink_retry_timeout_s=2.0)
        disk.fill()
        assert "No space left on device; check the disk" in waited_for(job)["reason"]
        status, said = job.finish()
        assert status == 1 and len(said.splitlines()) == 1, said
        assert "its store has been unavailable for " in said and "No space left on device" in said, said
        disk.make_room()
        let_end(tmp_path)
        job.start("--resume")
        job.finish_well()
        assert_numbered(lines_in(lines), COUNT)
    finally:
        disk.close()
