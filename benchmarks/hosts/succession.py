"""Times from the loss of the supervisor's host until a successor leads, and until it has replaced a task.

A candidate on another host watches the leader.  Every process of the leader's host is killed, and right after it the
process of a task.  `leads_ms` is the time until the candidate says that it leads and that every other task runs,
`promotion_ms` that to the first new output of the task.  `gap_ms` is the longest time without a new row meanwhile,
`calm_gap_ms` the same before, each seen by a reader of the sink; what is over it is `extra_gap_ms`.
"""

from __future__ import annotations

import os
import signal
import time

from benchmarks.harness import sink_reader
from benchmarks.harness.declared import Measurement
from benchmarks.harness.measured import longest_gap_ms
from benchmarks.harness.processes import wait_for
from benchmarks.harness.runs import RunFailed
from benchmarks.hosts.counted import PIPELINE, rows_of, wrong
from benchmarks.hosts.site import SUPERVISOR, Site
from benchmarks.hosts.sites import begin, site_of

SUCCESSOR, JOB, TASK = "supervisor-b", "counts", "count/0"
RATE, SECONDS = 2000, 60
HOST_TIMEOUT_MS = 3000
CALM_S = 4.0
LEADS_WITHIN_S, END_WITHIN_S = 60.0, 300.0


def measure(run: Measurement) -> None:
    """Lose the supervisor's host in one job after another."""
    for number in range(run.options.successions):
        figures = _succession()
        run.add_all("supervisor.", figures)
        run.report(f"supervisor {number + 1}: " + ", ".join(f"{name} {value:,.0f}" for name, value in figures.items()))


def _succession() -> dict[str, float]:
    count = RATE * SECONDS // 2
    with site_of(("a", "b", "c"), (SUCCESSOR,)) as site:
        offset_ns = site.network.clock_ns(SUPERVISOR, 0)
        settings = {"count": count, "rate": RATE, "gate": site.directory / "gate"}
        begin(site, PIPELINE, settings, {"host_timeout_ms": HOST_TIMEOUT_MS})
        site.await_running(RATE)
        site.stand(SUCCESSOR, JOB)
        wait_for("there is a candidate", lambda: "a candidate:" in site.log_of(SUCCESSOR, "supervisor"))
        wait_for("every task has a standby", lambda: all(task["standbys"] for task in (site.view() or {})["tasks"]))
        with sink_reader.reading(site.directory / "out.db", site.directory / "seen") as reader:
            wait_for("rows are read", lambda: bool(reader.so_far()))
            time.sleep(CALM_S)
            pid = next(task["pid"] for task in (site.view() or {})["tasks"] if task["task"] == TASK)
            moment_ns = site.kill_host(SUPERVISOR) - offset_ns
            os.kill(pid, signal.SIGKILL)
            site.leader = SUCCESSOR
            wait_for("the candidate leads", lambda: _leads(site), LEADS_WITHIN_S)
            leads_ns = time.monotonic_ns()
            wait_for("the task is replaced", lambda: _replaced(site))
            end_ns = time.monotonic_ns()
            seen_ns = [each.at_ns for each in reader.end()]
        (site.directory / "gate").touch()
        if site.await_end(END_WITHIN_S):
            raise RunFailed(f"the job failed: {site.log(SUCCESSOR)[-300:]}")
        [recovery] = [each for each in (site.view() or {})["recoveries"] if each["task"] == TASK]
        faults = wrong(rows_of(site), count)
    if any(faults.values()):
        raise RunFailed(f"the output is not exactly once after the supervisor was lost: {faults}")
    calm_ms, gap_ms = longest_gap_ms(seen_ns, 0, moment_ns), longest_gap_ms(seen_ns, moment_ns, end_ns)
    first_ns = recovery["since_ns"] + recovery["first_output_ms"] * 1e6 - offset_ns
    return {
        "leads_ms": (leads_ns - moment_ns) / 1e6,
        "promotion_ms": (first_ns - moment_ns) / 1e6,
        "calm_gap_ms": calm_ms,
        "gap_ms": gap_ms,
        "extra_gap_ms": max(0.0, gap_ms - calm_ms),
    }


def _leads(site: Site) -> bool:
    view = site.view()
    return bool(view is not None and view.get("leader", {}).get("here"))


def _replaced(site: Site) -> bool:
    recoveries = [each for each in (site.view() or {}).get("recoveries", ()) if each["task"] == TASK]
    return bool(recoveries) and recoveries[-1]["live_ms"] is not None
