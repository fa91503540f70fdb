"""Hot standbys of a whole job: they take over without a replay, and name what differs without any failure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness.processes import kill
from tests.faults.conftest import HeldChain, Start
from tests.faults.test_nondeterminism import ENDLESS, misbehaving

StartChain = Callable[..., HeldChain]


def shadow_of(view: Mapping[str, Any], task: str) -> Mapping[str, Any] | None:
    """Return the figures of the hot standby of a task, once it performs."""
    [shadow] = [each["shadow"] for each in view["tasks"] if each["task"] == task]
    return shadow  # type: ignore[no-any-return]


def test_they_have_successors_and_take_over_from_operators_and_sinks(start_chain: StartChain) -> None:
    chain = start_chain("--standbys", "hot", "--checkpoint-interval", "0.5")
    job, dead = chain.job, []
    first = job.until("a hot standby", lambda view: shadow_of(view, "score/0"))
    [pid] = [process["pid"] for process in job.until_warm()["processes"] if process["slot"] == first["slot"]]
    kill(pid)
    again = job.until(
        "another hot standby",
        lambda view: (other := shadow_of(view, "score/0")) and other["slot"] != first["slot"] and other or None,
    )
    assert again["epoch"] >= first["epoch"]
    for task in ("score/0", "ledger/0", "score/0"):
        job.until(f"{task} has a hot standby", partial(shadow_of, task=task))
        dead.append(task)
        job.replace(task)
    recoveries = chain.finish_exactly()["recoveries"]
    assert [recovery["task"] for recovery in recoveries] == dead
    # What is replayed is what had not been echoed: not everything since a checkpoint.
    assert sum(recovery["replayed_elements"] < 20 for recovery in recoveries) >= len(dead) - 1, recoveries


def test_what_differs_is_named_without_any_failure_and_stops_nothing(start: Start, tmp_path: Path) -> None:
    job = misbehaving(start, tmp_path, "urandom", ENDLESS, "--standbys", "hot", "--checkpoint-interval", "0.3")
    named = "its hot standby has output that differs from the task's"
    job.until("the difference is in the log", lambda view: named in job.log_tails() or None)
    view = job.until_warm(records=10)
    assert not view["recoveries"]
    job.interrupt()
    job.finish()
