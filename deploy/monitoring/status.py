"""`causal status`: shows the state of a job to users and, with `--json`, to programs.

A job whose `causal run` has ended is never shown as running, no matter what its supervisor's last view states.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from msgspec.structs import replace

from causal.config import JobConfig
from causal.errors import PipelineError
from causal.task.activity import sentence
from causal.topology import Topology
from deploy.jobs.chosen import chosen_job
from deploy.jobs.edited import changed_since, listed
from deploy.jobs.hints import candidate_shown, led_by, resume_command
from deploy.jobs.latest_view import latest, view_age_s
from deploy.jobs.lookup import coming_up, running
from deploy.printable import printable
from deploy.progress.progress_model import ROOM, in_bytes, named
from deploy.progress.report import report, summary
from standby.blueprint import Blueprint
from standby.supervision import figures
from standby.supervision.job_view import JobView, TaskView, Wait

NO_CELLS: Mapping[str, Sequence[str]] = MappingProxyType({})
STATES_SHOWN = 6
OVERDUE_S = 5.0
"""The duration after which a checkpoint, or the upload of a snapshot, is shown with the reason for the delay."""
RECOVERIES_SHOWN = 10
SLOW_CALL_S = 10.0
"""The duration after which a call to the outside world is shown."""


def status(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit status.

    Raises:
        PipelineError: there is no such job, or its supervisor has not written a view yet.
    """
    job = chosen_job(arguments)
    alive = running(job)  # before the view is read, so that a job that has just ended is shown as ended
    view = None if alive and coming_up(job) else latest(job)
    if view is None and alive:
        raise PipelineError(f"the job in {job} has not come up yet; try again in a moment")
    if view is None:
        raise PipelineError(f"the job in {job} did not come up; see {job}/logs, then `causal run`")
    config = JobConfig.load(job)
    edited, cells = changed_since(job, config), _cells(Blueprint.load(job).topology)
    if arguments.json:
        facts = {"alive": alive, "code": config.code, "code_changed": edited, "cells": cells}
        print(json.dumps({**view.content(), **facts}, indent=1))
    else:
        print("\n".join(map(printable, shown(view, alive, view_age_s(job), resume_command(job), cells))))
        if edited:
            print(f"  changed since the start: {listed(edited)} (the job keeps the code it was started with)")
    return 0


def _cells(topology: Topology) -> dict[str, list[str]]:
    """Return the subtasks of each task that performs several."""
    subtasks = {task.name: [str(each.name) for each in topology.subtasks_of(task.index)] for task in topology.tasks}
    return {str(name): each for name, each in subtasks.items() if len(each) > 1}


def shown(
    view: JobView, alive: bool, age_s: float, resume: str, cells: Mapping[str, Sequence[str]] = NO_CELLS
) -> Iterator[str]:
    """Yield the lines to print.

    Args:
        alive: whether a `causal run` process has locked the job.
        age_s: the age of the view.
        resume: the command that resumes the job.
        cells: the subtasks of each task that performs several.
    """
    tasks, checkpoint = view.tasks, view.checkpoint
    present = alive and not view.ended
    yield f"{view.job}: {headline(view, alive, resume)} (as of {age_s:.1f} s ago)"
    counted = f"checkpoints: {checkpoint.count} complete, last epoch {checkpoint.complete}"
    if present:
        yield from _leaders(view)
        yield f"{_counted(tasks)}; {counted}"
        if view.change:
            yield view.change
        if silent := figures.agent_silent(view):
            yield silent
        yield from _overdue(view)
    else:
        yield counted
    width = max(len(task.task) for task in tasks)
    for task in tasks:
        if present:
            yield f"  {task.task:<{width}}  {_process(task)}"
            if task.task in cells:
                yield f"  {'':<{width}}  performs {', '.join(cells[task.task])}"
            for line in _work(task, view):
                yield f"  {'':<{width}}  {line}"
        else:
            state = "finished" if task.state == "finished" else _without_process(view)
            yield f"  {task.task:<{width}}  {state:<11} incarnation {task.incarnation}"
    if present and view.hosts:
        yield from _hosts(view)
    yield from _recording(view)
    yield from _recoveries(view)


