"""The peers of a simulated process: what its task has instead of sockets, disk, stores, readers and a service outside.

Stores, partitions and the disk may be unavailable, slow or full; a write that a death interrupts never happened.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from causal.effects import (
    AppendStable,
    BeginStable,
    Effect,
    ReadSegment,
    ReadStable,
    RemoveSegments,
    SpillSegment,
    TruncateStable,
    WriteSnapshot,
)
from causal.errors import Unavailable
from causal.events import Event, ResponseReceived, SegmentFailed, SegmentRead, SegmentWritten, SnapshotWritten
from causal.ids import OUTSIDE, TaskIndex
from causal.ports import Bundle, Request, SinkStore, StoreState, WithdrawPoint
from causal.task.performer import DiskEffect, Peers, Performer, StoreUnavailable
from causal.task.task import TaskProtocol
from operators.runtime.membership import Reported
from operators.source import Read
from tests.simulation.clockwork import MS
from tests.simulation.network import Connection
from tests.simulation.peers import Store, Violated
from tests.simulation.shared_store import SimulatedUploads
from tests.simulation.stable import StableShell
from tests.simulation.staging import StagedRows

if TYPE_CHECKING:
    from tests.simulation.process import Process

T = TypeVar("T")

SNAPSHOT_TRIES_MAX = 5


class Died(Exception):
    """SIGKILL came between two effects."""


class Gone(Exception):
    """The life after this one has completed a checkpoint: what a reader is to read is not there any more."""


class Shell(Performer):
    """The effects of one task, until SIGKILL comes."""

    def __init__(self, process: Process, task: TaskProtocol, handle: Callable[[Event], list[Effect]]) -> None:
        world, own = process.world, TaskIndex(process.membership.task or 0)
        outputs = [channel.id for channel in world.topology.outputs(own) if channel.target == OUTSIDE]
        inputs = [channel.id for channel in world.topology.inputs(own) if channel.source == OUTSIDE]
        super().__init__(task, world.config.run, Peers(
            process.links,
            process.disk,
            {channel: _store_of(process, channel) for channel in outputs},
            {channel: SimulatedReader(process, task, channel) for channel in inputs},
            SimulatedRequests(process, task),
            Calls(),
            lambda kind, facts: process.report(Reported(kind, facts)),
            lambda: world.clock.now_ns,
        ), handle)  # fmt: skip
        self._process = process

    def _performed(self, effect: Effect) -> bool:
        process = self._process
        if process.dies_after is not None:
            process.dies_after -= 1
            if process.dies_after < 0:
                raise Died
        return super()._performed(effect)


class Links:
    """The connections that a process has dialled, and those that lead to it."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._network = process.world.network
        self._slot = process.slot
        self._dialled: dict[int, Connection] = {}
        self._hosts: dict[int, str] = {}
        """Task on another host → that host, as the supervisor has named it."""

    def place(self, task: int, endpoint: str) -> None:
        """Record where a neighbour is, so that it is heard from there alone."""
        host, at, _ = endpoint.partition("://")[2].rpartition("@")
        if at:
            self._hosts[task] = host
        else:
            self._hosts.pop(task, None)

    def placed(self, task: int, host: str) -> bool:
        """Return whether the supervisor has named that host for a task."""
        return self._hosts.get(task) == host

    def dial(self, task: int, endpoint: str) -> None:
        """Connect to a neighbour downstream; an older connection to it is closed."""
        old = self._dialled.get(task)
        if old is not None:
            old.closed = True
        slot = endpoint.partition("://")[2].rpartition("@")[2]
        self._dialled[task] = self._network.dial(self._slot, slot)
        self._dialled[task].closed = self._revoked(slot)

    def _revoked(self, slot: str) -> bool:
        """Return whether no connection can be opened to a process: the key of one of the hosts is revoked."""
        world = self._process.world
        ends = (self._process.machine, world.machines.get(world.host_of(slot) or ""))
        return ends[0] is not ends[1] and any(end is not None and end.revoked for end in ends)

    def send(self, target: int, parts: list[bytes]) -> None:
        connection = self._dialled.get(target)
        if connection is not None:
            connection.closed = connection.closed and self._revoked(connection.target)
            self._network.send(connection, tuple(parts))

    def reply(self, link: bytes, parts: list[bytes]) -> None:
        self._network.reply(self._slot, link, tuple(parts))


