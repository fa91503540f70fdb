"""The sending end of a channel: numbers elements, keeps what went out, sends what the peer has credit for.

Elements enter once, in order (`put`).  They leave as frames from the in-flight log, at a cursor that a
WELCOME may set back.  While a replay regenerates what the peer has already, they enter and are kept, and
the cursor stands where the peer said; what was regenerated is compared there (D7).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from causal.batch import BARRIER, END, Chunk, pack_chunks
from causal.deltas import DeltaWriter
from causal.dissemination import Seen
from causal.errors import Lost, OperatorFailed, ReplayDivergence, invariant
from causal.inflight import Entry, InflightLog
from causal.input_channel import ALLOWANCE_BYTES_MIN
from causal.log import LogDelta
from causal.regions import Regions
from causal.rolling import RollingDigest
from causal.wire import Hello, Welcome

FRAME_BYTES_TARGET = 256 << 10
"""Chunks gather up to here while the peer does not keep up."""
FRAMES_PER_CREDIT = 8
"""What is sent again is not gathered into so few frames that the sender waits for the last of them to be delivered."""
CONTRADICTIONS_MAX = 5
CONTRADICTED_NS_MAX = 10_000_000_000
"""After so many answers in a row, over so long, that contradict what is held, asking again is in vain: a frame that was
lost, or a neighbour that has not heard yet of a rollback, is made up for sooner."""
CHUNK_BYTES_MAX = 40 << 20
"""A frame has room for it, for what was gathered before it, and for the determinants that do not travel ahead."""


@dataclass(slots=True)
class _Expected:
    """Where the peer stands, to be compared when the replay gets there."""

    position: int
    digest: int


class OutputChannel:
    """One channel to a task downstream.

    Args:
        position, digest: where it stood at the barrier that was restored.
        keeping: false for guarantees that never replay: entries are dropped once credited, but for the end of the
            channel, without which a successor of the peer would never end.
    """

    def __init__(
        self, id: int, target: int, name: str, position: int, digest: int, epoch: int, credit_bytes: int, keeping: bool
    ) -> None:
        self.id = id
        self.target = target
        self.name = name
        self.position = position
        self.epoch = epoch
        self.credit_bytes = credit_bytes
        self.allowance_bytes = min(credit_bytes, ALLOWANCE_BYTES_MIN)
        """What may be under way now; the peer says how much it is done with in a moment."""
        self.keeping = keeping
        self._regions = Regions()
        self.seen = Seen()
        self.deltas = DeltaWriter()
        self.log = InflightLog(position, digest)
        self.attempt = 0
        self.session = 0
        """Rises with each WELCOME that counts; what is lacking downstream is counted from there."""
        self.sequence = 0
        self.accepted_attempt = 0
        self._attempt_at_truncation = 0
        self.peer_incarnation = 0
        self.welcomed = False
        self.needs_hello = False
        self.hello_at_ns = 0
        self.progress_at_ns = 0
        self._digest = RollingDigest(digest)
        self._gathered: list[Chunk] = []
        self._gathered_bytes = 0
        self._cursor = 0
        self._outstanding: deque[tuple[int, int]] = deque()
        self._outstanding_bytes = 0
        self._expected: _Expected | None = None
        self._staged: dict[tuple[int, int, int], LogDelta] = {}
        self._staged_by = 0
        self._end: int | None = None
        """Position of the end, where it is kept by itself."""
        self._contradictions = 0
        self._contradicted_from_ns = 0
        self.sent_bytes = 0
        self.sent_frames = 0

    # -- elements in -------------------------------------------------------------------------------

    def put(self, chunk: Chunk) -> None:
        """Take what one event produced; a barrier closes the epoch and its frame.

        Raises:
            ReplayDivergence: the replay regenerated something else than the peer has.
            OperatorFailed: no frame could carry it.
        """
        size = len(chunk.body)
        if size > CHUNK_BYTES_MAX:
            raise OperatorFailed(
                f"{self.name}, position {self.position}: one batch was made into {chunk.count} records of together "
                f"{size} bytes, {CHUNK_BYTES_MAX} can be carried; emit less per record, "
                "or lower batch_elements_max"
            )
        if chunk.kind == END and not self.keeping:
            self.seal()
            self._end = self.position
        self._gathered.append(chunk)
        self._gathered_bytes += size
        self.position += chunk.count
        expected = self._expected
        reached = expected is not None and self.position >= expected.position
        if reached or chunk.kind == BARRIER or self._gathered_bytes >= FRAME_BYTES_TARGET:
            self.seal()
        if reached:
            self._compare()

    def seal(self) -> None:
        """What was gathered becomes one entry of the in-flight log."""
        if not self._gathered:
            return
        payload = pack_chunks(self._gathered)
        count = sum(chunk.count for chunk in self._gathered)
        origins = [chunk.origin_ns for chunk in self._gathered if chunk.origin_ns]
        before = self._digest.value
        after = self._digest.feed(payload)
        first = self.position - count
        kept = self._regions.keep(payload) if self.keeping else payload
        self.log.append(Entry(first, count, self.epoch, kept, len(payload), before, after, min(origins, default=0)))
        if self._gathered[-1].kind == BARRIER:
            self._digest.close()
            self.epoch += 1
        self._gathered = []
        self._gathered_bytes = 0

    @property
    def digest(self) -> int:
        """After the last sealed element."""
        return self._digest.value

    def _compare(self) -> None:
        expected = self._expected
        invariant(expected is not None and not self._gathered, "compared at a seal")
        if expected.position != self.position or expected.digest != self._digest.value:  # type: ignore[union-attr]
            raise self._divergence(expected)  # type: ignore[arg-type]
        self._expected = None
        self._cursor = self.log.end_place

    def _divergence(self, expected: _Expected) -> ReplayDivergence:
        here, _, target = self.name.partition(" to ")
        return ReplayDivergence(
            here, f"output up to {self.position} is not what {target} received up to {expected.position}"
        )

    @property
    def expecting(self) -> bool:
        """Whether the peer has elements that have not been regenerated yet."""
        return self._expected is not None

    def replayed(self) -> None:
        """The log is at its end: the peer cannot have more than what was regenerated.

        Raises:
            ReplayDivergence: it has.
        """
        if self._expected is not None:
            raise self._divergence(self._expected)

    # -- handshake ---------------------------------------------------------------------------------

    def redial(self, incarnation: int, now_ns: int) -> None:
        """The peer is a new process, or new to us: nothing is sent before its WELCOME."""
        self.peer_incarnation = incarnation
        self.allowance_bytes = min(self.credit_bytes, ALLOWANCE_BYTES_MIN)
        self._contradictions = 0
        self.welcomed = False
        self.needs_hello = True
        self.hello_at_ns = now_ns
        self._expected = None
        self._outstanding.clear()
        self._outstanding_bytes = 0

    def lose(self) -> None:
        """The peer is dead and has no successor yet: keep what it is owed, wait for nothing."""
        self.log.release_all()
        self.welcomed = False
        self.needs_hello = False
        self._outstanding.clear()
        self._outstanding_bytes = 0

    def hello(self, collect: bool) -> Hello:
        self.attempt += 1
        return Hello(self.attempt, self.log.start, self.log.end, self.log.start_digest, collect)

    def stage(self, deltas: Sequence[LogDelta], incarnation: int) -> None:
        """Bytes of logs that travelled ahead of a WELCOME; a HELLO that was repeated brings them again."""
        if incarnation != self._staged_by:
            self._staged, self._staged_by = {}, incarnation
        for delta in deltas:
            self._staged[delta.task, delta.epoch, delta.offset] = delta

    def unstage(self, incarnation: int) -> list[LogDelta]:
        """What this incarnation of the peer has staged, for its WELCOME that is here now."""
        staged, self._staged = self._staged, {}
        return list(staged.values()) if incarnation == self._staged_by else []

    def contradicted(self, now_ns: int) -> bool:
        """Count an answer whose logs contradict what is held; whether to give up."""
        if not self._contradictions:
            self._contradicted_from_ns = now_ns
        self._contradictions += 1
        lasted_ns = now_ns - self._contradicted_from_ns
        return self._contradictions >= CONTRADICTIONS_MAX and lasted_ns >= CONTRADICTED_NS_MAX

    def welcome(self, told: Welcome, replaying: bool, now_ns: int) -> bool:
        """The peer says what it wants next; returns whether that was news.

        Raises:
            ReplayDivergence: it holds other elements than we sent or regenerated.
            Lost: it wants elements that were truncated.
        """
        if told.attempt and told.attempt <= self.accepted_attempt:
            return False
        if not told.attempt and (not self.welcomed or told.next > self._cursor_position()):
            return False
        if told.next < self.log.start:
            if told.attempt <= self._attempt_at_truncation:
                return False  # said before the checkpoint that made these elements needless
            raise Lost(
                f"{self.name}: the peer wants position {told.next}, the in-flight log begins at {self.log.start}"
            )
        self.seal()
        self.log.release_all()
        self._expected = None
        expected = _Expected(told.next, told.digest)
        if told.next > self.log.end:
            if not replaying:
                raise self._divergence(expected)
            self._expected = expected
            self._cursor = self.log.end_place
        else:
            place = self.log.place_of(told.next)
            invariant(place is not None, "the in-flight log has no gaps", position=told.next)
            self._check_known(place, expected)  # type: ignore[arg-type]
            self._cursor = place  # type: ignore[assignment]
        self._contradictions = 0
        self.accepted_attempt = max(self.accepted_attempt, told.attempt)
        self.seen.reset(told.extents)
        self.deltas.begin()
        self.session += 1
        self.sequence = 0
        self.welcomed = True
        self.needs_hello = False
        self.progress_at_ns = now_ns
        self._settle(told)
        return True

    def _settle(self, told: Welcome) -> None:
        """What the peer has delivered is paid for, what it lacks was lost; what waits there is still outstanding."""
        while self._outstanding and self._outstanding[0][0] <= told.delivered:
            self._outstanding.popleft()
        while self._outstanding and self._outstanding[-1][0] > told.next:
            self._outstanding.pop()
        self._outstanding_bytes = sum(size for _, size in self._outstanding)

    def _check_known(self, place: int, expected: _Expected) -> None:
        if place == self.log.end_place:
            known = self._digest.value
        elif self.log.at(place).first == expected.position:
            known = self.log.at(place).digest_before
        else:
            return  # inside an entry: an earlier incarnation framed it otherwise; the receiver checks each frame
        if known != expected.digest:
            raise self._divergence(expected)

    def renumber(self, told: Welcome) -> None:
        """Without determinants there is nothing to line up with: go on where the peer stands (at-least-once, none)."""
        invariant(not self._gathered and self.log.end == self.position, "renumbered before anything was sent")
        self.position = told.next
        self._digest = RollingDigest(told.digest)
        self.log = InflightLog(told.next, told.digest)
        self._cursor = 0

    # -- frames out --------------------------------------------------------------------------------

    def _cursor_position(self) -> int:
        if self._cursor >= self.log.end_place:
            return self.log.end
        return self.log.at(max(self._cursor, self.log.first_place)).first

    def next_entry(self) -> Entry | None:
        """What to send now as one frame, which may be several entries of the log (see `InflightLog.frame_at`).

        None when there is none, or no credit, or no peer.  Its payload may be on disk.
        """
        room = self.allowance_bytes - self._outstanding_bytes
        if not self.welcomed or self._expected is not None or room <= 0:
            return None
        if self._cursor >= self.log.end_place:
            if not self._gathered:
                return None
            self.seal()
        return self.log.frame_at(self._cursor, min(room, FRAME_BYTES_TARGET, self.allowance_bytes // FRAMES_PER_CREDIT))

    def sent(self, entry: Entry, now_ns: int) -> None:
        """The frame of `entry`, the last that `next_entry` gave, has been handed to the transport."""
        if not self._outstanding:
            self.progress_at_ns = now_ns
        self._outstanding.append((entry.next, entry.size))
        self._outstanding_bytes += entry.size
        self.sent_bytes += entry.size
        self.sent_frames += 1
        self.sequence += 1
        self._cursor = self.log.release_sent(self._cursor, entry.next)

    def credit(self, position: int, allowance_bytes: int, now_ns: int) -> None:
        """The peer has delivered everything below `position`, and wants that much under way."""
        self.allowance_bytes = max(min(allowance_bytes, self.credit_bytes), min(ALLOWANCE_BYTES_MIN, self.credit_bytes))
        while self._outstanding and self._outstanding[0][0] <= position:
            self._outstanding_bytes -= self._outstanding.popleft()[1]
            self.progress_at_ns = now_ns
        if not self.keeping:
            place = self.log.place_of(position if self._end is None else min(position, self._end))
            if place is not None and place <= self._cursor:
                self.log.drop_before(place)

    def loaded(self, segment: int, payloads: dict[int, bytes]) -> None:
        """Payloads, by first position, have come back from disk, for those that are to be sent."""
        self.log.loaded(segment, payloads, self._cursor)

    @property
    def waiting_for_credit(self) -> bool:
        return bool(self._outstanding)

    @property
    def congested(self) -> bool:
        """Whether a connected peer does not keep up; never while it is away: then the in-flight log takes over."""
        return self.welcomed and self._outstanding_bytes >= self.allowance_bytes and self._cursor < self.log.end_place

    def truncate(self, epoch: int) -> set[int]:
        """Checkpoint `epoch` is complete; returns segments on disk to remove."""
        before = self.log.start
        gone = self.log.truncate(epoch)
        if self.log.start > before:
            self._attempt_at_truncation = self.attempt
        self._cursor = max(self._cursor, self.log.first_place)
        return gone

    def spillable(self) -> Sequence[Entry]:
        """Entries that memory can be had from: sent ones, or all while the peer is away."""
        return self.log.spillable(self._cursor if self.welcomed else self.log.end_place)
