"""The tasks of one job in this process: the links between them, deaths, and successive incarnations.

Nothing happens here on its own. A subclass decides when a frame arrives, which task runs and which task dies. It also
provides replacements for a task's disk, stores, readers and the outside world. The effects of tasks are performed as in
a worker.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from causal.config import JobConfig
from causal.effects import Effect, ReadSegment, RemoveSegments, SpillSegment, WriteRecording
from causal.errors import invariant
from causal.events import Event, FrameReceived, PeerDown, PeerUp, SegmentRead, SegmentWritten
from causal.ids import OUTSIDE, TaskIndex
from causal.ports import SinkStore
from causal.task.performer import Disk, DiskEffect, Peers, Performer, Reader, Requests
from causal.task.task import TaskProtocol
from causal.topology import Topology

T = TypeVar("T")

NEVER_NS = 1 << 62
"""A time that no clock reaches."""

Ends = tuple[int, int, int, int]
"""The two ends of a link: the sender's (task, incarnation), then the receiver's."""


@dataclass(slots=True, kw_only=True)
class Process:
    """An incarnation of a task.

    Attributes:
        dialled: the incarnation of each neighbour to which the process has been introduced.
    """

    index: int
    incarnation: int
    protocol: TaskProtocol
    dialled: dict[int, int] = field(default_factory=dict)
    performer: Performer = field(init=False)

    @property
    def life(self) -> tuple[int, int]:
        """The task and its incarnation."""
        return self.index, self.incarnation


P = TypeVar("P", bound=Process)


class Cluster(ABC, Generic[P]):
    """The tasks of a topology, in memory.

    Attributes:
        now_ns: the time shown by both the wall clock and the monotonic clock.
        processes: the live processes, by (task, incarnation).
        incarnations: the newest incarnation of each task; 0 before its first.
        links: the frames in transit.
        asked, complete: the last checkpoint requested, and the last one completed.
    """

    def __init__(self, topology: Topology, config: JobConfig) -> None:
        self.topology = topology
        self.config = config
        self.now_ns = 0
        self.processes: dict[tuple[int, int], P] = {}
        self.incarnations = dict.fromkeys(range(len(topology.tasks)), 0)
        self.links: dict[Ends, deque[list[bytes]]] = {}
        self.asked = self.complete = 0
        self._waiting: deque[tuple[P, Callable[[], None]]] = deque()
        self._acting = False

    def wall_ns(self) -> int:
        """Return the time that a live task reads from the clock."""
        return self.now_ns

    # -- what a subclass provides ----------------------------------------------------------------------

    @abstractmethod
    def disk(self, process: P) -> Disk:
        """Return the disk of a task."""

    @abstractmethod
    def store(self, process: P, channel: int) -> SinkStore:
        """Return a sink task's store, as accessed by this process."""

    @abstractmethod
    def reader(self, process: P, channel: int) -> Reader:
        """Return the reader of a partition."""

    @abstractmethod
    def requests(self, process: P) -> Requests:
        """Return the outside world to which a task sends requests."""

    @abstractmethod
    def reported(self, process: P, kind: str, facts: dict[str, Any]) -> None:
        """Process a report for the control plane (see `causal.task.performer.Peers`)."""

    def handled(self, process: P, event: Event) -> Sequence[Effect]:
        """Make a task handle an event, and return its effects."""
        return process.protocol.handle(event, self.now_ns) if self.lives(process) else ()

    def act(self, process: P, action: Callable[[], None]) -> None:
        """Perform an action of a live process."""
        action()

    def settled(self) -> None:
        """Perform any work that follows once all waiting events have been performed."""

    # -- tasks -----------------------------------------------------------------------------------------

    def current(self, index: int) -> P | None:
        """Return the newest incarnation of a task if it is alive, or else None."""
        return self.processes.get((index, self.incarnations[index]))

    def lives(self, process: P) -> bool:
        """Return whether the process is alive."""
        return self.processes.get(process.life) is process

    def add(self, process: P) -> None:
        """Add an incarnation of a task, which becomes the newest one."""
        self.incarnations[process.index] = process.incarnation
        self.processes[process.life] = process
        own = TaskIndex(process.index)
        peers = Peers(
            Links(self, process),
            self.disk(process),
            {c.id: self.store(process, c.id) for c in self.topology.outputs(own) if c.target == OUTSIDE},
            {c.id: self.reader(process, c.id) for c in self.topology.inputs(own) if c.source == OUTSIDE},
            self.requests(process),
            Once(),
            partial(self.reported, process),
            lambda: self.now_ns,
        )
        process.performer = Performer(process.protocol, self.config.run, peers, partial(self.handled, process))

    def introduce(self, process: P) -> None:
        """Announce a process and its neighbours to each other."""
        own = TaskIndex(process.index)
        for other in self.topology.upstream(own):
            self.introduce_to(self.current(other), process)
            self.introduce_to(process, self.current(other))
        for other in self.topology.downstream(own):
            self.introduce_to(process, self.current(other))
            self.introduce_to(self.current(other), process)

    def introduce_to(self, process: P | None, peer: P | None) -> None:
        """Announce a neighbour to a process, unless either is dead or the process already knows the neighbour."""
        if process is not None and peer is not None and process.dialled.get(peer.index) != peer.incarnation:
            process.dialled[peer.index] = peer.incarnation
            self.feed(process, PeerUp(TaskIndex(peer.index), peer.incarnation))

    def forget(self, process: P) -> None:
        """Drop a process that has died and the frames on their way to it."""
        del self.processes[process.life]
        for ends in [ends for ends in self.links if ends[2:] == process.life]:
            del self.links[ends]

    def announce_death(self, process: P) -> None:
        """Announce a death to the upstream neighbours."""
        for other in self.topology.upstream(TaskIndex(process.index)):
            neighbour = self.current(other)
            if neighbour is not None:
                self.feed(neighbour, PeerDown(TaskIndex(process.index), process.incarnation))

    def sources(self) -> list[P]:
        """Return the live source tasks, which begin checkpoints."""
        processes = [self.current(index) for index in self.incarnations if self.topology.is_source(TaskIndex(index))]
        return [process for process in processes if process is not None]

    # -- events and frames -----------------------------------------------------------------------------

    def feed(self, process: P, event: Event) -> None:
        """Pass an event to a task; its effects are performed before any later event of any task."""
        self._queue(process, partial(process.performer.feed, event))

    def read_again(self, process: P) -> None:
        """Repeat the reads of a process that have not returned anything yet."""
        self._queue(process, partial(process.performer.read_again, NEVER_NS))

    def _queue(self, process: P, action: Callable[[], None]) -> None:
        """Perform an action of a process, after any actions that are already waiting."""
        self._waiting.append((process, action))
        if self._acting:
            return
        self._acting = True
        try:
            while self._waiting:
                target, next_action = self._waiting.popleft()
                if self.lives(target):
                    self.act(target, next_action)
        finally:
            self._acting = False
        self.settled()

    def transmit(self, process: P, target: int, incarnation: int, parts: list[bytes]) -> None:
        """Send a frame; if it is addressed to a dead incarnation, drop it."""
        if (target, incarnation) in self.processes:
            self.links.setdefault((*process.life, target, incarnation), deque()).append(parts)

    def deliver(self, ends: Ends) -> None:
        """Deliver the oldest frame on a link."""
        parts = self.links[ends].popleft()
        source, incarnation, target, _ = ends
        link = f"{source}/{incarnation}".encode() if source in self.topology.upstream(TaskIndex(target)) else b""
        process = self.processes.get(ends[2:])
        if process is not None:
            self.feed(process, FrameReceived(link, parts))