class Calls:
    """Calls of stores: one that fails is tried again in the next round, forever."""

    def make(self, attempt: Callable[[], T]) -> T:
        return attempt()


class ReachedStore:
    """A store as one process reaches it."""

    def __init__(self, process: Process, channel: int) -> None:
        self._process = process
        self._channel = channel

    def _reach(self) -> Store:
        world = self._process.world
        store = world.stores[self._channel]
        if not store.reachable(world.clock.now_ns):
            raise StoreUnavailable(store.task)
        return store

    def open(self, task: str, run: str, incarnation: int) -> StoreState:
        return self._reach().open(incarnation)

    def last_bundle(self) -> StoreState:
        return self._reach().account.store_state()

    def write(self, bundle: Bundle) -> None:
        store = self._reach()
        store.write(bundle)
        self._process.world.observer.wrote(store, self._channel, bundle)

    def truncate(self, epoch: int) -> None:
        store, durable = self._reach(), self._process.world.observer.durable
        if epoch > durable:
            raise Violated(
                f"truncation: {store.task} lets its store drop what is before {epoch}, checkpoint {durable} is the "
                "last complete one"
            )
        store.truncate(epoch, self._incarnation)

    def withdraw(self, mark: WithdrawPoint) -> StoreState:
        return self._reach().withdraw(mark, self._incarnation)

    def close(self) -> None:
        """Keep everything."""

    @property
    def _incarnation(self) -> int:
        return self._process.membership.incarnation


class StagingReachedStore(ReachedStore):
    """The same with rows that wait for a checkpoint; each step of a commit is tried on its own."""

    @property
    def _staged(self) -> StagedRows:
        return self._process.world.staged[self._channel]

    def open(self, task: str, run: str, incarnation: int) -> StoreState:
        store = self._reach()
        self._staged.open(incarnation)
        return store.account.store_state()

    def write(self, bundle: Bundle) -> None:
        self._staged.write(bundle)

    def stage(self, epoch: int) -> None:
        self._staged.stage(epoch, self._incarnation)

    def commit(self, epoch: int) -> bool:
        self._reach()
        if self._staged.commit(epoch, self._incarnation):
            raise StoreUnavailable("more is left to commit")
        return False

    def staged(self) -> tuple[int, int]:
        return 0, 0

    def discard(self, epoch: int) -> StoreState:
        return self._staged.discard(epoch, self._incarnation)


def _store_of(process: Process, channel: int) -> SinkStore:
    staging = channel in process.world.staged
    return StagingReachedStore(process, channel) if staging else ReachedStore(process, channel)


class SimulatedReader:
    """A partition as one process reads it."""

    def __init__(self, process: Process, task: TaskProtocol, channel: int) -> None:
        self._process = process
        self._world = process.world
        self._task = task
        self._partition = process.world.partitions[channel]

    def read(self, position: int, count_max: int) -> Read | None:
        partition, now_ns = self._partition, self._world.clock.now_ns
        self._world.began_ns = self._world.began_ns or now_ns
        ready = min(partition.available(now_ns, self._world.began_ns) - position, count_max)
        if ready <= 0 and position < partition.records:
            return None
        count = self._world.rng.randint(1, ready) if ready > 0 else 0
        if position < partition.low and self._world.observer.superseded(self._task):
            raise Gone(f"position {position} is gone: the life after this one has completed a checkpoint")
        return Read(partition.read(position, count), now_ns, position + count == partition.records)

    def ready_in_s(self, position: int) -> float:
        """Return 0: the process looks in each of its rounds."""
        return 0.0

    def completed(self, position: int) -> None:
        self._partition.completed(position)

    def close(self) -> None:
        """Keep everything."""