def _recording(view: JobView) -> Iterator[str]:
    """Yield a line about the recording of the job, and one about what keeps it from growing."""
    recording = view.recording
    if recording is not None and recording.end > recording.first:
        epochs = f"epochs {recording.first:,} to {recording.end - 1:,}"
        yield f"  recorded: {epochs}, {recording.span_s:,.0f} s, {in_bytes(recording.bytes)}; `causal recordings`"
    if recording is not None and recording.problem:
        yield f"  the last checkpoint is not recorded: {recording.problem}"


def _without_process(view: JobView) -> str:
    """Return the state of the tasks of a job that is not running on this machine."""
    if figures.stopped(view):
        return "stopped"
    return "not led" if view.hosts and not view.ended else "down"


def headline(view: JobView, alive: bool, resume: str) -> str:
    """Return the state of a job in a few words and, for an interrupted job, the command that resumes it."""
    ended = view.ended
    if reason := figures.stopped(view):
        return f"{reason}; resume it, even with other code, with: {resume}"
    if ended:
        return f"ended with status {ended.status}: {ended.reason or 'finished'}"
    if not alive and view.hosts:
        return f"not led here: it was interrupted; resume it, and take over the tasks that still run, with: {resume}"
    return view.state if alive else f"not running: it was interrupted; resume it with: {resume}"


def _leaders(view: JobView) -> Iterator[str]:
    """Yield lines about the supervisor that leads a multi-host job and about those that may take over."""
    leader = view.leader
    if leader is not None:
        yield f"led by {led_by(leader)}{'' if leader.here else '; what follows is as of its journal'}"
    if view.candidates:
        yield f"candidates: {', '.join(map(candidate_shown, view.candidates))}"


def _process(task: TaskView) -> str:
    """Return a description of the process that runs a task and of the task's standbys."""
    hot = f" (hot, {task.shadow.behind} elements behind)" if task.shadow else ""
    standbys = f", standby {', '.join(task.standbys)}{hot}" if task.standbys else ""
    return f"{task.state:<11} {task.slot or '-'} pid {task.pid or '-'}, incarnation {task.incarnation}{standbys}"


def _work(task: TaskView, view: JobView) -> Iterator[str]:
    """Yield lines about the work of a task and its standbys, and about what they are waiting for."""
    at_ns, calls_s = view.at_ns, task.number("calls_oldest_s")
    if calls_s >= SLOW_CALL_S:
        abandoned = f"{task.number('calls_abandoned')} are out of time and have not returned"
        yield f"{task.number('calls')} calls run, {abandoned}; the oldest began {calls_s:.0f} s ago"
    if task.waiting:
        since_s = (at_ns - task.waiting.since_ns) / 1e9
        yield f"has waited for its store for {since_s:.1f} s: {task.waiting.reason}"
    elif task.doing:
        yield sentence(task.doing, at_ns)
    if task.uploading:
        yield from _uploading(task.uploading, at_ns)
    for process in view.processes:
        if process.state == "idle" and process.standby_of == task.task and process.doing:
            yield f"standby {process.slot}: {sentence(process.doing, at_ns)}"
    if waited_s := task.number("ingest_waiting_s"):
        unread = f"{task.number('ingest_unread_bytes'):,} bytes are published but not yet read (ingest_bytes_max)"
        yield f"Spark has waited for {waited_s:.1f} s: {unread}"
    if waited_s := task.number("ingest_store_waiting_s"):
        yield f"has waited for its input for {waited_s:.1f} s: the store does not answer"
    if added := task.number("new_partitions"):
        yield f"{added:,} new partitions are read after a rescale, an upgrade, or a resume from a savepoint"
    if rows := task.number("staged_rows"):
        yield f"{rows:,} rows ({task.number('staged_bytes'):,} bytes) wait for their checkpoint"
    for label, value in figures.listed(task):
        yield f"{label}: {value:,}"


