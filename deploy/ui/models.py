"""The model of the dashboard page, computed from a job's settings, its graph and the supervisor's view. Pure.

Everything is ready for JSON. A view outlives the job that wrote it, so nothing is shown as running unless it really is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from msgspec import to_builtins

from causal.config import JobConfig
from causal.task.activity import sentence
from causal.topology import DEAD_LETTERS, FULL_DEPTH, LETTER_TASK, Topology
from deploy.jobs.hints import led_by
from deploy.ui.drawn_graph import graph, title_of
from deploy.ui.meter import Meter, averages, shares
from standby.supervision import figures
from standby.supervision.job_view import Figure, JobView, ProcessView, RecoveryView, TaskView

PHASES = ("detected", "promoted", "collected", "replayed", "live")
"""The phases of a recovery in order, each named by its end; the first begins with the failure."""
BEFORE_S, VIEW_EVERY_S = 5.0, 0.5
"""The time before a failure whose rate is compared with the rate during the failure; the interval between views."""
SECRETS = ("password", "passwd", "secret", "token", "credential", "apikey", "api_key", "access_key", "auth")
HIDDEN = "•••"
TEXT_MAX = 2000
LETTER_FILE = f"{DEAD_LETTERS}-0.jsonl"
"""The file of the dead letters that the task of this name writes; a line is a row."""
FAILURES_MAX, RECOVERIES_MAX, WHY_MAX = 50, 200, 300
"""The limits on the failures in an answer, the recoveries from which they are built, and the characters per reason."""
COUNTED = {
    "source": ("records_in", "records"),
    "operator": ("delivered_elements", "elements"),
    "sink": ("records_out", "rows"),
}
"""Kind of task → its main counter and that counter's unit; elements include watermarks and barriers."""


@dataclass(frozen=True)
class Facts:
    """The contents of a job directory at one moment.

    Attributes:
        view: the supervisor's latest view; None if there is none yet.
        alive: whether a `causal run` process has locked the job.
        age_s: the age of the view.
        snapshots: task → the size in bytes of its state in the last complete checkpoint.
        edited: the code files that have changed since the job began.
    """

    config: JobConfig
    topology: Topology
    view: JobView | None
    alive: bool
    age_s: float
    snapshots: Mapping[str, int]
    edited: Sequence[str] = ()


def page(facts: Facts, meter: Meter, breaks: bool, letter_edges: bool = False) -> dict[str, Any]:
    """Return the complete model of a job.

    Args:
        breaks: whether the page may kill processes.
        letter_edges: whether the graph includes the edges to dead letters.
    """
    view, config = facts.view, facts.config
    model: dict[str, Any] = {
        "job": config.name,
        "run": config.run,
        "pipeline": config.pipeline,
        "alive": facts.alive,
        "age_s": round(facts.age_s, 1),
        "settings": settings(config),
        "edited": list(facts.edited),
        "operators": operators(facts),
    }
    if view is None:
        state = "starting" if facts.alive else "down"
        return {**model, "state": state, "says": _says(facts), "present": False, "breaks": False, "tasks": []}
    present = facts.alive and not view.ended
    failures = [{**failure, **meanwhile(view, failure, meter.history)} for failure in recoveries(view)]
    seconds = figures.active_s(view)
    rates = {
        task.task: meter.rates(task.task) if present else averages(_since_resumed(view, task), seconds)
        for task in view.tasks
    }
    tasks = [_task(facts, view, task, rates[task.task], present) for task in view.tasks]
    return {
        **model,
        "present": present,
        "breaks": present and breaks,
        "state": state_of(facts),
        "says": _says(facts),
        "guarantee": view.guarantee,
        "sharing_depth": _depth(view.sharing_depth),
        "standbys": view.standbys,
        "totals": _totals(view, meter, present),
        "history": [[round(at_s - view.at_ns / 1e9, 1), *rates] for at_s, *rates in meter.history],
        "tasks": tasks,
        "graph": graph(facts.topology, {task["task"]: task for task in tasks}, rates, present, letter_edges),
        "processes": [_process(process, view.at_ns) for process in view.processes] if present else [],
        "recoveries": failures,
        "recoveries_earlier": len(view.recoveries) - sum(len(failure["tasks"]) for failure in failures),
        "checkpoints": checkpoints(facts, view),
        "counts": figures.counts(view),
        "hosts": to_builtins(sorted(view.hosts, key=lambda host: host.host)),
        "host_losses": to_builtins(view.host_losses),
        "problems": _problems(view) if present else [],
    }


