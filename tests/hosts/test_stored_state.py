"""A job of several hosts leaves determinants, state and savepoints in the shared store, and resumes from them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pytest

from benchmarks.hosts.counted import PIPELINE
from benchmarks.hosts.site import SUPERVISOR, Site
from tests.faults.job import wait_for
from tests.hosts.counted import arguments_of, check_rows, incarnations

MakeSite = Callable[[Sequence[str]], Site]


def state_of(site: Site, key: int, *options: str) -> dict[str, int]:
    """Return the state of `count` for a key, as `causal state` prints it."""
    done = site.command_of_job("state", str(site.state(SUPERVISOR)), "count", str(key), "--json", *options)
    assert done.returncode == 0, done.stderr
    (task,) = [each for each in json.loads(done.stdout)["tasks"] if each["state"]]
    state: dict[str, int] = task["state"]["state"]
    return state


@pytest.mark.campaign
def test_state_is_read_and_a_savepoint_resumed_after_a_host_with_it_was_lost(site: MakeSite) -> None:
    here = site(["a", "b"])
    flushing = {"determinant_flush": "background", "sharing_depth": 1}
    settings = arguments_of(here, host_timeout_ms=15_000, **flushing)
    here.run(PIPELINE, *settings)
    for name in here.names:
        here.join(name)
    here.await_running(100)
    before = incarnations(here)
    assert list(here.shared.rglob("determinants/count/0/i1/00000000"))
    here.kill_host("b")
    wait_for("b is lost", lambda: here.host("b").get("state") == "lost")
    wait_for("its tasks run on a", lambda: (here.view() or {}).get("state") == "running")
    assert any(incarnations(here)[task] > incarnation for task, incarnation in before.items())
    wait_for("a checkpoint has the counts", lambda: state_of(here, 7)["n"] > 3)
    stored = state_of(here, 7)["n"]
    assert state_of(here, 7, "--live")["n"] >= stored
    copied = here.command("savepoint", "--to", str(here.directory / "copy"))
    assert copied.returncode == 0 and list((here.directory / "copy").rglob("*.snap")), copied.stderr
    stopped = here.command("savepoint", "--stop")
    assert stopped.returncode == 0, stopped.stderr
    assert here.await_end() == 0, here.log(SUPERVISOR)
    here.run(PIPELINE, *settings, "--resume")
    for name in here.names:
        here.join(name)
    (here.directory / "gate").touch()
    assert here.await_end() == 0, here.log(SUPERVISOR)
    check_rows(here)
