"""The supervisor and the agent on virtual time, and what restarts them.

The supervisor is `standby.supervision` with its journal; only sockets, clock and disk around it are simulated.  The
agent is simulated as a whole: its promises are those of `standby.agent`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from causal.commands import TERM, Files
from causal.errors import Unavailable
from causal.records.values import decode, encode
from causal.task.activity import PULSE_SUFFIX
from standby.network.control import AGENT, Inbox, pack
from standby.supervision import effects as fx
from standby.supervision import events, orders
from standby.supervision.supervision import Supervision
from standby.supervision.task_counters import lasting
from tests.simulation.clockwork import MS
from tests.simulation.machines import SUPERVISOR, Machine

if TYPE_CHECKING:
    from tests.simulation.succession import Seat, StoredDecisions
    from tests.simulation.world import Simulation


class Supervisor:
    """One supervisor's life.

    Args:
        seat: whose process this is, and `journal` that of its term; None where a supervisor has no successor.
    """

    def __init__(self, world: Simulation, seat: Seat | None = None, journal: StoredDecisions | None = None) -> None:
        self.world = world
        self.name = seat.name if seat is not None else SUPERVISOR
        self.slept = False
        self._seat = seat
        self._journal = journal
        self._decided = 0
        self._effects: deque[tuple[int, fx.Effect]] = deque()
        """Effects that wait until this many decisions are written."""
        self.living = True
        self.dies_after: int | None = None
        """Effects left to perform before SIGKILL comes."""
        self.supervision = Supervision(world.config, world.blueprint)
        self._inbox = Inbox()
        self._known: set[str] = set()
        self.heard = 0
        """Messages of hosts."""
        self._route: dict[str, str] = {}
        """Process → the host on which it was last heard, of a job of several hosts."""
        self._due_ns = -1

    def begin(self) -> None:
        """Begin with what the disk of its machine holds."""
        self.world.changes.carry_out()  # the supervisor before may have died after a change was final
        self._restore()

    def _restore(self) -> None:
        disk = self.world.disk
        newest = max(disk.manifests, default=0)
        self._step(events.Restored(self.world.decisions, (newest, disk.manifests[newest]) if newest else None))

    def lead(self, records: tuple[fx.Record, ...]) -> None:
        """Begin with the decisions of the terms before."""
        self._step(events.Restored(records))

    def resign(self) -> None:
        """It ends and leaves the job to another one."""
        if self._journal is not None:
            self.living = False
            self._journal.resign()

    def _asleep(self, then: Callable[[], None]) -> bool:
        """Return whether its process is suspended: what has reached it is looked at when it wakes."""
        if self._seat is None or self._seat.asleep_until_ns <= self.world.clock.now_ns:
            return False
        self.slept = True
        self.world.clock.at(self._seat.asleep_until_ns, then)
        return True

    def receive(self, sender: str, data: bytes) -> None:
        """A message has arrived on its socket; its sender is known from then on."""
        if not self.living:
            return
        event = self._inbox.receive(sender.encode(), data)
        self._known.add(sender)
        if sender == AGENT:
            self.world.deliver_orders()
        if event is not None:
            self._step(event)

    def receive_from(self, machine: Machine, slot: str, data: bytes) -> None:
        """A message of another host has arrived, of its agent if there is no slot (`standby.network.gate`)."""
        if not self.living or machine.revoked or self.world.ended is not None:
            return
        if self._asleep(lambda: self.receive_from(machine, slot, data)):
            return
        self.heard += 1
        name = slot.removesuffix(PULSE_SUFFIX)
        entry = self.supervision.assignments.slots.get(name)
        event = self._inbox.receive_from(machine.name, slot, data, entry.host if entry is not None else None)
        self._known.add(machine.name)
        if slot and event is not None:
            self._route[name] = machine.name
        if event is not None and not isinstance(event, events.HostLog):
            self._step(event)

    def closed(self, machine: str, session: str, why: str = "") -> None:
        """The tether of a host has ended, or its key was revoked."""
        if self.living and self.world.ended is None:
            self._step(events.HostClosed(machine, session, why))

    def asked(self, verb: str, arguments: Mapping[str, Any]) -> None:
        """A user asks for something, and does not wait for the answer."""
        if self.living and self.world.ended is None:
            self._step(events.Admin("admin-1", verb, arguments))

    def _to_host(self, host: str, slot: str, message: Mapping[str, Any]) -> None:
        """Send a message to a process of a host, or to its agent; one that does not arrive is repeated when due."""
        term = {} if self._journal is None else {TERM: self._journal.term}
        machine, received = self.world.machines.get(host), decode(encode({**message, **term}))
        if machine is None or host not in self._known:
            return

        def arrive() -> None:
            if machine.agent is not None:
                machine.agent.take(slot, received)

        self.world.fabric.carry(self.name, host, arrive)

    def _step(self, event: events.Event) -> None:
        effects = self.supervision.handle(event, self.world.clock.now_ns)
        self.world.trace_control(event, effects)
        if self.world.supervisor is self:
            self.world.host_checks.supervised(event, effects)
        decided = [effect.record for effect in effects if isinstance(effect, fx.Journal)]
        self._decided += len(decided)
        self._effects.extend((self._decided, effect) for effect in effects if not isinstance(effect, fx.Journal))
        if self._journal is not None:
            self._journal.append(decided)
        for record in decided if self._journal is None else ():
            self.world.decided(record)
        self.release()
        if self.living:
            self._schedule()

    def release(self) -> None:
        """Perform, in their order, the effects whose decisions are written."""
        while self.living and self._effects:
            if self._journal is not None and self._effects[0][0] > self._journal.written:
                return
            if self.dies_after is not None:
                self.dies_after -= 1
                if self.dies_after < 0:
                    self.world.kill_supervisor(self._seat)
                    return
            self._perform(self._effects.popleft()[1])

    def _schedule(self) -> None:
        at_ns = self.supervision.next_deadline()
        if at_ns != self._due_ns and self.living:
            self._due_ns = at_ns
            self.world.clock.at(at_ns, lambda: self._tick(at_ns))

    def _tick(self, at_ns: int) -> None:
        if self.living and at_ns == self._due_ns and self.world.ended is None:
            if self._asleep(lambda: self._tick(at_ns)):
                return
            self._due_ns = -1
            self._step(events.Tick())

    def _perform(self, effect: fx.Effect) -> None:
        world = self.world
        world.host_checks.performs(effect)
        match effect:
            case fx.Send(slot, message) if world.several:
                self._to_host(self._route.get(slot, ""), slot, message)
            case fx.SendHost(host, message):
                self._to_host(host, "", message)
            case fx.StartProcess(slot, role, host) if world.several:
                self._route[slot] = host
                self._to_host(host, "", orders.Start(slot, role).message())
            case fx.KillProcess(slot, host) if world.several:
                self._to_host(host or self._route.get(slot, ""), "", orders.Kill(slot).message())
            case fx.Send(slot, message):
                process = world.processes.get(slot)
                if slot in self._known and process is not None and process.living:
                    received = decode(encode(dict(message)))
                    world.carry("supervisor", slot, partial(process.hear, received))
            case fx.StartProcess(slot, _):
                world.order("start", slot)
            case fx.KillProcess(slot):
                world.order("kill", slot)
            case fx.WriteManifest(epoch, files):
                self._write_manifest(epoch, files)
            case fx.RemoveFiles():
                self._sweep(effect)
            case fx.Answer(to, body) if to in self._known:
                world.carry(self.name, to, partial(world.changes.hear, to, decode(encode(dict(body)))))
            case fx.CommitChange():
                self._commit(effect)
            case fx.EndJob(status, reason):
                world.ended = (status, reason)
            case fx.Note(line):
                world.note(self.name, line)

    def _commit(self, change: fx.CommitChange) -> None:
        """Make the prepared change final, and begin again as the supervisor of the next version
        (`standby.daemon.Daemon._commit`); death may come after each step.
        """
        world, changes = self.world, self.world.changes
        if changes.prepared is None:
            self._perform(fx.Answer(change.to, {"kind": "answer", "ok": False, "error": "change/ has no change"}))
            return
        figures, beats = lasting(self.supervision.view().content()["tasks"]), self.supervision.next_version.beats
        resumed = {
            "kind": "resumed",
            "at_ns": world.clock.now_ns,
            "figures": figures,
            "started_max": change.started_max,
        }
        changes.prepared.append([resumed, *change.processes])
        if changes.commit_step():
            return
        changes.prepared.ready = True
        if changes.commit_step():
            return
        changes.carry_out()
        if changes.commit_step():
            return
        self.supervision = Supervision(world.config, world.blueprint)
        self._decided, self._due_ns = 0, -1
        self._effects.clear()
        world.note(self.name, "the job is its next version")
        self._restore()
        for beat in beats:
            self._step(beat)
        if self.living and not changes.commit_step():
            self._perform(fx.Answer(change.to, {"kind": "answer", "ok": True}))

    def _write_manifest(self, epoch: int, files: Mapping[str, Files]) -> None:
        if self._journal is not None:  # the decision that follows is the manifest
            self._step(events.ManifestWritten(epoch))
            return
        if self.world.clock.now_ns < self.world.disk.full_until_ns:
            self._step(events.ManifestFailed(epoch, str(Unavailable("no space is left"))))
            return
        self.world.disk.manifests[epoch] = {task: tuple(task_files) for task, task_files in files.items()}
        self.world.observer.completed(epoch)
        self._step(events.ManifestWritten(epoch))

    def _sweep(self, order: fx.RemoveFiles) -> None:
        disk = self.world.disk
        if self._journal is not None:
            self.world.shared.sweep(order, self.name)
            return
        for epoch in [e for e in disk.manifests if e < order.manifests_from]:
            del disk.manifests[epoch]
        if self.world.several:
            self.world.shared.sweep(order, self.name)
        for name in list(disk.files):
            if int(name.rsplit("/e", 1)[1][:8]) <= order.through_epoch and name not in order.keep:
                del disk.files[name]


class Agent:
    """Starts, kills and reaps; its knowledge is on disk, so the next one adopts what lives."""

    def __init__(self, world: Simulation, machine: Machine) -> None:
        self.world = world
        self.machine = machine
        self.living = True
        for slot in [s for s in machine.table if not world.processes[s].living or world.processes[s].zombie]:
            self.reap(slot, None)
        self._beat()

    def _beat(self) -> None:
        if not self.living or self.world.ended is not None:
            return
        table, dead = self.machine.table, dict(self.machine.dead)
        living = {slot: self.world.processes[slot].pid for slot in table}
        self._send("agent_beat", slots=living, dead=dead, killed=dict(self.machine.killed))
        self.world.clock.after(self.world.config.heartbeat_ms * MS, self._beat)

    def _send(self, kind: str, **keys: Any) -> None:
        self.world.to_supervisor(AGENT, pack(kind, **keys))

    def take(self, slot: str, message: Mapping[str, Any]) -> None:
        """A message of a supervisor on another machine: there is none."""

    def relay(self, slot: str, data: bytes) -> None:
        """A message of a process to a supervisor on another machine: there is none."""

    def obey(self, kind: str, slot: str) -> None:
        """An order of the supervisor; a repeated one is no second process."""
        world, machine = self.world, self.machine
        if not self.living:
            return
        if kind == "kill":
            process = world.processes.get(slot)
            if slot in machine.table and process is not None:
                machine.killed.setdefault(slot, world.clock.now_ns)
                world.end(process, None)
        elif slot not in machine.table and slot not in machine.dead:
            process = world.spawn(slot, machine)
            machine.table.append(slot)
            self._send("started", slot=slot, pid=process.pid, at_ns=world.clock.now_ns)

    def reap(self, slot: str, status: int | None) -> None:
        """A process of ours has ended."""
        world, machine = self.world, self.machine
        if not self.living or slot not in machine.table:
            return
        machine.table.remove(slot)
        machine.dead[slot] = status
        optional = {"status": status, "killed_ns": machine.killed.get(slot)}
        facts = {name: value for name, value in optional.items() if value is not None}
        self._send("exited", slot=slot, pid=world.processes[slot].pid, at_ns=world.clock.now_ns, **facts)
