"""A worker process on virtual time: production membership and task, a simulated shell around them.

The shell does what `operators.worker` and `causal.shell.driver` do with sockets, disk and stores, in the same order.
It can be killed between any two effects, paused, and left alive as a zombie.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from causal.checkpointing import Cut
from causal.dissemination import NO_KNOWLEDGE
from causal.effects import (
    Effect,
    Found,
    OpenSink,
    Phase,
    ReadSegment,
    ReadSource,
    RemoveSegments,
    Reply,
    Send,
    SnapshotReady,
    SourceCompleted,
    SpillSegment,
    TruncateSink,
    WithdrawRows,
    WriteBundle,
    WriteSnapshot,
)
from causal.errors import CausalError, Fenced, InvariantViolation, OperatorFailed, PipelineError, ReplayDivergence
from causal.errors import CorruptData, Lost, Unavailable
from causal.events import Event, FrameReceived, SegmentFailed, SegmentRead, SegmentWritten, SinkOpened, SnapshotWritten
from causal.events import SourceRead, Started, Turn
from causal.task import TaskProtocol
from operators.membership import Act, Begin, Dial, Due, End, Feed, Input, Load, Loaded, Membership, Reported, Start
from operators.membership import Tell, Told, Vitals
from tests.simulation.clockwork import MS
from tests.simulation.network import Connection
from tests.simulation.peers import Violated

if TYPE_CHECKING:
    from tests.simulation.world import Simulation

DEFINITE = (OperatorFailed, ReplayDivergence, Lost, CorruptData, PipelineError, InvariantViolation)
SNAPSHOT_TRIES_MAX = 5
TURNS_PER_POLL = 8


class Died(Exception):
    """SIGKILL came between two effects."""


class _Image:
    """The state of a task as files restore it."""

    def __init__(self, world: Simulation, task: int) -> None:
        self.task = task
        self.cut = Cut()
        self.files: list[tuple[str, int, str]] = []
        self._world = world
        self.chain = world.job.chain(task, world.outside)

    def load(self, files: tuple[tuple[str, int, str], ...]) -> None:
        if list(files[: len(self.files)]) != self.files:
            self.__init__(self._world, self.task)  # type: ignore[misc]
        for file in files[len(self.files) :]:
            parts = self._world.disk.read(file)
            self.cut = Cut.unpack(parts[0])
            self.chain.restore(parts[1:])
            self.files.append(tuple(file))


class Process:
    """One worker process.

    State: `living` until it ends; a `zombie` lives although everybody was told that it has ended.
    """

    def __init__(self, world: Simulation, slot: str, pid: int) -> None:
        self.world = world
        self.slot = slot
        self.pid = pid
        self.living = True
        self.zombie = False
        self.paused_until_ns = 0
        self.dies_after: int | None = None
        """Effects left to perform before SIGKILL comes."""
        self.task: TaskProtocol | None = None
        self.rotten = False
        self._index = -1
        scheme = "tcp" if world.scenario.tcp else "ipc"
        self.membership = Membership(
            slot, pid, f"{scheme}://{slot}", world.topology, world.config.heartbeat_ms, self._vitals
        )
        self._image: _Image | None = None
        self._control: deque[dict[str, Any]] = deque()
        self._inbox: deque[tuple[bytes, tuple[bytes, ...]]] = deque()
        self._from_disk: deque[Event] = deque()
        self._todo: deque[Effect] = deque()
        self._answers: deque[Event] = deque()
        self._reads: dict[int, tuple[int, int]] = {}
        self._dialled: dict[int, Connection] = {}
        self._segments: dict[int, dict[int, bytes]] = {}
        self._first_record_ns: int | None = None
        self._stalled = False
        self._poked_ns = -1
        self.poke(0)

    # -- when it runs --------------------------------------------------------------------------------

    def poke(self, delay_ns: int) -> None:
        """Have it look around in `delay_ns`, or sooner if that is asked for already."""
        at_ns = max(self.world.clock.now_ns + delay_ns, self.paused_until_ns)
        if self._poked_ns < self.world.clock.now_ns or at_ns < self._poked_ns:
            self._poked_ns = at_ns
            self.world.clock.at(at_ns, lambda: self._awake(at_ns))

    def _awake(self, at_ns: int) -> None:
        if not self.living or at_ns != self._poked_ns:
            return
        self._poked_ns = -1
        if self.world.clock.now_ns < self.paused_until_ns:
            self.poke(0)
            return
        try:
            self._round()
        except Died:
            self.world.end(self, None)
            return
        except Fenced:
            self.world.end(self, 0)
            return
        except Violated:
            raise
        except CausalError as problem:
            self._fail(problem)
            return
        if self.living:
            self.poke(self._sleep_ns())

    def _fail(self, problem: CausalError) -> None:
        facts = {"task": self.membership.name, "incarnation": self.membership.incarnation}
        definite = isinstance(problem, DEFINITE)
        told = {**facts, "error": type(problem).__name__, "message": str(problem), "definite": definite}
        self.world.note(self.slot, f"{type(problem).__name__}: {problem}")
        self.world.tell(self, "failed", told)
        self.world.end(self, 1)

    def _sleep_ns(self) -> int:
        now_ns = self.world.clock.now_ns
        busy = bool(self._control or self._inbox or self._from_disk) or (self.task is not None and not self.task.idle)
        if busy and not self._stalled:
            return self.world.rng.randint(2_000, 60_000)
        due = [self.membership.beat_due_ns]
        if self._stalled:
            due.append(now_ns + 5 * MS)
        elif self.task is not None:
            deadline = self.task.next_deadline_ns(now_ns)
            due += [deadline] if deadline is not None else []
            due += [now_ns + MS] if self._reads else []
        return max(1_000, min(due) - now_ns)

    def _round(self) -> None:
        """One turn of the worker's loop; how much it finds ready is chance."""
        rng = self.world.rng
        self._handle(Due())
        if self._stalled:
            self._stalled = False
            self._drain()
            if self._stalled:
                return
        while self._control and not self._stalled:
            self._handle(Told(self._control.popleft()))
        for _ in range(rng.randint(1, 6)):
            if not self._inbox or self._stalled or not self.living:
                break
            link, frame = self._inbox.popleft()
            if self.task is not None:
                self._feed(FrameReceived(link, list(frame)))
        while self._from_disk and not self._stalled:
            self._feed(self._from_disk.popleft())
        for channel, (position, count) in sorted(self._reads.items()):
            if not self._stalled:
                self._read(channel, position, count)
                self._drain()
        if self.task is None:
            return
        for _ in range(rng.randint(1, TURNS_PER_POLL)):
            if self._stalled:
                return
            self._feed(Turn())
            if self.task.idle:
                return

    # -- the control plane -----------------------------------------------------------------------------

    def hear(self, message: dict[str, Any]) -> None:
        """A message of the supervisor has arrived."""
        self._control.append(message)
        self.poke(0)

    def receive(self, link: bytes, frame: tuple[bytes, ...]) -> None:
        """A frame has arrived."""
        self._inbox.append((link, frame))
        self.poke(0)

    def _handle(self, event: Input) -> None:
        for act in self.membership.handle(event, self.world.clock.now_ns):
            _ACTS[type(act)](self, act)

    def _vitals(self) -> Vitals:
        if self.task is None:
            return Vitals()
        return Vitals(
            "finished" if self.task.reported_finished else self.task.recovery.state.value,
            self.task.schedule.epoch,
            self.task.counters(),
            self._first_record_ns,
            None,
            self.task.inquiry.rollback.number,
            [list(each) for each in self.task.lost],
        )

    def _tell(self, act: Tell) -> None:
        self.world.tell(self, act.kind, act.facts)

    def _load(self, act: Load) -> None:
        if self._image is None or self._image.task != act.task:
            self._image = _Image(self.world, act.task)
        self._image.load(act.files)
        self._handle(Loaded(self._image.cut.epoch))

    def _begin(self, act: Begin) -> None:
        image = self._image if self._image is not None and self._image.task == act.task else None
        image = image or _Image(self.world, act.task)
        image.load(act.files)
        if image.cut.epoch != act.epoch:
            raise Violated(f"promotion: {self.slot} is told epoch {act.epoch}, its files hold {image.cut.epoch}")
        self._image = None
        retained = NO_KNOWLEDGE if self.task is None else self.task.retained(act.rollback)
        self._todo.clear()
        self._answers.clear()
        self._from_disk.clear()
        self._reads.clear()
        self._segments.clear()
        self._index = act.task
        self.task = TaskProtocol(
            self.world.topology, act.task, act.incarnation, self.world.config, image.chain, self.world.live,  # type: ignore[arg-type]
            image.cut, image.files, lambda line: self.world.note(self.slot, line), act.rollback, retained,
        )  # fmt: skip
        self.world.observer.began(self, self.task, act.task)

    def _start(self, act: Start) -> None:
        self._feed(Started())
        self._handle(Due())

    def _dial(self, act: Dial) -> None:
        old = self._dialled.get(act.task)
        if old is not None:
            old.closed = True
        self._dialled[act.task] = self.world.network.dial(self.slot, act.endpoint.partition("://")[2])

    def _fed(self, act: Feed) -> None:
        if self.task is not None:
            self._feed(act.event)

    def _end(self, act: End) -> None:
        self.world.end(self, 0)

    # -- the task ------------------------------------------------------------------------------------

    def _feed(self, event: Event) -> None:
        if self.task is None or not self.living:
            return
        if self._stalled:  # an event of the control plane, while a store is away: behind what it waits for
            self._answers.append(event)
            return
        self._give(event)
        self._drain()

    def _give(self, event: Event) -> None:
        task, observer = self.task, self.world.observer
        if task is None:
            return
        before = observer.before(task)
        effects = task.handle(event, self.world.clock.now_ns)
        observer.after(self, task, event, before)
        self.world.trace(self, event, effects)
        self._todo.extend(effects)

    def _drain(self) -> None:
        """Perform effects in order, and feed what they are answered with; stop where the outside does not answer."""
        while self.living:
            while self._todo:
                if self.dies_after is not None:
                    self.dies_after -= 1
                    if self.dies_after < 0:
                        raise Died
                if not _PERFORMERS[type(self._todo[0])](self, self._todo[0]):
                    self._stalled = True
                    return
                if self._todo:
                    self._todo.popleft()
            if not self._answers:
                return
            self._give(self._answers.popleft())

    def _send(self, effect: Send) -> bool:
        connection = self._dialled.get(effect.target)
        if connection is not None:
            self.world.network.send(connection, tuple(effect.parts))
        return True

    def _reply(self, effect: Reply) -> bool:
        self.world.network.reply(self.slot, effect.link, tuple(effect.parts))
        return True

    def _open_sink(self, effect: OpenSink) -> bool:
        store = self.world.stores[effect.channel]
        if not store.reachable(self.world.clock.now_ns):
            return False
        self._answers.append(SinkOpened(effect.channel, store.open(self._incarnation)))
        return True

    def _write_bundle(self, effect: WriteBundle) -> bool:
        store = self.world.stores[effect.channel]
        if not store.reachable(self.world.clock.now_ns):
            return False
        store.write(effect.bundle)
        self.world.observer.wrote(self, store, effect.channel, effect.bundle)
        return True

    def _withdraw(self, effect: WithdrawRows) -> bool:
        held = self.world.stores[effect.channel].withdraw(effect.mark, self._incarnation)
        self._answers.append(SinkOpened(effect.channel, held))
        return True

    def _truncate_sink(self, effect: TruncateSink) -> bool:
        self.world.stores[effect.channel].truncate(effect.epoch, self._incarnation)
        return True

    @property
    def _incarnation(self) -> int:
        return self.membership.incarnation

    def _read_source(self, effect: ReadSource) -> bool:
        self._read(effect.channel, effect.position, effect.count_max)
        return True

    def _read(self, channel: int, position: int, count_max: int) -> None:
        partition, now_ns = self.world.partitions[channel], self.world.clock.now_ns
        self.world.began_ns = self.world.began_ns or now_ns
        ready = min(partition.available(now_ns, self.world.began_ns) - position, count_max)
        if ready <= 0 and position < partition.records:
            self._reads[channel] = (position, count_max)
            return
        self._reads.pop(channel, None)
        count = self.world.rng.randint(1, ready) if ready > 0 else 0
        self._first_record_ns = self._first_record_ns or now_ns
        records = partition.read(position, count)
        self._answers.append(SourceRead(channel, position, records, now_ns, position + count == partition.records))

    def _source_completed(self, effect: SourceCompleted) -> bool:
        self.world.partitions[effect.channel].completed(effect.position)
        return True

    # -- the disk ------------------------------------------------------------------------------------

    def _soon(self, action: Callable[[], None]) -> None:
        slow = self.world.clock.now_ns < self.world.disk.slow_until_ns
        self.world.clock.after(self.world.rng.randint(20_000, 200 * MS if slow else 3 * MS), action)

    def _answer(self, task: TaskProtocol | None, event: Event) -> None:
        if self.living and self.task is task:
            self._from_disk.append(event)
            self.poke(0)

    def _write_snapshot(self, effect: WriteSnapshot) -> bool:
        task, tried = self.task, 0
        name = f"checkpoints/{self.membership.name}/e{effect.epoch:08d}-i{self._incarnation}.snap"

        def write() -> None:
            nonlocal tried
            if not self.living:
                return  # torn: what was written aside is never looked at
            try:
                file = self.world.disk.write(name, effect.parts, self.world.clock.now_ns)
            except Unavailable as problem:
                tried += 1
                if tried == SNAPSHOT_TRIES_MAX:
                    self._fail(problem)
                else:
                    self.world.clock.after(200 * MS * tried, write)
                return
            self._answer(task, SnapshotWritten(effect.epoch, file))

        self._soon(write)
        return True

    def _snapshot_ready(self, effect: SnapshotReady) -> bool:
        files = [list(file) for file in effect.files]
        self._handle(Reported("snapshot", {"epoch": effect.epoch, "files": files}))
        return True

    def _spill(self, effect: SpillSegment) -> bool:
        task = self.task
        payloads = {entry.first: entry.payload or b"" for entry in effect.entries}
        first, count = effect.entries[0].first, effect.entries[-1].next - effect.entries[0].first

        def write() -> None:
            if self.task is not task:
                return
            if self.world.clock.now_ns < self.world.disk.full_until_ns:
                self._answer(task, SegmentFailed(effect.channel, effect.segment))
                return
            self._segments[effect.segment] = payloads
            self._answer(task, SegmentWritten(effect.channel, effect.segment, first, count))

        self._soon(write)
        return True

    def _load_segment(self, effect: ReadSegment) -> bool:
        task = self.task

        def read() -> None:
            if self.task is not task or not self.living:
                return
            if effect.segment not in self._segments:
                raise Violated(f"spill: segment {effect.segment} of {self.slot} is read after it was removed")
            if self.rotten:
                self._fail(Unavailable(f"segment {effect.segment} does not match its digest"))
                return
            self._answer(task, SegmentRead(effect.channel, effect.segment, self._segments[effect.segment]))

        self._soon(read)
        return True

    def _remove_segments(self, effect: RemoveSegments) -> bool:
        for segment in effect.segments:
            self._segments.pop(segment, None)
        return True

    def _phase(self, effect: Phase) -> bool:
        told = {"phase": effect.name, "at_ns": self.world.clock.now_ns, "detail": effect.detail}
        self._handle(Reported("phase", told))
        return True

    def _found(self, effect: Found) -> bool:
        finding = effect.finding
        orphan = None if finding.orphan is None else list(finding.orphan)
        told = {"settled": finding.settled, "orphan": orphan, "stands": [list(each) for each in finding.stands]}
        self._handle(Reported("finding", {"number": effect.number, "finding": told}))
        return True


_ACTS: dict[type[Act], Callable[[Process, Any], None]] = {
    Tell: Process._tell,
    Load: Process._load,
    Begin: Process._begin,
    Start: Process._start,
    Dial: Process._dial,
    Feed: Process._fed,
    End: Process._end,
}

_PERFORMERS: dict[type[Effect], Callable[[Process, Any], bool]] = {
    Send: Process._send,
    Reply: Process._reply,
    OpenSink: Process._open_sink,
    WriteBundle: Process._write_bundle,
    WithdrawRows: Process._withdraw,
    TruncateSink: Process._truncate_sink,
    ReadSource: Process._read_source,
    SourceCompleted: Process._source_completed,
    WriteSnapshot: Process._write_snapshot,
    SnapshotReady: Process._snapshot_ready,
    SpillSegment: Process._spill,
    ReadSegment: Process._load_segment,
    RemoveSegments: Process._remove_segments,
    Phase: Process._phase,
    Found: Process._found,
}
"""Each performs one effect; false if it must be tried again before anything else (a store is away)."""
