"""Agents of the protocol's version before take part, and are upgraded one by one without losing a row."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.hosts.counted import PIPELINE
from benchmarks.hosts.site import HOME, SUPERVISOR, Site
from causal.errors import PipelineError
from deploy.ui.breaking import broken
from standby.supervision import orders
from tests.architecture import protocol
from tests.faults.job import wait_for
from tests.hosts.counted import MakeSite, arguments_of, ended

OLDER = """
from standby.network import control
from standby.supervision import orders
orders.PROTOCOL -= {by}
pack, new = control.pack, {new}
control.pack = lambda kind, **keys: pack(kind, **{{k: v for k, v in keys.items() if k not in new.get(kind, ())}})
"""
"""The module that Python loads before all others in the processes of a host: an agent that says nothing new."""


def new_keys() -> dict[str, list[str]]:
    """Kind of a message of agents → the keys that the protocol before did not have."""
    now, before = (protocol.written()[orders.PROTOCOL - by]["from agents"] for by in (0, 1))
    return {kind: [key.rstrip("?") for key in keys if key not in before.get(kind, ())] for kind, keys in now.items()}


def join_as(site: Site, name: str, by: int) -> None:
    """Start `causal agent` with a protocol that is older by this many."""
    folder: Path = site.directory / f"older-by-{by}"
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(OLDER.format(by=by, new=new_keys()))
    before = site.environment
    site.environment = {**before, "PYTHONPATH": f"{folder}:{HOME}"}
    site.join(name, "--drain-timeout", "60" if name != "a" else "1")
    site.environment = before


def rejoined(site: Site, name: str) -> None:
    """Start `causal agent` with the protocol of today on a host that has ended, and wait until all runs again."""
    site.join(name)
    wait_for(f"{name} has joined again", lambda: site.host(name).get("incarnation") == 2)
    site.await_running(100)


def test_hosts_are_upgraded_one_by_one_while_the_job_runs(site: MakeSite) -> None:
    here = site(["a", "b"])
    here.run(PIPELINE, *arguments_of(here, host_timeout_ms=15_000))
    for name in here.names:
        join_as(here, name, 1)
    here.await_running(100)
    if any("breakable" in keys for keys in new_keys().values()):  # then agents of the version before do not know it
        with pytest.raises(PipelineError, match="has an older version"):
            broken(here.state(SUPERVISOR), "agent", "b")
    here.ask_to_end("b")
    assert here.status_of("b") == 0, here.log("b")
    rejoined(here, "b")
    here.ask_to_end("a")  # it has the sink, which waits for it
    assert here.status_of("a") == 143, here.log("a")
    rejoined(here, "a")
    ended(here)


@pytest.mark.campaign
def test_an_agent_of_an_earlier_version_is_refused_and_the_job_runs_without_it(site: MakeSite) -> None:
    here = site(["a", "b", "c"])
    here.run(PIPELINE, *arguments_of(here))
    join_as(here, "c", 2)
    assert here.end_of("c") == 2, here.log("c")
    spoken = f"it speaks version {orders.PROTOCOL - 2} of the protocol of hosts"
    assert spoken in here.log("c") and "upgrade causal-streams on this host" in here.log("c")
    for name in ("a", "b"):
        here.join(name)
    here.await_running(100)
    ended(here)
