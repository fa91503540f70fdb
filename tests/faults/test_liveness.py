"""Work that takes longer than the silence that counts as death: nothing fails, and the view shows it (D11).

The limit is short here, so that a record of two seconds is a long one; nothing looks at how long anything took.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.processes import kill
from benchmarks.harness.runs import sets
from benchmarks.harness.written import records_in
from tests.faults.conftest import Start
from tests.faults.job import PIPELINES, Job, causal
from tests.members import members

PIPELINE = PIPELINES / "long_events.py"
SHORT = {"heartbeat_timeout_ms": 600, "heartbeat_ms": 100, "crash_loop_max": 3}
COUNT = 60
OPERATORS = {"map": "double", "process": "count", "call": "count", "timer": "count", "finish": "count"}


def begun(start: Start, directory: Path, slow: str, *arguments: str, **more: Any) -> Job:
    settings = sets(slow=slow, count=COUNT, once=directory / "once", **more)
    return start(PIPELINE, *settings, *arguments, config=SHORT)


def long_work(job: Job) -> dict[str, Any]:
    """Return what the view says of a task that is in a long event."""

    def long_event(view: dict[str, Any]) -> dict[str, Any] | None:
        doing = [dict(task["doing"], task=task["task"]) for task in view["tasks"] if task["doing"]]
        return next((activity for activity in doing if activity["kind"] == "event"), None)

    return job.until("a task says what it works on", long_event)


def assert_exact(directory: Path) -> None:
    rows = sorted(records_in(directory / "out.db"), key=lambda row: row["i"])
    assert [(row["i"], row["v"], row["n"]) for row in rows] == [(i, 2 * i, i // 7 + 1) for i in range(COUNT)]


@pytest.mark.parametrize("slow", members(OPERATORS))
def test_an_event_may_take_longer_than_the_silence_that_counts_as_death(
    start: Start, tmp_path: Path, slow: str
) -> None:
    job = begun(start, tmp_path, slow)
    doing = long_work(job)
    assert doing["operator"] == OPERATORS[slow]
    assert doing["at"].startswith(f"{PIPELINE}:"), doing
    report = job.finish_well()
    assert report["recoveries"] == []
    assert_exact(tmp_path)


@pytest.mark.campaign
def test_a_person_sees_which_operator_key_and_line_take_long(start: Start, tmp_path: Path) -> None:
    job = begun(start, tmp_path, "process", sleep_s=6, at=20)
    work = long_work(job)
    assert (work["key"], "'i': 20" in work["record"]) == ("6", True)
    status, _ = causal(tmp_path, "status", "--state-dir", str(job.state))
    assert status == 0
    assert job.finish_well()["recoveries"] == []
    assert_exact(tmp_path)
    [line] = [line for line in (job.state / "logs" / "supervisor.log").read_text().splitlines() if "in 'count'" in line]
    assert "count/0: in 'count' for 5." in line and f"key 6, at {PIPELINE}:" in line


@pytest.mark.parametrize("slow", members(["process", "call"]))
def test_a_task_that_dies_within_a_long_event_performs_it_again(start: Start, tmp_path: Path, slow: str) -> None:
    job = begun(start, tmp_path, slow, at="30")
    task = long_work(job)["task"]
    job.replace(task)
    report = job.finish_well()
    assert [recovery["task"] for recovery in report["recoveries"]] == [task]
    assert_exact(tmp_path)


@pytest.mark.campaign
def test_a_supervisor_that_dies_within_a_long_event_learns_of_it_again(start: Start, tmp_path: Path) -> None:
    job = begun(start, tmp_path, "process", sleep_s=5, at="30")
    before = long_work(job)
    supervisor = job.server("standby.daemon")
    assert kill(supervisor)
    after = job.until(
        "the next supervisor knows",
        lambda view: (
            next((task["doing"] for task in view["tasks"] if task["doing"]), None)
            if view["supervisor_pid"] != supervisor
            else None
        ),
    )
    assert after["since_ns"] == before["since_ns"]
    report = job.finish_well()
    assert report["recoveries"] == []
    assert_exact(tmp_path)


@pytest.mark.campaign
def test_a_pipeline_may_take_long_to_import(start: Start, tmp_path: Path) -> None:
    job = begun(start, tmp_path, "import")
    job.until("all tasks run", lambda view: all(task["state"] != "starting" for task in view["tasks"]) or None)
    assert kill(job.pid_of("count/0"))
    report = job.finish_well()
    assert [recovery["task"] for recovery in report["recoveries"]] == ["count/0"]
    assert_exact(tmp_path)


@pytest.mark.campaign
def test_a_process_whose_interpreter_is_held_by_c_code_that_computes_is_left_alone(
    start: Start, tmp_path: Path
) -> None:
    report = begun(start, tmp_path, "compute", at="20").finish_well()
    assert report["recoveries"] == []
    assert_exact(tmp_path)


def test_a_process_whose_interpreter_is_held_by_c_code_that_waits_is_replaced(start: Start, tmp_path: Path) -> None:
    report = begun(start, tmp_path, "gil", sleep_s=60).finish_well()
    assert [recovery["task"] for recovery in report["recoveries"]] == ["count/0"]
    assert_exact(tmp_path)


@pytest.mark.campaign
def test_a_process_that_is_stopped_within_a_long_event_is_replaced(start: Start, tmp_path: Path) -> None:
    job = begun(start, tmp_path, "process", at="30")
    task = long_work(job)["task"]
    dying = job.pid_of(task)
    assert kill(dying, signal.SIGSTOP)
    job.until_replaced(dying)
    job.finish_well()
    assert_exact(tmp_path)


@pytest.mark.campaign
def test_an_event_that_takes_longer_than_it_may_ends_the_job_in_one_line(start: Start, tmp_path: Path) -> None:
    settings = sets(slow="process", sleep_s=60, at=30, count=COUNT, out=tmp_path / "out.db")
    job = start(PIPELINE, *settings, config={**SHORT, "event_timeout_s": 1.5})
    status, said = job.finish()
    assert status == 1 and len(said.splitlines()) == 1, said
    for part in ("operator 'count', key 2", f"at {PIPELINE}:", "event_timeout_s is 1.5", "'i': 30", "--resume"):
        assert part in said, said


KEYS = 200_000
LARGE_STATE = PIPELINES / "large_state.py"
TINY = {"heartbeat_timeout_ms": 300, "heartbeat_ms": 50, "crash_loop_max": 3}
"""Two hundred thousand keys take a second or two to load."""


@pytest.mark.parametrize("failure", members(["cold", "resume"]))
def test_a_state_may_take_longer_to_load_than_the_silence_that_counts_as_death(
    start: Start, tmp_path: Path, failure: str
) -> None:
    gate = tmp_path / "gate"
    job = start(LARGE_STATE, *sets(keys=KEYS, gate=gate), config={**TINY, "standbys": "0"})

    def whole(view: dict[str, Any]) -> int | None:
        [count] = [task for task in view["tasks"] if task["task"] == "count/0"]
        return view["checkpoint"]["complete"] if count["figures"].get("delivered_elements", 0) >= KEYS else None

    covered = job.until("all keys are in", whole)
    job.until("a checkpoint has them all", lambda view: view["checkpoint"]["complete"] >= covered + 2 or None)
    if failure == "cold":
        job.replace("count/0")
    else:
        job.kill_everything()
        job.start("--resume")
    gate.touch()
    report = job.finish_well()
    assert len(report["recoveries"]) == (failure == "cold"), report["recoveries"]
    assert list(records_in(tmp_path / "out.db")) == [[key, 2] for key in range(0, KEYS, 1000)]
