"""The conversation between two tasks, frame by frame: what does not fit is counted, reported once and dropped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.harness.graphs import layered
from causal.channels import exchange, wire
from causal.channels.ends import Channels
from causal.channels.exchange import (
    CORRUPT_FRAMES_MAX,
    FAULT_SORTS_MAX,
    Exchange,
)
from causal.channels.flow import CREDIT_WITHIN_NS
from causal.channels.receiver import RESYNC_NOT_BEFORE_NS
from causal.channels.rolling import RollingDigest
from causal.channels.sender import CONTRADICTED_NS_MAX, CONTRADICTIONS_MAX, HELLO_AGAIN_NS, PROBE_AFTER_NS
from causal.channels.wire import Header, read_header, read_welcome
from causal.config import JobConfig
from causal.cut import Cut
from causal.effects import Effect, Reply, Send
from causal.errors import DeterminantsLost, Fenced, PeerViolation, ReplayDivergence
from causal.events import FrameReceived, InquiryResolved, OrphanQuery
from causal.logs.deltas import pack_deltas
from causal.logs.dissemination import Holdings
from causal.logs.log import LogDelta
from causal.logs.rollback import Rollback
from causal.records import batch
from causal.records.batch import Chunk, encode_records, pack_chunks
from tests.tasks import task_of

TOPOLOGY = layered((1, 1))
CONFIG = JobConfig(run="r", name="n", pipeline="p", channel_window_bytes=1 << 16)
JOB = CONFIG.fingerprint(TOPOLOGY)
CHANNEL = 1
LINK = b"link"


class End:
    """One task's half of the conversation, without a chain."""

    def __init__(self, task: int, incarnation: int = 1, collecting: bool = False) -> None:
        self.lines: list[str] = []
        index = TOPOLOGY.tasks[task].index
        self.holdings = Holdings(TOPOLOGY, index, CONFIG.sharing_depth, 0)
        channels = Channels(TOPOLOGY, index, CONFIG, Cut())
        self.exchange = Exchange(
            TOPOLOGY, index, incarnation, CONFIG, self.holdings,
            {c.id: c for c in channels.network}, channels.downstream, self.lines.append,
        )  # fmt: skip
        self.input = self.exchange.inputs.get(CHANNEL)
        if self.input is not None and not collecting:
            self.exchange.collected()
        self.output = channels.downstream.get(CHANNEL)

    def receive(self, parts: list[bytes], now_ns: int = 0) -> list[Effect]:
        return self.exchange.receive(LINK if self.input else b"", parts, False, now_ns)

    def standing(self) -> tuple[object, ...]:
        assert self.input is not None
        where = (self.input.next, self.input.queued, self.input.welcome(0).digest, self.input.peer_incarnation)
        return (*where, {task: log.extents() for task, log in self.holdings.logs.items()})


class Pair:
    """A sender and a receiver that know each other."""

    def __init__(self, incarnation: int = 1) -> None:
        self.sender, self.receiver = End(0, incarnation), End(1)
        assert self.sender.output is not None and self.receiver.input is not None
        self.output, self.input = self.sender.output, self.receiver.input
        self.output.dial(1, 0)
        self.receiver.exchange.announce(0, incarnation)
        self.introduce()

    def introduce(self, now_ns: int = 0) -> list[list[bytes]]:
        self.output.dial(self.output.peer_incarnation, now_ns)
        (hello,) = self.sender.exchange.pump(now_ns)
        assert isinstance(hello, Send)
        return self.answer(self.receiver.receive(hello.parts, now_ns), now_ns)

    def answer(self, effects: list[Effect], now_ns: int = 0) -> list[list[bytes]]:
        """Pass the receiver's replies to the sender; returns what that sends then."""
        sent: list[list[bytes]] = []
        for effect in effects:
            assert isinstance(effect, Reply) and effect.link == LINK
            sent += parts_of(self.sender.receive(effect.parts, now_ns))
        return sent

    def send(self, *records: object, determinant: bytes = b"", now_ns: int = 0) -> list[bytes]:
        """Return one frame with one chunk, and with what was logged since the last one."""
        if determinant:
            self.sender.holdings.own.append(0, determinant)
        self.output.put(Chunk(batch.RECORDS, len(records), encode_records(list(records))))
        (frame,) = parts_of(self.sender.exchange.pump(now_ns))
        return frame


