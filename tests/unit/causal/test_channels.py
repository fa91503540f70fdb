"""Two ends of a channel: whatever the network does between them, each element is accepted once, in order, unchanged."""

from __future__ import annotations

import pytest

from causal.channels import exchange, output_queue, wire
from causal.channels.flow import ALLOWANCE_BYTES_MIN, Allowance
from causal.channels.receiver import Receiver
from causal.channels.sender import Sender
from causal.channels.wire import Header, Welcome
from causal.errors import DeterminantsLost, OperatorFailed, PeerViolation, ReplayDivergence
from causal.inflight import Entry
from causal.records import batch
from causal.records.batch import Chunk, decode_records, encode_records

CREDIT = 1 << 16


def a_sender(position: int = 0, digest: int = 0, epoch: int = 0, credit: int = CREDIT, keeping: bool = True) -> Sender:
    sender = Sender(0, 1, "a to b", position, digest, epoch, credit, keeping=keeping)
    sender.dial(1, 0)
    return sender


def a_receiver() -> Receiver:
    return Receiver(0, 0, 0, 0, 0, False, 1 << 20)


def chunk_of(*records: object) -> Chunk:
    return Chunk(batch.RECORDS, len(records), encode_records(list(records)))


def introduce(sender: Sender, receiver: Receiver, replaying: bool = False) -> None:
    hello = sender.hello(False, 0)
    sender.welcome(receiver.welcome(hello.attempt), replaying, 0)


def header_of(entry: Entry) -> Header:
    return Header(wire.DATA, 0, 0, 1, 0, 0, entry.count, entry.first, entry.digest, 0)


def sent(sender: Sender) -> list[Entry]:
    entries = []
    while (entry := sender.prepare_entry()) is not None:
        sender.sent(entry, 0)
        entries.append(entry)
    return entries


def accept(receiver: Receiver, entry: Entry) -> bool:
    assert entry.payload is not None
    return receiver.accept(header_of(entry), entry.payload)


def everything(receiver: Receiver) -> list[object]:
    elements: list[object] = []
    while count := receiver.head_count(1000, 1 << 20):
        for chunk in receiver.take(count):
            elements += decode_records(chunk.body) if chunk.kind == batch.RECORDS else [chunk.kind]
    return elements


def test_without_replay_the_end_of_a_channel_is_kept_for_a_successor() -> None:
    sender, receiver = a_sender(keeping=False), a_receiver()
    introduce(sender, receiver)
    sender.put(chunk_of("a", "b"))
    sender.put(batch.end())
    assert all(accept(receiver, entry) for entry in sent(sender))
    assert everything(receiver) == ["a", "b", batch.END]
    sender.credit(receiver.delivered, CREDIT, 0)
    sender.dial(2, 0)
    hello = sender.hello(False, 0)
    assert (hello.low, hello.high) == (2, 3), "only the end is kept"
    successor = Receiver(0, 0, 0, hello.low, hello.low_digest, False, 1 << 20)
    successor.verifying = False  # as the channels of this guarantee are
    introduce(sender, successor)
    assert [accept(successor, entry) for entry in sent(sender)] == [True]
    assert everything(successor) == [batch.END]


@pytest.mark.parametrize("regenerated", [(1, 9), (1,), ((1, 2),)])
def test_a_replay_that_regenerates_something_else_is_a_divergence(regenerated: tuple[object, ...]) -> None:
    sender, receiver = a_sender(), a_receiver()
    introduce(sender, receiver)
    for record in (1, 2):
        sender.put(chunk_of(record))
        accept(receiver, sent(sender)[0])
    again = a_sender()
    introduce(again, receiver, replaying=True)
    with pytest.raises(ReplayDivergence, match="^a is nondeterministic: use ctx.* what b received"):
        for records in regenerated:
            again.put(chunk_of(*(records if isinstance(records, tuple) else (records,))))
        again.replayed()


def test_a_live_sender_is_told_more_than_it_ever_sent() -> None:
    sender = a_sender()
    with pytest.raises(ReplayDivergence):
        sender.welcome(Welcome(1, 5, 123, [], [], []), False, 0)


def test_elements_that_were_truncated_are_lost() -> None:
    sender, receiver = a_sender(), a_receiver()
    introduce(sender, receiver)
    sender.put(chunk_of(1))
    sender.put(batch.barrier(1))
    sender.truncate(1)
    with pytest.raises(DeterminantsLost, match="begins at 2"):
        introduce(sender, receiver)


def test_credit_bounds_what_is_outstanding_and_a_lost_peer_does_not_congest() -> None:
    sender, receiver = a_sender(credit=100), a_receiver()
    introduce(sender, receiver)
    for number in range(30):
        sender.put(chunk_of(b"x" * 20, number))
        sent(sender)
    sender.seal()
    assert sender.congested and sender.prepare_entry() is None
    sender.credit(2, CREDIT, 0)
    assert len(sent(sender)) > 0
    sender.lose()
    assert not sender.congested and sender.prepare_entry() is None