def state_of(facts: Facts) -> str:
    """Return the state of the job as one word, or as a phrase that names the savepoint at which it stopped."""
    view = facts.view
    if view is not None and view.ended:
        if view.ended.status:
            return "failed"
        return _cut(figures.stopped(view)) or "finished"
    if view is None or not facts.alive:
        return "starting" if facts.alive else "down"
    return str(view.state)


def operators(facts: Facts) -> list[str]:
    """Return the user's operators, beginning with those of tasks that have state and are neither sources nor sinks."""
    ends = {task.task: task.source or task.sink for task in (facts.view.tasks if facts.view is not None else ())}
    tasks = sorted(
        facts.topology.tasks, key=lambda task: (bool(ends.get(task.name)), not facts.snapshots.get(task.name))
    )
    return list(dict.fromkeys(name for task in tasks for name in task.operators if name != DEAD_LETTERS))


def _says(facts: Facts) -> str:
    """Return the sentence to show below the job's name."""
    view = facts.view
    if view is None:
        if facts.alive:
            return "The job has not started yet."
        return "The job did not start; see causal logs."
    if reason := figures.stopped(view):
        return _cut(f"{reason[:1].upper()}{reason[1:]}: causal run --resume continues there, even with other code.")
    if view.ended:
        reason = view.ended.reason
        return _cut(f"Ended with status {view.ended.status}: {reason or 'finished'}.")
    if not facts.alive:
        said = "Not running: it was interrupted, or causal run was killed; causal run --resume continues."
        return f"{said} This is the last state that its supervisor wrote."
    leader = view.leader
    if leader is not None:
        shown = (
            "" if leader.here else "; what is shown is as of its journal, and processes are killed from that machine"
        )
        return _cut(f"Led by {led_by(leader)}{shown}.")
    return ""


def _problems(view: JobView) -> list[str]:
    """Return lines about the problems that keep the job waiting."""
    lines = [
        f"No host has room for a {title} of {', '.join(names)}."
        for title, names in (("process", view.without_process), ("standby", view.without_standby))
        if names and view.hosts
    ]
    for task in view.tasks:
        if task.waiting:
            lines.append(f"{task.task} waits for its store: {task.waiting.reason}")
    if view.decisions_wait:
        lines.append(f"Decisions wait for the shared store: {view.decisions_wait}")
    if view.store_problem:
        lines.append(f"Old snapshots stay in the shared store: {view.store_problem}")
    if view.recording is not None and view.recording.problem:
        lines.append(f"The last checkpoint is not recorded: {view.recording.problem}")
    return [_cut(line) for line in lines]


def _totals(view: JobView, meter: Meter, present: bool) -> dict[str, Any]:
    buckets = figures.merged_buckets(task for task in view.tasks if task.sink)
    newest = meter.history[-1] if meter.history and present else None
    return {
        "records_in": figures.total(view, "records_in", "source"),
        "records_out": figures.total(view, "records_out", "sink"),
        "records_in_before": figures.before(view, "records_in", "source"),
        "rate_in": newest[1] if newest else None,
        "rate_out": newest[2] if newest else None,
        "throughput_rps": figures.throughput_rps(view),
        "active_s": figures.active_s(view),
        "p50_ms": figures.percentile_ms(buckets, 0.5),
        "p99_ms": figures.percentile_ms(buckets, 0.99),
        "checkpoints": view.checkpoint.count,
        "recoveries": len(view.recoveries),
        "refused": figures.total(view, "refused_rows"),
        "withdrawn": figures.total(view, "withdrawn_rows"),
        "determinant_bytes": sum(figures.determinant_bytes(view).values()),
        **_listed(figures.listed_totals(view)),
    }


# Tasks.


def _task(facts: Facts, view: JobView, task: TaskView, rates: Mapping[str, float], present: bool) -> dict[str, Any]:
    known = facts.topology.named(task.task)
    state = task.state if present or task.state == "finished" else "stopped" if figures.stopped(view) else "down"
    buckets = figures.merged_buckets([task])
    kind = "source" if task.source else "sink" if task.sink else "operator"
    counter, unit = COUNTED[kind]
    doing = sentence(task.doing, view.at_ns) if present and task.doing else ""
    return {
        "task": task.task,
        "operators": list(known.operators) if known is not None else [],
        "title": task.task if known is None else title_of(known),
        "kind": kind,
        "unit": unit,
        "state": state,
        "host": task.host,
        "slot": task.slot,
        "pid": task.pid if present else None,
        "incarnation": task.incarnation,
        "epoch": task.epoch,
        "standbys": list(task.standbys) if present else [],
        "behind": task.shadow.behind if present and task.shadow is not None else None,
        "shares": shares(rates) if present else None,
        "rate": rates.get(counter) if present else None,
        "bytes_rate": rates.get("sent_bytes") if present else None,
        "average_shares": None if present else shares(rates),
        "average_rate": None if present else rates.get(counter),
        "total": task.figures.get(counter, 0),
        "p50_ms": figures.percentile_ms(buckets, 0.5),
        "p99_ms": figures.percentile_ms(buckets, 0.99),
        "queued_bytes": task.number("queued_bytes") if present else None,
        "inflight_bytes": task.number("inflight_bytes") + task.number("inflight_disk_bytes"),
        "log_bytes": task.number("log_bytes"),
        "determinant_bytes": task.numbers("determinant_bytes"),
        "snapshot_bytes": facts.snapshots.get(task.task),
        "checkpoint_ms": task.figures.get("checkpoint_ms"),
        "replayed": task.number("replayed_elements"),
        "staged_rows": task.number("staged_rows"),
        "hot_keys": [[_cut(str(key)), share] for key, share in task.hot_keys] if present else [],
        "doing": _cut(doing),
        **_listed(figures.listed(task)),
    }