def parts_of(effects: list[Effect]) -> list[list[bytes]]:
    assert all(isinstance(effect, (Send, Reply)) for effect in effects)
    return [list(effect.parts) for effect in effects]  # type: ignore[union-attr]


def changed(parts: list[bytes], **fields: int) -> list[bytes]:
    header = replace(read_header(parts, JOB), **fields)
    return [header.pack(), *parts[1:]]


def test_a_frame_stores_its_determinants_and_queues_its_elements() -> None:
    pair = Pair()
    frame = pair.send("a", "b", determinant=b"\x80\x02")
    assert pair.receiver.receive(frame) == []
    assert pair.receiver.holdings.logs[0].bytes_of(0) == b"\x80\x02"
    assert (pair.input.next, pair.input.queued) == (2, 2)
    assert pair.receiver.standing()[2] == pair.output.digest
    assert not pair.receiver.exchange.faults and not pair.receiver.lines


UNFIT: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "nothing": lambda parts: [],
    "does not belong to the protocol": lambda parts: [b"GET / HTTP/1.1"],
    "cut header": lambda parts: [parts[0][:-1], *parts[1:]],
    "another version": lambda parts: [parts[0][:2] + b"\x07" + parts[0][3:], *parts[1:]],
    "another job": lambda parts: changed(parts, job=JOB ^ 1),
    "unknown kind": lambda parts: changed(parts, kind=77),
    "unknown flags": lambda parts: changed(parts, flags=8),
    "part missing": lambda parts: parts[:2],
    "part too many": lambda parts: [*parts, b""],
    "another channel": lambda parts: changed(parts, channel=9),
    "not for this end": lambda parts: changed(parts, channel=2),
    "unknown incarnation": lambda parts: changed(parts, incarnation=5),
    "cut payload": lambda parts: [*parts[:2], parts[2][:-1]],
    "flipped payload": lambda parts: [*parts[:2], parts[2][:-1] + bytes((parts[2][-1] ^ 1,))],
    "not lz4": lambda parts: changed(parts, flags=1),
    "huge": lambda parts: changed(parts, plain_bytes=wire.FRAME_BYTES_MAX + 1),
    "more elements than there are": lambda parts: changed(parts, count=3),
    "another digest": lambda parts: changed(parts, digest=1),
    "deltas cut": lambda parts: [parts[0], b"\x05\x01", parts[2]],
    "deltas with a gap": lambda parts: [parts[0], pack_deltas([LogDelta(0, 0, 9, b"x")], []), parts[2]],
    "a delta of our own log": lambda parts: [parts[0], pack_deltas([LogDelta(1, 0, 0, b"x")], []), parts[2]],
    "a delta of no task": lambda parts: [parts[0], pack_deltas([LogDelta(77, 0, 0, b"x")], []), parts[2]],
    "an answer": lambda parts: [Header(wire.CREDIT, JOB, CHANNEL, 1, position=1).pack()],
    "a broken HELLO": lambda parts: [Header(wire.HELLO, JOB, CHANNEL, 1).pack(), b"\xc1"],
    "a HELLO for another channel": lambda parts: [
        Header(wire.HELLO, JOB, 0, 1).pack(), wire.Hello(9, 0, 0, 0, False).pack()
    ],
}  # fmt: skip


@pytest.mark.parametrize("how", UNFIT)
def test_a_frame_that_does_not_fit_is_counted_told_of_once_and_changes_nothing(how: str) -> None:
    pair = Pair()
    pair.receiver.receive(pair.send("first", determinant=b"\x80\x01"))
    frame = pair.send("second")
    before = pair.receiver.standing()
    for times in range(1, CORRUPT_FRAMES_MAX):
        pair.receiver.receive(UNFIT[how](frame))
        faults = {sort: n for sort, n in pair.receiver.exchange.faults.items() if sort != "gap"}
        assert list(faults.values()) == [times] and len(pair.receiver.lines) == 1
    assert pair.receiver.standing() == before
    pair.receiver.receive(frame)
    assert pair.input.next == 2


def test_a_delta_that_the_sender_has_no_business_with_is_told_of_with_its_task() -> None:
    pair = Pair()
    pair.receiver.receive(UNFIT["a delta of no task"](pair.send("a")))
    (line,) = pair.receiver.lines
    assert "a delta of task 77, whose log the sender does not share" in line


