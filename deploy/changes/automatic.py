"""`causal rescale --auto`: watches a running job and rescales its operators, one at a time, until the job ends."""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from causal.errors import PipelineError, Unavailable
from causal.topology import Topology
from deploy.changes.conversation import Refused
from deploy.changes.next_version import RUNS, Changed
from deploy.changes.scaling import Bounds, Decision, Load, Sample, Scaling, Spent, Thresholds
from deploy.jobs.jobdirectory import SAVEPOINTS
from deploy.jobs.latest_view import latest
from deploy.jobs.lookup import running
from deploy.jobs.versions import warn
from standby.blueprint import Blueprint
from standby.supervision.job_view import JobView, TaskView

LOOK_S = 0.5
FOR_S_MAX = 86_400.0
USUAL = Thresholds()
OPTIONS = {"--busy": "busy", "--idle": "idle", "--for": "for_s"}
"""The options of `--auto`, and the thresholds that they state."""

Rescale = Callable[[Mapping[str, str]], Changed | None]
"""A function that gives operators another number of tasks; it returns None if they have it already."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add `--auto` and its options."""
    parser.add_argument("--auto", action="store_true", help="watch the job, and rescale operators until it ends")
    parser.add_argument(
        "--busy",
        type=float,
        metavar="SHARE",
        help=f"an operator gets twice as many tasks above this share of working time; default: {USUAL.busy:g}",
    )
    parser.add_argument(
        "--idle",
        type=float,
        metavar="SHARE",
        help=f"it gets half as many below this share, if they would not be busy; default: {USUAL.idle:g}",
    )
    parser.add_argument(
        "--for",
        dest="for_s",
        type=float,
        metavar="SECONDS",
        help=f"the time over which shares are measured, and the rest after a change; default: {USUAL.for_s:g}",
    )


def check_absent(arguments: argparse.Namespace) -> None:
    """Refuse arguments that only `--auto` uses."""
    for option, name in OPTIONS.items():
        if getattr(arguments, name) is not None:
            raise PipelineError(f"{option} is an option of --auto; add --auto, or leave it out")
    for item in arguments.operators:
        if ".." in item:
            raise PipelineError(f"{item:.80} is a range; add --auto, or use OPERATOR=N")


def bounds_of(items: Sequence[str]) -> dict[str, Bounds]:
    """Parse the `OPERATOR=MIN..MAX` arguments; if an operator occurs more than once, the last range counts.

    Raises:
        PipelineError: an argument has a different form.
    """
    result: dict[str, Bounds] = {}
    for item in items:
        operator, _, numbers = item.partition("=")
        least, dots, most = numbers.partition("..")
        valid = all(number.isdecimal() and len(number) <= 9 and int(number) for number in (least, most))
        if not (operator and dots and valid):
            raise PipelineError(f"--auto {item:.80}: use OPERATOR=MIN..MAX, for example count=1..8")
        if int(least) > int(most):
            raise PipelineError(f"--auto {item}: the least number of tasks is above the greatest one; exchange them")
        result[operator] = Bounds(int(least), int(most))
    return result


def thresholds_of(arguments: argparse.Namespace) -> Thresholds:
    """Return the thresholds that the options state.

    Raises:
        PipelineError: the shares leave no room between them, or cannot be measured.
    """
    stated = {name: value for name in OPTIONS.values() if (value := getattr(arguments, name)) is not None}
    thresholds = replace(USUAL, **stated)
    busy, idle, for_s = thresholds.busy, thresholds.idle, thresholds.for_s
    if not 0 < busy < 1:
        raise PipelineError(f"--busy {busy:g}: use a share of time above 0 and below 1")
    if not 0 <= idle < busy:
        raise PipelineError(f"--idle {idle:g}: use a share of time from 0 and below --busy, which is {busy:g}")
    if not 1 <= for_s <= FOR_S_MAX:
        raise PipelineError(f"--for {for_s:g}: use a number of seconds from 1 to {FOR_S_MAX:.0f}")
    return thresholds


def sample(view: JobView, topology: Topology, operators: Sequence[str]) -> Sample | None:
    """Return the figures of these operators; None while not all tasks of the job run, or before its first checkpoint.

    Args:
        topology: that of the job, which may have changed since the view was written.
    """
    tasks = {task.task: task for task in view.tasks}
    if view.state != "running" or not view.checkpoint.complete or [*tasks] != [task.name for task in topology.tasks]:
        return None
    if any(task.state not in RUNS for task in view.tasks):
        return None
    loads = {
        operator: Load(
            sum(operator in subtask.operators for subtask in topology.subtasks.tasks),
            [_spent(tasks[task.name]) for task in topology.tasks if operator in task.operators],
        )
        for operator in operators
    }
    return Sample(view.at_ns / 1e9, tuple(task.incarnation for task in view.tasks), loads)


def _spent(task: TaskView) -> Spent:
    return Spent(
        float(task.number("busy_s")), sum(float(task.number(f"{name}_s")) for name in ("busy", "blocked", "idle"))
    )


def watch(job: Path, scaling: Scaling, rescale: Rescale) -> None:
    """Rescale the operators of a job until it ends.

    Of the savepoints of its changes, only the last one is kept, because the number of savepoints of a job is bounded.

    Raises:
        PipelineError: the plan or the state of the job does not permit another number of tasks.
    """
    topology, savepoint = Blueprint.load(job).topology, ""
    while running(job):
        view = _latest(job)
        if view is not None and [task.task for task in view.tasks] != [task.name for task in topology.tasks]:
            topology = Blueprint.load(job).topology
        figures = None if view is None else sample(view, topology, scaling.operators)
        decision = None
        if figures is None:
            scaling.interrupt()
        else:
            decision = scaling.take(figures)
        if decision is None:
            time.sleep(LOOK_S)
        elif (changed := _carry_out(decision, job, scaling, rescale)) is not None:
            if savepoint:
                shutil.rmtree(job / SAVEPOINTS / savepoint, ignore_errors=True)
            savepoint = changed.savepoint


def _carry_out(decision: Decision, job: Path, scaling: Scaling, rescale: Rescale) -> Changed | None:
    """Rescale an operator, and print the result; return the change unless nothing has changed."""
    number = "1 task" if decision.tasks == 1 else f"{decision.tasks} tasks"
    try:
        changed = rescale({decision.operator: str(decision.tasks)})
    except (Refused, Unavailable, OSError) as problem:
        rest_s = scaling.failed()
        if running(job):
            warn(f"{decision.operator} was to have {number}: {problem}; tried again in {rest_s:.0f} s")
        return None
    except PipelineError:
        if running(job):
            raise
        return None
    scaling.changed()
    if changed is not None:
        print(f"{decision.operator} has {number}: {decision.reason}; {changed.took}", flush=True)
    return changed


def _latest(job: Path) -> JobView | None:
    """Return the latest view; None if there is none that can be read."""
    try:
        return latest(job)
    except ValueError:
        return None
