"""The supervisor's logic: a pure state machine that turns events into effects.

`Supervision` has no clock, files or sockets.  `handle(event, now_ns)` returns effects in the order that
`standby.supervision.effects` promises, and `next_deadline()` returns when a `Tick` is due.  Decisions are records; the
same code applies a record in live operation and after a restart, so the journal is the only stored state.  Heartbeats
repeat the facts that the journal does not contain.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from causal import commands
from causal.config import JobConfig
from causal.errors import PASSING, invariant
from causal.task.activity import Activity
from causal.topology import Topology
from standby.blueprint import Blueprint
from standby.supervision import events, orders, savepoints
from standby.supervision.assignments import TaskEntry, WorkerEntry, WorkerState
from standby.supervision.balancing import Balancing
from standby.supervision.companions import Companions
from standby.supervision.detector import Detector
from standby.supervision.dirty_workers import DirtyWorkers
from standby.supervision.draining import Draining, drain
from standby.supervision.effects import Answer, Effect, EndJob, KillProcess, Note, Outbox, Record, RemoveFiles, SendHost
from standby.supervision.failures import End, Failures
from standby.supervision.hosts import HostEntry, HostState
from standby.supervision.job_state import JobState
from standby.supervision.job_view import JobView
from standby.supervision.moves import Moves
from standby.supervision.next_version import NextVersion, Phase
from standby.supervision.placement import Placement
from standby.supervision.reconciler import Reconciler
from standby.supervision.replay_bound import ReplayBound
from standby.supervision.replay_checks import FINISHED
from standby.supervision.requests import answer
from standby.supervision.view import view

ALIVE_NS = 1_000_000_000
"""The interval at which every worker is sent `alive`."""

STOP_NS_MAX = 10_000_000_000
"""The time that workers have to report their last counters and end, after the last sink has finished."""

WAKE_NS_MIN = 5_000_000
"""The shortest sleep, so that overdue work that cannot be done yet does not cause a busy loop."""

REPLACED = "an agent that started later has joined with the same key; give each host its own key"

ANY_SESSION = "*"
"""Matches whatever session the host currently has."""

LOST_NS = 1_000_000_000
"""The time after a restart for which a process may be unknown to the agent and silent before it counts as gone."""


def hot_tasks(config: JobConfig, topology: Topology) -> frozenset[str]:
    """Return the tasks whose standbys are hot.  Sources are never included, because their input can be read again."""
    if not config.hot:
        return frozenset()
    wanted = set(config.hot_operators)
    tasks = [task for task in topology.tasks if not topology.is_source(task.index)]
    return frozenset(task.name for task in tasks if not wanted or wanted.intersection(task.operators))


_PASSING = frozenset(error.__name__ for error in PASSING)


class Supervision:
    """The state and the rules of one job's supervisor."""

    def __init__(self, config: JobConfig, blueprint: Blueprint) -> None:
        self._config = config
        self.mark = blueprint.mark(config)
        self.job = job = JobState(config, blueprint)
        self.assignments, self.coordinator, self.checks = job.assignments, job.coordinator, job.checks
        self.timeline, self.figures, self.inquiries = job.timeline, job.figures, job.inquiries
        self.hosts, self.staging, self.injection = job.hosts, job.staging, job.injection
        self._replays = ReplayBound(config.replay_target_ms)
        shared = (self.assignments, self.coordinator, self.timeline, self.inquiries)
        together = config.guarantee in ("at-least-once", "epoch")
        self._placement = Placement(self.hosts, self.assignments, blueprint.constraints)
        pool = None if config.own_standbys else int(config.standbys)
        hot = hot_tasks(config, blueprint.topology)
        self._reconciler = Reconciler(*shared, self._placement, pool, together, config.verify_replay, hot)
        self._failures = Failures(
            self.assignments, self.figures, self.injection, self.hosts, self._reconciler, config.crash_loop_max
        )
        moves = Moves(self.assignments, self.coordinator, self.timeline, self._reconciler.kill)
        self._draining = Draining(self.hosts, self.assignments, self._placement, moves)
        rests_ns = round(config.rebalance_after_s * 1e9) if config.guarantee == "causal" else 0
        self._balancing = Balancing(
            rests_ns, pool is None, self.hosts, self.assignments, self._placement, moves, self._reconciler.start_on
        )
        self.next_version = NextVersion(
            self.assignments,
            self.coordinator,
            self.staging,
            self._placement,
            self._refuses_change,
            self._reconciler.kill,
            self._fail,
        )
        self._detector = Detector(config.heartbeat_timeout_ms * 1_000_000, config.stuck_after_ms * 1_000_000)
        self._outbox = Outbox(self._apply)
        self._companions = Companions(blueprint.companions)
        self._now_ns = 0
        self._restored_ns = 0
        self._alive_ns = 0
        self._dirty = DirtyWorkers(self.assignments)
        self._stop_by_ns: int | None = None

    def handle(self, event: events.Event, now_ns: int) -> list[Effect]:
        """Process one event.

        Args:
            event: the event; the first event that a supervisor handles is `Restored`.
            now_ns: `time.monotonic_ns()`, which must never decrease.
        """
        invariant(now_ns >= self._now_ns, "time does not go back")
        invariant(self._restored_ns or isinstance(event, events.Restored), "a supervisor's life begins with Restored")
        self._now_ns = now_ns
        self._detector.observe(now_ns)
        if self.job.ended is None or isinstance(event, events.Admin):
            self._handlers[type(event)](self, event)
        if self.job.ended is None:
            self._settle()
        effects = self._outbox.take()
        if self.next_version.phase is Phase.NONE:
            return effects
        # A change reads the files of checkpoints and adds others; they are swept after the change.
        return [effect for effect in effects if not isinstance(effect, RemoveFiles)]

    def next_deadline(self) -> int:
        """Return the time by which the next `Tick` is due, in ns on the clock of `now_ns`."""
        due = [
            self._alive_ns + ALIVE_NS,
            self._detector.deadline_ns(),
            self._dirty.deadline_ns(),
            self.coordinator.deadline_ns(),
            self._reconciler.deadline_ns(self._now_ns),
            self.injection.deadline_ns(self.figures.life_first_record_ns),
            self._stop_by_ns,
            self.next_version.deadline_ns(),
            self.checks.deadline_ns(),
            self.hosts.deadline_ns(),
        ]
        return max(min(at for at in due if at is not None), self._now_ns + WAKE_NS_MIN)

    def _apply(self, record: Record) -> None:
        """Apply one decision; only this method lets decisions change the state."""
        self.job.apply(record)
        self.next_version.apply(record)
        self._dirty.apply(record)

    # Event handlers.

    def _restored(self, event: events.Restored) -> None:
        for record in event.records:
            self._apply(record)
        self._restored_ns = self._alive_ns = self._now_ns
        for slot in self.assignments.slots.values():
            slot.known_ns = self._now_ns
        self.hosts.restored(self._now_ns)
        if event.manifest is not None:
            self.coordinator.adopt(*event.manifest, self._outbox)
        if self.job.ended is not None:
            self._outbox.add(EndJob(*self.job.ended))

    def _beat(self, event: events.Beat) -> None:
        slot = self.assignments.slots.get(event.slot)
        if slot is None and self.next_version.knows(event.slot):
            self.next_version.beat(event)
            return
        if slot is None:
            # The process belongs to an earlier run of the job, or was started without a decision.
            self._outbox.add(KillProcess(event.slot))
            return
        first = not slot.seen_ns
        self._note_changes(slot, event)
        slot.wanted_epoch, slot.hot_standby = event.wanted_epoch, event.hot_standby
        slot.shadow, slot.unchanged, slot.input_complete = event.shadow or {}, event.unchanged, event.input_complete
        slot.seen_ns = slot.alive_ns = self._now_ns
        slot.pid, slot.endpoint, slot.remote = event.pid, event.endpoint, event.remote
        self._doing(slot, event.doing)
        slot.reported_state, slot.epoch = event.state, event.epoch
        slot.followed, slot.committed = event.followed, event.committed
        if self.job.stopping is not None:
            self._outbox.send(slot.name, commands.Stop(self.job.stopping == FINISHED))
        if not slot.purpose or event.followed is not None or event.task is not None:
            self._reconciler.ready(slot)
        problem = self.checks.record_beat(slot, event.checked, self._outbox)
        if problem and self.job.stopping is None:
            self._stop(1, problem)
        if event.task is not None:
            self._beat_with_task(slot, event, first)
        else:
            self._beat_without_task(slot)

    def _note_changes(self, slot: WorkerEntry, event: events.Beat) -> None:
        """Mark the processes on which a change in this beat may require the supervisor to act."""
        if not slot.seen_ns or (slot.endpoint, slot.remote) != (event.endpoint, event.remote):
            self._dirty.whereabouts(slot)
        elif (slot.followed, slot.reported_state, slot.committed, slot.wanted_epoch, slot.unchanged) != (
            event.followed,
            event.state,
            event.committed,
            event.wanted_epoch,
            event.unchanged,
        ) or slot.input_complete != event.input_complete:
            self._dirty.slot(slot)
        difference = (event.shadow or {}).get("difference", "")
        if difference and difference != slot.shadow.get("difference"):
            self._outbox.add(Note(f"{slot.name}: {difference}"))

    def _beat_without_task(self, slot: WorkerEntry) -> None:
        if slot.state is WorkerState.STARTING:
            slot.step("beat without task")
            slot.ready_ns = self._now_ns
            self._dirty.slot(slot)
            return
        entry = self.assignments.entry_of(slot)
        if slot.state is WorkerState.SERVING and entry is not None:
            self.assignments.step(entry, "doubt")
        slot.step("beat without task")
        if slot.state is WorkerState.ASSIGNED:
            self._dirty.slot(slot)

    def _pulse(self, event: events.Pulse) -> None:
        slot = self.assignments.slots.get(event.slot)
        if slot is None:
            if not self.next_version.knows(event.slot):
                self._outbox.add(KillProcess(event.slot))
            return
        slot.alive_ns, slot.pid, slot.waiting = self._now_ns, event.pid, event.waiting
        slot.reported_state = event.state or slot.reported_state
        self._doing(slot, event.doing)
        # Take the endpoint from the pulse, so that a supervisor that has just started need not wait for a beat from the
        # worker's loop.
        if event.endpoint and not slot.endpoint:
            slot.endpoint, slot.remote = event.endpoint, event.remote
            self._dirty.whereabouts(slot)

    def _doing(self, slot: WorkerEntry, doing: Activity | None) -> None:
        line = slot.work(doing, self._now_ns)
        if line is not None:
            self._outbox.add(Note(line))

    def _beat_with_task(self, slot: WorkerEntry, event: events.Beat, first: bool) -> None:
        if slot.state is WorkerState.ASSIGNED and slot.task == event.task and event.incarnation < slot.incarnation:
            return  # the worker has not carried out the rollback yet
        if (slot.task, slot.incarnation) != (event.task, event.incarnation):
            if slot.state is not WorkerState.LEAVING:
                self._outbox.add(Note(f"{slot.name} claims {event.task} incarnation {event.incarnation}: killed"))
                self._reconciler.kill(slot, "not its task", self._now_ns, self._outbox)
            return
        entry = self.assignments.entry_of(slot)
        if entry is None:
            return
        if slot.state is not WorkerState.SERVING or slot.rollback != event.rollback:
            self._dirty.slot(slot)
        if slot.state is WorkerState.ASSIGNED:
            self.assignments.step(entry, "confirm")
        slot.step("beat with task")
        slot.update(event, event.peers)
        if event.lost:
            self.inquiries.record_lost(entry, event.lost, self._outbox)
        if first:
            self.coordinator.remind(slot, self._outbox)
        if event.acked is not None:
            self.coordinator.snapshot_reported(entry.name, *event.acked, self._now_ns, self._outbox)
        if entry.source and self.coordinator.under_way and not self.coordinator.writing:
            self.coordinator.trigger(slot, self._now_ns, self._outbox)
        positions = self.figures.begins_at(entry.name, event.counters)
        if positions is not None:
            self._outbox.decide("resumed_at", task=entry.name, positions=positions)
        self.figures.update(entry.name, event.incarnation, event.counters, event.last_output_ns)
        busy_s, complete = event.counters.get("busy_s"), self.coordinator.complete
        if busy_s and self._replays.worked(entry.name, event.incarnation, event.epoch, busy_s, complete):
            self._dirty.slot(slot)
        if event.first_record_ns is not None and self.figures.life_first_record_ns is None:
            self._outbox.decide("first_record", at_ns=event.first_record_ns)
        if event.state == "finished" and not entry.finished:
            self._finished(entry, event)

    def _phase(self, event: events.Phase) -> None:
        entry = self._present(event.slot, event.task, event.incarnation)
        if entry is None:
            return
        # The end of a task is recorded from the task's beat, because the beat contains its last counters.
        if event.phase != "finished" and self.timeline.of(entry.name, event.incarnation) is not None:
            facts = {"task": entry.name, "incarnation": event.incarnation, "at_ns": event.at_ns, "detail": event.detail}
            self._outbox.decide("phase", phase=event.phase, **facts)

    def _finished(self, entry: TaskEntry, event: events.Beat) -> None:
        facts = {"task": entry.name, "incarnation": event.incarnation, "at_ns": self._now_ns, "detail": None}
        last = {"counters": dict(event.counters), "last_output_ns": event.last_output_ns}
        self._outbox.decide("phase", phase="finished", **facts, **last)
        self._stop_if_finished()

    def _stop_if_finished(self) -> None:
        end = None if self.next_version.ends_current else savepoints.reached(self.coordinator, self.staging)
        if end is None and all(entry.finished for entry in self.assignments.tasks.values() if entry.sink):
            end = self.checks.finished(self._now_ns)
        if end is not None and self.job.stopping is None:
            self._stop(*end)

    def _snapshot_reported(self, event: events.SnapshotReported) -> None:
        entry = self._present(event.slot, event.task, event.incarnation)
        if entry is not None:
            self.coordinator.snapshot_reported(entry.name, event.epoch, event.files, self._now_ns, self._outbox)

    def _orphan_report(self, event: events.OrphanReport) -> None:
        entry = self._present(event.slot, event.task, event.incarnation)
        if entry is not None:
            self.inquiries.record_answer(entry, event.number, event.finding)
            self._dirty.slot(self.assignments.slots[event.slot])

    def _failed(self, event: events.Failed) -> None:
        slot = self.assignments.slots.get(event.slot)
        if slot is None or slot.state is WorkerState.LEAVING or self.job.stopping is not None:
            return
        if event.task is None:
            wanted = any(slot.purpose in ("", entry.name) for entry in self.assignments.waiting())
        else:
            wanted = self._present(event.slot, event.task, event.incarnation) is not None
        slot.complaint = f"{event.error}: {event.message}"
        self._outbox.add(Note(f"{event.task or slot.name}: {slot.complaint}"))
        if event.definite and wanted:
            self._stop(1, event.message, lasting=event.error not in _PASSING)
        else:
            self._reconciler.kill(slot, "failed", self._now_ns, self._outbox)

    def _started(self, event: events.Started) -> None:
        slot = self._of_host(event.slot, event.host)
        if slot is not None:
            slot.pid = event.pid
            slot.known_ns = self._now_ns

    def _exited(self, event: events.Exited) -> None:
        if event.slot in self._companions:
            failure = self._companions.failure(event)
            if failure is not None and self.job.stopping is None:
                self._stop(1, failure)
            return
        if self.next_version.knows(event.slot, event.host):
            self.next_version.gone(event.slot, event.last_line, self._now_ns, self._outbox)
            return
        slot = self._of_host(event.slot, event.host)
        if slot is not None:
            self._gone(slot, event.killed_ns, event.status, event.last_line)

    def _gone(self, slot: WorkerEntry, killed_ns: int | None, status: int | None = None, last_line: str = "") -> None:
        stopping = self.job.stopping is not None
        entry = self.assignments.entry_of(slot)
        end = End(killed_ns, None if slot.complaint else status, slot.complaint or last_line)
        reason = self._failures.gone(slot, end, stopping, self._now_ns, self._outbox)
        if reason is not None:
            self._stop(1, reason)
        elif entry is not None and not stopping:
            self._reconciler.roll_back(self._now_ns, self._outbox)

    def _agent_beat(self, event: events.AgentBeat) -> None:
        if not self.hosts.accepts(event.host, event.incarnation):
            self._outbox.add(SendHost(event.host, orders.Fenced().message()))
            return
        host = self.hosts[event.host]
        self.hosts.heard(host.name, self._now_ns)
        host.beaten, host.clock_error_ns = True, event.clock_error_ns
        if event.leaving and host.state is HostState.JOINED:
            drain(host, True, self._outbox)
        self._hear(host, event.clock_ns)
        for name in event.dead:
            if self.next_version.knows(name, event.host):
                self.next_version.gone(name, "", self._now_ns, self._outbox)
            slot = self._of_host(name, event.host)
            if slot is not None:
                self._gone(slot, event.killed.get(name), event.dead[name])
        for name in event.computing:
            slot = self._of_host(name, event.host)
            if slot is not None:
                slot.computed_ns = self._now_ns
        for slot in list(self.assignments.slots.values()):
            if slot.host != event.host:
                continue
            if slot.name in event.slots:
                self._kill_again(slot)
            elif not slot.seen_ns:
                self._unknown_to_agent(slot)
            elif slot.state is WorkerState.LEAVING and self._now_ns - slot.asked_ns > LOST_NS:
                self._gone(slot, None)
        for name in event.slots:
            known = name in self._companions or self.next_version.knows(name, event.host)
            if self._of_host(name, event.host) is None and not known:
                self._outbox.add(KillProcess(name, event.host))
        self.next_version.reported(event.slots, event.host, self._now_ns, self._outbox)
        self._companions.record_beat(event.host, {**event.slots, **event.dead})
        if self.job.stopping is None and self._companions.lacking and self.hosts.all_beaten:
            self._companions.settle(self._placement.host_for, self._now_ns, self._outbox)

    def _hear(self, host: HostEntry, clock_ns: int | None) -> None:
        """Reply with this supervisor's time, from which the host computes its clock offset."""
        if clock_ns is not None:
            began_ns = self.figures.first_record_ns or 0
            self._outbox.add(SendHost(host.name, orders.Heard(clock_ns, self._now_ns, began_ns).message()))

    def host_of(self, slot: str) -> str | None:
        """Return the host of a process, which may belong to the next version; None for a process that is unknown."""
        entry = self.assignments.slots.get(slot)
        return self.next_version.host_of(slot) if entry is None else entry.host

    def _of_host(self, name: str, host: str) -> WorkerEntry | None:
        """Return the named process if it was placed on that host, because an agent may report only on its own host."""
        slot = self.assignments.slots.get(name)
        return slot if slot is not None and slot.host == host else None

    def _host_hello(self, event: events.HostHello) -> None:
        if event.mark not in ("", self.mark):
            self._outbox.add(SendHost(event.host, orders.Ended(again=True).message()))
            return  # the agent belongs to an earlier run or version; the order makes it request the description again
        host = self.hosts.get(event.host)
        if host is not None and event.session in host.replaced:
            self._outbox.add(SendHost(event.host, orders.Refused(REPLACED, event.session).message()))
            return  # otherwise, two agents with one key would keep ending each other's processes
        if host is not None and host.living and host.session != event.session:
            self._lose_host(host, "its agent restarted without its earlier processes")
        if host is None or not host.living:
            facts = {"slots": event.slots, "zone": event.zone, "machine": event.machine, "labels": dict(event.labels)}
            facts.update(version=event.version, breakable=event.breakable, changes=event.changes)
            incarnation = 1 + (host.incarnation if host is not None else 0)
            self._outbox.decide("host_joined", host=event.host, incarnation=incarnation, session=event.session, **facts)
        host = self.hosts[event.host]
        self.hosts.heard(host.name, self._now_ns)
        self._outbox.add(SendHost(host.name, orders.Welcome(host.incarnation).message()))
        self._hear(host, event.clock_ns)

    def _host_closed(self, event: events.HostClosed) -> None:
        host = self.hosts.get(event.host)
        if host is not None and host.living and event.session in (host.session, ANY_SESSION):
            self._lose_host(host, event.why or "its processes have ended")

    def _lose_host(self, host: HostEntry, why: str) -> None:
        """Decide that a host is lost.  From now on, every process there counts as ended, even if it is still
        running.
        """
        facts = {"incarnation": host.incarnation, "why": why, "since_ns": host.seen_ns, "detected_ns": self._now_ns}
        left = host.state is HostState.DRAINING and not any(
            s.host == host.name for s in self.assignments.slots.values()
        )
        self._outbox.decide("host_lost", host=host.name, **facts, **({"left": True} if left else {}))
        self._outbox.add(Note(f"host {host.name} (incarnation {host.incarnation}) is lost: {why}"))
        self._companions.lose(host.name)
        self.next_version.lost(host.name, self._outbox)
        for slot in list(self.assignments.slots.values()):
            if slot.host == host.name:
                self._gone(slot, None)

    def _kill_again(self, slot: WorkerEntry) -> None:
        if slot.state is WorkerState.LEAVING and self._now_ns - slot.asked_ns > LOST_NS:
            slot.asked_ns = self._now_ns
            self._outbox.add(KillProcess(slot.name, slot.host))

    def _unknown_to_agent(self, slot: WorkerEntry) -> None:
        """Order the start of a journaled process that neither the agent nor a beat reports, or declare that it has
        ended.
        """
        if slot.state is WorkerState.STARTING and self.job.stopping is None:
            self._reconciler.ask_again(slot, self._now_ns, self._outbox)
        elif self._now_ns - max(self._restored_ns, slot.known_ns) > LOST_NS:
            self._gone(slot, None)

    def _manifest_written(self, event: events.ManifestWritten) -> None:
        self.coordinator.written(event.epoch, self._now_ns, self._outbox)
        self._dirty.all()

    def _manifest_failed(self, event: events.ManifestFailed) -> None:
        self.coordinator.not_written(event.epoch, self._now_ns)
        self._outbox.add(Note(f"the manifest of checkpoint {event.epoch} could not be written: {event.problem}"))
        self._dirty.all()

    def _admin(self, event: events.Admin | events.Replied) -> None:
        if isinstance(event, events.Admin) and event.verb == "change":
            self.next_version.asked(event, self._now_ns, self._outbox)
        elif isinstance(event, events.Admin) and event.verb == "savepoint" and self.next_version.ends_current:
            error = "the current version of the job is being replaced; repeat the command"
            self._outbox.add(Answer(event.sender, {"kind": "answer", "ok": False, "error": error}))
        else:
            answer(self.job, event, self.view, self._kill_on_request, self._outbox)
        self._dirty.all()

    def _refuses_change(self) -> str:
        """Return why the running job cannot change; empty if it can."""
        if self.job.stopping is not None or self.coordinator.final and not self.next_version.ends_current:
            return "the job is ending already"
        if self._config.guarantee != "causal" or self._config.on:
            what = "a job in Spark's executors" if self._config.on else f"guarantee {self._config.guarantee}"
            return f"{what} changes with a stop: causal savepoint --stop"
        return self.hosts.unchanging

    def _kill_on_request(self, slot: WorkerEntry) -> None:
        self._reconciler.kill(slot, "on request", self._now_ns, self._outbox)

    def _tick(self, event: events.Tick) -> None:
        self._dirty.all()

    # Work that is due after every event.

    def _settle(self) -> None:
        if self._now_ns - self._alive_ns >= ALIVE_NS:
            self._alive_ns = self._now_ns
            for slot in self.assignments.slots.values():
                if slot.seen_ns:
                    self._outbox.send(slot.name, commands.Alive())
        if self.checks.enabled or self.coordinator.final:
            self._stop_if_finished()
        if self.job.stopping is not None:
            self._settle_stop()
            return
        self._detector.excuse(self.hosts.hearing_since_ns(self._now_ns))
        for host in self.hosts.silent(self._now_ns, self._detector.listening_since_ns):
            self._lose_host(host, f"it has not sent anything for {self._config.host_timeout_ms} ms")
        for slot in self._detector.suspects(self.assignments, self._now_ns):
            self._outbox.add(Note(f"{slot.name} ({slot.task or 'standby'}) has been silent too long: killed"))
            silent_ms = (self._now_ns - (slot.alive_ns or slot.known_ns)) // 1_000_000
            limit = f"heartbeat_timeout_ms is {self._config.heartbeat_timeout_ms}"
            slot.complaint = slot.complaint or f"silence of {silent_ms} ms, for which it was killed ({limit})"
            self._reconciler.kill(slot, "silent", self._now_ns, self._outbox)
        for index, task in self.injection.due(self.figures.life_first_record_ns, self._now_ns):
            holder = self.assignments.holder(self.assignments.tasks[task])
            if holder is not None and holder.seen_ns and holder.state is not WorkerState.LEAVING:
                self._outbox.decide("injected", index=index)
                self._kill_on_request(holder)
        self.next_version.settle(self._now_ns, self._outbox)
        if self._dirty.due(self._now_ns) and not self.next_version.suspends:
            self.inquiries.settle(self._now_ns, self._outbox, self._dirty.slots())
            self._reconciler.settle(self._now_ns, self._outbox, self._dirty)
            self._draining.settle(self._now_ns, self._outbox)
            self._balancing.settle(self._now_ns, self._outbox)
            hurries = self.staging.hurries() or self._replays.due(self.coordinator.complete)
            self.coordinator.settle(self._now_ns, self._outbox, self._dirty.everything, hurries)
            self._dirty.clear()  # the components above have acted on all dirty workers

    def _stop(self, status: int, reason: str, lasting: bool = False) -> None:
        """Decide that the job ends.  Workers are sent `stop` now, and again after each beat."""
        self.next_version.abandon(self._outbox)
        self._outbox.decide("stopping", status=status, reason=reason, **({"lasting": True} if lasting else {}))
        self._stop_by_ns = self._now_ns + (STOP_NS_MAX if status == 0 else 0)
        for slot in self.assignments.slots.values():
            if slot.seen_ns:
                self._outbox.send(slot.name, commands.Stop(self.job.stopping == FINISHED))

    def _fail(self, reason: str) -> None:
        self._stop(1, reason)

    def _settle_stop(self) -> None:
        """End the job once every task's process has reported its last counters and ended, or the deadline has
        passed.
        """
        if self._stop_by_ns is None:  # an earlier supervisor decided to stop the job
            self._stop_by_ns = self._now_ns + STOP_NS_MAX
        if self.job.stopping is not None and (self.assignments.deserted or self._now_ns >= self._stop_by_ns):
            status, reason = self.job.stopping
            self._outbox.decide("ended", status=status, reason=reason)
            self._outbox.add(EndJob(status, reason))

    def _present(self, slot_name: str, task: str, incarnation: int) -> TaskEntry | None:
        """Return the entry of `task` if that slot currently runs the task with that incarnation; otherwise None."""
        slot = self.assignments.slots.get(slot_name)
        entry = self.assignments.entry_of(slot) if slot is not None else None
        fits = slot is not None and (slot.task, slot.incarnation) == (task, incarnation)
        return entry if fits else None

    def view(self) -> JobView:
        """Return the view that `status.json`, `causal status`, the metrics page and the report show."""
        shown = view(self.job, self._now_ns, self._detector.listening_since_ns)
        return replace(shown, change=self.next_version.shown)

    _handlers: dict[type, Callable[[Supervision, Any], None]] = {
        events.Restored: _restored,
        events.Beat: _beat,
        events.Pulse: _pulse,
        events.Phase: _phase,
        events.SnapshotReported: _snapshot_reported,
        events.OrphanReport: _orphan_report,
        events.Failed: _failed,
        events.Started: _started,
        events.Exited: _exited,
        events.AgentBeat: _agent_beat,
        events.HostHello: _host_hello,
        events.HostClosed: _host_closed,
        events.ManifestWritten: _manifest_written,
        events.ManifestFailed: _manifest_failed,
        events.Admin: _admin,
        events.Replied: _admin,
        events.Tick: _tick,
    }
