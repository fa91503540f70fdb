"""The session of a sending end: the current receiver, the elements that it requested, and the repeated HELLOs.

The session follows the table `causal.channels.states.SENDER`. The sender is a queue of elements with a cursor. A
WELCOME may move the cursor backwards or forwards. DATA is sent from the cursor for as long as there is credit.
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
"""The base interval at which an unanswered HELLO is repeated."""
GREETED_AGAIN_NS = 50_000_000
"""The time for which a promoted hot standby waits for the answer to the HELLO that it sent in advance."""
PROBE_AFTER_NS = 1_000_000_000
"""The time without new credit for outstanding frames after which a HELLO asks for the receiver's position."""
FRAMES_PER_CREDIT = 8
"""The allowance divided by this is the maximum frame size, so that the sender need not wait for each delivery."""
FRAMES_MAX = 1 << 31
"""The number of frames after which a new session begins, because frame numbers have only 32 bits."""
CONTRADICTIONS_MAX = 5
CONTRADICTED_NS_MAX = 10_000_000_000
"""The number of consecutive contradictory answers, and the time they span, after which repeating HELLO is pointless. A
contradiction caused by a lost frame, or by a neighbour that has not yet learned of a rollback, is resolved sooner."""

_GREETING, _OPEN = SenderState.GREETING, SenderState.OPEN
_WELCOMED = (SenderState.OPEN, SenderState.COMPARING)


