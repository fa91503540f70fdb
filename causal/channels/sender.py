"""The session of a sending end: which process the receiver is, what it asked for, and how it is asked again.

The session follows the table `causal.channels.states.SENDER`.  It is a queue of elements with a cursor, which a
WELCOME may set back or on; DATA leaves from there as far as credit goes.
"""

from __future__ import annotations

from collections.abc import Sequence

from causal.channels import output_queue
from causal.channels.flow import Credit
from causal.channels.output_queue import OutputQueue
from causal.channels.states import SENDER, SenderState, SenderStep, transition
from causal.channels.wire import Hello, Welcome
from causal.errors import DeterminantsLost
from causal.inflight import Entry
from causal.logs.deltas import DeltaWriter
from causal.logs.dissemination import Seen
from causal.logs.log import LogDelta

HELLO_AGAIN_NS = 100_000_000
"""A HELLO without an answer is repeated after this."""
PROBE_AFTER_NS = 1_000_000_000
"""The time without credit for outstanding frames after which a HELLO asks for the receiver's position."""
FRAMES_PER_CREDIT = 8
"""Frames that are sent again are a share of the credit, so that the sender need not wait for one to be delivered."""
FRAMES_MAX = 1 << 31
"""Frames of a session, whose numbers have 32 bits: after this many the next session begins."""
CONTRADICTIONS_MAX = 5
CONTRADICTED_NS_MAX = 10_000_000_000
"""The contradictory answers in a row, and the time they span, after which asking again is in vain: a lost frame, or a
neighbour that has not yet learned of a rollback, is repaired sooner."""

_GREETING, _OPEN = SenderState.GREETING, SenderState.OPEN
_WELCOMED = (SenderState.OPEN, SenderState.COMPARING)