@pytest.mark.parametrize("allowance", [1 << 16, 1 << 18, 1 << 20])
def test_what_gathers_without_credit_is_bounded_by_the_allowance(allowance: int) -> None:
    sender = a_sender(credit=4 << 20)
    introduce(sender, a_receiver())
    sender.credit(0, allowance, 0)
    event = chunk_of(b"x" * 5_000)
    while not sender.congested:
        sender.put(event)
        sent(sender)
    waiting = sender._gathered_bytes + sum(
        e.size for e in map(sender.log.at, range(sender.cursor, sender.log.end_place))
    )
    gathered_max = min(allowance // 2, output_queue.FRAME_BYTES_TARGET)
    assert gathered_max <= waiting < gathered_max + 2 * event.size
    assert sender.flow.outstanding_bytes < allowance + 2 * event.size


def test_an_answer_that_comes_late_does_not_set_the_sender_back() -> None:
    sender, receiver = a_sender(), a_receiver()
    stale = receiver.welcome(sender.hello(False, 0).attempt)
    introduce(sender, receiver)
    sender.put(chunk_of(1))
    assert len(sent(sender)) == 1
    assert sender.welcome(stale, False, 0) is False
    assert sent(sender) == []


def test_asking_where_the_peer_stands_does_not_give_credit_for_what_waits_there() -> None:
    sender, receiver = a_sender(credit=200), a_receiver()
    introduce(sender, receiver)

    def exchanged() -> int:
        for entry in sent(sender):
            accept(receiver, entry)
        return receiver.queued_bytes

    for number in range(50):
        sender.put(chunk_of(b"x" * 20, number))
        sender.seal()
    waiting = exchanged()
    assert 200 <= waiting < 300
    for _ in range(5):
        introduce(sender, receiver)
        assert exchanged() == waiting
    everything(receiver)
    introduce(sender, receiver)  # a WELCOME says what was delivered too: no CREDIT may have come through
    assert 200 <= exchanged() < 300


def test_what_was_lost_on_the_way_is_sent_again_at_once_and_counted_once() -> None:
    sender, receiver = a_sender(credit=200), a_receiver()
    introduce(sender, receiver)
    for number in range(50):
        sender.put(chunk_of(b"x" * 20, number))
        sender.seal()
    first, *lost = sent(sender)
    accept(receiver, first)
    introduce(sender, receiver)
    again = sent(sender)
    assert [entry.first for entry in again] == [entry.first for entry in lost]
    assert sender.prepare_entry() is None


def test_an_answer_from_before_a_checkpoint_is_stale_and_not_a_loss() -> None:
    sender, receiver = a_sender(), a_receiver()
    introduce(sender, receiver)
    sender.put(chunk_of(1))
    late = receiver.welcome(sender.hello(False, 0).attempt)
    unasked = receiver.welcome(0)
    sender.put(batch.barrier(1))
    for entry in sent(sender):
        assert accept(receiver, entry)
    sender.truncate(1)
    assert sender.welcome(late, False, 0) is False and sender.welcome(unasked, False, 0) is False
    assert sender.welcomed and sender.prepare_entry() is None
    with pytest.raises(
        DeterminantsLost, match="begins at 2"
    ):  # asked after the checkpoint, it says the same: it has lost them
        sender.welcome(Welcome(sender.hello(False, 0).attempt, 0, 0, [], [], []), False, 0)


def test_a_batch_that_no_frame_can_carry_blames_the_operator() -> None:
    sender, receiver = a_sender(credit=1 << 30), a_receiver()
    introduce(sender, receiver)
    sender.put(chunk_of("before"))
    largest = Chunk(batch.RECORDS, 1, bytes(output_queue.CHUNK_BYTES_MAX))
    sender.put(largest)
    (entry,) = sent(sender)
    deltas = exchange.DELTA_BYTES_TARGET + output_queue.FRAME_BYTES_TARGET
    assert wire.HEADER_BYTES + deltas + entry.size <= wire.FRAME_BYTES_MAX
    with pytest.raises(OperatorFailed, match="a to b, position 2: .* lower batch_elements_max"):
        sender.put(Chunk(batch.RECORDS, 1, bytes(output_queue.CHUNK_BYTES_MAX + 1)))


def a_sender_whose_frames_were_small(receiver: Receiver, records: int) -> Sender:
    sender = a_sender()
    introduce(sender, receiver)
    for number in range(records):
        sender.put(chunk_of(number))
        assert len(sent(sender)) == 1
    return sender


def test_what_left_in_small_frames_is_sent_again_in_one() -> None:
    sender = a_sender_whose_frames_were_small(a_receiver(), 100)
    receiver = a_receiver()
    introduce(sender, receiver)
    (frame,) = sent(sender)
    assert (frame.first, frame.count, frame.digest) == (0, 100, sender.digest)
    assert accept(receiver, frame) and everything(receiver) == list(range(100))
    assert receiver.welcome(1).digest == sender.digest and sender.sent_frames == 101


def test_frames_that_lie_in_a_region_are_sent_and_sent_again_as_they_are() -> None:
    sender, first, second = a_sender(), a_receiver(), a_receiver()
    introduce(sender, first)
    records = ["x" * 5_000, "y" * 6_000, "z"]
    frames = []
    for record in records:
        sender.put(chunk_of(record))
        frames += sent(sender)
    assert [type(entry.payload) for entry in frames] == [memoryview, memoryview, bytes]
    for entry in frames:
        _, payload = wire.pack_payload(header_of(entry), entry.payload or b"", compress=False)
        assert type(payload) is bytes and payload == entry.payload and accept(first, entry)
    assert everything(first) == records
    sender.dial(2, 0)
    introduce(sender, second)
    for entry in sent(sender):
        assert accept(second, entry)
    assert everything(second) == records


def test_a_barrier_ends_a_frame_that_is_sent_again() -> None:
    sender = a_sender_whose_frames_were_small(a_receiver(), 3)
    sender.put(batch.barrier(1))
    sender.put(chunk_of("behind"))
    receiver = a_receiver()
    introduce(sender, receiver)
    frames = sent(sender)
    assert [(frame.first, frame.count, frame.epoch) for frame in frames] == [(0, 4, 0), (4, 1, 1)]
    assert all(accept(receiver, frame) for frame in frames)
    assert everything(receiver) == [0, 1, 2, batch.BARRIER, "behind"]


def test_a_frame_that_is_sent_again_stays_within_its_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    sender = a_sender_whose_frames_were_small(a_receiver(), 100)
    size = sender.log.at(0).size
    monkeypatch.setattr(output_queue, "FRAME_BYTES_TARGET", 10 * size)
    introduce(sender, a_receiver())
    assert [frame.count for frame in sent(sender)] == [10] * 10
    sender.flow.window_bytes = sender.flow.allowance_bytes = 60 * size
    introduce(sender, a_receiver())
    assert [frame.count for frame in sent(sender)] == [7] * 8 + [4]
    sender.credit(14, 60 * size, 0)
    assert [frame.count for frame in sent(sender)] == [7, 7]


def test_what_is_on_disk_is_asked_for_before_it_joins_a_frame() -> None:
    receiver = a_receiver()
    sender = a_sender_whose_frames_were_small(receiver, 6)
    entries = [sender.log.at(place) for place in range(2, sender.log.end_place)]
    payloads = {entry.first: bytes(entry.payload or b"") for entry in entries}
    sender.log.spilled(1, 2, 2)
    introduce(sender, a_receiver())
    frame = sender.prepare_entry()
    assert frame is not None and (frame.first, frame.count) == (0, 2)
    sender.sent(frame, 0)
    frame = sender.prepare_entry()
    assert frame is not None and (frame.first, frame.payload, frame.segment) == (2, None, 1)
    sender.loaded(1, payloads)
    (frame,) = sent(sender)
    assert (frame.first, frame.count) == (2, 4)
    assert [sender.log.at(place).payload for place in (2, 3)] == [None, None]


def test_the_allowance_follows_the_pace_of_delivery() -> None:
    most = 4 << 20
    flow = Allowance(most, hoarding=False)
    flow._measured_bytes = 1 << 21
    flow.resize(10_000_000)
    assert flow.allowance_bytes == ALLOWANCE_BYTES_MIN, "too short to decide"
    flow.resize(100_000_000)
    assert flow.allowance_bytes == 2 * ALLOWANCE_BYTES_MIN, "it at most doubles"
    flow._measured_bytes = 1_000_000
    flow.resize(200_000_000)
    assert flow.allowance_bytes == 100_000, "what is delivered in the time that it should take"
    flow.resize(5_000_000_000)
    assert flow.allowance_bytes == ALLOWANCE_BYTES_MIN
    for turn in range(1, 10):
        flow._measured_bytes = 1 << 30
        flow.resize(5_000_000_000 + turn * 100_000_000)
    assert flow.allowance_bytes == most


def test_the_allowance_of_a_hoard_grows_whatever_is_delivered() -> None:
    flow = Allowance(4 << 20, hoarding=True)
    for turn in range(3):
        flow.resize(turn)
    assert flow.allowance_bytes == 8 * ALLOWANCE_BYTES_MIN


def test_a_sender_keeps_to_what_it_is_allowed() -> None:
    sender, receiver = a_sender(credit=4 << 20), a_receiver()
    introduce(sender, receiver)
    assert sender.flow.allowance_bytes == ALLOWANCE_BYTES_MIN
    sender.credit(0, 1 << 40, 1)
    assert sender.flow.allowance_bytes == 4 << 20
    sender.credit(0, 0, 1)
    assert sender.flow.allowance_bytes == ALLOWANCE_BYTES_MIN
    sender.dial(2, 2)
    assert sender.flow.allowance_bytes == ALLOWANCE_BYTES_MIN


def test_what_waits_is_credited_up_to_a_bound() -> None:
    channel = Receiver(0, 0, 0, 0, 0, False, 1 << 20, hoard_bytes_max=100)
    assert channel.credited == 0
    channel.next, channel.queued_bytes = 10, 100
    assert channel.credited == 10
    channel.queued_bytes = 101
    assert channel.credited == 0
    with pytest.raises(PeerViolation):
        channel.accept_chunks(10, [Chunk(batch.RECORDS, 4, b"....")])
        channel.take(3)