class Sender(OutputQueue):
    """One channel to a downstream task.

    Args:
        target: the downstream task.
        window_bytes: the maximum number of outstanding bytes.
        name, position, digest, epoch, keeping: the arguments of `OutputQueue`.
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
        self.greeted = 0
        """The incarnation of the receiver that this process has greeted in advance over the current connection."""
        self.flow = Credit(window_bytes)
        self.seen = Seen()
        self.deltas = DeltaWriter()
        self.session = 0
        """The number of accepted WELCOMEs; each one restarts the record of the logs that the receiver lacks."""
        self.sequence = 0
        """The number of the next frame in the session."""
        self.attempt = 0
        """The number of the last HELLO."""
        self.accepted_attempt = 0
        self._attempt_at_truncation = 0
        self.hello_at_ns = 0
        """The time at which the next HELLO is due while the sender is waiting for an answer or for credit."""
        self._logs_ahead: dict[tuple[int, int, int], LogDelta] = {}
        """The log deltas that the announced incarnation of the receiver has sent ahead of its WELCOME."""
        self._contradictions = (0, 0)
        """The number of consecutive answers that contradicted this task's logs, and the time of the first of them."""
        self.sent_bytes = 0
        self.sent_frames = 0
        self.delta_bytes = 0

    # -- the session ---------------------------------------------------------------------------------------

    def _step(self, step: SenderStep) -> None:
        self.state = transition(SENDER, self.state, step, channel=self.id)

    @property
    def welcomed(self) -> bool:
        """Whether the receiver has answered the current HELLO."""
        return self.state in _WELCOMED

    @property
    def waiting(self) -> bool:
        """Whether the sender is waiting for an answer or for credit and therefore repeats HELLO."""
        return self.state is _GREETING or self.flow.outstanding_bytes > 0

    def dial(self, incarnation: int, now_ns: int) -> None:
        """Begin a session with a new receiver, or with a known receiver over a new connection.

        Only HELLO is sent until the receiver's WELCOME arrives. If the receiver has been greeted in advance, its answer
        is on its way.
        """
        self._step(SenderStep.ANNOUNCED)
        if incarnation != self.peer_incarnation:
            self._logs_ahead.clear()
        self.peer_incarnation = incarnation
        self.hello_at_ns = now_ns + (GREETED_AGAIN_NS if incarnation == self.greeted else 0)
        self.greeted = 0
        self.expected = None
        self.flow.begin()
        self._contradictions = (0, 0)

    def lose(self) -> None:
        """Record that the receiver is dead and has no successor yet: keep its elements, and stop waiting for it."""
        self._step(SenderStep.LOST)
        self.log.release_all()
        self.flow.forget()

    def hello(self, collecting: bool, now_ns: int) -> Hello:
        """Return the next HELLO; each repetition of an unanswered HELLO is delayed longer than the last."""
        self.attempt += 1
        if self.state is _GREETING:
            self.hello_at_ns = now_ns + min(HELLO_AGAIN_NS * self.attempt, PROBE_AFTER_NS)
        else:
            self._note_progress(now_ns)
        return Hello(self.attempt, self.log.start, self.log.end, self.log.start_digest, collecting)

    def greet_ahead(self, incarnation: int) -> Hello:
        """Return the HELLO with which a hot standby greets the receiver, which answers it after the promotion."""
        self.greeted = incarnation
        self.attempt += 1
        return Hello(self.attempt, self.log.start, self.log.end, self.log.start_digest, collect=True)

    def _note_progress(self, now_ns: int) -> None:
        self.hello_at_ns = now_ns + PROBE_AFTER_NS + 1

    def welcome(self, welcome: Welcome, replaying: bool, now_ns: int) -> bool:
        """Begin the session that the receiver requests; return whether the WELCOME was accepted.

        Raises:
            ReplayDivergence: the receiver has elements that differ from those sent or regenerated.
            DeterminantsLost: the receiver requests elements that were truncated.
        """
        if welcome.attempt and welcome.attempt <= self.accepted_attempt:
            return False
        if not welcome.attempt and (not self.welcomed or welcome.next > self.cursor_position):
            return False
        if welcome.next < self.log.start:
            if welcome.attempt <= self._attempt_at_truncation:
                return False  # this WELCOME was sent before the checkpoint that made these elements unnecessary
            raise DeterminantsLost(
                f"{self.name}: the receiver asks for position {welcome.next}, but the in-flight log begins at "
                f"{self.log.start}"
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

    def keep_ahead(self, deltas: Sequence[LogDelta]) -> None:
        """Store log deltas that were sent ahead of a WELCOME; if any are lost, a repeated HELLO requests them again."""
        for delta in deltas:
            self._logs_ahead[delta.task, delta.epoch, delta.offset] = delta

    def release_ahead(self) -> list[LogDelta]:
        """Return and clear the log deltas that arrived ahead of the WELCOME just received."""
        ahead, self._logs_ahead = self._logs_ahead, {}
        return list(ahead.values())

    def contradicted(self, now_ns: int) -> bool:
        """Count an answer whose logs contradict this task's logs; return whether to give up."""
        count, since_ns = self._contradictions
        if not count:
            since_ns = now_ns
        self._contradictions = (count + 1, since_ns)
        return count + 1 >= CONTRADICTIONS_MAX and now_ns - since_ns >= CONTRADICTED_NS_MAX

    # -- outgoing frames -----------------------------------------------------------------------------------

    def prepare_entry(self) -> Entry | None:
        """Return the entry to send next as one frame, which may combine several log entries (`InflightLog.frame_at`).

        Chunks that are still being gathered are sealed if nothing else is left to send. Return None if there is no
        entry, no credit or no peer. The payload of the entry may be on disk.
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
        """Record that the frame of `entry`, which `prepare_entry` last returned, was passed to the transport."""
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
        """Record that the receiver has delivered everything below `position` and now allows `allowance_bytes`."""
        self.flow.allow(allowance_bytes)
        if self.flow.pay(position):
            self._note_progress(now_ns)
        if not self.keeping:
            self.drop_delivered(position)
        if self.sequence >= FRAMES_MAX and self.state is _OPEN:
            self.dial(self.peer_incarnation, now_ns)

    @property
    def congested(self) -> bool:
        """Whether a connected peer does not keep up; if the peer is absent, elements stay in the in-flight log instead.

        Gathered elements wait in the same way as outstanding ones, so they may not exceed half of the allowance.
        """
        flow = self.flow
        if flow.outstanding_bytes < flow.allowance_bytes:
            return False
        return self.cursor < self.log.end_place or 2 * self._gathered_bytes >= flow.allowance_bytes

    def truncate(self, epoch: int) -> set[int]:
        """Drop the entries that complete checkpoint `epoch` covers; return the segments to remove from disk."""
        before = self.log.start
        dropped = super().truncate(epoch)
        if self.log.start > before:
            self._attempt_at_truncation = self.attempt
        return dropped

    def spillable(self) -> Sequence[Entry]:
        """Return the entries whose memory can be freed: the sent entries, or all entries while the peer is absent."""
        return self.log.spillable(self.cursor if self.welcomed else self.log.end_place)