def _listed(titled: Iterable[tuple[str, float]]) -> dict[str, list[list[str | float]]]:
    """Return the titled metrics for a page that lists them; empty if there are none."""
    lines: list[list[str | float]] = [[title, value] for title, value in titled]
    return {"listed": lines} if lines else {}


def _since_resumed(view: JobView, task: TaskView) -> dict[str, Figure]:
    """Return a task's counters since the job was last resumed, which is the period that averages refer to."""
    earlier = {name: positions.get(task.task, 0) for name, positions in view.life.before.items()}
    return {
        name: value if isinstance(value, dict) else value - earlier.get(name, 0) for name, value in task.figures.items()
    }


def _process(process: ProcessView, at_ns: int) -> dict[str, Any]:
    doing = sentence(process.doing, at_ns) if process.doing else ""
    shown = {name: getattr(process, name) for name in ("slot", "pid", "state", "host", "task", "standby_of")}
    return {**shown, "doing": doing}


# Recoveries and checkpoints.


def recoveries(view: JobView) -> list[dict[str, Any]]:
    """Return the failures, newest first, with the phases of each in ms; overlapping recoveries form one failure."""
    failures: list[dict[str, Any]] = []
    began_ns = view.first_record_ns
    for recovery in sorted(view.recoveries[-RECOVERIES_MAX:], key=lambda each: each.since_ns):
        since_ns = recovery.since_ns
        if not failures or since_ns > failures[-1]["until_ns"]:
            at_s = round((since_ns - began_ns) / 1e9, 3) if began_ns is not None else None
            ago_s = round(max(0, view.at_ns - since_ns) / 1e9, 1)
            failures.append({"since_ns": since_ns, "until_ns": since_ns, "at_s": at_s, "ago_s": ago_s, "tasks": []})
        failure = failures[-1]
        failure["until_ns"] = max(failure["until_ns"], since_ns + int(1e6 * (last_ms(recovery) or 0)))
        failure["tasks"].append(_recovery(recovery, since_ns - failure["since_ns"]))
    del failures[:-FAILURES_MAX]
    for failure in failures:
        failure["took_ms"] = round((failure["until_ns"] - failure["since_ns"]) / 1e6, 1)
        failure["live"] = all(task["live"] for task in failure["tasks"])
    return failures[::-1]


def meanwhile(
    view: JobView, failure: Mapping[str, Any], history: Iterable[tuple[float, float, float]]
) -> dict[str, Any]:
    """Return facts about the other tasks during a failure.

    These are the number of other tasks, and the job's rows/s before the failure and at the lowest point.

    Args:
        history: the history of a `Meter`; rates from before its beginning are unknown.
    """
    failed = {task["task"] for task in failure["tasks"]}
    since_s, until_s = failure["since_ns"] / 1e9, failure["until_ns"] / 1e9
    points = list(history)
    before_rps = [rows for at_s, _, rows in points if since_s - BEFORE_S <= at_s < since_s]
    during_rps = [rows for at_s, _, rows in points if since_s <= at_s <= until_s + VIEW_EVERY_S]
    return {
        "others": sum(task.task not in failed for task in view.tasks),
        "before_rps": round(sum(before_rps) / len(before_rps), 1) if before_rps else None,
        "lowest_rps": min(during_rps, default=None),
    }


def last_ms(recovery: RecoveryView) -> float | None:
    """Return the end of the last phase that a recovery has reached; None if it has reached none."""
    reached = [recovery.after_ms(phase) for phase in PHASES]
    return max((end_ms for end_ms in reached if end_ms is not None), default=None)


