"""Builds the view of a job from the supervisor's state; `status.json` stores it, and every display shows it."""

from __future__ import annotations

from typing import Any

from msgspec import convert

from standby.supervision.assignments import Assignments, TaskEntry, TaskState, WorkerEntry, WorkerState
from standby.supervision.hosts import HostEntry, HostLoss
from standby.supervision.job_state import JobState
from standby.supervision.job_view import (
    CheckpointView,
    EndView,
    Figure,
    HostLossView,
    HostView,
    JobView,
    LifeView,
    ProcessView,
    ShadowView,
    TaskView,
    Wait,
)

DURATIONS_SHOWN = 100
AWAITED_SHOWN = 8
LOADING = "loading"
"""The state that a process reports while it loads the state of its task."""


def view(job: JobState, now_ns: int, listening_since_ns: int) -> JobView:
    """Return everything that a user or a report needs to know about the job."""
    config = job.config
    assignments, coordinator, figures = job.assignments, job.coordinator, job.figures
    standbys: dict[str, list[str]] = {}
    for slot in assignments.slots.values():
        if slot.state is WorkerState.IDLE:
            standbys.setdefault(slot.purpose, []).append(slot.name)
    before = {name: figures.before(name) for name in ("records_in", "records_out", "dead_letters")}
    return JobView(
        job=config.name,
        run=config.run,
        state=job_state(job),
        at_ns=now_ns,
        guarantee=config.guarantee,
        sharing_depth=config.sharing_depth,
        sharing_now=job.sharing.shown({entry.name: entry.host for entry in assignments.tasks.values()}),
        standbys=config.standbys,
        verify_replay=config.verify_replay,
        tasks=[_task(job, entry, standbys.get(entry.name, [])) for entry in assignments.tasks.values()],
        processes=[_process(slot) for slot in assignments.slots.values()],
        agent_silent_s=job.hosts.silent_s(now_ns, listening_since_ns),
        hosts=[_host(job, host, now_ns) for host in job.hosts if host.name],
        host_losses=[_host_loss(job, loss) for loss in job.losses.losses],
        without_process=assignments.unmanned(),
        without_standby=list(assignments.starved) if config.own_standbys else [],
        checkpoint=CheckpointView(
            complete=coordinator.complete,
            count=coordinator.count,
            under_way=coordinator.under_way or None,
            took_ms=coordinator.took_ms[-DURATIONS_SHOWN:],
            durations=coordinator.durations.shown(),
            failures=coordinator.failures,
            since_ns=coordinator.began_ns,
            waits_for=coordinator.awaited[:AWAITED_SHOWN],
        ),
        recoveries=job.timeline.shown(),
        recovery_totals=job.timeline.totals.shown(),
        kills_left=job.injection.left(),
        inquiry=job.inquiries.shown(),
        first_record_ns=figures.first_record_ns,
        life=LifeView(first_record_ns=figures.life_first_record_ns, before=before),
        last_output_ns=figures.last_output_ns,
        ended=None if job.ended is None else EndView(*job.ended, lasting=job.lasting),
    )


def _process(slot: WorkerEntry) -> ProcessView:
    """Return the view of a process, whether it runs a task or is a standby."""
    return ProcessView(
        slot=slot.name,
        pid=slot.pid,
        state=slot.state.value,
        host=slot.host or None,
        task=slot.task or None,
        standby_of=slot.purpose or None,
        follows=slot.followed,
        doing=slot.doing,
    )


