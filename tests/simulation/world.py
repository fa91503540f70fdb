"""One simulated run: a job of the production core, its supervisor, and everything around them that can fail.

Same scenario, same run: chance is one generator seeded by the scenario, time is virtual, and `digest` is taken over
everything that happened.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from typing import Any

from causal.channels import wire
from causal.config import JobConfig
from causal.ids import OUTSIDE
from causal.ports import Chain
from causal.records.values import decode, encode
from causal.storage.stored_logs import StoredLogs
from causal.task.activity import PULSE_SUFFIX
from deploy.jobs import versions
from operators.testing.stable_files import StableFiles
from standby.blueprint import Blueprint, Constraint
from standby.leadership.terms import CHECKPOINTS_KEPT
from standby.supervision.effects import Record
from standby.supervision.hosts import LOCAL
from standby.supervision.savepoints import finished
from tests.simulation import host_faults
from tests.simulation.changes import Changes
from tests.simulation.checkers import Observer
from tests.simulation.clockwork import MS, SECOND, Clockwork, Live
from tests.simulation.host import Agent, Supervisor
from tests.simulation.host_agent import HostAgent
from tests.simulation.host_checks import HostChecks
from tests.simulation.jobs import job_of
from tests.simulation.layout import ONE_MACHINE
from tests.simulation.machines import SUPERVISOR, Fabric, Machine
from tests.simulation.network import Network
from tests.simulation.peers import RUN, Disk, Partition, Store, Violated
from tests.simulation.process import Process
from tests.simulation.scenario import OTHER_CODE, Fault, Scenario
from tests.simulation.service import Service
from tests.simulation.shared_store import OBSERVER, SharedStore
from tests.simulation.staging import StagedRows
from tests.simulation.succession import Seat, Terms

SECONDS_MAX = 90
STEPS_MAX = 600_000
NOTES_KEPT = 200
FORGED_INCARNATION = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class Code:
    """One version of the pipeline's code: `digest` names it, versions with the same `rows` give the same rows."""

    digest: int = 0
    rows: int = 0


