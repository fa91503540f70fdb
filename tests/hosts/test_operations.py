"""Operators of hosts rely on it: SIGTERM moves the tasks first, and the report names every host."""

from __future__ import annotations

import pytest

from benchmarks.hosts.counted import PIPELINE
from benchmarks.hosts.site import SUPERVISOR
from deploy.cli import main
from tests.faults.job import wait_for
from tests.hosts.counted import (
    MakeSite,
    arguments_of,
    began,
    ended,
    incarnations,
    other_host,
)


@pytest.mark.campaign
def test_a_host_that_gets_sigterm_ends_when_its_tasks_have_moved_and_is_not_lost(site_of_users: MakeSite) -> None:
    here = site_of_users(["a", "b"])
    began(here)
    before = incarnations(here)
    leaving, moved = other_host(here)
    for name in ("supervisor", leaving):
        assert main(["probe", "--state-dir", str(here.state(name)), "--joined"]) == 0
    here.ask_to_end(leaving)
    assert here.status_of(leaving) == 0, here.log(leaving)
    assert f"{leaving}: its tasks are on other hosts now" in here.log(leaving)
    ended(here)
    assert incarnations(here) == {task: incarnation + (task in moved) for task, incarnation in before.items()}
    hosts = here.report()["hosts"]
    assert [(host["host"], host["lost_ms"]) for host in hosts] == [(name, None) for name in here.names]
    assert sorted(task for host in hosts for task in host["tasks"]) == sorted(before)
    assert next(host for host in hosts if host["host"] == leaving)["tasks"] == []


@pytest.mark.campaign
def test_a_host_that_joins_a_running_job_receives_tasks_and_no_row_changes(site: MakeSite) -> None:
    here = site(["a", "b", "c"])
    here.run(PIPELINE, *arguments_of(here, host_timeout_ms=15_000, rebalance_after_s=1.0, hosts_expected=2))
    for name in ("a", "b"):
        here.join(name)
    here.await_running(100)
    before = incarnations(here)
    here.join("c")
    wait_for("a task moves", lambda: incarnations(here) != before)
    ended(here)
    moved = {task for task, incarnation in incarnations(here).items() if incarnation > before[task]}
    hosts = {host["host"]: set(host["tasks"]) for host in here.report()["hosts"]}
    assert hosts["c"] and hosts["c"] == moved
    assert {recovery["mode"] for recovery in here.report()["recoveries"]} == {"standby"}
    assert "to c, which has room" in here.log_of(SUPERVISOR, "supervisor")


def test_a_host_that_died_is_in_the_report_and_its_lines_can_be_read(site: MakeSite) -> None:
    here = site(["a", "b", "c"])
    began(here)
    lost, moved = other_host(here)
    wanted = f"agent@{lost} INFO standby.agent: joined as incarnation 1"
    wait_for("its lines have come", lambda: wanted in here.command("logs", "--host", lost).stdout)
    here.kill_host(lost)
    ended(here)
    (loss,) = (host for host in here.report()["hosts"] if host["lost_ms"] is not None)
    assert (loss["host"], sorted(loss["tasks"])) == (lost, sorted(moved))
    assert 0 <= loss["lost_ms"] <= loss["recovered_ms"]
    lines = here.command("logs", "--host", lost).stdout
    assert wanted in lines and f"@{next(name for name in here.names if name != lost)} " not in lines
    ends = [f"agent@{name} INFO standby.agent: the job has ended" for name in here.names if name != lost]
    everything = here.command("logs").stdout
    assert all(end in everything for end in ends), "an agent sends its last lines before it goes"