def test_a_gap_is_asked_for_and_not_for_every_frame_behind_it() -> None:
    pair = Pair()
    lost, *behind = [pair.send(number) for number in range(4)]
    (asked,) = parts_of(pair.receiver.receive(behind[0], 1_000))
    assert read_header(asked, JOB).kind == wire.WELCOME
    welcome = read_welcome(asked[1])
    assert (welcome.attempt, welcome.next) == (0, 0)
    assert pair.receiver.receive(behind[1], 1_000 + RESYNC_NOT_BEFORE_NS - 1) == []
    assert len(pair.receiver.receive(behind[2], 1_000 + RESYNC_NOT_BEFORE_NS)) == 1
    assert pair.receiver.exchange.faults == {"gap": 3} and pair.input.next == 0
    again = parts_of(pair.sender.receive(asked))
    assert [read_header(parts, JOB).count for parts in again] == [4]
    for parts in (*again, lost):
        assert pair.receiver.receive(parts) == []
    assert pair.input.next == 4 and pair.receiver.exchange.faults == {"gap": 3, "repeated": 1}


@pytest.mark.parametrize("how", ["flipped payload", "another digest", "deltas with a gap"])
def test_a_sender_that_cannot_do_better_has_diverged(how: str) -> None:
    pair = Pair()
    now_ns, frames = 0, [pair.send("a", "b")]
    for _ in range(CORRUPT_FRAMES_MAX - 1):
        (asked,) = pair.receiver.receive(UNFIT[how](frames[0]), now_ns)
        now_ns += RESYNC_NOT_BEFORE_NS
        frames = pair.answer([asked], now_ns)
    with pytest.raises(ReplayDivergence, match=r"channel 1, position 0: .* do not continue"):
        pair.receiver.receive(UNFIT[how](frames[0]), now_ns)


def test_a_task_that_may_be_asked_to_go_back_in_place_does_not_end_as_fenced() -> None:
    """Its neighbours may hear of its next incarnation before it does: it is asked until then, and takes no frame."""
    task = task_of(TOPOLOGY, TOPOLOGY.tasks[0].index, 1, CONFIG)
    fenced = FrameReceived(b"", [Header(wire.FENCED, task.exchange.job, CHANNEL, 2).pack()])
    task.handle(OrphanQuery(1, []), 0)
    assert task.handle(fenced, 0) == []
    task.handle(InquiryResolved(Rollback(1)), 0)
    with pytest.raises(Fenced, match="incarnation 2 of this task is running; this process is incarnation 1"):
        task.handle(fenced, 0)


def hello_of(incarnation: int) -> list[bytes]:
    """Return a HELLO as an incarnation of the sender says it, or another process that knows the job's fingerprint."""
    end = End(0, incarnation)
    assert end.output is not None
    end.output.dial(1, 0)
    return parts_of(end.exchange.pump(0))[0]


def test_a_hello_that_comes_before_its_announcement_is_answered_after_it() -> None:
    pair = Pair()
    pair.receiver.receive(pair.send("a"))
    assert pair.receiver.receive(hello_of(2)) == []
    assert pair.receiver.receive(hello_of((1 << 32) - 1)) == []
    assert pair.receiver.exchange.answer_early() == []
    pair.receiver.exchange.announce(0, 2)
    (welcome,) = parts_of(pair.receiver.exchange.answer_early())
    assert (read_header(welcome, JOB).kind, read_welcome(welcome[1]).next) == (wire.WELCOME, 1)
    assert pair.receiver.exchange.answer_early() == []
    (fenced,) = parts_of(pair.receiver.receive(hello_of(1)))
    assert (read_header(fenced, JOB).kind, read_header(fenced, JOB).incarnation) == (wire.FENCED, 2)


def test_an_early_hello_waits_for_a_receiver_that_collects() -> None:
    receiver = End(1, collecting=True)
    receiver.exchange.announce(0, 1)
    assert receiver.receive(hello_of(2)) == []
    receiver.exchange.announce(0, 2)
    assert receiver.exchange.answer_early() == []
    (welcome,) = parts_of(receiver.exchange.collected())
    assert read_header(welcome, JOB).kind == wire.WELCOME


