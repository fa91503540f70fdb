"""Links fail in one direction, for a moment, or towards the store or while a host recovers: every row is there once."""

from __future__ import annotations

import time

import pytest

from benchmarks.hosts.site import Site
from benchmarks.servers.process import NoServer
from benchmarks.servers.s3 import BUCKET, s3_server
from tests.faults.job import wait_for
from tests.hosts.counted import OUTLASTING, MakeSite, began, ended, incarnations, other_host, rows_out

S3_PORT = 5000
CUT_S = 0.3
"""The time for which a flapping link fails: packets are lost, and no host is silent for its time-out."""

FLAP_MS, FLAPPED = 2_000, 1_000
"""The time-out of hosts where a link fails for longer, and the elements of each partition meanwhile."""


@pytest.mark.campaign
def test_the_host_that_takes_over_is_killed_before_its_tasks_are_live(site: MakeSite) -> None:
    here = site(["a", "b", "c"])
    began(here)
    before = incarnations(here)
    lost, moved = other_host(here)
    here.kill_host(lost)
    wait_for("a standby takes over", lambda: "takes over as incarnation 2" in here.log_of("supervisor", "supervisor"))
    second = next(name for name in here.names if name not in ("a", lost))
    here.kill_host(second)
    for name in (lost, second):
        here.join(name)
    ended(here)
    after = incarnations(here)
    assert all(after[task] > before[task] for task in moved)
    assert {loss["host"] for loss in (here.view() or {})["host_losses"]} == {lost, second}


def test_links_that_fail_for_less_than_the_time_out_lose_no_host(site: MakeSite) -> None:
    here = site(["a", "b", "c"])
    began(here)
    before = incarnations(here)
    for name in ("b", "c", "b"):
        here.network.cut(name)
        time.sleep(CUT_S)
        here.network.heal(name)
        time.sleep(CUT_S)
    for source, target in (("a", "b"), ("c", "a")):  # both reach the supervisor: a slow channel, and no death
        here.network.cut_one_way(source, target)
        time.sleep(CUT_S)
        here.network.heal_one_way(source, target)
    more = rows_out(here) + 50
    wait_for("rows come out again", lambda: rows_out(here) > more)
    ended(here)
    assert incarnations(here) == before
    assert (here.view() or {})["host_losses"] == []


@pytest.mark.campaign
def test_a_link_that_fails_for_longer_than_the_time_out_again_and_again_costs_a_host_each_time(site: MakeSite) -> None:
    here = site(["a", "b", "c"])
    began(here, FLAP_MS, FLAPPED)
    lost, _ = other_host(here)
    for incarnation in (2, 3, 4):
        here.network.cut(lost)
        wait_for("the host is lost", lambda: here.host(lost).get("state") == "lost")
        here.network.heal(lost)
        wait_for(
            "it joins again",
            lambda incarnation=incarnation: here.host(lost).get("incarnation") == incarnation,  # type: ignore[misc]
        )
    ended(here, FLAPPED)
    assert [loss["host"] for loss in (here.view() or {})["host_losses"]] == [lost] * 3
    assert here.host(lost)["incarnation"] == 4


@pytest.mark.campaign
def test_a_store_that_cannot_be_reached_stops_nothing_but_checkpoints(site: MakeSite) -> None:
    here = site(["a", "b"], "store")
    try:
        server = s3_server(here.network.address("store"), S3_PORT, lambda argv: here.network.command("store", argv))
        with server as s3:
            here.store, here.environment = f"s3://{BUCKET}/here", {**here.environment, **s3.environment}
            began(here, count=OUTLASTING)
            wait_for("a checkpoint", lambda: _checkpoints(here) > 0)
            here.network.cut("store")
            time.sleep(CUT_S)  # an upload that had already ended still completes a checkpoint
            wait_for(
                "the status says what a checkpoint waits for",
                lambda: _waits_for_store(here),
            )
            complete, rows = _checkpoints(here), rows_out(here)
            wait_for("rows come out meanwhile", lambda: rows_out(here) > rows + 100)
            assert _checkpoints(here) == complete
            here.network.heal("store")
            wait_for("checkpoints continue", lambda: _checkpoints(here) > complete)
            wait_for("the status is as before", lambda: not _waits_for_store(here))
            ended(here, OUTLASTING)
    except NoServer as problem:
        pytest.skip(str(problem))


def _checkpoints(site: Site) -> int:
    return int((site.view() or {"checkpoint": {"count": 0}})["checkpoint"]["count"])


def _waits_for_store(site: Site) -> bool:
    """Return whether the status says so: of a snapshot, or of the decision that it was the last one."""
    view = site.view() or {"tasks": []}
    if not view.get("decisions_wait") and not any(task.get("uploading") for task in view["tasks"]):
        return False  # the status is written from the view, and costs a process
    status = site.command("status").stdout
    return "its snapshot has been on its way" in status or "decisions wait for the shared store" in status