class Links(Generic[P]):
    """The links of one process."""

    def __init__(self, cluster: Cluster[P], process: P) -> None:
        self._cluster = cluster
        self._process = process

    def send(self, target: int, parts: list[bytes]) -> None:
        self._cluster.transmit(self._process, target, self._process.dialled[target], parts)

    def reply(self, link: bytes, parts: list[bytes]) -> None:
        target, incarnation = map(int, link.split(b"/"))
        self._cluster.transmit(self._process, target, incarnation, parts)


class Once:
    """Calls stores, assuming that they are always available."""

    def make(self, attempt: Callable[[], T]) -> T:
        return attempt()


class Segments:
    """The in-flight segments of one task, which exist as long as its process is alive.

    Args:
        answer: called with each answer.
    """

    def __init__(self, answer: Callable[[Event], None]) -> None:
        self.answer = answer
        self.segments: dict[int, dict[int, bytes]] = {}

    def ask(self, effect: DiskEffect) -> None:
        """Perform an effect on segments; a recording may be lost, so it is not kept."""
        if isinstance(effect, SpillSegment):
            entries = effect.entries
            self.segments[effect.segment] = {entry.first: bytes(entry.payload or b"") for entry in entries}
            first = entries[0].first
            self.answer(SegmentWritten(effect.channel, effect.segment, first, entries[-1].next - first))
        elif isinstance(effect, ReadSegment):
            self.answer(SegmentRead(effect.channel, effect.segment, self.segments[effect.segment]))
        elif isinstance(effect, RemoveSegments):
            for segment in effect.segments:
                self.segments.pop(segment, None)
        else:
            invariant(isinstance(effect, WriteRecording), "this disk has no files", effect=type(effect).__name__)