def _recovery(recovery: RecoveryView, offset_ns: int) -> dict[str, Any]:
    phases, begun_ms = [], 0.0
    for phase in PHASES:
        end_ms = recovery.after_ms(phase)
        if end_ms is not None:
            phases.append({"phase": phase, "from_ms": begun_ms, "to_ms": max(begun_ms, end_ms)})
            begun_ms = max(begun_ms, end_ms)
    return {
        "task": recovery.task,
        "mode": recovery.mode,
        "offset_ms": round(offset_ns / 1e6, 3),
        "phases": phases,
        "first_output_ms": recovery.first_output_ms,
        "live": recovery.live_ms is not None,
        "replayed": recovery.replayed_elements,
        "withdrawn": recovery.withdrawn,
        "why": _cut(recovery.why or because(recovery.cause), WHY_MAX),
    }


def because(cause: str) -> str:
    """Return a failure's cause as a clause."""
    known = {
        "": "its process ended, or was killed from outside",
        "on request": "killed on request: by a command, by this page, or to move the task to another host",
        "silent": "its process was silent for too long and was killed",
        "host lost": "its host was lost",
    }
    return known.get(cause, cause)


def checkpoints(facts: Facts, view: JobView) -> dict[str, Any]:
    """Return the durations of recent checkpoints, and the size and duration for each task, slowest first."""
    checkpoint, since_ns = view.checkpoint, view.checkpoint.since_ns
    tasks: list[dict[str, Any]] = [
        {
            "task": task.task,
            "snapshot_bytes": facts.snapshots.get(task.task),
            "checkpoint_ms": task.figures.get("checkpoint_ms"),
            "awaited": task.task in checkpoint.waits_for,
        }
        for task in view.tasks
    ]
    tasks.sort(key=lambda task: -(task["checkpoint_ms"] or 0))
    return {
        "complete": checkpoint.complete,
        "count": checkpoint.count,
        "interval_s": facts.config.checkpoint_interval_s,
        "under_way": checkpoint.under_way,
        "for_s": round((view.at_ns - since_ns) / 1e9, 1) if since_ns else None,
        "waits_for": list(checkpoint.waits_for),
        "took_ms": [round(took_ms, 2) for took_ms in checkpoint.took_ms],
        "bytes": sum(facts.snapshots.values()),
        "tasks": tasks,
    }


# Settings and dead letters.


def settings(config: JobConfig) -> list[dict[str, Any]]:
    """Return all settings, marking those that differ from their defaults and hiding values that look like secrets."""
    defaults = asdict(JobConfig("", "", ""))
    shown = {"sharing_depth": _depth(config.sharing_depth)}
    return [
        {"name": name, "value": shown.get(name, _open(name, value)), "changed": value != defaults[name]}
        for name, value in asdict(config).items()
    ]


def _depth(hops: int) -> int | str:
    """Return a sharing depth in the form in which users enter it."""
    return "full" if hops >= FULL_DEPTH else hops


def _open(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _open(key, inner) for key, inner in value.items()}
    return HIDDEN if value and any(part in name.lower() for part in SECRETS) else value


def letter(values: Mapping[str, Any], file: str, line: int | None) -> dict[str, Any]:
    """Return a dead letter as the page shows it; `values` is one line of a file, whose content user code may
    determine.

    Args:
        line: the number of the line in the file; None if it is not known.
    """
    record, key, position = values.get("record"), values.get("key"), values.get("position")
    return {
        "operator": _cut(str(values.get("operator", ""))),
        "key": None if key is None else _cut(str(key)),
        "position": position if isinstance(position, int) else None,
        "error": _cut(str(values.get("error", ""))),
        "where": _cut(str(values.get("where") or "")),
        "traceback": _cut(str(values.get("traceback") or ""), 5 * TEXT_MAX),
        "record": _cut(str(record)),
        "file": file,
        "row": _row(values, file, line),
    }


def _row(values: Mapping[str, Any], file: str, line: int | None) -> dict[str, Any] | None:
    """Return which row of the job a dead letter is, or which one was refused; None if it is not known."""
    task, position = values.get("task"), values.get("position")
    if isinstance(task, str) and isinstance(position, int):  # a store refused it
        return {"account": _cut(task), "position": position}
    return {"account": LETTER_TASK, "position": line} if file == LETTER_FILE and line is not None else None


def kept(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer of `causal state` with key and values as text, because a browser would round long numbers."""
    tasks = [
        {**each, "state": {name: _written(value) for name, value in each["state"].items()}} for each in answer["tasks"]
    ]
    return {**answer, "key": _written(answer["key"]), "tasks": tasks}


def _written(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1)


def _cut(text: str, characters_max: int = TEXT_MAX) -> str:
    return text if len(text) <= characters_max else text[: characters_max - 1] + "…"
