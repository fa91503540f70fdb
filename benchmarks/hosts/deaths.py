"""Times from the loss of a host to the first new output of the last task that was on it, and whether rows are exact.

A job has its sink on one host, which lives, and all other tasks on two more.  *killed*: SIGKILL of every process of a
host, whose kernel then closes their connections.  *cut*: its packets vanish, without any sign.  Each time the host
returns and has standbys again before the next loss, which falls at any phase of a checkpoint interval.  The moments are
those of one machine: the clock of each namespace differs by a known amount.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.harness.declared import Measurement
from benchmarks.harness.measured import PHASES, distribution
from benchmarks.harness.processes import wait_for
from benchmarks.harness.runs import RunFailed
from benchmarks.hosts.counted import PIPELINE, rows_of, wrong
from benchmarks.hosts.site import SUPERVISOR, Site
from benchmarks.hosts.sites import SLOTS, begin, ended_well, site_of

SINK_HOST, HOSTS = "a", ("b", "c")
LABELLED = ("--label", "work=yes")
RATE = 2000
SECONDS_PER_LOSS = 12
"""More than a loss and the return take: so long the sources have something to read."""
LOST_WITHIN_S, END_WITHIN_S = 60.0, 300.0
SEED = 15

Lose = Callable[[Site, str], int]
"""Loses a host and lets it return; returns the moment of the loss, in the supervisor's time."""


def killed(run: Measurement) -> None:
    """Measure deaths of all processes of a host."""
    _measure(run, "killed", run.options.deaths, 15_000, _kill)


def cut(run: Measurement) -> None:
    """Measure hosts that are cut off silently."""
    _measure(run, "cut", run.options.cuts, run.options.host_timeout, _cut)


def _kill(site: Site, host: str) -> int:
    moment_ns = site.kill_host(host)
    wait_for("the host is lost", lambda: site.host(host).get("state") == "lost", LOST_WITHIN_S)
    site.join(host, "--slots", str(SLOTS), *LABELLED)
    return moment_ns


def _cut(site: Site, host: str) -> int:
    moment_ns = site.network.clock_ns(SUPERVISOR, time.monotonic_ns())
    site.network.cut(host)
    wait_for("the host is lost", lambda: site.host(host).get("state") == "lost", LOST_WITHIN_S)
    site.network.heal(host)
    return moment_ns


def _measure(run: Measurement, kind: str, times: int, host_timeout_ms: int, lose: Lose) -> None:
    count = RATE * SECONDS_PER_LOSS * (times + 3) // 2
    chance = random.Random(SEED)
    moments: list[int] = []
    with site_of((SINK_HOST, *HOSTS)) as site:
        settings = {"count": count, "rate": RATE, "gate": site.directory / "gate", "label": "work"}
        agents = dict.fromkeys(HOSTS, LABELLED)
        begin(site, PIPELINE, settings, {"host_timeout_ms": host_timeout_ms}, agents=agents)
        site.await_running(RATE)
        for host in HOSTS:
            await_return(site, host, 1)
        for number in range(times):
            time.sleep(1.0 + chance.random())
            host = max(HOSTS, key=lambda name: len(site.host(name)["tasks"]))
            incarnation = site.host(host)["incarnation"]
            moments.append(lose(site, host))
            await_return(site, host, incarnation + 1)
            run.report(f"{kind} {number + 1} of {times}: {host}")
        (site.directory / "gate").touch()
        report = ended_well(site, END_WITHIN_S)
        faults = wrong(rows_of(site), count)
    if any(faults.values()):
        raise RunFailed(f"the output is not exactly once after hosts were {kind}: {faults}")
    losses = [_phases(report["recoveries"], *span) for span in _spans(moments)]
    for phase in PHASES:
        run.figures[f"{kind}.{phase}"] = distribution([each[phase] for each in losses])
    run.figures[f"{kind}.tasks"] = distribution([each["tasks"] for each in losses])
    run.more[f"{kind}_output"] = {"rows": 2 * count, **faults}


def await_return(site: Site, host: str, incarnation: int) -> None:
    """Wait until a host is part of the job again and every task that may have one has a standby that is ready."""

    def ready() -> bool:
        view, returned = site.view() or {}, site.host(host)
        whole = view.get("state") == "running" and all(task["standbys"] for task in view["tasks"])
        return bool(whole and returned.get("incarnation", 0) >= incarnation and returned["state"] == "joined")

    wait_for(f"{host} returns", ready)


def _spans(moments: Sequence[int]) -> list[tuple[int, int]]:
    return list(zip(moments, [*moments[1:], 1 << 63], strict=True))


def _phases(recoveries: Sequence[Mapping[str, Any]], moment_ns: int, until_ns: int) -> dict[str, float]:
    """Return the times of one loss: of the last of its tasks, from the moment of the loss.

    Raises:
        RunFailed: a task was not recovered, or none was lost.
    """
    own = [each for each in recoveries if moment_ns <= each["since_ns"] + each["detected_ms"] * 1e6 < until_ns]
    if not own:
        raise RunFailed("a host was lost without a task")
    phases: dict[str, float] = {"tasks": len(own)}
    for phase in PHASES:
        if any(each[phase] is None for each in own):
            raise RunFailed(f"a recovery has no {phase}: {own}")
        phases[phase] = max(each["since_ns"] + each[phase] * 1e6 - moment_ns for each in own) / 1e6
    return phases
