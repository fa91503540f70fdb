"""Both ends of a channel against the list of what was put in: deaths of either end, losses, a disk, checkpoints.

Whatever happens between them, each element is delivered once, in order, unchanged; the in-flight log, in memory or on
disk, has all that the receiver may still ask for.  Sizes are small, so that a few elements fill frames and segments.
"""

from __future__ import annotations

from unittest import mock

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from causal import inflight
from causal.channels import output_queue, wire
from causal.channels.receiver import Receiver
from causal.channels.sender import Sender
from causal.channels.wire import Header, Welcome
from causal.inflight import Entry
from causal.records import batch
from causal.records.batch import Chunk, pack_chunks

CREDIT = 150
FRAME_BYTES_TARGET = 60
SEGMENT_BYTES = 100
STEPS_MAX = 10_000
Frame = tuple[Header, bytes | memoryview]


class Ends(RuleBasedStateMachine):
    """A sender, a receiver, what is under way between them, and the sender's disk."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = [
            mock.patch.object(output_queue, "FRAME_BYTES_TARGET", FRAME_BYTES_TARGET),
            mock.patch.object(inflight, "SEGMENT_BYTES", SEGMENT_BYTES),
        ]
        for patch in self.patches:
            patch.start()
        self.stream: list[Chunk] = []
        """All that the sender ever determined, from position 0."""
        self.firsts = [0]
        """Position of each chunk of the stream, and the one after the last."""
        self.put = 0
        """The number of chunks that this incarnation of the sender has sent."""
        self.received_most = 0
        self.delivered: list[Chunk] = []
        self.complete = 0
        self.sender_cuts = {0: (0, 0, 0)}
        self.receiver_cuts = {0: (0, 0, 0)}
        """Epoch → (chunks, position, digest) at its barrier."""
        self.disk: dict[int, dict[int, bytes]] = {}
        self.segments = 0
        self.writing: tuple[int, list[Entry]] | None = None
        self.answers: list[Welcome] = []
        self.frames: list[Frame] = []
        self.incarnation = 1
        self.receiver = Receiver(0, 0, 0, 0, 0, False, 1 << 20)
        self.sender = self._a_sender()

    def teardown(self) -> None:
        for patch in self.patches:
            patch.stop()

    def _a_sender(self) -> Sender:
        self.put, position, digest = self.sender_cuts[self.complete]
        sender = Sender(0, 1, "a to b", position, digest, self.complete, CREDIT, keeping=True)
        sender.dial(1, 0)
        self.receiver.announce(self.incarnation)
        return sender

    # -- elements ------------------------------------------------------------------------------------------------

    @property
    def _replaying(self) -> bool:
        return self.put < len(self.stream)

    def _put(self, chunk: Chunk) -> None:
        if not self._replaying:
            self.stream.append(chunk)
            self.firsts.append(self.firsts[-1] + chunk.count)
        chunk = self.stream[self.put]
        self.sender.put(chunk)
        self.put += 1
        if chunk.kind == batch.BARRIER:
            self.sender_cuts[batch.stamp_of(chunk)] = (self.put, self.sender.position, self.sender.digest)
        if not self._replaying:
            self.sender.replayed()

    @rule(body=st.binary(min_size=1, max_size=40), count=st.integers(1, 4))
    def put_records(self, body: bytes, count: int) -> None:
        self._put(Chunk(batch.RECORDS, count, body))

    @rule()
    def put_a_barrier(self) -> None:
        self._put(batch.barrier(self.sender.epoch + 1))

    # -- frames --------------------------------------------------------------------------------------------------

    @rule()
    def send(self) -> None:
        for _ in range(STEPS_MAX):
            entry = self.sender.prepare_entry()
            if entry is None:
                return
            if entry.payload is None:
                self.sender.loaded(entry.segment, self.disk[entry.segment])
            assert entry.payload is not None, "what is on disk comes back"
            joined = [each for each in self.entries() if entry.first <= each.first < entry.next]
            assert {each.epoch for each in joined} == {entry.epoch}, "a barrier ends a frame"
            assert len(joined) == 1 or entry.size <= FRAME_BYTES_TARGET, "joined entries stay within a bound"
            header = Header(
                wire.DATA, 0, 0, self.incarnation, self.sender.session, self.sender.sequence, entry.count, entry.first,
                entry.digest,
            )  # fmt: skip
            self.frames.append((header, entry.payload))
            self.sender.sent(entry, 0)
        raise AssertionError("sending never ends")

    @rule(copies=st.integers(0, 2))
    def a_frame_arrives(self, copies: int) -> None:
        """A frame is lost, or arrives once or twice."""
        if self.frames:
            frame = self.frames.pop(0)
            for _ in range(copies):
                self._arrive(*frame)

    def _arrive(self, header: Header, payload: bytes | memoryview) -> None:
        follows = self.receiver.follows(header.session, header.sequence)
        if follows is None:
            return
        if not follows or header.position > self.receiver.next:
            self.answers.append(self.receiver.welcome(0))
            return
        assert self.receiver.accept(header, payload)
        self.receiver.followed(header.session, header.sequence)
        self.received_most = max(self.received_most, self.receiver.next)

    @rule()
    def deliver(self) -> None:
        count = self.receiver.head_count(5, 60)
        if not count:
            return
        for chunk in self.receiver.take(count):
            assert chunk == self.stream[len(self.delivered)]
            self.delivered.append(chunk)
            if chunk.kind == batch.BARRIER:
                epoch = batch.stamp_of(chunk)
                cut = (len(self.delivered), self.receiver.delivered, self.receiver.digest_at_barrier(epoch))
                assert cut == self.sender_cuts[epoch], "both ends stand alike at a barrier"
                self.receiver_cuts[epoch] = cut

    @rule()
    def credit(self) -> None:
        self.sender.credit(self.receiver.delivered, self.sender.flow.window_bytes, 0)

    # -- handshakes ----------------------------------------------------------------------------------------------

    @rule()
    def hello(self) -> None:
        self.answers.append(self.receiver.welcome(self.sender.hello(False, 0).attempt))

    @precondition(lambda self: self.answers)
    @rule(place=st.integers(0, 9), again=st.booleans())
    def an_answer_arrives(self, place: int, again: bool) -> None:
        """Answer arrive in any order, late, or twice."""
        answer = self.answers[place % len(self.answers)]
        if not again:
            self.answers.remove(answer)
        self.sender.welcome(answer, self._replaying, 0)

    @rule()
    def shake_hands(self) -> None:
        self.hello()
        self.sender.welcome(self.answers.pop(), self._replaying, 0)

    @rule(
        sizes=st.lists(st.integers(1, 40), min_size=2, max_size=8),
        frames=st.integers(1, 9),
        deliveries=st.integers(0, 9),
    )
    def flow(self, sizes: list[int], frames: int, deliveries: int) -> None:
        """A stretch in which nothing fails."""
        if not self.sender.welcomed:
            self.shake_hands()
        for size in sizes:
            self._put(Chunk(batch.RECORDS, size % 3 + 1, bytes((size,)) * size))
        self.send()
        for _ in range(frames):
            self.a_frame_arrives(1)
        for _ in range(deliveries):
            self.deliver()
        self.credit()

    # -- checkpoints and the disk ----------------------------------------------------------------------------------

    @rule()
    def complete_a_checkpoint(self) -> None:
        epoch = self.complete + 1
        passed = self.put >= self.sender_cuts.get(epoch, (STEPS_MAX,))[0]
        if passed and epoch in self.receiver_cuts and len(self.delivered) >= self.receiver_cuts[epoch][0]:
            self.complete = epoch
            for segment in self.sender.truncate(epoch):
                del self.disk[segment]

    @precondition(lambda self: self.writing is None)
    @rule()
    def spill(self) -> None:
        entries = self.sender.spillable()
        if entries:
            self.segments += 1
            self.writing = (self.segments, list(entries))

    @precondition(lambda self: self.writing is not None)
    @rule()
    def the_segment_is_written(self) -> None:
        assert self.writing is not None
        segment, entries = self.writing
        self.writing = None
        first, count = entries[0].first, entries[-1].next - entries[0].first
        if self.sender.log.start < first + count:
            self.disk[segment] = {entry.first: bytes(entry.payload or b"") for entry in entries}
            self.sender.log.spilled(segment, first, count)

    @precondition(lambda self: self.writing is None)
    @rule()
    def spill_at_once(self) -> None:
        self.spill()
        if self.writing is not None:
            self.the_segment_is_written()

    @rule()
    def a_whole_checkpoint(self) -> None:
        """A barrier, and all the way until nothing below it is needed any more."""
        if self._replaying:
            return
        self._put(batch.barrier(self.sender.epoch + 1))
        self.all_calms_down()
        while self.complete < self.sender.epoch:
            self.complete_a_checkpoint()

    # -- deaths --------------------------------------------------------------------------------------------------

    @rule()
    def a_connection_is_cut(self) -> None:
        """All that is under way is lost; both ends live."""
        self.frames.clear()
        self.answers.clear()
        self.sender.dial(1, 0)

    @rule()
    def the_receiver_is_gone(self) -> None:
        """Dead without a successor: the sender waits for nothing."""
        self.frames.clear()
        self.answers.clear()
        self.sender.lose()
        assert self.sender.prepare_entry() is None and not self.sender.congested

    @rule()
    def the_receiver_is_replaced(self) -> None:
        chunks, position, digest = self.receiver_cuts[self.complete]
        self.receiver = Receiver(0, 0, 0, position, digest, False, 1 << 20)
        self.receiver.announce(self.incarnation)
        del self.delivered[chunks:]
        self.frames.clear()
        self.answers.clear()
        self.sender.dial(1, 0)

    @rule(kept=st.integers(0, 3))
    def the_sender_is_replaced(self, kept: int) -> None:
        """The new sender repeats what others have seen; what no one has seen may turn out otherwise."""
        seen = max(chunk for chunk in range(len(self.firsts)) if self.firsts[chunk] <= self.received_most)
        restored = self.sender_cuts[self.complete][0]
        keep = max(seen, restored, len(self.stream) - kept)
        del self.stream[keep:], self.firsts[keep + 1 :]
        self.sender_cuts = {e: cut for e, cut in self.sender_cuts.items() if cut[0] <= keep}
        self.frames.clear()
        self.answers.clear()
        self.disk.clear()
        self.writing = None
        self.incarnation += 1
        self.sender = self._a_sender()

    @rule()
    def all_calms_down(self) -> None:
        """Once nothing fails any more, everything arrives."""
        self.frames.clear()
        self.answers.clear()
        while self._replaying:
            self._put(self.stream[self.put])
        self.sender.dial(1, 0)
        for _ in range(STEPS_MAX):
            self.hello()
            self.sender.welcome(self.answers.pop(), False, 0)
            self.send()
            while self.frames:
                self.a_frame_arrives(1)
            while self.receiver.queued:
                self.deliver()
            self.credit()
            if len(self.delivered) == len(self.stream):
                break
        assert self.delivered == self.stream
        assert self.receiver.welcome(0).digest == self.sender.digest
        assert not self.sender.flow.outstanding_bytes and not self.receiver.queued_bytes

    def entries(self) -> list[Entry]:
        log = self.sender.log
        return [log.at(place) for place in range(log.first_place, log.end_place)]

    # -- what holds always ---------------------------------------------------------------------------------------

    @invariant()
    def the_log_covers_what_a_peer_may_ask_for(self) -> None:
        log = self.sender.log
        assert log.start == self.sender_cuts[self.complete][1] <= self.receiver.next
        position, memory, on_disk = log.start, 0, 0
        for entry in self.entries():
            assert entry.first == position
            packed = pack_chunks(self.stream[self.firsts.index(entry.first) : self.firsts.index(entry.next)])
            assert entry.payload in (None, packed) and entry.size == len(packed)
            if entry.payload is None:
                assert self.disk[entry.segment][entry.first] == packed
            memory += entry.size if entry.payload is not None else 0
            on_disk += entry.size if entry.segment else 0
            position = entry.next
        assert position == log.end <= self.sender.position
        assert (memory, on_disk) == (log.memory_bytes, log.disk_bytes)

    @invariant()
    def every_position_has_its_place(self) -> None:
        log = self.sender.log
        places = [log.place_of(position) for position in range(log.start, log.end + 1)]
        assert places == sorted(places) and None not in places  # type: ignore[type-var]
        assert log.place_of(log.end) == log.end_place and log.place_of(log.end + 1) is None
        assert not log.start or log.place_of(log.start - 1) is None

    @invariant()
    def the_disk_holds_no_segment_that_is_not_needed(self) -> None:
        assert {entry.segment for entry in self.entries()} - {0} == set(self.disk)

    @invariant()
    def delivered_is_a_prefix(self) -> None:
        assert self.delivered == self.stream[: len(self.delivered)]
        assert self.receiver.delivered == self.firsts[len(self.delivered)]


TestEnds = Ends.TestCase
TestEnds.settings = settings(stateful_step_count=100)