class SimulatedRequests:
    """The outside service as one process reaches it."""

    def __init__(self, process: Process, task: TaskProtocol) -> None:
        self._process = process
        self._task = task

    def ask(self, requests: Sequence[Request]) -> None:
        for request in requests:
            self._put(request, 0)

    def _put(self, request: Request, failures: int) -> None:
        """Put a request, which arrives even if its process dies; the outside answers at any time, sometimes twice."""
        process, task = self._process, self._task
        world, rng = process.world, process.world.rng

        def arrive() -> None:
            body = world.service.put(request.body, failures)
            if body is None:
                world.clock.after(rng.randint(1, 30) * MS, again)
                return
            answer = ResponseReceived(request.operator, request.number, body)
            for _ in range(rng.choice((1, 1, 1, 2))):
                world.clock.after(rng.randint(1, 40) * MS, lambda: process.answer_later(task, answer))

        def again() -> None:
            if process.living and process.task is task:
                self._put(request, failures + 1)

        world.clock.after(rng.randint(20_000, 3 * MS), arrive)


class SimulatedDisk:
    """The disk as one process uses it, whatever task it runs.

    Attributes:
        rotten: the disk gives back spilled segments damaged.
    """

    def __init__(self, process: Process) -> None:
        self.rotten = False
        self._process = process
        self._world = process.world
        self._segments: dict[int, dict[int, bytes]] = {}
        self._uploads = SimulatedUploads(process)
        self._stable = StableShell(process, lambda event: process.answer_later(process.task, event), self._uploads)

    def clear(self) -> None:
        """The task restarts in this process."""
        self._stable.finish()
        self._segments.clear()

    def ask(self, effect: DiskEffect) -> None:
        if isinstance(effect, ReadStable | BeginStable | AppendStable | TruncateStable):
            self._stable.ask(effect)
        else:
            _OPERATIONS[type(effect)](self, effect)

    def _soon(self, action: Callable[[], None]) -> None:
        slow = self._world.clock.now_ns < self._process.machine.disk.slow_until_ns
        self._world.clock.after(self._world.rng.randint(20_000, 200 * MS if slow else 3 * MS), action)

    def _write_snapshot(self, effect: WriteSnapshot) -> None:
        process, task, tried = self._process, self._process.task, 0
        member = process.membership
        name = f"checkpoints/{member.name}/e{effect.epoch:08d}-i{member.incarnation}.snap"

        def write() -> None:
            nonlocal tried
            if not process.living:
                return  # torn: what was written aside is never looked at
            try:
                file = process.machine.disk.write(name, effect.parts, self._world.clock.now_ns)
            except Unavailable as problem:
                tried += 1
                if tried == SNAPSHOT_TRIES_MAX:
                    process.fail(problem)
                else:
                    self._world.clock.after(200 * MS * tried, write)
                return
            written = SnapshotWritten(effect.epoch, file)
            if self._world.several:
                self._uploads.put(name, tuple(effect.parts), lambda: process.answer_later(task, written))
            else:
                process.answer_later(task, written)

        self._soon(write)

    def _spill(self, effect: SpillSegment) -> None:
        process, task = self._process, self._process.performing
        payloads = {entry.first: bytes(entry.payload or b"") for entry in effect.entries}
        first, count = effect.entries[0].first, effect.entries[-1].next - effect.entries[0].first

        def write() -> None:
            if process.performing is not task:
                return
            if self._world.clock.now_ns < process.machine.disk.full_until_ns:
                process.answer_later(task, SegmentFailed(effect.channel, effect.segment))
                return
            self._segments[effect.segment] = payloads
            process.answer_later(task, SegmentWritten(effect.channel, effect.segment, first, count))

        self._soon(write)

    def _load_segment(self, effect: ReadSegment) -> None:
        """Read the present content: one thread performs what a task asks of its disk, in order."""
        process, task, payloads = self._process, self._process.task, self._segments.get(effect.segment)
        if payloads is None:
            raise Violated(f"spill: segment {effect.segment} of {process.slot} is read after it was removed")

        def answer() -> None:
            if process.task is not task or not process.living:
                return
            if self.rotten:
                process.fail(Unavailable(f"segment {effect.segment} does not match its digest"))
                return
            process.answer_later(task, SegmentRead(effect.channel, effect.segment, payloads))

        self._soon(answer)

    def _remove_segments(self, effect: RemoveSegments) -> None:
        for segment in effect.segments:
            self._segments.pop(segment, None)


_OPERATIONS: dict[type, Callable[[SimulatedDisk, Any], None]] = {
    WriteSnapshot: SimulatedDisk._write_snapshot,
    SpillSegment: SimulatedDisk._spill,
    ReadSegment: SimulatedDisk._load_segment,
    RemoveSegments: SimulatedDisk._remove_segments,
}
