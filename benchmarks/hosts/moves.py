"""The longest time without a row while tasks move to another host as theirs is drained, and whether rows are exact.

The sink stays on one host; the sources and the counting tasks move between two others, each by one promotion of its
standby.  `gap_ms` is the longest time in which no row of one of four parts became visible, from the command until the
host is empty and a second longer: the rows of each of two source tasks, and of each of two counting tasks, so that one
task which stops alone is seen.  `calm_ms` is the same of the seconds before, `tasks` how many moved.  A drained host
leaves and joins again before the other one is drained.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable

from benchmarks.harness import sink_reader
from benchmarks.harness.declared import Measurement
from benchmarks.harness.measured import longest_gap_ms
from benchmarks.harness.processes import wait_for
from benchmarks.harness.runs import RunFailed
from benchmarks.hosts.counted import PARTITIONS, PIPELINE, rows_of, wrong
from benchmarks.hosts.deaths import END_WITHIN_S, HOSTS, LABELLED, RATE, SINK_HOST, await_return
from benchmarks.hosts.site import SUPERVISOR, Site
from benchmarks.hosts.sites import SLOTS, begin, ended_well, site_of
from causal.config import JobConfig
from operators.records.keys import key_group, task_of_group

CALM_S, AFTER_S = 3.0, 1.0
SECONDS_PER_MOVE = 12
"""More than a move and the return take: the time for which the sources have something to read."""
EMPTY_WITHIN_S = 60.0
REBALANCE_AFTER_S = 600
"""Longer than a round, so that only the drains move tasks."""


def measure(run: Measurement) -> None:
    """Drain the host with the most tasks, repeatedly."""
    count = RATE * SECONDS_PER_MOVE * (run.options.moves + 3) // PARTITIONS
    with site_of((SINK_HOST, *HOSTS)) as site:
        settings = {"count": count, "rate": RATE, "gate": site.directory / "gate", "label": "work"}
        agents = dict.fromkeys(HOSTS, LABELLED)
        begin(site, PIPELINE, settings, {"rebalance_after_s": REBALANCE_AFTER_S}, agents=agents)
        site.await_running(RATE)
        for host in HOSTS:
            await_return(site, host, 1)
        with sink_reader.reading(site.directory / "out.db", site.directory / "seen", whole=True) as reader:
            wait_for("rows are read", lambda: bool(reader.so_far()))
            moves = [_moved(site) for _ in range(run.options.moves)]
            seen = reader.end()
        parts = _parts(seen, JobConfig.load(site.state(SUPERVISOR)).key_groups)
        (site.directory / "gate").touch()
        ended_well(site, END_WITHIN_S)
        faults = wrong(rows_of(site), count)
    if any(faults.values()):
        raise RunFailed(f"the output is not exactly once after hosts were drained: {faults}")
    for tasks, began_ns, ended_ns in moves:
        calm_ns = began_ns - int(CALM_S * 1e9)
        figures = {
            "gap_ms": max(longest_gap_ms(moments, began_ns, ended_ns) for moments in parts),
            "calm_ms": max(longest_gap_ms(moments, calm_ns, began_ns) for moments in parts),
            "tasks": tasks,
        }
        run.add_all("moved.", figures)
        run.report("moved: " + ", ".join(f"{name} {value:,.0f}" for name, value in figures.items()))
    run.more["moved_output"] = {"rows": PARTITIONS * count, **faults}


def _moved(site: Site) -> tuple[int, int, int]:
    """Drain a host, and let it join again; returns how many tasks moved, and from when to when."""
    host = max(HOSTS, key=lambda name: len(site.host(name)["tasks"]))
    tasks, incarnation = len(site.host(host)["tasks"]), site.host(host)["incarnation"]
    time.sleep(CALM_S)
    began_ns = time.monotonic_ns()
    answer = site.command("drain", host)
    if answer.returncode:
        raise RunFailed(f"causal drain {host}: {answer.stderr.strip()}")
    wait_for("the host is empty", lambda: site.host(host).get("tasks") == [], EMPTY_WITHIN_S)
    time.sleep(AFTER_S)
    ended_ns = time.monotonic_ns()
    site.kill_host(host)
    wait_for("the host has left", lambda: site.host(host).get("state") == "lost", EMPTY_WITHIN_S)
    site.join(host, "--slots", str(SLOTS), *LABELLED)
    await_return(site, host, incarnation + 1)
    return tasks, began_ns, ended_ns


def _parts(seen: Iterable[sink_reader.Seen], key_groups: int) -> list[list[int]]:
    """Return when rows of each part became visible: those of each partition, and those of each counting task."""
    parts: list[list[int]] = [[] for _ in range(2 * PARTITIONS)]
    for each in seen:
        rows = [json.loads(text) for text in each.rows]
        counting = {task_of_group(key_group(row["key"], key_groups), PARTITIONS, key_groups) for row in rows}
        for part in {row["partition"] for row in rows} | {PARTITIONS + task for task in counting}:
            parts[part].append(each.at_ns)
    return parts