def test_an_early_hello_of_an_incarnation_that_never_lived_is_forgotten() -> None:
    pair = Pair()
    assert pair.receiver.receive(hello_of(2)) == []
    pair.receiver.exchange.announce(0, 3)
    assert pair.receiver.exchange.answer_early() == []
    assert len(pair.receiver.receive(hello_of(3))) == 1


def test_a_log_too_large_for_one_frame_comes_in_several_and_is_missed_if_one_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exchange, "DELTA_BYTES_TARGET", 10)
    pair = Pair()
    pair.sender.holdings.own.append(0, bytes(range(35)))
    pair.output.put(Chunk(batch.RECORDS, 1, encode_records(["a"])))
    frames = parts_of(pair.sender.exchange.pump(0))
    assert [read_header(parts, JOB).count for parts in frames] == [0, 0, 0, 1]
    assert pair.receiver.receive(frames[0]) == [] and not pair.receiver.holdings.logs[0].extents()
    (asked,) = pair.receiver.receive(frames[2])
    again = pair.answer([asked])
    assert len(again) == 4 and read_header(again[0], JOB).sequence == 0
    for parts in again:
        assert pair.receiver.receive(parts) == []
    assert pair.receiver.holdings.logs[0].bytes_of(0) == bytes(range(35)) and pair.input.next == 1

    successor = End(0, incarnation=2)
    assert successor.output is not None
    successor.output.dial(1, 0)
    pair.receiver.exchange.announce(0, 2)
    for lost in (0, 2, None):
        (hello,) = parts_of([successor.exchange._hello_frame(successor.output, 0)])
        answers = parts_of(pair.receiver.receive(hello))
        assert [read_header(parts, JOB).kind for parts in answers] == [wire.LOGS] * 3 + [wire.WELCOME]
        for place, parts in enumerate(answers):
            if place != lost:
                successor.exchange.receive(b"", parts, True, 0)
        assert successor.output.welcomed is (lost is None)
        assert successor.holdings.own.extent(0) == (35 if lost is None else 0)
    assert successor.holdings.own.bytes_of(0) == bytes(range(35))


def test_a_welcome_that_promises_more_than_came_is_not_taken() -> None:
    successor = End(0, incarnation=2)
    assert successor.output is not None
    successor.output.dial(1, 0)
    successor.exchange.pump(0)
    welcome = wire.Welcome(1, 0, 0, [(0, 3, 8)], [], [])
    header = Header(wire.WELCOME, JOB, CHANNEL, 1)
    successor.exchange.receive(b"", [header.pack(), welcome.pack()], True, 0)
    assert not successor.output.welcomed
    assert successor.lines == ["dropped a frame: log of task 0, epoch 3: only 0 of 8 bytes have arrived"]


def test_a_welcome_that_contradicts_for_long_ends_the_wait() -> None:
    successor = End(0, incarnation=2)
    assert successor.output is not None
    successor.output.dial(1, 0)
    header = Header(wire.WELCOME, JOB, CHANNEL, 1)

    def contradict(attempt: int, extent: int, now_ns: int) -> None:
        welcome = wire.Welcome(attempt, 0, 0, [(0, 0, extent)], [], [])
        successor.exchange.receive(b"", [header.pack(), welcome.pack()], True, now_ns)

    for attempt in range(1, 2 * CONTRADICTIONS_MAX):
        contradict(attempt, 8, attempt)
    with pytest.raises(DeterminantsLost, match="0 of 8 bytes have arrived.*start the job without --resume"):
        contradict(99, 8, CONTRADICTED_NS_MAX + 1)
    successor.output.dial(2, CONTRADICTED_NS_MAX)
    header = Header(wire.WELCOME, JOB, CHANNEL, 2)
    for attempt in range(100, 99 + CONTRADICTIONS_MAX):
        contradict(attempt, 8, 2 * CONTRADICTED_NS_MAX + attempt)
    contradict(200, 0, 3 * CONTRADICTED_NS_MAX)
    assert successor.output.welcomed


def test_a_hello_is_repeated_until_it_is_answered() -> None:
    sender = End(0)
    assert sender.output is not None
    sender.output.dial(1, 0)
    assert len(sender.exchange.pump(0)) == 1 and sender.exchange.pump(HELLO_AGAIN_NS - 1) == []
    assert sender.exchange.next_deadline_ns() == HELLO_AGAIN_NS
    assert len(sender.exchange.pump(HELLO_AGAIN_NS)) == 1


