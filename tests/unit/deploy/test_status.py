"""`causal status`: what is wrong is in its first lines, and what is gone is not shown as running."""

from __future__ import annotations

from typing import Any

from deploy.monitoring import status
from deploy.monitoring.status import RECOVERIES_SHOWN
from standby.supervision.job_view import JobView
from tests.unit.deploy.test_report import RECOVERY, several, task, view

RESUME = "causal run j.py --resume"


def shown(view: dict[str, Any], alive: bool, age_s: float, resume: str) -> list[str]:
    return list(status.shown(JobView.of(view), alive, age_s, resume))


def living(**changes: Any) -> dict[str, Any]:
    return {**view(), "ended": None, **changes}


def test_a_running_job_shows_its_tasks_and_their_processes() -> None:
    lines = list(shown(living(), True, 0.25, RESUME))
    assert lines[0] == "j: running (as of 0.2 s ago)"
    assert lines[1] == "tasks: 3 running; checkpoints: 3 complete, last epoch 3"
    assert lines[2] == "  read/0  running     w1 pid 17, incarnation 1, standby w2"


def test_of_fifty_tasks_the_second_line_says_how_many_recover() -> None:
    tasks = [task(f"count/{i}", "operator") for i in range(50)]
    for entry in tasks[7:9]:
        entry["state"] = "replaying"
    lines = list(shown(living(tasks=tasks), True, 0.0, RESUME))
    assert lines[1].startswith("tasks: 48 running, 2 replaying; ")
    assert len([line for line in lines if line.startswith("  count/")]) == 50


def test_a_job_whose_causal_run_is_gone_is_not_running() -> None:
    lines = list(shown(living(), False, 90.0, RESUME))
    assert lines[0] == "j: not running: it was interrupted; resume it with: causal run j.py --resume (as of 90.0 s ago)"
    assert lines[2] == "  read/0  down        incarnation 1"
    assert not any("pid" in line or "running  " in line for line in lines[2:])


def test_tasks_on_several_hosts_may_work_on_without_causal_run_and_are_not_shown_as_down() -> None:
    lines = list(shown({**several(), "ended": None}, False, 90.0, RESUME))
    resumed = "resume it, and take over the tasks that still run, with: causal run j.py --resume"
    assert lines[0] == f"j: not led here: it was interrupted; {resumed} (as of 90.0 s ago)"
    assert lines[2] == "  read/0  not led     incarnation 1"


def test_a_job_that_has_ended_says_how() -> None:
    failed = living(ended={"status": 1, "reason": "the disk is full"})
    assert list(shown(failed, True, 1.0, RESUME))[0] == "j: ended with status 1: the disk is full (as of 1.0 s ago)"
    done = living(ended={"status": 0, "reason": ""})
    done["tasks"][0]["state"] = "finished"
    lines = list(shown(done, False, 1.0, RESUME))
    assert lines[0] == "j: ended with status 0: finished (as of 1.0 s ago)" and "read/0  finished" in lines[2]


def test_a_job_that_stopped_at_a_savepoint_is_stopped_and_can_be_resumed() -> None:
    lines = list(shown(living(ended={"status": 0, "reason": "stopped at savepoint 7"}), False, 1.0, RESUME))
    assert lines[0].startswith(f"j: stopped at savepoint 7; resume it, even with other code, with: {RESUME}")
    assert any("read/0" in line and "stopped" in line for line in lines[1:]) and not any(
        "down" in line for line in lines
    )


def test_a_store_that_is_away_is_told() -> None:
    shown_view = living(at_ns=5_000_000_000)
    shown_view["tasks"][2]["waiting"] = {"since_ns": 2_000_000_000, "reason": "no route to host"}
    assert any(
        "has waited for its store for 3.0 s: no route to host" in line for line in shown(shown_view, True, 0.0, RESUME)
    )


def test_what_takes_long_is_told_with_operator_and_key() -> None:
    shown_view = living(at_ns=9_000_000_000)
    shown_view["tasks"][1]["doing"] = {"kind": "event", "since_ns": 1_800_000_000, "operator": "slow", "key": "5"}
    load = {"kind": "load", "since_ns": 8_000_000_000, "done": 10, "total": 40}
    shown_view["processes"] = [
        {"slot": "w9", "state": "idle", "standby_of": shown_view["tasks"][0]["task"], "doing": load}
    ]
    lines = [line.strip() for line in shown(shown_view, True, 0.0, RESUME)]
    assert "in 'slow' for 7.2 s, key 5" in lines
    assert "standby w9: loading its state for 1.0 s (10 of 40 bytes)" in lines


def test_a_checkpoint_that_takes_long_says_whom_it_waits_for() -> None:
    shown_view = living(at_ns=50_000_000_000)
    shown_view["checkpoint"] |= {"under_way": 4, "since_ns": 8_000_000_000, "waits_for": ["count/0", "out/0"]}
    line = "checkpoint 4 has been under way for 42.0 s and waits for count/0, out/0"
    assert line in list(shown(shown_view, True, 0.0, RESUME))
    shown_view["at_ns"] = 9_000_000_000
    assert not any("under way" in line for line in shown(shown_view, True, 0.0, RESUME))


def test_calls_that_do_not_come_back_are_told() -> None:
    shown_view = living()
    shown_view["tasks"][1]["figures"] |= {"calls": 3, "calls_abandoned": 2, "calls_oldest_s": 41.2}
    line = "3 calls run, 2 are out of time and have not returned; the oldest began 41 s ago"
    assert any(line in shown_line for shown_line in shown(shown_view, True, 0.0, RESUME))


def test_old_recoveries_are_counted_and_not_listed() -> None:
    lines = list(shown(living(recoveries=[RECOVERY] * 1000), True, 0.0, RESUME))
    assert f"  {1000 - RECOVERIES_SHOWN} earlier recoveries: `causal status --json`" in lines
    assert len([line for line in lines if line.startswith("  recovered ")]) == RECOVERIES_SHOWN
