"""A task and its hot standby over a link that loses, repeats and reorders frames, while either of them dies.

The shadow never performs what its task did not, or in another order; what is promoted performs what was seen of the
task before it; and once frames arrive again, an echo begins from which the standby catches up with its task.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from benchmarks.harness.graphs import layered
from causal.channels import wire
from causal.channels.rolling import RollingDigest
from causal.channels.wire import Header
from causal.config import JobConfig
from causal.cut import Cut
from causal.effects import Effect, ReportSnapshot, Send, WriteSnapshot
from causal.events import (
    CheckpointCompleted,
    Event,
    FrameReceived,
    HotStandbyDown,
    HotStandbyUp,
    PeerUp,
    SnapshotWritten,
    Started,
    Turn,
)
from causal.ids import HOT_STANDBY
from causal.logs.log import LogDelta
from causal.logs.rollback import NO_ROLLBACK
from causal.ports import Output, PlainChain, Services
from causal.records import batch
from causal.records.batch import Chunk, barrier, decode_records, encode_records, pack_chunks
from causal.records.values import decode, encode
from causal.task.recovery import State
from causal.task.task import TaskProtocol
from operators.runtime.hot_standby import HotStandby, Promotion
from tests.simulation.chains import Whole
from tests.tasks import task_of

TOPOLOGY = layered((2, 1, 1))
CONFIG = JobConfig(run="r", name="n", pipeline="p", standbys="hot")
JOB = CONFIG.fingerprint(TOPOLOGY)
TASK = TOPOLOGY.tasks[2].index
UPSTREAM = TOPOLOGY.inputs(TASK)
[DOWNSTREAM] = TOPOLOGY.outputs(TASK)
MS = 1_000_000
TURNS_MAX = 300
CALM = 8
"""The things that happen to the stream and the link before a process is replaced: otherwise no echo gets far."""
FILES = [("checkpoints/f", 1, "d")]
FATE = st.sampled_from(("arrives", "arrives", "arrives", "lost", "waits"))


class Noting(PlainChain):
    """Its state is all that it has been given, in order, with a reading of the clock for each delivery."""

    def __init__(self) -> None:
        self.history: list[Any] = []

    def deliver(self, input: int, chunks: Sequence[Chunk], first: int, services: Services) -> list[Output]:
        records: list[Any] = []
        for chunk in chunks:
            records += chunk.body if chunk.kind == batch.LISTED else decode_records(chunk.body)
        self.history.append([input, records, services.now_ns()])
        return [(0, Chunk(batch.RECORDS, 1, encode_records([self.history[-1]])))]

    def fire(self, due_ns: int, services: Services) -> list[Output]:
        raise AssertionError("it sets no timer")

    def finish(self, services: Services) -> list[Output]:
        return []

    def next_timer_ns(self) -> int | None:
        return None

    def snapshot(self, full: bool, behind: str = "") -> Whole:
        return Whole(encode(self.history))

    def restore(self, parts: Iterable[bytes]) -> None:
        for part in parts:
            self.history = decode(part)


class Image:
    """The state at a checkpoint."""

    def __init__(self, parts: Sequence[bytes]) -> None:
        self.cut = Cut.unpack(parts[0]) if parts else Cut()
        self.chain = Noting()
        self.chain.restore(parts[1:])


@dataclass
class Input:
    """A task upstream: it keeps everything that it sends, and sends again any part for."""

    channel: int
    frames: list[tuple[int, Header, bytes]]
    digest: RollingDigest
    session: int = 0
    sequence: int = 0
    position: int = 0

    def put(self, chunk: Chunk) -> None:
        payload = pack_chunks([chunk])
        header = Header(wire.DATA, JOB, self.channel, 1, count=chunk.count, position=self.position)
        header.digest, header.plain_bytes = self.digest.feed(payload), len(payload)
        if chunk.kind == batch.BARRIER:
            self.digest.close()
        self.position += chunk.count
        self.frames.append((self.position, header, payload))

    def begin(self) -> None:
        self.session, self.sequence = self.session + 1, 0


@dataclass(frozen=True)
class Seen:
    """The state of the task downstream after a frame: the elements it has, and the log that they depend on."""

    position: int = 0
    digest: int = 0
    log: tuple[tuple[int, bytes], ...] = ()


class EchoMachine(RuleBasedStateMachine):
    """One task, its hot standby, and what happens between them."""

    @initialize()
    def begin(self) -> None:
        self.now_ns = 1_000 * MS
        self.lines: list[str] = []
        self.inputs = {c.id: Input(c.id, [], RollingDigest()) for c in UPSTREAM}
        self.snapshots: dict[int, Sequence[bytes]] = {0: []}
        self.complete = self.asked = 0
        self.sent: list[Seen] = [Seen()]
        self.arrived = 0
        self.chains: dict[int, Noting] = {}
        self.incarnation = 0
        self.forward: list[tuple[bytes, list[bytes]]] = []
        self.backward: list[tuple[bytes, list[bytes]]] = []
        self.connection = 0
        self._start(1)
        self._another_standby()

    # -- the clock of the task, and its steps -------------------------------------------------------------

    def wall_ns(self) -> int:
        self.now_ns += 1
        return self.now_ns

    def entropy(self) -> bytes:
        return bytes(16)

    def _make(self, image: Image, incarnation: int = 0) -> TaskProtocol:
        return task_of(TOPOLOGY, TASK, incarnation, CONFIG, image.chain, self, image.cut, report=self.lines.append)

    def _start(self, incarnation: int, task: TaskProtocol | None = None) -> None:
        """An incarnation begins, from the last checkpoint or as the hot standby that it was."""
        self.incarnation = incarnation
        self.task = task or self._make(Image(self.snapshots[self.complete]), incarnation)
        self.chains[incarnation] = self.task.execution.chain  # type: ignore[assignment]
        self.sent = self.sent[: self.arrived + 1]
        for channel in UPSTREAM:
            self._feed(PeerUp(channel.source, 1))
        self._feed(PeerUp(DOWNSTREAM.target, 1))
        self._feed(Started())
        for source in self.inputs.values():
            source.begin()
            hello = wire.Hello(1, 0, source.position, 0, False)
            self._feed(FrameReceived(b"up", [Header(wire.HELLO, JOB, source.channel, 1).pack(), hello.pack()]))
        self._welcome()
        self._settle()

    def _welcome(self) -> None:
        """The task downstream answers with its state."""
        seen = self.sent[self.arrived]
        logs = [LogDelta(TASK, epoch, 0, content) for epoch, content in seen.log if epoch >= self.complete and content]
        extents = [(log.task, log.epoch, len(log.bytes)) for log in logs]
        attempt = self.task.channels.downstream[DOWNSTREAM.id].attempt
        welcome = wire.Welcome(attempt, seen.position, seen.digest, extents, logs, [], seen.position)
        self._feed(FrameReceived(b"", [Header(wire.WELCOME, JOB, DOWNSTREAM.id, 1).pack(), welcome.pack()]))

    def _feed(self, event: Event) -> None:
        for effect in self.task.handle(event, self.now_ns):
            self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        if isinstance(effect, WriteSnapshot):
            self.snapshots[effect.epoch] = effect.parts
            self._feed(SnapshotWritten(effect.epoch, FILES[0]))
        elif isinstance(effect, ReportSnapshot):
            self.ready = effect.epoch
        elif isinstance(effect, Send) and effect.target == HOT_STANDBY:
            self.forward.append((b"%d/%d" % (self.incarnation, self.connection), effect.parts))
        elif isinstance(effect, Send):
            header = wire.read_header(effect.parts, JOB)
            if header.kind == wire.DATA and header.count:
                own = self.task.holdings.own
                log = tuple((epoch, own.bytes_of(epoch)) for epoch in own.extents())
                self.sent.append(Seen(header.position + header.count, header.digest, log))

    def _settle(self) -> None:
        """Deliver what is upstream, and has the task perform it."""
        for _ in range(TURNS_MAX):
            for source in self.inputs.values():
                receiver = self.task.exchange.inputs[source.channel]
                for behind, header, payload in source.frames:
                    if behind > receiver.next:
                        header.session, header.sequence = source.session, source.sequence
                        source.sequence += 1
                        self._feed(FrameReceived(b"up", [header.pack(), b"", payload]))
            self._feed(Turn())
            if self.task.idle:
                return
        raise AssertionError("the task does not come to rest")

    # -- rules: the stream --------------------------------------------------------------------------------

    @rule(place=st.integers(0, 1), count=st.integers(1, 3))
    def records_come(self, place: int, count: int) -> None:
        source = self.inputs[UPSTREAM[place].id]
        numbers = list(range(source.position, source.position + count))
        source.put(Chunk(batch.RECORDS, count, encode_records(numbers)))
        self._settle()
        self.calm += 1

    @rule(place=st.integers(0, 1), echo=FATE, answer=FATE, barriers=st.sampled_from((False, False, True)))
    def a_turn_is_echoed(self, place: int, echo: str, answer: str, barriers: bool) -> None:
        """The same as the rules for each of these, which alone seldom come in this order."""
        before, answered = len(self.forward), len(self.backward)
        if not barriers:
            self.records_come(place, 1)
        elif self.asked == self.complete:
            self.a_barrier_comes(place)
        elif self.asked in self.snapshots:
            self.the_checkpoint_is_complete()
            self.the_standby_hears_what_is_complete()
        while len(self.forward) > before and echo != "waits":
            frame = self.forward.pop(before)
            if echo == "arrives":
                self.standby.receive(*frame, self.now_ns)
        self.the_standby_performs()
        while len(self.backward) > answered and answer != "waits":
            if answer == "arrives":
                self._answer(answered, keeps=False)
            else:
                self.backward.pop(answered)

    @rule(more=st.integers(1, 5))
    def what_was_sent_downstream_arrives(self, more: int) -> None:
        self.arrived = min(self.arrived + more, len(self.sent) - 1)

    @precondition(lambda self: self.asked == self.complete)
    @rule(first=st.integers(0, 1))
    def a_barrier_comes(self, first: int) -> None:
        self.asked += 1
        for place in (first, 1 - first):
            self.inputs[UPSTREAM[place].id].put(barrier(self.asked))
            self._settle()

    @precondition(lambda self: self.asked > self.complete and self.asked in self.snapshots)
    @rule()
    def the_checkpoint_is_complete(self) -> None:
        """The task downstream has what precedes the barrier: its own snapshot belongs to the checkpoint."""
        self.arrived = len(self.sent) - 1
        self.complete = self.asked
        self._feed(CheckpointCompleted(self.complete))

    # -- rules: the link ----------------------------------------------------------------------------------

    @precondition(lambda self: self.forward)
    @rule(
        data=st.data(),
        keeps=st.sampled_from((False, False, False, True)),
        ahead=st.sampled_from((False, False, False, True)),
    )
    def an_echo_arrives(self, data: st.DataObject, keeps: bool, ahead: bool) -> None:
        place = data.draw(st.integers(0, len(self.forward) - 1)) if ahead else 0
        link, parts = self.forward[place] if keeps else self.forward.pop(place)
        self.standby.receive(link, parts, self.now_ns)
        self.calm += 1

    @precondition(lambda self: self.forward)
    @rule(data=st.data())
    def an_echo_is_lost(self, data: st.DataObject) -> None:
        self.forward.pop(data.draw(st.integers(0, len(self.forward) - 1)))

    @rule(parts=st.lists(st.binary(max_size=80), max_size=3))
    def garbage_arrives(self, parts: list[bytes]) -> None:
        self.standby.receive(b"stranger", parts, self.now_ns)
        self._feed(FrameReceived(b"", parts))

    @rule()
    def everything_arrives(self) -> None:
        while self.forward:
            self.standby.receive(*self.forward.pop(0), self.now_ns)
            self.the_standby_performs()
        while self.backward:
            self._answer(0, keeps=False)
        self._settle()
        self.calm += 1

    @rule()
    def the_standby_performs(self) -> None:
        self.calm += 1
        answer = self.standby.turn(self.now_ns)
        if answer is not None:
            self.backward.append(answer)

    @precondition(lambda self: self.backward)
    @rule(data=st.data(), lost=st.booleans(), keeps=st.booleans())
    def an_answer_arrives_or_is_lost(self, data: st.DataObject, lost: bool, keeps: bool) -> None:
        place = data.draw(st.integers(0, len(self.backward) - 1))
        if lost:
            self.backward.pop(place)
        else:
            self._answer(place, keeps)

    def _answer(self, place: int, keeps: bool) -> None:
        """An answer comes by the connection on which its echo went; another one is closed, or of a process before."""
        link, parts = self.backward[place] if keeps else self.backward.pop(place)
        if link == b"%d/%d" % (self.incarnation, self.connection):
            self._feed(FrameReceived(b"", parts))

    @rule(later_ms=st.sampled_from((1, 500, 3_000, 70_000)))
    def time_passes(self, later_ms: int) -> None:
        self.now_ns += later_ms * MS
        self._feed(Turn())

    # -- rules: the supervisor, and deaths -----------------------------------------------------------------

    @rule()
    def the_standby_hears_what_is_complete(self) -> None:
        if not self.standby.follow(self.incarnation, self.complete, FILES if self.complete else []):
            self.standby.take_image()
            self.standby.loaded(Image(self.snapshots[self.complete]), self.now_ns)

    @precondition(lambda self: self.calm >= CALM)
    @rule()
    def the_standby_dies(self) -> None:
        self._feed(HotStandbyDown())
        self._another_standby()

    def _another_standby(self) -> None:
        """Replace the process; frames of the one before may still arrive."""
        self.standby: HotStandby[Image] = HotStandby(JOB, self._make, self._asked, self._report)
        self.the_standby_hears_what_is_complete()
        self._named()

    @precondition(lambda self: self.calm >= CALM)
    @rule()
    def the_supervisor_names_the_standby_again(self) -> None:
        self._named()

    def _named(self) -> None:
        self.connection, self.named, self.calm = self.connection + 1, True, 0
        self._feed(HotStandbyUp())

    def _report(self, line: str, blamed: bool) -> None:
        assert not blamed, line

    def _asked(self, effect: Effect) -> None:
        raise AssertionError("what it keeps is far from every bound")

    @precondition(lambda self: self.calm >= CALM)
    @rule()
    def the_task_dies_and_its_standby_is_promoted(self) -> None:
        promotion = Promotion(self.incarnation + 1, self.complete, FILES if self.complete else [], NO_ROLLBACK)
        self._start(promotion.incarnation, self.standby.promote(promotion, self.now_ns))
        self._what_was_seen_is_performed_again()
        self._another_standby()

    @precondition(lambda self: self.calm >= CALM)
    @rule(named=st.booleans())
    def the_task_dies_and_another_process_takes_its_place(self, named: bool) -> None:
        """Its standby does not hear of that, until it is named another incarnation to follow."""
        self._start(self.incarnation + 1)
        self._what_was_seen_is_performed_again()
        self.named, self.calm = named, CALM - 2
        if named:
            self._named()

    def _what_was_seen_is_performed_again(self) -> None:
        assert self.task.recovery.state is State.RUNNING, "it has recovered"
        assert self.task.channels.downstream[DOWNSTREAM.id].expected is None, "the digests are equal"

    # -- what holds always ---------------------------------------------------------------------------------

    @invariant()
    def a_shadow_performs_what_its_task_has_performed(self) -> None:
        if not hasattr(self, "standby"):
            return
        performed = self._performed()
        assert performed == self.chains[self.standby.incarnation or 1].history[: len(performed)]

    def _performed(self) -> list[Any]:
        task = self.standby._shadow.task
        chain = None if task is None else task.execution.chain
        return chain.history if isinstance(chain, Noting) else []

    @invariant()
    def no_frame_of_the_echo_is_a_fault_of_the_task(self) -> None:
        if hasattr(self, "task"):
            assert "an echo was sent to a task that is not a hot standby" not in self.task.exchange.faults

    def teardown(self) -> None:
        """An echo can begin again whatever has happened, and the standby comes to be where its task is."""
        if not hasattr(self, "standby"):
            return
        if not self.named:  # the supervisor does so until the beats of the task show it
            self._named()
        for _ in range(4):
            self.the_standby_hears_what_is_complete()
            self.time_passes(70_000)
            self.records_come(0, 1)
            self.everything_arrives()
            if self.asked == self.complete:
                self.a_barrier_comes(0)
            self.the_checkpoint_is_complete()
        self.the_standby_hears_what_is_complete()
        self.records_come(1, 1)
        self.everything_arrives()
        assert self.standby.shadowing and self.standby.follows == self.complete
        assert self._performed() == self.chains[self.incarnation].history


TestEcho = EchoMachine.TestCase
TestEcho.settings = settings(stateful_step_count=40)


def test_a_shadow_of_an_incarnation_before_the_last_one_does_not_become_the_task() -> None:
    """Nothing that the first incarnation did was seen but by its standby; what the second one did was seen by all."""
    machine = EchoMachine()
    machine.begin()
    machine.records_come(0, 1)
    machine.everything_arrives()
    assert machine.standby.shadowing
    machine.now_ns += MS
    machine.the_task_dies_and_another_process_takes_its_place(named=False)
    machine.what_was_sent_downstream_arrives(9)
    seen = list(machine.chains[2].history)
    assert seen != machine.chains[1].history
    machine.the_task_dies_and_its_standby_is_promoted()
    assert machine.chains[3].history == seen
    machine.teardown()