def test_silence_about_what_is_outstanding_is_asked_about() -> None:
    pair = Pair()
    pair.send("lost")
    assert pair.sender.exchange.pump(PROBE_AFTER_NS) == []
    assert pair.sender.exchange.next_deadline_ns() == PROBE_AFTER_NS + 1
    (probe,) = pair.sender.exchange.pump(PROBE_AFTER_NS + 1)
    assert isinstance(probe, Send)
    (again,) = pair.answer(pair.receiver.receive(probe.parts))
    pair.receiver.receive(again)
    assert pair.input.next == 1


def test_credit_is_given_at_once_for_much_and_a_little_later_for_little() -> None:
    pair = Pair()
    pair.receiver.receive(pair.send("little"))
    pair.input.take(1)
    assert pair.receiver.exchange.credit(pair.input, 7) == []
    assert pair.receiver.exchange.next_deadline_ns() == 7 + CREDIT_WITHIN_NS
    (later,) = parts_of(pair.receiver.exchange.credit(pair.input, 7 + CREDIT_WITHIN_NS))
    assert pair.output.flow.outstanding_bytes
    pair.sender.receive(later)
    assert not pair.output.flow.outstanding_bytes
    pair.receiver.receive(pair.send("x" * CONFIG.channel_window_bytes))
    pair.input.take(1)
    (at_once,) = parts_of(pair.receiver.exchange.credit(pair.input, 8))
    assert read_header(at_once, JOB).position == 2


def test_frames_are_compressed_where_that_was_asked_for() -> None:
    pair = Pair()
    pair.sender.exchange.compress[1] = True
    frame = pair.send(*["the same text"] * 500)
    assert len(frame[2]) < 1_000 and read_header(frame, JOB).flags
    pair.receiver.receive(frame)
    assert pair.input.next == 500 and pair.receiver.standing()[2] == pair.output.digest


def test_what_was_never_heard_of_cannot_fill_the_memory() -> None:
    receiver = End(1)
    for number in range(10 * FAULT_SORTS_MAX):
        receiver.exchange.fault(chr(0x4E00 + number) * 1_000)
    assert len(receiver.lines) == len(receiver.exchange.faults) == FAULT_SORTS_MAX + 1
    assert sum(receiver.exchange.faults.values()) == 10 * FAULT_SORTS_MAX
    assert max(map(len, receiver.lines)) < 300


@given(st.sampled_from((0, 1, 2)), st.integers(0, 400), st.integers(0, 255))
def test_a_frame_damaged_anywhere_never_delivers_anything_else(part: int, place: int, to: int) -> None:
    pair = Pair()
    frame = pair.send("a", "b", determinant=b"\x80\x02")
    part_bytes = frame[part]
    place %= len(part_bytes)
    damaged = list(frame)
    damaged[part] = part_bytes[:place] + bytes((to,)) + part_bytes[place + 1 :]
    pair.receiver.receive(damaged)
    if pair.input.next:
        assert pair.input.take(2)[0].body == encode_records(["a", "b"])


def test_a_frame_that_is_partly_known_is_trimmed_at_a_chunk_or_refused() -> None:
    receiver, whole = End(1).input, RollingDigest()
    assert receiver is not None
    chunks = [Chunk(batch.RECORDS, 2, encode_records([i, i])) for i in range(3)]
    first, both = pack_chunks(chunks[:1]), pack_chunks(chunks[1:])
    receiver.accept(Header(wire.DATA, JOB, CHANNEL, 1, 0, 0, 2, 0, whole.feed(first)), first)
    digest = whole.feed(both)
    assert receiver.accept(Header(wire.DATA, JOB, CHANNEL, 1, 0, 0, 6, 0, digest), first + both)
    assert (receiver.next, receiver.queued) == (6, 6)
    other = pack_chunks([Chunk(batch.RECORDS, 7, encode_records(list(range(7))))])
    with pytest.raises(PeerViolation, match="position 6 lies inside a chunk"):
        receiver.accept(Header(wire.DATA, JOB, CHANNEL, 1, 0, 0, 7, 0, 1), other)
    assert (receiver.next, receiver.queued) == (6, 6)