class Simulation:
    """A run of `scenario`.

    Raises (from `run`):
        Violated: a checker found a broken promise.
    """

    def __init__(self, scenario: Scenario, draw: bool = False) -> None:
        self.scenario = scenario
        self.rng = random.Random(scenario.seed ^ 0x5EED)
        self.clock = Clockwork()
        self.live = Live(self.clock, self.rng)
        self.config = JobConfig(
            run=RUN, name="simulated", pipeline="/nowhere", guarantee=scenario.guarantee,
            sharing_depth=scenario.depth, checkpoint_interval_s=scenario.checkpoint_ms / 1000,
            standbys="hot" if scenario.hot else scenario.standbys, channel_window_bytes=scenario.channel_window_bytes,
            batch_elements_max=scenario.batch_elements, heartbeat_ms=60, heartbeat_timeout_ms=300,
            inflight_memory_bytes_max=scenario.inflight_memory_bytes, crash_loop_max=40,
            key_groups=8, processes=scenario.processes, determinant_flush="background" if scenario.flush else "off",
        )  # fmt: skip
        if scenario.layout is not None:
            timeout_ms, expected = scenario.layout.timeout_ms, len(scenario.layout.hosts)
            self.config = replace(
                self.config, listen="tcp://10.0.0.1:7700", hosts_expected=expected, host_timeout_ms=timeout_ms,
                rebalance_after_s=0.3 if scenario.seed % 2 else 0.0,
            )  # fmt: skip
        if scenario.kept_bytes:
            kept = scenario.kept_bytes
            self.config = replace(self.config, inflight_disk_bytes_max=kept, log_bytes_max=kept)
        self.job = job_of(scenario, self.config)
        self.topology = self.job.topology
        self.layout = scenario.layout or ONE_MACHINE
        self.several = scenario.layout is not None
        constraints = {task: Constraint(host) for task, host in self.layout.pins}
        self.blueprint = Blueprint(self.topology, constraints=constraints)
        self.machines = {name: Machine(name) for name in self.layout.hosts}
        self.disk = Disk() if self.several else self.machines[LOCAL].disk
        """The disk of the supervisor's machine."""
        self.fabric = Fabric(
            self.clock, self.rng, lambda name: self.machines[name].lives if name in self.machines else 0
        )
        self.shared = SharedStore(self.clock, self.rng, self.fabric, self.layout.store_ms)
        self.stable = StableFiles()
        self.journal: list[bytes] = []
        self._checkpoints: deque[bytes] = deque()
        self.processes: dict[str, Process] = {}
        self.ended: tuple[int, str] | None = None
        self.files = self.archive = Code()
        """Code that the files of the pipeline hold, and code that the run has archived (D12)."""
        self.began_ns = 0
        self.notes: deque[str] = deque(maxlen=NOTES_KEPT)
        self.story: list[tuple[int, str, str]] | None = [] if draw else None
        self._digest = blake2b(digest_size=16)
        names = self.topology.tasks
        self.stores: dict[int, Store] = {
            c.id: Store(names[c.source].name, c.carries_requests) for c in self.topology.channels if c.target == OUTSIDE
        }
        self.service = Service(self.rng)
        self.staged: dict[int, StagedRows] = {}
        if scenario.guarantee == "epoch":
            self.staged = {c: StagedRows(store, lambda: self.observer.durable) for c, store in self.stores.items()}
        batch = max(1, scenario.records * scenario.batch_every_ms // (1000 * scenario.input_s))
        self.partitions: dict[int, Partition] = {
            c.id: Partition(c.partition, scenario.records, batch, scenario.batch_every_ms * MS, self.job.make)
            for c in self.topology.channels
            if c.source == OUTSIDE
        }
        self.network = Network(self.clock, self.rng, scenario.latency_us, self._arrived, self._open_at)
        if draw:
            self.network.seen = []
        self.observer = Observer(self)
        self.host_checks = HostChecks(self)
        self._orders: deque[tuple[str, str]] = deque()
        self._held_back: deque[tuple[str, bytes]] = deque()
        self._carried: dict[tuple[str, str], int] = {}
        self.supervisor: Supervisor | None = None
        """The supervisor of the newest term; it may have ended."""
        self.terms = Terms(self, self.layout.successors)
        self.shared.created = self.terms.created
        self.changes = Changes(self)
        self.applied: Counter[str] = Counter()
        """Faults that came before the end, by kind."""

    # -- the run -------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run the job to its end, and then ask the checkers for their verdict."""
        self.begin()
        steps = 0
        limit_ns = self.clock.now_ns + SECONDS_MAX * SECOND
        while self.ended is None:
            steps += 1
            if not self.clock.step() or steps > STEPS_MAX or self.clock.now_ns > limit_ns:
                raise Violated(f"liveness: the job does not end; {self._where_it_stands()}")
        self.observer.end(*self.ended)

    def begin(self) -> None:
        """Start the machines, and schedule the faults."""
        if self.terms.seats:
            self.terms.start()
        else:
            self._start_supervisor()
        for machine in self.machines.values():
            self._power_on(machine)
        for fault in self.scenario.faults:
            self.clock.after(fault.at_ns, lambda fault=fault: self.apply(fault))  # type: ignore[misc]
        self.changes.start()

    def _where_it_stands(self) -> str:
        tasks = [
            f"{p.task.name} {p.task.recovery.state.value} {p.task.cursor.epoch}"
            for p in self.processes.values()
            if p.living and p.task is not None
        ]
        return f"{', '.join(tasks)}; {' | '.join(list(self.notes)[-4:])}"

    @property
    def sinks(self) -> list[Store]:
        """Stores of rows, without those of requests."""
        return [store for store in self.stores.values() if not store.requests]

    @property
    def digest(self) -> str:
        """A hash of everything that happened so far."""
        return self._digest.hexdigest()

    def trace(self, process: Process, event: object, effects: list[Any]) -> None:
        """An event of a task, with what it asked for."""
        facts = (process.slot, type(event).__name__, [type(effect).__name__ for effect in effects])
        self._digest.update(repr((self.clock.now_ns, *facts)).encode())

    def trace_control(self, event: object, effects: list[Any]) -> None:
        """An event of the supervisor."""
        facts = (type(event).__name__, [type(effect).__name__ for effect in effects])
        self._digest.update(repr((self.clock.now_ns, facts)).encode())

    def durable(self, file: tuple[str, int, str]) -> tuple[bytes, ...]:
        """Return the parts of a file that a manifest names, from where every process can read it."""
        if not self.several:
            return self.disk.read(file)
        parts = self.shared.durable(file)
        if parts is None:
            raise Violated(f"files: {file[0]} is named in a manifest, and is not in the shared store")
        return parts

    def stable_logs(self, task: int, up_to: int) -> Mapping[int, bytes]:
        """Return the determinants on stable storage that count for that incarnation of a task, by epoch."""
        if not self.several:
            return self.stable.youngest(task, up_to)
        stored = StoredLogs(self.shared.reached(OBSERVER), self.topology.tasks[task].name, up_to)
        return {delta.epoch: delta.bytes for delta in stored.read()}

    @property
    def decisions(self) -> tuple[Record, ...]:
        """All decisions that are journaled and still matter, oldest first."""
        return tuple(decode(body) for body in self.journal)

    def decided(self, record: Record) -> None:
        """A decision is in the journal, which forgets what it may forget (`standby.storage.journal`)."""
        self.journal.append(encode(dict(record)))
        self.observer.decided(record)
        self.host_checks.decided(record)
        if record["kind"] == "resumed":
            self.host_checks.resumed()
        if record["kind"] == "checkpoint":
            if self.terms.seats:
                self.disk.manifests[record["epoch"]] = record["files"]
                self.observer.completed(record["epoch"])
            self._checkpoints.append(self.journal[-1])
            if len(self._checkpoints) > CHECKPOINTS_KEPT:
                self.journal.remove(self._checkpoints.popleft())

    def replace_journal(self, bodies: list[bytes]) -> None:
        """The journal of another version has been moved into place."""
        self.journal = list(bodies)
        self._checkpoints = deque(body for body in bodies if decode(body)["kind"] == "checkpoint")

    def is_of_next(self, slot: str) -> bool:
        """Return whether a process was started for a next version that is not the current one."""
        return self.supervisor is not None and self.supervisor.supervision.next_version.knows(slot)

    def last_reported(self, task: str, figure: str) -> float:
        """Return a task's figure as the supervisor reports it."""
        if self.supervisor is None:
            raise Violated("end: there is no supervisor")
        reported = self.supervisor.supervision.figures.of(task).get(figure, 0)
        return 0 if isinstance(reported, dict) else reported

    def note(self, who: str, line: str) -> None:
        """A line of a process's log."""
        self.notes.append(f"{self.clock.now_ns / MS:.2f} {who}: {line}")
        self._digest.update(line.encode())

    def add_to_story(self, who: str, what: str) -> None:
        """Something that a drawing shows."""
        if self.story is not None:
            self.story.append((self.clock.now_ns, who, what))

    def outside(self) -> bytes:
        """Return a live answer of the outside world: never the same twice."""
        return self.rng.randbytes(6)

    # -- processes -----------------------------------------------------------------------------------

    def spawn(self, slot: str, machine: Machine) -> Process:
        """Return a new process; it takes a while to come up."""
        process = Process(self, slot, 1000 + len(self.processes), machine)
        self.processes[slot] = process
        process.paused_until_ns = self.clock.now_ns + self.rng.randint(50, 200) * MS
        self.add_to_story(slot, "start")
        return process

    def end(self, process: Process, status: int | None) -> None:
        """The process is gone, by a signal (status None) or on its own."""
        if not process.living:
            return
        process.living = False
        self.add_to_story(process.slot, "end" if status == 0 else "death")
        self.observer.died(process)
        agent = process.machine.agent
        if agent is not None and agent.living:
            self.clock.after(self.rng.randint(200_000, 3 * MS), lambda: self._reaped(process, status))

    def _reaped(self, process: Process, status: int | None) -> None:
        agent = process.machine.agent
        if agent is not None and agent.living:
            agent.reap(process.slot, status)

    def _arrived(self, slot: str, link: bytes, frame: tuple[bytes, ...]) -> None:
        process = self.processes.get(slot)
        if process is not None and process.living and self._heard(process, link, frame):
            process.receive(link, frame)

    def _heard(self, process: Process, link: bytes, frame: tuple[bytes, ...]) -> bool:
        """Return whether a frame is of the host on which its task was placed (`causal.network.transport`)."""
        if not self.several or not self.layout.keys or not link:
            return True
        sender = self.processes.get(self.network.dialler(link))
        if sender is None or sender.machine is process.machine:
            return True
        channel = wire.channel_of(frame[0])
        return channel is not None and process.links.placed(self.topology.channels[channel].source, sender.machine.name)

    def _open_at(self, source: str, target: str) -> int:
        """Return the time from which frames pass between two processes."""
        sender, receiver = self.processes.get(source), self.processes.get(target)
        if not self.several or sender is None or receiver is None:
            return 0
        return self.fabric.open_at(sender.machine.name, receiver.machine.name)

    # -- the control plane -----------------------------------------------------------------------------

    def carry(self, sender: str, receiver: str, arrive: Callable[[], object], late_ns: int = 0) -> None:
        """Deliver a message of the control plane, after earlier ones of the same direction."""
        earliest_ns = self.clock.now_ns + self.rng.randint(20_000, 2 * MS) + late_ns
        at_ns = self._carried[sender, receiver] = max(earliest_ns, self._carried.get((sender, receiver), 0))
        self.clock.at(at_ns, arrive)

    def report(self, process: Process, kind: str, facts: Mapping[str, Any]) -> None:
        """A message of a worker to whatever supervisor there is when it arrives."""
        if not process.zombie and self.clock.now_ns >= process.mute_until_ns:
            self._send_up(process, process.slot, encode({"kind": kind, "slot": process.slot, **facts}))

    def report_pulse(self, process: Process) -> None:
        """The second heartbeat of a worker whose loop is busy."""
        if not process.zombie and self.clock.now_ns >= process.mute_until_ns:
            facts = {"pid": process.pid, "endpoint": process.endpoint}
            facts |= {"remote": process.remote} if process.remote else {}
            data = encode({"kind": "pulse", "slot": process.slot, **facts})
            self._send_up(process, process.slot + PULSE_SUFFIX, data)

    def _send_up(self, process: Process, sender: str, data: bytes) -> None:
        """Send a message to the supervisor, or to the agent of the host, which relays it."""
        if not self.several:
            self.to_supervisor(sender, data)
            return
        machine, life = process.machine, process.machine.lives

        def arrive() -> None:
            if machine.agent is not None and machine.agent.living and machine.lives == life:
                machine.agent.relay(sender, data)

        self.carry(sender, machine.who, arrive)

    def to_supervisor(self, sender: str, data: bytes, late_ns: int = 0) -> None:
        """Messages to a supervisor that is not there wait in the sender's socket, or are lost."""

        def arrive() -> None:
            if self.supervisor is not None and self.supervisor.living:
                self.supervisor.receive(sender, data)
            elif self.rng.random() < 0.5:
                self._held_back.append((sender, data))

        self.carry(sender, "supervisor", arrive, late_ns)

    def order(self, kind: str, slot: str) -> None:
        """An order for the agent, kept until there is one."""
        self._orders.append((kind, slot))
        self.deliver_orders()

    def deliver_orders(self) -> None:
        """Make the agent obey waiting orders."""
        agent = self.machines[LOCAL].agent if not self.several else None
        while self._orders and agent is not None and agent.living:
            kind, slot = self._orders.popleft()
            self.carry("supervisor", "agent", partial(agent.obey, kind, slot))

    def _start_supervisor(self) -> None:
        if self.ended is None and (self.supervisor is None or not self.supervisor.living):
            self.supervisor = Supervisor(self)
            self.supervisor.begin()
            self.add_to_story("supervisor", "start")
            messages, self._held_back = self._held_back, deque()
            for sender, data in messages:
                self.to_supervisor(sender, data)

    def boot(self, machine: Machine) -> None:
        """Start the agent of a machine, where none lives."""
        if (
            self.ended is None
            and (machine.up or not self.several)
            and (machine.agent is None or not machine.agent.living)
        ):
            machine.agent = HostAgent(self, machine) if self.several else Agent(self, machine)
            self.add_to_story(machine.who, "start")

    def supervisors(self) -> list[str]:
        """Return the names of all supervisors, to each of which hosts send."""
        return list(self.terms.seats) or [SUPERVISOR]

    def listening(self, name: str) -> Supervisor | None:
        """Return the supervisor of that name, if it leads or takes itself for the leader."""
        return self.terms.seats[name].supervisor if self.terms.seats else self.supervisor

    def kill_supervisor(self, seat: Seat | None = None) -> None:
        """It dies, and `causal run` starts another; what it wanted of the agent and had not sent dies with it."""
        if self.terms.seats:
            (seat or self.terms.aimed_at(0)).die(self.rng.randint(30, 200) * MS)
        elif self.supervisor is not None and self.supervisor.living:
            self.supervisor.living = False
            self._orders.clear()
            self.add_to_story("supervisor", "death")
            self.clock.after(self.rng.randint(30, 200) * MS, self._start_supervisor)

    def kill_agent(self, machine: Machine) -> None:
        """It dies alone; its processes live on."""
        if machine.agent is not None and machine.agent.living:
            machine.agent.living = False
            self.add_to_story(machine.who, "death")
            self.clock.after(self.rng.randint(30, 200) * MS, lambda: self.boot(machine))

    # -- faults --------------------------------------------------------------------------------------

    def apply(self, fault: Fault) -> None:
        """Something goes wrong now."""
        if self.ended is None:
            self.applied[fault.kind] += 1
            self.add_to_story("world", fault.kind)
            _FAULTS[fault.kind](self, fault)

    def tasks_running(self) -> list[Process]:
        """Processes that are tasks, in the order of the tasks."""
        tasks = [p for p in self.processes.values() if p.living and not p.zombie and p.task is not None]
        return sorted(tasks, key=lambda process: (process.membership.name or "", process.slot))

    def _victims(self, fault: Fault) -> list[Process]:
        running = self.tasks_running()
        count = 1 + fault.extent % max(1, len(running)) if fault.kind in ("several", "host") else 1
        return [running[(fault.who + place) % len(running)] for place in range(min(count, len(running)))]

    def _kill(self, fault: Fault) -> None:
        for process in self._victims(fault):
            self.end(process, None)

    def _kill_mid(self, fault: Fault) -> None:
        for process in self._victims(fault):
            process.dies_after = fault.extent % 12

    def _kill_standby(self, fault: Fault) -> None:
        standbys = [p for p in self.processes.values() if p.living and p.task is None]
        if standbys:
            self.end(standbys[fault.who % len(standbys)], None)

    def _kill_host(self, fault: Fault) -> None:
        self.kill_agent(self.machine_of(fault))
        self._kill(fault)

    def machine_of(self, fault: Fault) -> Machine:
        """Return the machine that a fault is about."""
        return list(self.machines.values())[fault.who % len(self.machines)]

    def _kill_everything(self, fault: Fault) -> None:
        for process in list(self.processes.values()):
            self.end(process, None)
        for machine in self.machines.values():
            host_faults.power_off(self, machine)
        if self.supervisor is not None:
            self.supervisor.living = False
        for seat in self.terms.seats.values():
            seat.die(None)
        self._orders.clear()
        self._held_back.clear()
        for staged in self.staged.values():
            staged.lose_power()
        self.changes.carry_out()
        if self.changes.command is not None and fault.who % 2:
            self.changes.command.die()
        if finished(map(decode, self.journal)):
            self.ended = (0, "")  # `causal run --resume` says so, and starts nothing (42040878)
            return
        if self.terms.seats:
            self.clock.after(300 * MS, self.terms.resume)
        else:
            self.decided({"kind": "resumed", "at_ns": self.clock.now_ns})
            self.clock.after(300 * MS, self._start_supervisor)
        for machine in self.machines.values():
            self.clock.after(310 * MS, partial(self._power_on, machine))

    def _power_on(self, machine: Machine) -> None:
        if self.several:
            host_faults.power_on(self, machine)
        else:
            self.boot(machine)

    def host_of(self, slot: str) -> str | None:
        """Return the host of a process; None if there is no such process."""
        process = self.processes.get(slot)
        return None if process is None else process.machine.name

    def _supervisor_dies(self, fault: Fault) -> None:
        if self.supervisor is not None and self.supervisor.living and fault.extent % 2:
            self.supervisor.dies_after = fault.extent % 7
        else:
            self.kill_supervisor()

    def _cut(self, fault: Fault) -> None:
        connections = self.network.open
        if connections:
            self.network.cut(connections[fault.who % len(connections)], fault.extent % 50 * MS)

    def _partition(self, fault: Fault) -> None:
        victims = frozenset(process.slot for process in self._victims(fault))
        for connection in self.network.of(victims):
            self.network.cut(connection, fault.extent * MS)

    def _pause(self, fault: Fault) -> None:
        for process in self._victims(fault):
            process.paused_until_ns = self.clock.now_ns + 2 * fault.extent * MS

    def _disk_of(self, fault: Fault) -> Disk:
        disks = [self.disk, *(machine.disk for machine in self.machines.values() if self.several)]
        return disks[fault.who % len(disks)]

    def _disk_slow(self, fault: Fault) -> None:
        self._disk_of(fault).slow_until_ns = self.clock.now_ns + fault.extent * MS

    def _disk_full(self, fault: Fault) -> None:
        self._disk_of(fault).full_until_ns = self.clock.now_ns + fault.extent * MS

    def _store_away(self, fault: Fault) -> None:
        store = self.stores[sorted(self.stores)[fault.who % len(self.stores)]]
        store.unavailable_until_ns = self.clock.now_ns + fault.extent * MS

    def _clock_jump(self, fault: Fault) -> None:
        self.live.offset_ns += (fault.extent - 200) * 100 * MS

    def _false_exit(self, fault: Fault) -> None:
        """The agent takes a process for dead that lives: a zombie, until it learns that it was replaced."""
        for process in self._victims(fault):
            agent = process.machine.agent
            if agent is not None and agent.living:
                process.zombie = True
                self.observer.died(process)
                agent.reap(process.slot, None)

    def _garble(self, fault: Fault) -> None:
        """A bit flips on the way: in fewer frames than a task takes for a peer that cannot do better."""
        connections = self.network.open
        if connections:
            connections[fault.who % len(connections)].garbled = 1 + fault.extent % 2

    def _mute(self, fault: Fault) -> None:
        """All messages between a task and the supervisor are lost for a while."""
        for process in self._victims(fault):
            process.mute_until_ns = self.clock.now_ns + 2 * fault.extent * MS

    def _forge(self, fault: Fault) -> None:
        """Send frames of a forger that knows the job's fingerprint: HELLO as a high incarnation, and FENCED."""
        for process in self._victims(fault):
            if process.task is not None and process.task.channels.network:
                channels = process.task.channels.network
                channel = channels[fault.who % len(channels)]
                header = wire.Header(wire.HELLO, process.task.exchange.job, channel.id, FORGED_INCARNATION)
                hello = wire.Hello(1, 0, 1 << 40, 0, False)
                connection = self.network.dial("forger", process.slot)
                self.network.send(connection, (header.pack(), hello.pack()))
                for output in process.task.channels.downstream:
                    fenced = wire.Header(wire.FENCED, process.task.exchange.job, output, FORGED_INCARNATION)
                    self.network.send(connection, (fenced.pack(),))

    def _newer_run(self, fault: Fault) -> None:
        for store in self.sinks:
            store.supersede()

    def _edit(self, fault: Fault) -> None:
        self.files = Code(self.files.digest + 1, self.files.digest + 1)

    def _resume_with_other_code(self, fault: Fault) -> None:
        """Everything is killed; the user has edited the files, and says or does not say which code is meant."""
        self._kill_everything(fault)
        if self.ended is not None:
            return
        digest = self.files.digest + 1
        self.files = Code(digest, digest if fault.extent & 1 else self.archive.rows)
        choice = (None, versions.KEPT, versions.NEW)[fault.who % 3]
        code = versions.code_after_resume(self.files.digest != self.archive.digest, False, choice)
        if code is None:  # refused, and nothing has changed: asked for with the archived code then
            code = versions.code_after_resume(self.files.digest != self.archive.digest, False, versions.KEPT)
        if code == versions.NEW:
            if choice == versions.NEW and self.files.rows != self.archive.rows:
                self.observer.other_code()
            self.archive = self.files

    def code(self, task: int) -> Chain:
        """Return the chain of a task as a process of this run loads it: from the archive of the run (D12)."""
        return self.job.chain(task, self.outside, self.archive.rows)

    def _rot_spill(self, fault: Fault) -> None:
        for process in self._victims(fault):
            process.disk.rotten = True


_FAULTS: dict[str, Callable[[Simulation, Fault], None]] = {
    "kill": Simulation._kill,
    "kill_mid": Simulation._kill_mid,
    "kill_standby": Simulation._kill_standby,
    "several": Simulation._kill,
    "host": Simulation._kill_host,
    "everything": Simulation._kill_everything,
    "supervisor": Simulation._supervisor_dies,
    "agent": lambda world, fault: world.kill_agent(world.machine_of(fault)),
    "cut": Simulation._cut,
    "partition": Simulation._partition,
    "pause": Simulation._pause,
    "disk_slow": Simulation._disk_slow,
    "disk_full": Simulation._disk_full,
    "store_away": Simulation._store_away,
    "clock_jump": Simulation._clock_jump,
    "false_exit": Simulation._false_exit,
    "garble": Simulation._garble,
    "mute": Simulation._mute,
    "rot_spill": Simulation._rot_spill,
    "forge": Simulation._forge,
    "newer_run": Simulation._newer_run,
    "edit": Simulation._edit,
    OTHER_CODE: Simulation._resume_with_other_code,
    **host_faults.FAULTS,
}
