"""`--verify-replay` on several hosts: standbys perform again what another host has recorded in the store."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.hosts.counted import PIPELINE
from benchmarks.hosts.site import SUPERVISOR, Site
from tests.faults.job import wait_for
from tests.hosts.counted import MakeSite, arguments_of, check_rows

CHECKED = 3


def started(site: Site) -> None:
    site.run(PIPELINE, *arguments_of(site, host_timeout_ms=15_000), "--verify-replay")
    for name in site.names:
        site.join(name)


def checked(site: Site) -> dict[str, int]:
    view: dict[str, Any] = site.view() or {"tasks": []}
    return {task["task"]: task["checked_epochs"] for task in view["tasks"]}


@pytest.mark.campaign
def test_standbys_on_other_hosts_perform_every_task_again(site: MakeSite) -> None:
    here = site(["a", "b"])
    started(here)
    wait_for("epochs of each task are checked", lambda: min(checked(here).values(), default=0) >= CHECKED)
    wait_for("a recording that is over goes", lambda: not list(here.shared.rglob("e00000001-*.rec")))
    (here.directory / "gate").touch()
    assert here.await_end() == 0, here.log(SUPERVISOR)
    check_rows(here)
    assert min(here.report()["checked_epochs"].values()) >= CHECKED
