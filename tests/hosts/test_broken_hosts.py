"""*Break it* on a job of several hosts: the agents of other hosts are killed from the page, and every row is exact.

By default what the page asks for is asked for without a browser; `tests/faults/test_dashboard_browser.py` has one.

With `CAUSAL_SCREENSHOTS=docs/assets` the pictures of the guide are written there.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.harness.browser import MISSING, browsing, present
from benchmarks.harness.processes import AGENT, argv, of_job
from benchmarks.hosts.counted import PIPELINE
from benchmarks.hosts.site import SUPERVISOR, Site
from tests.faults.dashboard import Dashboard
from tests.faults.job import wait_for
from tests.hosts.counted import MakeSite, arguments_of, ended, incarnations

HEARD_MS = 1000
"""The silence of a host whose agent beats, also on a machine that is busy."""


def began(site: Site) -> None:
    """Start a job whose host `c` does not permit that its agent is killed."""
    site.run(PIPELINE, *arguments_of(site, host_timeout_ms=15_000))
    for name in site.names:
        site.join(name, *(["--no-break"] if name == "c" else []))
    site.await_running(100)


def agent_of(site: Site, name: str) -> int | None:
    """Return the process of the agent of a host; None while there is none."""
    return next((pid for pid in of_job(site.state(name)) if AGENT in argv(pid)), None)


def until_replaced(site: Site, name: str, before: int | None) -> None:
    """Wait until there is another agent, of which the supervisor hears."""
    wait_for("there is another agent", lambda: agent_of(site, name) not in (None, before))
    wait_for("it is heard", lambda: site.host(name)["last_heard_ms"] < HEARD_MS)


@pytest.mark.campaign
def test_the_agent_of_another_host_is_killed_and_its_tasks_work_on(site: MakeSite) -> None:
    here = site(["a", "b", "c"])
    began(here)
    before = incarnations(here)
    with Dashboard(here.state(SUPERVISOR)) as page:
        assert page.get("/api/output") == {"says": "", "holds": None}
        agent = agent_of(here, "b")
        assert page.kill("agent", "b") == (200, {"done": "ordered the agent of b to die"})
        until_replaced(here, "b", agent)
        for name, why in (("c", "--no-break"), ("z", "no host z"), ("supervisor", "no host supervisor")):
            status, answer = page.kill("agent", name)
            assert status == 409 and why in answer["problem"]
        wait_for("the output check holds", lambda: page.get("/api/output")["holds"])
    assert "the agent of b is killed on request" in here.log_of(SUPERVISOR, "supervisor")
    assert here.host("b")["incarnation"] == 1 and incarnations(here) == before, "nothing was lost, and nothing moved"
    with Dashboard(here.state(SUPERVISOR), "--no-break") as page:
        assert page.kill("agent", "b")[0] == 403
    ended(here)


@pytest.mark.campaign
@pytest.mark.skipif(not present(), reason=MISSING)
def test_a_user_kills_the_agent_of_a_host_on_the_page(site: MakeSite, tmp_path: Path) -> None:
    from tests.faults.browser_page import Page

    here = site(["a", "b", "c"])
    began(here)
    with Dashboard(here.state(SUPERVISOR)) as dashboard, browsing(tmp_path) as browser:
        page = Page(browser, dashboard.url)
        page.until("running", "#state")
        page.open("Break it")
        page.until("Agent of c: started with --no-break")
        agent = agent_of(here, "b")
        page.kill("the agent of b")
        page.until("ordered the agent of b to die", "#done")
        until_replaced(here, "b", agent)
        page.until("rows seen before the kill: 0 changed, 0 missing.", "#output")
        here.kill_host("b")
        page.until("its host was lost")
        page.until("Agent of b: lost")
        page.until("live again after")
        page.picture("break-hosts")
        page.open("Hosts")
        page.until("its processes have ended")
        page.picture("hosts")
        assert page.problems() == []
    ended(here)