class Sender(OutputQueue):
    """One channel to a task downstream.

    Args:
        target: the task.
        window_bytes: the most that may be outstanding.
        name, position, digest, epoch, keeping: as of a queue.
    """

    def __init__(
        self,
        id: int,
        target: int,
        name: str,
        position: int,
        digest: int,
        epoch: int,
        window_bytes: int,
        keeping: bool,
    ) -> None:
        super().__init__(name, position, digest, epoch, keeping)
        self.id = id
        self.target = target
        self.state = SenderState.ABSENT
        self.peer_incarnation = 0
        """The announced incarnation of the receiver."""
        self.flow = Credit(window_bytes)
        self.seen = Seen()
        self.deltas = DeltaWriter()
        self.session = 0
        """Rises with each WELCOME that counts; what is lacking downstream is counted from there."""
        self.sequence = 0
        """The number of the next frame in the session."""
        self.attempt = 0
        """The number of the last HELLO."""
        self.accepted_attempt = 0
        self._attempt_at_truncation = 0
        self.hello_at_ns = 0
        """The time at which HELLO is due, while an answer or credit is waited for."""
        self._logs_ahead: dict[tuple[int, int, int], LogDelta] = {}
        """Bytes of logs that travelled ahead of a WELCOME of this incarnation."""
        self._contradictions = (0, 0)
        """The number of answers in a row that contradicted the logs here, and the time of the first."""
        self.sent_bytes = 0
        self.sent_frames = 0
        self.delta_bytes = 0

    # -- the session ---------------------------------------------------------------------------------------

    def _step(self, step: SenderStep) -> None:
        self.state = transition(SENDER, self.state, step, channel=self.id)

    @property
    def welcomed(self) -> bool:
        """Whether the receiver has answered."""
        return self.state in _WELCOMED

    @property
    def waiting(self) -> bool:
        """Whether an answer or credit is waited for: HELLO is repeated then."""
        return self.state is _GREETING or self.flow.outstanding_bytes > 0

    def dial(self, incarnation: int, now_ns: int) -> None:
        """Begin a session with a receiver that is a new process, or new to this one: nothing is sent before its
        WELCOME.
        """
        self._step(SenderStep.ANNOUNCED)
        if incarnation != self.peer_incarnation:
            self._logs_ahead.clear()
        self.peer_incarnation = incarnation
        self.hello_at_ns = now_ns
        self.expected = None
        self.flow.begin()
        self._contradictions = (0, 0)

    def lose(self) -> None:
        """Record that the receiver is dead and has no successor yet: keep its elements, wait for nothing."""
        self._step(SenderStep.LOST)
        self.log.release_all()
        self.flow.forget()

    def hello(self, collecting: bool, now_ns: int) -> Hello:
        """Return the next HELLO; without an answer it is due again after a while, a longer one each time."""
        self.attempt += 1
        if self.state is _GREETING:
            self.hello_at_ns = now_ns + min(HELLO_AGAIN_NS * self.attempt, PROBE_AFTER_NS)
        else:
            self._note_progress(now_ns)
        return Hello(self.attempt, self.log.start, self.log.end, self.log.start_digest, collecting)

    def _note_progress(self, now_ns: int) -> None:
        self.hello_at_ns = now_ns + PROBE_AFTER_NS + 1

    def welcome(self, welcome: Welcome, replaying: bool, now_ns: int) -> bool:
        """Begin the session that the receiver requests; returns whether it is a new one.

        Raises:
            ReplayDivergence: it holds other elements than were sent or regenerated.
            DeterminantsLost: it wants elements that were truncated.
        """
        if welcome.attempt and welcome.attempt <= self.accepted_attempt:
            return False
        if not welcome.attempt and (not self.welcomed or welcome.next > self.cursor_position):
            return False
        if welcome.next < self.log.start:
            if welcome.attempt <= self._attempt_at_truncation:
                return False  # said before the checkpoint that made these elements needless
            raise DeterminantsLost(
                f"{self.name}: the peer wants position {welcome.next}, the in-flight log begins at {self.log.start}"
            )
        regenerated = self.resume(welcome.next, welcome.digest, replaying)
        self._step(SenderStep.WELCOMED if regenerated else SenderStep.OVERTAKEN)
        self.accepted_attempt = max(self.accepted_attempt, welcome.attempt)
        self.session += 1
        self.sequence = 0
        self.seen.reset(welcome.extents)
        self.deltas.begin()
        self.flow.settle(welcome.delivered, welcome.next)
        self._contradictions = (0, 0)
        self._note_progress(now_ns)
        return True

    def _regenerated(self) -> None:
        super()._regenerated()
        self._step(SenderStep.REGENERATED)

    def stage(self, deltas: Sequence[LogDelta]) -> None:
        """Store bytes of logs that travelled ahead of a WELCOME; a repeated HELLO requests them again."""
        for delta in deltas:
            self._logs_ahead[delta.task, delta.epoch, delta.offset] = delta

    def unstage(self) -> list[LogDelta]:
        """Return what has travelled ahead of the WELCOME that is here now."""
        staged, self._logs_ahead = self._logs_ahead, {}
        return list(staged.values())

    def contradicted(self, now_ns: int) -> bool:
        """Count an answer whose logs contradict those here; returns whether to give up."""
        count, since_ns = self._contradictions
        if not count:
            since_ns = now_ns
        self._contradictions = (count + 1, since_ns)
        return count + 1 >= CONTRADICTIONS_MAX and now_ns - since_ns >= CONTRADICTED_NS_MAX

    # -- frames out ----------------------------------------------------------------------------------------

    def next_entry(self) -> Entry | None:
        """Return what to send now as one frame, which may be several entries of the log (see `InflightLog.frame_at`).

        None when there is none, or no credit, or no peer.  Its payload may be on disk.
        """
        flow = self.flow
        room = flow.allowance_bytes - flow.outstanding_bytes
        if self.state is not _OPEN or room <= 0:
            return None
        if self.cursor >= self.log.end_place:
            if not self._gathered:
                return None
            self.seal()
        bytes_max = min(room, output_queue.FRAME_BYTES_TARGET, flow.allowance_bytes // FRAMES_PER_CREDIT)
        return self.log.frame_at(self.cursor, bytes_max)

    def sent(self, entry: Entry, now_ns: int) -> None:
        """Record that the frame of `entry`, which `next_entry` returned last, was handed to the transport."""
        flow = self.flow
        if not flow.outstanding_bytes:
            self._note_progress(now_ns)
        size = entry.size
        flow.charge(entry.next, size)
        self.sent_bytes += size
        self.sent_frames += 1
        self.sequence += 1
        self.cursor = self.log.release_sent(self.cursor, entry.next)

    def credit(self, position: int, allowance_bytes: int, now_ns: int) -> None:
        """Record that the receiver has delivered everything below `position` and allows that much under way."""
        self.flow.allow(allowance_bytes)
        if self.flow.pay(position):
            self._note_progress(now_ns)
        if not self.keeping:
            self.drop_delivered(position)
        if self.sequence >= FRAMES_MAX and self.state is _OPEN:
            self.dial(self.peer_incarnation, now_ns)

    @property
    def congested(self) -> bool:
        """Whether a connected peer does not keep up; an absent one owes nothing: the in-flight log takes over.

        What is gathered meanwhile waits as what is under way does, so half of the allowance bounds it too.
        """
        flow = self.flow
        if flow.outstanding_bytes < flow.allowance_bytes:
            return False
        return self.cursor < self.log.end_place or 2 * self._gathered_bytes >= flow.allowance_bytes

    def truncate(self, epoch: int) -> set[int]:
        """Checkpoint `epoch` is complete; returns segments on disk to remove."""
        before = self.log.start
        dropped = super().truncate(epoch)
        if self.log.start > before:
            self._attempt_at_truncation = self.attempt
        return dropped

    def spillable(self) -> Sequence[Entry]:
        """Return entries that memory can be had from: sent ones, or all while the peer is absent."""
        return self.log.spillable(self.cursor if self.welcomed else self.log.end_place)
