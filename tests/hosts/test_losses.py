"""A host dies, is cut off, comes back: every row is there once, and no other task rolls back."""

from __future__ import annotations

import pytest

from benchmarks.hosts.counted import PIPELINE
from examples.hosts.network import Network
from tests.faults.job import wait_for
from tests.hosts.counted import (
    COUNT,
    SILENCE_MS,
    MakeSite,
    arguments_of,
    began,
    ended,
    incarnations,
    other_host,
    until_more_rows,
)
from tests.members import members


def test_a_host_whose_processes_are_all_killed_is_replaced_at_once_and_nobody_else_rolls_back(site: MakeSite) -> None:
    here = site(["a", "b", "c"])
    began(here)
    before = incarnations(here)
    lost, moved = other_host(here)
    here.kill_host(lost)
    ended(here)
    assert incarnations(here) == {task: incarnation + (task in moved) for task, incarnation in before.items()}
    loss = (here.view() or {})["host_losses"][-1]
    assert (loss["host"], sorted(loss["tasks"])) == (lost, sorted(moved))
    assert loss["why"] == "its processes have ended"
    assert [here.status_of(name) for name in here.names if name != lost] == [0, 0]


CUTS = ("both ways", "hears nothing", "is not heard")
"""The ways in which a host is cut off from the supervisor."""


def cut_off(network: Network, how: str, name: str, heals: bool = False) -> None:
    """Cut a host off, or end that."""
    if how == "both ways":
        (network.heal if heals else network.cut)(name)
        return
    ends = ("supervisor", name) if how == "hears nothing" else (name, "supervisor")
    (network.heal_one_way if heals else network.cut_one_way)(*ends)


@pytest.mark.parametrize("how", members(CUTS, "both ways"))
def test_a_host_that_is_cut_off_is_replaced_after_its_time_out_and_joins_again_empty(site: MakeSite, how: str) -> None:
    here = site(["a", "b", "c"])
    began(here, SILENCE_MS)
    lost, _ = other_host(here)
    cut_off(here.network, how, lost)
    wait_for("the host is lost", lambda: here.host(lost).get("state") == "lost")
    cut_off(here.network, how, lost, heals=True)
    wait_for("it joins again", lambda: here.host(lost).get("incarnation") == 2)
    ended(here)


@pytest.mark.campaign
def test_a_task_that_is_kept_on_one_host_waits_for_it(site: MakeSite) -> None:
    here = site(["a", "b"])
    began(here)
    here.kill_host("a")
    wait_for("the host is lost", lambda: here.host("a").get("state") == "lost")
    assert "out/0" in (here.view() or {})["without_process"]
    here.join("a")
    ended(here)


@pytest.mark.campaign
def test_a_host_that_gets_damaged_code_ends_with_one_line_and_the_job_without_it(site: MakeSite) -> None:
    here = site(["a", "b", "c"])
    began(here)
    here.kill_host("b")
    (code,) = here.shared.glob("counts/*/code/*.zip")
    code.write_bytes(code.read_bytes()[:-1])
    here.join("b")
    assert here.end_of("b") == 2, here.log("b")
    assert "is damaged (its digest does not match); restore it from a copy" in here.log("b").splitlines()[-1]
    ended(here)
    assert here.host("b")["incarnation"] == 1, "it has not joined"


@pytest.mark.campaign
def test_rows_that_wait_for_their_checkpoint_outlive_the_only_host_of_their_database(site: MakeSite) -> None:
    here = site(["a", "b", "c"])
    arguments = arguments_of(here, COUNT, host_timeout_ms=15_000, guarantee="epoch", checkpoint_interval_s=1.5)
    here.run(PIPELINE, *arguments)
    for name in here.names:
        here.join(name)

    def waiting() -> bool:
        figures = {task["task"]: task["figures"] for task in (here.view() or {}).get("tasks", ())}
        return bool(figures.get("out/0", {}).get("staged_rows"))

    here.await_running(100)
    wait_for("rows wait", waiting)
    here.kill_host("a")
    wait_for("the host is lost", lambda: here.host("a").get("state") == "lost")
    here.join("a")
    ended(here)


@pytest.mark.campaign
def test_tasks_work_on_while_the_supervisor_is_cut_off(site: MakeSite) -> None:
    here = site(["a", "b"])
    began(here)
    before = incarnations(here)
    here.network.cut("supervisor")
    until_more_rows(here, 250)
    here.network.heal("supervisor")
    ended(here)
    assert incarnations(here) == before


@pytest.mark.campaign
def test_a_revoked_host_loses_its_tasks_while_the_job_runs(site: MakeSite) -> None:
    here = site(["a", "b", "c"])
    began(here)
    lost, _ = other_host(here)
    roster = here.keys / "hosts.toml"
    roster.write_text(roster.read_text().replace(f"[{lost}]\n", f"[{lost}]\nrevoked = true\n"))
    wait_for("the host is lost", lambda: here.host(lost).get("state") == "lost")
    ended(here)
    assert here.host(lost)["state"] == "lost"


def test_a_drained_host_gives_its_tasks_away_one_promotion_each(site: MakeSite) -> None:
    here = site(["a", "b", "c"])
    began(here)
    before = incarnations(here)
    drained, moved = other_host(here)
    answer = here.command("drain", drained)
    assert answer.returncode == 0, answer.stderr
    wait_for("it is empty", lambda: here.host(drained).get("tasks") == [] and here.host(drained)["standbys"] == [])
    ended(here)
    assert incarnations(here) == {task: incarnation + (task in moved) for task, incarnation in before.items()}


@pytest.mark.campaign
def test_old_snapshots_are_removed_from_the_store(site: MakeSite) -> None:
    here = site(["a", "b"])
    began(here)
    first = sorted(here.shared.rglob("e00000001-*.snap")) or wait_for(
        "the first checkpoint", lambda: sorted(here.shared.rglob("e00000001-*.snap"))
    )
    wait_for("its files are removed", lambda: not any(path.exists() for path in first))
    ended(here)
