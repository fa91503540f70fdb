"""The stage with the production supervisor: `standby.supervision` decides, `operators.runtime.membership` obeys.

Worker processes are slots (`w1` …) that hold a task or stand by.  Control messages arrive in the order they were
sent, before any frame; a beat is written down when it says something new.  The journal outlives the supervisor.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from causal.commands import read_command
from causal.config import JobConfig
from causal.errors import CausalError
from causal.events import CheckpointCompleted, PeerUp, Started
from causal.logs.dissemination import NO_KNOWLEDGE
from causal.records.values import encode
from causal.task.vitals import Vitals
from causal.topology import Topology
from operators.runtime.membership import (
    Act,
    Begin,
    Commanded,
    Feed,
    Input,
    Load,
    Loaded,
    Membership,
    Reported,
    SendReport,
    Start,
    Tick,
)
from standby.blueprint import Blueprint
from standby.network.control import AGENT, Inbox
from standby.supervision import effects as fx
from standby.supervision import events
from standby.supervision.supervision import Supervision
from tests.transcripts.control import decision, message
from tests.transcripts.operators import MS
from tests.transcripts.process import Process
from tests.transcripts.stage import Stage

BEGIN_NS = 1000 * MS


@dataclass(slots=True)
class Worker:
    """One process: a standby, or the task that it was promoted to."""

    slot: str
    pid: int
    membership: Membership
    process: Process | None = None
    last_beat: tuple[str, ...] = ()
    """The last line about it."""


class Supervised(Stage):
    """A stage where only the supervisor promotes."""

    def __init__(self, topology: Topology, config: JobConfig, traits: dict[str, dict[str, int]]) -> None:
        super().__init__(topology, config, traits)
        self.now_ns = BEGIN_NS
        self.workers: dict[str, Worker] = {}
        self.journal: list[fx.Record] = []
        self.supervision: Supervision | None = None
        self.dies_after_journal = False
        """The supervisor is killed as soon as it has written its next decisions down, before it acts on them."""
        self._inbox_of_supervisor = Inbox()
        self._control: deque[tuple[str, str, dict[str, Any]]] = deque()

    def start_all(self) -> None:
        self.start_supervisor()

    # -- the supervisor ----------------------------------------------------------------------------------

    def start_supervisor(self) -> None:
        """A supervisor begins with what its predecessors wrote down."""
        self.supervision = Supervision(self.config, Blueprint(self.topology))
        count = len(self.journal)
        self.say("supervisor", "starts", f"with the {count} decisions of the journal" if count else "a new job")
        for worker in self.workers.values():
            worker.last_beat = ()
        self.supervise(events.Restored(tuple(self.journal)))
        slots = {slot: worker.pid for slot, worker in self.workers.items()}
        if count:
            self.say("agent -> supervisor", "AGENT_BEAT", f"alive are {' '.join(slots)}")
            self._control.append((AGENT, "supervisor", {"kind": "agent_beat", "slots": slots, "dead": {}}))

    def kill_supervisor(self) -> None:
        """Kill the supervisor, with what was on its way to it."""
        self.say("supervisor", "dies")
        self.supervision = None
        self._control = deque(each for each in self._control if each[1] != "supervisor")

    def supervise(self, event: events.Event) -> None:
        """Pass an event to the supervisor, and perform what it decides: the journal first."""
        if self.supervision is None:
            return
        effects = self.supervision.handle(event, self.now_ns)
        for effect in effects:
            if isinstance(effect, fx.Journal):
                self._write_down(effect.record)
        if self.dies_after_journal and any(isinstance(effect, fx.Journal) for effect in effects):
            self.dies_after_journal = False
            self.kill_supervisor()
            return
        for effect in effects:
            self._act_for_supervisor(effect)

    def _write_down(self, record: fx.Record) -> None:
        self.journal.append(record)
        said = decision(record, self.words)
        if said:
            self.say("journal", record["kind"], *said)
        if record["kind"] == "checkpoint":
            self.complete = record["epoch"]

    def _act_for_supervisor(self, effect: fx.Effect) -> None:
        if isinstance(effect, fx.Send):
            said = message(effect.message, self.words)
            if said:
                self.say(f"supervisor -> {effect.slot}", effect.message["kind"].upper(), *said)
            self._control.append(("supervisor", effect.slot, dict(effect.message)))
        elif isinstance(effect, fx.StartProcess):
            self.say("supervisor -> agent", "START", effect.slot)
            self._start_worker(effect.slot)
        elif isinstance(effect, fx.KillProcess):
            self.say("supervisor -> agent", "KILL", effect.slot)
            if effect.slot in self.workers:
                self._end_worker(self.workers[effect.slot])
        elif isinstance(effect, fx.WriteManifest):
            self.say("supervisor -> disk", "MANIFEST", f"checkpoint {effect.epoch}")
            self.supervise(events.ManifestWritten(effect.epoch))
        elif isinstance(effect, fx.Note):
            self.say("supervisor", "notes", effect.line)

    # -- workers -----------------------------------------------------------------------------------------

    def _start_worker(self, slot: str, topology: Topology | None = None) -> None:
        if slot in self.workers:
            return
        pid = 100 + int(slot[1:])
        membership = Membership(
            slot,
            pid,
            f"ipc:///{slot}",
            topology or self.topology,
            self.config.heartbeat_ms,
            lambda: self._vitals(slot),
        )
        self.workers[slot] = Worker(slot, pid, membership)
        self._control.append((AGENT, "supervisor", {"kind": "started", "slot": slot, "pid": pid, "at_ns": self.now_ns}))

    def _end_worker(self, worker: Worker) -> None:
        del self.workers[worker.slot]
        if worker.process is not None and self.lives(worker.process):
            self.forget(worker.process)
        self._control = deque(each for each in self._control if each[1] != worker.slot)
        exited = {"kind": "exited", "slot": worker.slot, "pid": worker.pid, "at_ns": self.now_ns, "status": -9}
        self.say(
            "agent -> supervisor",
            "EXITED",
            *message(exited, self.words),
            "" if self.supervision else "(no process)",
        )
        if self.supervision is not None:
            self._control.append((AGENT, "supervisor", exited))

    def _vitals(self, slot: str) -> Vitals:
        process = self.workers[slot].process
        if process is None:
            return Vitals()
        protocol = process.protocol
        state = "finished" if protocol.reported_finished else protocol.recovery.state.value
        rollback = protocol.inquiry.rollback.number
        return Vitals(state, protocol.cursor.epoch, rollback=rollback, lost=tuple(protocol.lost))

    def member(self, worker: Worker, event: Input) -> None:
        """Pass an event to a worker's membership, and perform what it returns."""
        for act in worker.membership.handle(event, self.now_ns):
            self._act_for_member(worker, act)

    def _act_for_member(self, worker: Worker, act: Act) -> None:
        if isinstance(act, SendReport):
            self._deliver(worker, {"kind": act.kind, "slot": worker.slot, **act.facts})
        elif isinstance(act, Load):
            self.member(worker, Loaded(act.epoch))
        elif isinstance(act, Begin):
            self._begin(worker, act)
        elif isinstance(act, Start) and worker.process is not None:
            self.feed(worker.process, Started())
        elif isinstance(act, Feed) and worker.process is not None:
            self._feed(worker.process, act)

    def _begin(self, worker: Worker, act: Begin) -> None:
        retained = NO_KNOWLEDGE
        before = worker.process
        if before is not None:
            retained = before.protocol.retained(act.rollback)
            self.say(before.shown, "goes back", f"in place: {worker.slot} continues as incarnation {act.incarnation}")
            self.forget(before)
        worker.process = self.create(act.task, act.incarnation, act.rollback, retained)

    def _feed(self, process: Process, act: Feed) -> None:
        if isinstance(act.event, PeerUp):
            process.dialled[act.event.task] = act.event.incarnation
        if isinstance(act.event, CheckpointCompleted):
            self.complete_at(process)
        else:
            self.feed(process, act.event)

    def _deliver(self, worker: Worker, fields: dict[str, Any]) -> None:
        said = tuple(message(fields, self.words))
        news = bool(said)
        if fields["kind"] == "beat":
            fresh = (f"{fields['task']}{fields['incarnation']}", *said[1:])  # the task has reported its state
            news, worker.last_beat = fresh != worker.last_beat, fresh
        if news:
            absent = "" if self.supervision is not None else "(no process)"
            self.say(f"{worker.slot} -> supervisor", fields["kind"].upper(), *said, absent)
        if self.supervision is not None:
            self._control.append((worker.slot, "supervisor", fields))

    # -- what the stage leaves to the supervisor ---------------------------------------------------------

    def reported(self, process: Process, kind: str, facts: dict[str, Any]) -> None:
        self.member(next(each for each in self.workers.values() if each.process is process), Reported(kind, facts))

    def kill(self, victims: list[Process]) -> None:
        for process in victims:
            self.say(process.shown, "dies")
        for process in victims:
            self._end_worker(next(each for each in self.workers.values() if each.process is process))

    def fail(self, process: Process, problem: CausalError) -> None:
        worker = next(each for each in self.workers.values() if each.process is process)
        super().fail(process, problem)
        self._end_worker(worker)

    def announce_death(self, process: Process) -> None:
        """The supervisor does."""

    def settle(self) -> None:
        """The supervisor does."""

    # -- the course of things ----------------------------------------------------------------------------

    def step(self) -> bool:
        """A control message arrives, else a process sends a heartbeat, else what happens on any stage."""
        if self._control:
            self._deliver_control(*self._control.popleft())
            return True
        for worker in list(self.workers.values()):
            paused = worker.process is not None and worker.process.paused
            if not paused and self.now_ns >= worker.membership.beat_due_ns:
                self.member(worker, Tick())
                return True
        return super().step()

    def _deliver_control(self, source: str, target: str, fields: dict[str, Any]) -> None:
        if target == "supervisor":
            event = self._inbox_of_supervisor.receive(source.encode(), encode(fields))
            if event is not None:
                self.supervise(event)
        elif target in self.workers:
            self.member(self.workers[target], Commanded(read_command(fields)))

    def deadlines_ns(self) -> list[int]:
        return super().deadlines_ns() + [worker.membership.beat_due_ns for worker in self.workers.values()]

    def wait(self, span_ms: int) -> None:
        super().wait(span_ms)
        self.supervise(events.Tick())
