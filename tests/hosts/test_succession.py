"""The supervisor is lost with its host, cut off, or asked to leave: another leads the job, and every row is there."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from benchmarks.hosts.counted import PIPELINE
from benchmarks.hosts.site import SUPERVISOR, Site
from benchmarks.servers.process import NoServer
from benchmarks.servers.s3 import BUCKET, s3_server
from tests.faults.job import wait_for
from tests.hosts.counted import (
    OUTLASTING,
    SILENCE_MS,
    MakeSite,
    arguments_of,
    began,
    check_rows,
    ended,
    incarnations,
    other_host,
    replace_another_host,
    rows_out,
    until_more_rows,
)
from tests.members import campaign
from tests.unit.deploy.manifests import resumption

SECOND, THIRD = "supervisor-b", "supervisor-c"
JOB = "counts"
S3_PORT = 5000


def leads(site: Site, *names: str) -> bool:
    """Return whether one of these supervisors leads the job now, which is then the one that is looked at."""
    return site.leads(*names)


def candidate(site: Site, name: str) -> None:
    """Start a candidate, and wait until it watches the leader."""
    site.stand(name, JOB)
    wait_for(f"{name} is a candidate", lambda: "a candidate:" in site.log_of(name, "supervisor"))


@contextmanager
def in_store(site: Site) -> Iterator[None]:
    """Make the job keep the files that hosts share in an S3 server on a machine of its own."""
    try:
        server = s3_server(site.network.address("store"), S3_PORT, lambda argv: site.network.command("store", argv))
        with server as s3:
            site.store, site.environment = f"s3://{BUCKET}/here", {**site.environment, **s3.environment}
            yield
    except NoServer as problem:
        pytest.skip(str(problem))


def test_a_candidate_takes_over_from_a_supervisor_that_was_killed_and_replaces_a_host(site: MakeSite) -> None:
    here = site(["a", "b", "c"], SECOND)
    began(here, count=OUTLASTING)
    candidate(here, SECOND)
    before = incarnations(here)
    here.kill_host(SUPERVISOR)
    until_more_rows(here, 50)
    wait_for("the candidate leads", lambda: leads(here, SECOND))
    wait_for("it has heard of every task", lambda: incarnations(here) == before)
    here.await_running()
    lost, after = replace_another_host(here, before)
    ended(here, OUTLASTING)
    assert incarnations(here) == after
    assert "job counts has ended with status 0: finished" in here.log(SECOND)
    assert [here.status_of(name) for name in here.names if name != lost] == [0, 0]


@pytest.mark.campaign
def test_a_supervisor_that_was_cut_off_ends_when_it_learns_of_its_successor(site: MakeSite) -> None:
    here = site(["a", "b", "c"], SECOND, "store")
    with in_store(here):
        began(here, SILENCE_MS, OUTLASTING)
        candidate(here, SECOND)
        here.network.cut(SUPERVISOR)
        wait_for("the candidate leads", lambda: leads(here, SECOND))
        lost, moved = other_host(here)
        here.kill_host(lost)
        wait_for("the host is replaced", lambda: all(incarnations(here)[task] >= 2 for task in moved))
        here.network.heal(SUPERVISOR)
        wait_for("the zombie ends", lambda: "term 1 has ended: term 2 leads" in here.log_of(SUPERVISOR, "supervisor"))
        wait_for("it follows", lambda: f"followed: led by {SECOND}" in here.log(SUPERVISOR))
        ended(here, OUTLASTING)
        here.leader = SUPERVISOR
        assert here.await_end() == 0, here.log(SUPERVISOR)
        assert here.report()["records_out"] == 2 * OUTLASTING


@pytest.mark.campaign
def test_a_leader_that_reaches_the_store_and_no_host_leaves_the_job_to_a_candidate(site: MakeSite) -> None:
    here = site(["a", "b", "c"], SECOND)
    began(here, SILENCE_MS, OUTLASTING)
    candidate(here, SECOND)
    before = incarnations(here)
    hears = "the candidate hears hosts"
    wait_for(hears, lambda: any(each["hears"] for each in (here.view() or {}).get("candidates", ())))
    here.network.cut(SUPERVISOR)
    wait_for("the candidate leads", lambda: leads(here, SECOND))
    assert "no host reaches this supervisor" in here.log_of(SUPERVISOR, "supervisor")
    lost, moved = other_host(here)
    here.kill_host(lost)
    wait_for("the host is replaced", lambda: all(incarnations(here)[task] >= 2 for task in moved))
    here.network.heal(SUPERVISOR)
    wait_for("the one before follows", lambda: f"followed: led by {SECOND}" in here.log(SUPERVISOR))
    ended(here, OUTLASTING)
    assert incarnations(here) == {task: incarnation + (task in moved) for task, incarnation in before.items()}
    assert here.await_end() == 0, here.log(SUPERVISOR)


@pytest.mark.campaign
def test_a_leader_stays_while_every_host_is_dead(site: MakeSite) -> None:
    here = site(["a", "b"], SECOND)
    began(here, SILENCE_MS, OUTLASTING)
    candidate(here, SECOND)
    for name in here.names:
        here.kill_host(name)
    deaf = "the candidate hears no host"
    wait_for(deaf, lambda: [each["hears"] for each in (here.view() or {}).get("candidates", ())] == [False])
    time.sleep(12)
    assert (here.view() or {})["leader"]["term"] == 1
    for name in here.names:
        here.join(name)
    here.await_running()
    ended(here, OUTLASTING)


@pytest.mark.campaign
def test_two_candidates_are_no_two_leaders(site: MakeSite) -> None:
    here = site(["a", "b"], SECOND, THIRD)
    began(here)
    candidate(here, SECOND)
    candidate(here, THIRD)
    before = incarnations(here)
    here.kill_host(SUPERVISOR)
    wait_for("one of them leads", lambda: leads(here, SECOND, THIRD))
    other = THIRD if here.leader == SECOND else SECOND
    wait_for("the other follows", lambda: here.log(other).count("leads job counts") == 2)
    ended(here)
    assert incarnations(here) == before
    assert here.status_of(other) == 0


def test_causal_run_may_end_and_come_back_while_the_job_lives_on(site: MakeSite) -> None:
    here = site(["a", "b"], SECOND)
    began(here)
    candidate(here, SECOND)
    before = incarnations(here)
    here.ask_to_end(SUPERVISOR)
    assert here.await_end() == 143
    assert "the job continues; follow it with: causal run" in here.log(SUPERVISOR)
    wait_for("the candidate leads", lambda: leads(here, SECOND))
    refused = here.command("kill", "count/0")
    assert refused.returncode == 0, refused.stderr
    wait_for("the task is replaced", lambda: incarnations(here)["count/0"] == 2)
    here.run_again()
    wait_for("it follows", lambda: f"led by {SECOND}" in here.log(SUPERVISOR))
    ended(here)
    here.leader = SUPERVISOR
    assert here.await_end() == 0, here.log(SUPERVISOR)
    check_rows(here)
    assert incarnations(here) == {**before, "count/0": 2}


@pytest.mark.campaign
def test_two_supervisors_live_and_hosts_obey_the_newer_one(site: MakeSite) -> None:
    here = site(["a", "b", "c"], SECOND, "store")
    with in_store(here):
        began(here, count=OUTLASTING)
        candidate(here, SECOND)
        before = incarnations(here)
        here.network.cut_one_way(SUPERVISOR, "store")
        wait_for("the candidate leads", lambda: leads(here, SECOND))
        obeyed = "the supervisor of term 2 leads the job"
        wait_for("every host obeys it", lambda: all(obeyed in here.log_of(name, "agent") for name in here.names))
        wait_for("it has heard of every task", lambda: incarnations(here) == before)
        here.await_running()
        here.leader = SUPERVISOR
        wait_for("the older one lives, and decides in vain", lambda: "decisions_wait" in (here.view() or {}))
        assert "does not answer" in here.command("kill", "count/1").stderr, "it acts upon nothing that is not written"
        here.leader = SECOND
        killed = here.command("kill", "count/0")
        assert killed.returncode == 0, killed.stderr
        wait_for("the task is replaced", lambda: incarnations(here)["count/0"] == 2)
        here.await_running()
        here.network.heal_one_way(SUPERVISOR, "store")
        wait_for(
            "the older one ends", lambda: "term 1 has ended: term 2 leads" in here.log_of(SUPERVISOR, "supervisor")
        )
        ended(here, OUTLASTING)
        assert incarnations(here) == {**before, "count/0": 2}, "the older one has ended no process"


@pytest.mark.campaign
def test_a_job_that_no_supervisor_leads_is_resumed_without_a_restart_of_what_works_on(site: MakeSite) -> None:
    here = site(["a", "b", "c"])
    began(here, count=OUTLASTING)
    before = incarnations(here)
    here.kill_host(SUPERVISOR)
    until_more_rows(here, 50)
    assert resumption(here.state(SUPERVISOR)) == "--resume", "the pod of a supervisor resumes it"
    here.run(PIPELINE, *arguments_of(here, OUTLASTING, host_timeout_ms=15_000))
    assert here.end_of(SUPERVISOR) == 2, here.log(SUPERVISOR)
    assert "was interrupted, and its tasks may still be running: resume it with --resume" in here.log(SUPERVISOR)
    rows = rows_out(here)
    here.run_again()
    taken_over = "tasks that are still running are taken over in place"
    wait_for("it is resumed", lambda: taken_over in here.log(SUPERVISOR))
    wait_for("it leads again", lambda: leads(here, SUPERVISOR))
    wait_for("it has heard of every task", lambda: incarnations(here) == before)
    here.await_running()
    assert rows_out(here) > rows, "rows have come out all the time"
    lost, after = replace_another_host(here, before)
    ended(here, OUTLASTING)
    assert incarnations(here) == after
    assert [here.status_of(name) for name in here.names if name != lost] == [0, 0]


@pytest.mark.campaign
def test_a_host_that_dies_while_there_is_no_supervisor_is_replaced_when_the_job_is_resumed(site: MakeSite) -> None:
    here = site(["a", "b", "c"])
    began(here, count=OUTLASTING)
    before = incarnations(here)
    lost, moved = other_host(here)
    here.kill_host(SUPERVISOR)
    here.kill_host(lost)
    here.run_again()
    wait_for("the host is replaced", lambda: all(incarnations(here).get(task) == 2 for task in moved))
    ended(here, OUTLASTING)
    assert incarnations(here) == {task: incarnation + (task in moved) for task, incarnation in before.items()}


@pytest.mark.campaign
def test_tasks_work_on_without_causal_run_and_begin_again_where_it_resumes_them_with_other_settings(
    site: MakeSite,
) -> None:
    here = site(["a", "b"])
    began(here, count=OUTLASTING)
    before = incarnations(here)
    here.kill_root(SUPERVISOR)
    gone = "the tasks keep running until the job is resumed"
    wait_for("its supervisor leaves", lambda: gone in here.log_of(SUPERVISOR, "supervisor"))
    until_more_rows(here, 50)
    here.run_again("--checkpoint-interval", "1.5")
    again = "its settings have changed, so its tasks restart"
    wait_for("it is resumed", lambda: again in here.log(SUPERVISOR))
    after = {task: incarnation + 1 for task, incarnation in before.items()}
    wait_for("every task began again from its checkpoint", lambda: incarnations(here) == after)
    here.await_running()
    ended(here, OUTLASTING)
    assert [here.status_of(name) for name in here.names] == [0, 0]


@pytest.mark.campaign
def test_ctrl_c_ends_the_job_although_a_candidate_waits_and_a_resumption_continues_it(site: MakeSite) -> None:
    here = site(["a", "b"], SECOND)
    began(here)
    candidate(here, SECOND)
    here.ask_to_end(SUPERVISOR, ctrl_c=True)
    assert here.await_end() == 130, here.log(SUPERVISOR)
    assert "resume it with: causal run" in here.log(SUPERVISOR)
    for name in here.names:
        wait_for("its host waits", lambda name=name: "waiting for it to be resumed" in here.log(name))  # type: ignore[misc]
    here.run_again()
    wait_for("it leads again", lambda: leads(here, SUPERVISOR))
    here.await_running()
    ended(here)
    assert [here.status_of(name) for name in (*here.names, SECOND)] == [0, 0, 0]
    assert "leads job counts (term" not in here.log(SECOND), "a stopped job is left alone"


@pytest.mark.campaign
def test_a_new_run_of_a_job_that_is_led_elsewhere_is_refused_and_follows_with_resume(site: MakeSite) -> None:
    here = site(["a", "b"], SECOND)
    began(here)
    candidate(here, SECOND)
    before = incarnations(here)
    here.kill_host(SUPERVISOR)
    wait_for("the candidate leads", lambda: leads(here, SECOND))
    here.run(PIPELINE, *arguments_of(here))
    assert here.end_of(SUPERVISOR) == 2, here.log(SUPERVISOR)
    said = here.log(SUPERVISOR).splitlines()[-1]
    assert f"job counts is led by {SECOND} at {here.listen_of(SECOND)} (term 2): follow that job with --resume" in said
    here.run_again()
    wait_for("it follows", lambda: f"followed: led by {SECOND}" in here.log(SUPERVISOR))
    ended(here)
    assert here.end_of(SUPERVISOR) == 0, here.log(SUPERVISOR)
    assert incarnations(here) == before


@pytest.mark.parametrize(
    ("folder", "line"),
    [
        ("journal", "lacks the decisions of this job; restore it from a copy, or start again without --resume"),
        campaign("terms", "lacks the decisions of this job; restore it from a copy, or start again without --resume"),
        campaign("checkpoints", "files of checkpoint "),
    ],
)
def test_a_folder_of_the_store_that_was_emptied_is_refused_before_anything_begins(
    site: MakeSite, folder: str, line: str
) -> None:
    here = site(["a", "b"])
    began(here)
    wait_for("a checkpoint is complete", lambda: any(here.shared.rglob("checkpoints/count/0/*")))
    wait_for("it is decided", lambda: (here.view() or {})["checkpoint"]["complete"] > 0)
    here.ask_to_end(SUPERVISOR, ctrl_c=True)
    assert here.end_of(SUPERVISOR) == 130
    (place,) = here.shared.glob(f"{JOB}/*")
    for path in sorted((place / folder).rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    before = here.log(SUPERVISOR)
    here.run_again()
    assert here.end_of(SUPERVISOR) == 1
    (said,) = here.log(SUPERVISOR)[len(before) :].splitlines()
    assert f"{here.store}: {JOB}/{place.name} lacks" in said and line in said
    assert here.log_of(SUPERVISOR, "supervisor").count("supervises, after") == 1


@pytest.mark.campaign
def test_candidates_are_shown_until_they_are_lost(site: MakeSite) -> None:
    here = site(["a", "b"], SECOND, THIRD)
    began(here)
    candidate(here, SECOND)
    candidate(here, THIRD)

    def shown() -> list[str]:
        return [each["name"] for each in (here.view() or {})["candidates"]]

    wait_for("both are shown", lambda: shown() == [SECOND, THIRD])
    assert f"candidate: {SECOND} at {here.listen_of(SECOND)}, heard" in here.command("hosts").stdout
    assert f"candidates: {SECOND} at {here.listen_of(SECOND)}, {THIRD} at" in here.command("status").stdout
    here.kill_host(SECOND)
    wait_for("a lost one is not shown", lambda: shown() == [THIRD])
    marks = here.shared / JOB
    assert len([path for path in marks.rglob("candidates/*/*") if path.is_file()]) == 1, "and has left nothing"
    ended(here)
