"""The control plane of a job of any size in one process: the production supervisor, and the production membership
of every worker, with the real encoding of every message between them and virtual time.

Nothing is simulated of what is measured: messages go through `standby.network.control` and `causal.records.values` in
both directions, decisions into a journal on disk.  There is no data plane: a task has a snapshot as soon as its job's
sources know of the checkpoint.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness.graphs import graph
from benchmarks.harness.runs import RunFailed
from causal.commands import read_command
from causal.config import JobConfig
from causal.events import CheckpointRequested
from causal.ids import OUTSIDE
from causal.records.values import decode, encode
from causal.task.vitals import Vitals
from causal.topology import Topology
from operators.runtime.membership import (
    Act,
    Commanded,
    Feed,
    Input,
    Load,
    Loaded,
    Membership,
    Reported,
    SendReport,
    Tick,
)
from standby.blueprint import Blueprint
from standby.network.control import AGENT, Inbox, pack
from standby.storage.journal import Journal
from standby.supervision import effects as fx
from standby.supervision import events
from standby.supervision.supervision import Supervision

MS = 1_000_000
SECOND_NS = 1_000 * MS
SLOT_PID = 10_000
ROUNDS_MAX = 200
"""Heartbeats that a start, a recovery or a checkpoint may take before it counts as stuck."""

COUNTERS: dict[str, Any] = {
    "records_in": 5_000_000, "records_out": 0, "withdrawn_rows": 0, "inflight_bytes": 1_500_000,
    "inflight_disk_bytes": 0, "sent_bytes": 40_000_000, "sent_frames": 30_000, "received_bytes": 40_000_000,
    "delivered_elements": 5_000_000, "determinant_bytes": {"order": 90_000, "barrier": 120}, "delta_bytes": 150_000,
    "log_bytes": 6_000, "replayed_elements": 0, "dropped_frames": 0,
    "latency_ms_buckets": {0.5: 900_000, 1.0: 3_000_000, 2.0: 600_000, 4.0: 20_000}, "latency_ms_max": 18.5,
    "checkpoint_ms": 4.2, "undeliverable_frames": 0,
}  # fmt: skip
"""The figures that a task reports in each beat after a minute of work: names and sizes as in `causal.shell.driver`."""


def blocks(count: int) -> Topology:
    """`count` keyed counts next to each other: two sources, two counting tasks, one sink each."""
    block = (("rows", 0), ("rows", 1), ("count", 0), ("count", 1), ("out", 0))
    within = [(OUTSIDE, 0), (OUTSIDE, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 4), (3, 4), (4, OUTSIDE)]

    def at(number: int, task: int) -> int:
        return task if task == OUTSIDE else number * len(block) + task

    names = [f"{name}/{2 * number + place}" for number in range(count) for name, place in block]
    return graph(names, *[(at(number, a), at(number, b)) for number in range(count) for a, b in within])


@dataclass
class Tally:
    """The messages of one phase."""

    messages: Counter[str] = field(default_factory=Counter)
    """Counts by kind, in both directions."""
    bytes: Counter[str] = field(default_factory=Counter)
    journal_bytes: int = 0
    manifest_bytes: int = 0
    steps: int = 0
    cpu_ns: int = 0
    step_ns_max: int = 0


def running(epoch: int) -> Vitals:
    """Return the vitals of a task that works."""
    return Vitals("running", epoch, counters=COUNTERS, first_record_ns=SECOND_NS, last_output_ns=SECOND_NS)


@dataclass
class Worker:
    """One process: its membership and what its task would report."""

    membership: Membership
    vitals: Vitals
    epoch_asked: int = 0


class ControlPlane:
    """A supervisor, one agent and all workers of a job; `tally` counts in the current phase; to be closed.

    Raises (from every phase):
        RunFailed: the job does not get where it should, or CPU time is used up.
    """

    def __init__(self, topology: Topology, cpu_s_max: float = 60.0, **settings: Any) -> None:
        self.topology = topology
        self.config = JobConfig(run="r", name="job", pipeline="/p.py", **settings)
        self.tally = Tally()
        self.promotion_ns = 0
        """CPU time of the step that last sent a `promote`."""
        self.now_ns = SECOND_NS
        self.workers: dict[str, Worker] = {}
        self.dead: dict[str, int] = {}
        self._cpu_ns_left = int(cpu_s_max * 1e9)
        self._to_supervisor: deque[tuple[str, bytes]] = deque()
        self._directory = tempfile.TemporaryDirectory(prefix="causal-scale-")
        self._journal = Journal(Path(self._directory.name))
        try:
            self._begin_life()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """The journal goes."""
        self._journal.close()
        self._directory.cleanup()

    def _begin_life(self) -> None:
        self.supervision = Supervision(self.config, Blueprint(self.topology))
        self._inbox = Inbox()
        self._take(lambda: events.Restored(self._journal.records()))

    # -- the supervisor's process ----------------------------------------------------------------------

    def _take(self, event_of: Callable[[], events.Event | None]) -> None:
        """One step as `standby.daemon` does it; what it costs counts, what the others do about it does not."""
        self.now_ns += 1_000
        began_ns = time.thread_time_ns()
        event = event_of()
        effects = self.supervision.handle(event, self.now_ns) if event is not None else []
        decided = [effect.record for effect in effects if isinstance(effect, fx.Journal)]
        self._journal.append(decided)
        sent = [(e.slot, encode(dict(e.message)), e.message["kind"]) for e in effects if isinstance(e, fx.Send)]
        self.supervision.next_deadline()
        took_ns = time.thread_time_ns() - began_ns
        self._count(took_ns)
        if any(kind == "promote" for _, _, kind in sent):
            self.promotion_ns = took_ns
        self.tally.journal_bytes += sum(len(encode(dict(record))) for record in decided)
        for slot, data, kind in sent:
            self._counted(kind, data)
            if slot in self.workers:
                self._handle(slot, Commanded(read_command(decode(data))))
        for effect in effects:
            self._obey(effect)

    def _count(self, took_ns: int) -> None:
        self.tally.steps += 1
        self.tally.cpu_ns += took_ns
        self.tally.step_ns_max = max(self.tally.step_ns_max, took_ns)
        self._cpu_ns_left -= took_ns
        if self._cpu_ns_left < 0:
            raise RunFailed(f"{len(self.topology.tasks)} tasks take the supervisor more CPU time than --cpu-max allows")

    def _counted(self, kind: str, data: bytes) -> None:
        self.tally.messages[kind] += 1
        self.tally.bytes[kind] += len(data)

    def _obey(self, effect: fx.Effect) -> None:
        if isinstance(effect, fx.StartProcess):
            self._counted("start", encode({"kind": "start", "slot": effect.slot, "role": effect.role}))
            if effect.slot not in self.workers and effect.slot not in self.dead:
                self._spawn(effect.slot)
        elif isinstance(effect, fx.KillProcess):
            self._counted("kill", encode({"kind": "kill", "slot": effect.slot}))
            if effect.slot in self.workers:
                self.die(effect.slot)
        elif isinstance(effect, fx.WriteManifest):
            files_of = {task: [list(file) for file in files] for task, files in effect.files.items()}
            self.tally.manifest_bytes += len(json.dumps({"epoch": effect.epoch, "files": files_of}))
            written = events.ManifestWritten(effect.epoch)
            self._take(lambda: written)
        elif isinstance(effect, fx.EndJob):
            raise RunFailed(f"the job of the control plane ended: {effect.reason}")

    def _report(self, sender: str, kind: str, **facts: Any) -> None:
        data = pack(kind, **facts)
        self._counted(kind, data)
        self._to_supervisor.append((sender, data))

    def pump(self) -> None:
        """Hand the supervisor everything that is on its way to it, and what that leads to."""
        while self._to_supervisor:
            sender, data = self._to_supervisor.popleft()
            self._take(partial(self._inbox.receive, sender.encode(), data))

    # -- agent and workers -----------------------------------------------------------------------------

    def _spawn(self, slot: str) -> None:
        pid = SLOT_PID + int(slot[1:])
        vitals = Vitals()
        worker = Worker(
            Membership(slot, pid, f"ipc:///run/user/0/causal-3f9a1c/{slot}", self.topology, self.config.heartbeat_ms,
                       partial(self._vitals, slot)), vitals,
        )  # fmt: skip
        self.workers[slot] = worker
        self._report(AGENT, "started", slot=slot, pid=pid, at_ns=self.now_ns)

    def _vitals(self, slot: str) -> Vitals:
        return self.workers[slot].vitals

    def die(self, slot: str) -> None:
        """SIGKILL; the agent sees it immediately."""
        del self.workers[slot]
        self.dead[slot] = -9
        self._report(AGENT, "exited", slot=slot, pid=SLOT_PID + int(slot[1:]), at_ns=self.now_ns, status=-9)

    def _handle(self, slot: str, event: Input) -> None:
        worker = self.workers[slot]
        for act in worker.membership.handle(event, self.now_ns):
            self._perform(slot, worker, act)

    def _perform(self, slot: str, worker: Worker, act: Act) -> None:
        if isinstance(act, SendReport):
            self._report(slot, act.kind, **act.facts)
        elif isinstance(act, Load):
            epoch = self.supervision.coordinator.complete
            self._handle(slot, Loaded(epoch))
        elif isinstance(act, Feed) and isinstance(act.event, CheckpointRequested):
            worker.epoch_asked = max(worker.epoch_asked, act.event.epoch)
        if worker.membership.serving and worker.vitals.state == "standby":
            worker.vitals = running(worker.vitals.epoch)
            for phase in ("collected", "replayed", "first_output", "running"):
                self._handle(slot, Reported("phase", {"phase": phase, "at_ns": self.now_ns, "detail": 1_000}))

    def beats(self) -> None:
        """One heartbeat: every worker beats once, the agent too, and the time between two beats passes."""
        self._beat_of(list(self.workers))
        slots = {slot: SLOT_PID + int(slot[1:]) for slot in self.workers}
        self._report(AGENT, "agent_beat", slots=slots, dead=dict(self.dead), killed={})
        self.pump()
        if self.now_ns >= self.supervision.next_deadline():
            self._take(events.Tick)

    def _beat_of(self, slots: Iterable[str]) -> None:
        end_ns = self.now_ns + self.config.heartbeat_ms * MS
        for slot in slots:
            if slot in self.workers:
                self.workers[slot].membership.beat_due_ns = 0
                self._handle(slot, Tick())
                self.pump()
        self.now_ns = max(self.now_ns, end_ns)

    def _until(self, holds: Callable[[], bool], what: str, beat: Callable[[], None]) -> None:
        for _ in range(ROUNDS_MAX):
            if holds():
                return
            beat()
        raise RunFailed(f"{what} took more than {ROUNDS_MAX} heartbeats")

    # -- phases ----------------------------------------------------------------------------------------

    @contextmanager
    def phase(self) -> Iterator[Tally]:
        """Return what happens inside counts into a tally of its own."""
        before, self.tally = self.tally, Tally()
        tally = self.tally
        try:
            yield tally
        finally:
            self.tally = before

    def _settled(self) -> bool:
        seats = len(self.topology.tasks)
        serving = sum(worker.membership.serving for worker in self.workers.values())
        ready = sum(slot.state.value == "idle" for slot in self.supervision.assignments.slots.values())
        return serving == seats and ready == seats

    def start(self) -> None:
        """Run until every task runs and has a standby."""
        self._take(events.Tick)
        self.pump()
        self._until(self._settled, "the start", self.beats)
        self.quiet()

    def quiet(self) -> None:
        """Wait until the rest of the previous phase is idle."""
        for _ in range(3):
            self.beats()

    def checkpoint(self) -> None:
        """One checkpoint, from the first source that is asked to the last standby that has it."""
        coordinator = self.supervision.coordinator
        epoch = coordinator.complete + 1
        if not coordinator.under_way:
            self.now_ns = max(self.now_ns, coordinator.deadline_ns() or 0)
            self._take(events.Tick)
        if not any(worker.epoch_asked == epoch for worker in self.workers.values()):
            raise RunFailed(f"no source of the control plane was asked for checkpoint {epoch}")
        for slot, worker in list(self.workers.items()):
            if worker.membership.serving:
                worker.vitals = running(epoch)
                task, incarnation = str(worker.membership.name), worker.membership.incarnation
                path = f"checkpoints/{task}/e{epoch:08d}-i{incarnation:04d}.snap"
                self._handle(slot, Reported("snapshot", {"epoch": epoch, "files": [[path, 123_456, "ab" * 16]]}))
                self.pump()
        if coordinator.complete != epoch:
            raise RunFailed(f"checkpoint {epoch} of the control plane is not complete")

    def fail(self, task: str) -> None:
        """Kill the process of `task`, until another one runs it and a new standby is ready.

        Only those beat whom it concerns, so that what it costs can be separated from what runs all the time.
        """
        seats = self.supervision.assignments.tasks
        seat, known = seats[task], set(self.workers)
        standby = next(
            slot.name for slot in self.supervision.assignments.slots.values() if slot.purpose == task and not slot.task
        )
        self.die(seat.slot)
        self.pump()

        def beat() -> None:
            fresh = [slot for slot in self.workers if slot not in known]
            self._beat_of([standby, *(seats[name].slot for name in seat.neighbours), *fresh])

        self._until(self._settled, f"the recovery of {task}", beat)

    def restart(self) -> None:
        """Kill the supervisor and start another one on its journal; every worker beats to it once."""
        self._journal.close()
        self._journal = Journal(Path(self._directory.name))
        self._begin_life()
        self.beats()

    def journal_bytes(self) -> int:
        """Return what a new supervisor would read."""
        return sum(len(encode(dict(record))) for record in self._journal.records())

    def status_bytes(self) -> int:
        """Length of `status.json`, made as the supervisor makes it."""
        began_ns = time.thread_time_ns()
        view = json.dumps(self.supervision.view().content())
        self._count(time.thread_time_ns() - began_ns)
        return len(view)