def _host(job: JobState, host: HostEntry, now_ns: int) -> HostView:
    """Return the view of a host, which `causal hosts` shows."""
    slots = [slot for slot in job.assignments.slots.values() if slot.host == host.name]
    return HostView(
        host=host.name,
        state=host.state.value,
        incarnation=host.incarnation,
        zone=host.zone or None,
        machine=host.machine or None,
        labels=dict(host.labels),
        slots=host.slots,
        tasks=[slot.task for slot in slots if slot.task],
        standbys=[slot.purpose or "any" for slot in slots if not slot.task],
        last_heard_ms=round((now_ns - host.seen_ns) / 1e6, 1) if host.seen_ns else None,
        version=host.version or None,
        breakable=host.breakable,
        losses=job.losses.numbers.get(host.name, 0),
        clock_error_ms=None if host.clock_error_ns is None else round(host.clock_error_ns / 1e6, 3),
    )


def _host_loss(job: JobState, loss: HostLoss) -> HostLossView:
    """Return the view of a host's loss, including when the last of its tasks had recovered."""
    recoveries = [job.timeline.of(task, incarnation) for task, incarnation in loss.tasks.items()]
    live = [recovery.live_ns if recovery is not None else None for recovery in recoveries]
    recovered_ns = max((at for at in live if at is not None), default=loss.detected_ns)
    return HostLossView(
        host=loss.host,
        why=loss.why,
        tasks=list(loss.tasks),
        lost_ms=round((loss.detected_ns - loss.since_ns) / 1e6, 1),
        recovered_ms=None if None in live else round((recovered_ns - loss.since_ns) / 1e6, 1),
    )


def job_state(job: JobState) -> str:
    """Return the state of the whole job, in one word."""
    entries = job.assignments.tasks.values()
    if job.ended is not None:
        return "ended"
    if job.stopping is not None:
        return "stopping"
    if not job.assignments.up:
        return "starting"
    return "running" if all(_at_work(job, entry) for entry in entries) else "recovering"


def _at_work(job: JobState, entry: TaskEntry) -> bool:
    """Return whether a process has confirmed the task and has loaded the task's state."""
    holder = job.assignments.holder(entry)
    return entry.state is TaskState.SERVED and holder is not None and holder.reported_state != LOADING


def _task(job: JobState, entry: TaskEntry, standbys: list[str]) -> TaskView:
    """Return the view of a task, including the values that its process reports."""
    holder = job.assignments.holder(entry)
    state = entry.state.value if holder is None else holder.reported_state or entry.state.value
    return TaskView(
        task=entry.name,
        kind="source" if entry.source else "sink" if entry.sink else "operator",
        source=entry.source,
        sink=entry.sink,
        state="finished" if entry.finished else state,
        slot=entry.slot or None,
        host=entry.host or None,
        pid=holder.pid if holder else None,
        incarnation=entry.incarnation,
        epoch=holder.epoch if holder else None,
        standbys=standbys,
        shadow=_shadow(job.assignments, holder),
        waiting=_since(holder.waiting if holder else None),
        uploading=_since(holder.vitals.uploading if holder else None),
        doing=holder.doing if holder else None,
        hot_keys=[list(each) for each in holder.vitals.hot_keys] if holder else [],
        checked_epochs=job.checks.epochs(entry.name),
        figures={name: _json_ready(value) for name, value in sorted(job.figures.of(entry.name).items())},
    )


def _shadow(assignments: Assignments, holder: WorkerEntry | None) -> ShadowView | None:
    """Return the hot standby to which a task echoes; None if it has not begun to perform, or there is none."""
    if holder is None or not holder.hot_standby:
        return None
    for slot in assignments.unserved.get(holder.task, {}).values():
        if slot.endpoint_for(holder.host) == holder.hot_standby and slot.shadow:
            shadow = convert({"slot": slot.name, **slot.shadow}, ShadowView)
            return shadow if shadow.epoch >= 0 else None
    return None


def _since(wait: tuple[int, str] | None) -> Wait | None:
    """Return the start and the reason of a wait; None if nothing is waiting."""
    return None if wait is None else Wait(*wait)


def _json_ready(value: Any) -> Figure:
    """Return a value whose parts are named by strings, because task counters use numbers as latency bounds."""
    return {str(key): each for key, each in value.items()} if isinstance(value, dict) else value