def _recoveries(view: JobView) -> Iterator[str]:
    """Yield lines about the most recent recoveries, as in a job's report."""
    earlier = len(view.recoveries) - RECOVERIES_SHOWN
    if earlier > 0:
        yield f"  {earlier} earlier recoveries: `causal status --json`"
    recent = replace(view, recoveries=view.recoveries[-RECOVERIES_SHOWN:])
    for line in summary(report(recent, 0.0)).splitlines()[2:]:
        yield f"  {line}"


def _overdue(view: JobView) -> Iterator[str]:
    """Yield a line about a checkpoint that takes a long time, naming the tasks that it waits for."""
    checkpoint = view.checkpoint
    lasted_s = figures.since_s(checkpoint.since_ns or None, view)
    if lasted_s >= OVERDUE_S and checkpoint.waits_for:
        yield (
            f"checkpoint {checkpoint.under_way} has been under way for {lasted_s:.1f} s and waits for "
            + ", ".join(checkpoint.waits_for)
        )


def _uploading(upload: Wait, at_ns: int) -> Iterator[str]:
    """Yield a line about a snapshot whose upload to the shared store is slow or blocked."""
    lasted_s = (at_ns - upload.since_ns) / 1e9
    if lasted_s >= OVERDUE_S or upload.reason:
        why = f": {upload.reason}" if upload.reason else ""
        yield f"its snapshot has been on its way to the shared store for {lasted_s:.1f} s{why}"


def _hosts(view: JobView) -> Iterator[str]:
    """Yield lines about the hosts, their clocks and versions, and a lack of room; `causal hosts` shows each host."""
    states: dict[str, list[str]] = {}
    versions: dict[str, list[str]] = {}
    for host in view.hosts:
        states.setdefault(host.state, []).append(host.host)
        if host.state != "lost" and host.version:
            versions.setdefault(host.version, []).append(host.host)
    counted = "; ".join(f"{len(names)} {state}: {', '.join(names)}" for state, names in sorted(states.items()))
    yield f"  hosts: {counted}"
    sharing = view.sharing_now
    if sharing:
        yield (
            f"  sharing depth {view.sharing_depth} counts as {sharing.reached} now, as copies on the owner's own "
            f"host count zero ({named(sharing.at_home)})"
        )
    error_ms = figures.latency_error_ms(view)
    if error_ms is not None:
        clocks = {host.host: host.clock_error_ms for host in view.hosts if host.clock_error_ms is not None}
        known = ", ".join(f"{name} {error:.2f} ms" for name, error in clocks.items())
        yield f"  clocks are known to: {known}; latencies between hosts to {error_ms:.2f} ms"
    if len(versions) > 1:
        yield "  versions: " + "; ".join(f"{v} on {', '.join(names)}" for v, names in sorted(versions.items()))
    for title, names, remedy in (
        ("process", view.without_process, "start the agent of its host again, or another one"),
        ("standby", view.without_standby, ROOM),
    ):
        if names:
            yield f"  no host has room for a {title} of {', '.join(names)}; {remedy}"
    if view.decisions_wait:
        yield f"  decisions wait for the shared store, and recoveries with them: {view.decisions_wait}"
    if view.store_problem:
        yield f"  old snapshots stay in the shared store: {view.store_problem}"


def _counted(tasks: Iterable[TaskView]) -> str:
    """Return how many tasks are in each state, as one line that precedes the list of tasks."""
    states: dict[str, int] = {}
    for task in tasks:
        states[task.state] = states.get(task.state, 0) + 1
    most = sorted(states.items(), key=lambda each: (-each[1], each[0]))[:STATES_SHOWN]
    return f"tasks: {', '.join(f'{count} {state}' for state, count in most)}"
