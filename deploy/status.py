"""`causal status`: what a job is doing, for people and, with `--json`, for programs.

A job whose `causal run` is gone is never shown as running, whatever its supervisor wrote last.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from causal.errors import PipelineError
from deploy.jobdirectory import find_job, running
from deploy.report import report, summary

VIEW = "status.json"
"""The supervisor's view, which it replaces twice a second."""

STATES_SHOWN = 6
RECOVERIES_SHOWN = 10


def latest(job: Path) -> dict[str, Any] | None:
    """The supervisor's latest view; None before there is one."""
    try:
        view: dict[str, Any] = json.loads((job / VIEW).read_text())
    except FileNotFoundError:
        return None
    return view


def status(arguments: argparse.Namespace) -> int:
    """The command; returns its exit status.

    Raises:
        PipelineError: there is no such job, or nothing is known of it yet.
    """
    job = find_job(arguments.job, arguments.state_dir)
    alive = running(job)  # before the view is read: what has just ended is shown as ended
    view = latest(job)
    if view is None and alive:
        raise PipelineError(f"the job in {job} has not come up yet; try again in a moment")
    if view is None:
        raise PipelineError(f"the job in {job} did not come up; see {job}/logs, then `causal run`")
    if arguments.json:
        print(json.dumps({**view, "alive": alive}, indent=1))
    else:
        age_s = max(0.0, time.time() - (job / VIEW).stat().st_mtime)
        print("\n".join(shown(view, alive, age_s)))
    return 0


def shown(view: Mapping[str, Any], alive: bool, age_s: float) -> Iterator[str]:
    """The lines for a person.

    Args:
        alive: whether a `causal run` holds the job.
        age_s: how old the view is.
    """
    ended, tasks = view["ended"], view["tasks"]
    if ended:
        told = f"ended with status {ended['status']}: {ended['reason'] or 'finished'}"
    elif alive:
        told = view["state"]
    else:
        told = "not running: it was interrupted; `causal run --resume` goes on"
    yield f"{view['job']}: {told} (as of {age_s:.1f} s ago)"
    present = alive and not ended
    checkpoint = view["checkpoint"]
    counted = f"checkpoints: {checkpoint['count']} complete, last epoch {checkpoint['complete']}"
    yield f"{_counted(tasks)}; {counted}" if present else counted
    width = max(len(task["task"]) for task in tasks)
    for task in tasks:
        if not present:
            state = "finished" if task["state"] == "finished" else "down"
            yield f"  {task['task']:<{width}}  {state:<11} incarnation {task['incarnation']}"
            continue
        standby = f", standby {', '.join(task['standbys'])}" if task["standbys"] else ""
        yield (
            f"  {task['task']:<{width}}  {task['state']:<11} {task['slot'] or '-'} pid {task['pid'] or '-'},"
            f" incarnation {task['incarnation']}{standby}"
        )
        if task.get("waiting"):
            since_s = (view["at_ns"] - task["waiting"]["since_ns"]) / 1e9
            yield f"  {'':<{width}}  has waited for its store for {since_s:.1f} s: {task['waiting']['reason']}"
        staged_rows, staged_bytes = (task["figures"].get(name, 0) for name in ("staged_rows", "staged_bytes"))
        if staged_rows:
            yield f"  {'':<{width}}  {staged_rows:,} rows ({staged_bytes:,} bytes) wait for their checkpoint"
    earlier = len(view["recoveries"]) - RECOVERIES_SHOWN
    if earlier > 0:
        yield f"  {earlier} earlier recoveries: `causal status --json`"
    recent = {**view, "recoveries": view["recoveries"][-RECOVERIES_SHOWN:]}
    for line in summary(report(recent, 0.0)).splitlines()[2:]:
        yield f"  {line}"


def _counted(tasks: list[Mapping[str, Any]]) -> str:
    """How many tasks are in which state: what is wrong with fifty of them is seen before they are read."""
    states: dict[str, int] = {}
    for task in tasks:
        states[task["state"]] = states.get(task["state"], 0) + 1
    most = sorted(states.items(), key=lambda each: (-each[1], each[0]))[:STATES_SHOWN]
    return f"tasks: {', '.join(f'{count} {state}' for state, count in most)}"
