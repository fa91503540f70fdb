"""The session of a receiving end: the current sender, the next frame to accept, and a HELLO that is waiting.

The session follows the table `causal.channels.states.RECEIVER`. The receiver is a queue of elements that only the
latest incarnation of the sender fills (D2, D6). A frame after a gap is answered with the position of this end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from causal.channels.queue import FramedQueue
from causal.channels.states import RECEIVER, ReceiverState, ReceiverStep, transition
from causal.channels.wire import Hello, Welcome
from causal.ids import TaskIndex
from causal.logs.deltas import DeltaReader
from causal.logs.log import LogDelta

RESYNC_NOT_BEFORE_NS = 20_000_000
"""The minimum time between two reports of a gap."""


@dataclass(frozen=True, slots=True)
class EarlyHello:
    """A HELLO from an incarnation that the supervisor has not announced yet.

    Attributes:
        link: the connection on which to answer the sender.
    """

    incarnation: int
    link: bytes
    hello: Hello


class Upstream(NamedTuple):
    """The tasks upstream of a channel, according to the topology.

    Attributes:
        behind: the tasks on whose logs the channel's elements may depend.
        shared: the tasks whose logs the sender passes on.
        held_by_sender: the tasks whose logs the sender holds. This task may hold more logs, because a shorter path may
            bypass the sender.
    """

    behind: tuple[TaskIndex, ...] = ()
    shared: frozenset[TaskIndex] = frozenset()
    held_by_sender: tuple[TaskIndex, ...] = ()


class Receiver(FramedQueue):
    """One channel from an upstream task.

    Args:
        upstream: the upstream tasks of the channel; the other arguments are those of `FramedQueue`.
    """

    def __init__(
        self,
        id: int,
        ordinal: int,
        source: int,
        position: int,
        digest: int,
        ended: bool,
        window_bytes: int,
        hoard_bytes_max: int = 0,
        upstream: Upstream = Upstream(),  # noqa: B008
    ) -> None:
        super().__init__(id, ordinal, source, position, digest, ended, window_bytes, hoard_bytes_max)
        self.upstream = upstream
        self.state = ReceiverState.UNKNOWN
        self.peer_incarnation = 0
        """The announced incarnation of the sender."""
        self.link: bytes | None = None
        """The connection over which the sender is answered."""
        self.next_frame = (0, 0)
        """The session of the next frame, and the number of that frame in the session."""
        self.deltas = DeltaReader()
        self.ahead: list[LogDelta] = []
        """The deltas that were sent ahead of the frame with the elements that depend on them."""
        self._held_hello: Hello | None = None
        self._early_hello: EarlyHello | None = None
        self._resync_at_ns = 0
        self.corrupt_frames = 0
        """The number of consecutive frames that were next in order but could not be accepted."""

    # -- the session ---------------------------------------------------------------------------------------

    def _step(self, step: ReceiverStep) -> None:
        self.state = transition(RECEIVER, self.state, step, channel=self.id)

    def announce(self, incarnation: int) -> None:
        """Record the sender's announced incarnation; a new incarnation numbers its sessions from the beginning."""
        self._step(ReceiverStep.ANNOUNCED)
        if incarnation != self.peer_incarnation:
            self.peer_incarnation = incarnation
            self.next_frame = (0, 0)

    def collected(self) -> Hello | None:
        """Record that this task may answer now; return the HELLO that has been waiting, or None."""
        self._step(ReceiverStep.COLLECTED)
        hello, self._held_hello = self._held_hello, None
        return hello

    def greet(self, link: bytes, hello: Hello) -> Hello | None:
        """Accept a HELLO from the announced sender; return it if it can be answered now, and hold it otherwise."""
        self.link = link
        if self.state is ReceiverState.OPEN:
            return hello
        self._held_hello = hello
        return None

    def keep_early(self, early: EarlyHello) -> None:
        """Keep a HELLO until its incarnation is announced; of several, keep the lowest, which is announced first."""
        if self._early_hello is None or early.incarnation <= self._early_hello.incarnation:
            self._early_hello = early

    def take_early(self) -> EarlyHello | None:
        """Return the kept HELLO once its incarnation has been announced; drop it if a higher one has been announced."""
        early = self._early_hello
        if early is None or early.incarnation > self.peer_incarnation:
            return None
        self._early_hello = None
        return early if early.incarnation == self.peer_incarnation else None

    def welcome(self, attempt: int) -> Welcome:
        """Return the answer to a HELLO, or the report of a gap if `attempt` is 0; determinants are not included."""
        return Welcome(attempt, self.next, self.digest, [], [], [], self.credited)

    def give_back(self) -> None:
        self.ahead.clear()
        self._held_hello = None
        super().give_back()

    # -- incoming frames -----------------------------------------------------------------------------------

    def follows(self, session: int, sequence: int) -> bool | None:
        """Return true if a frame is the next one, false if earlier frames are missing, and None if it is an old frame.

        Positions alone do not suffice. A lost frame may have repeated elements that this end already has, and may still
        have carried determinants that this task lacks (detected by the rough world, seed 117).
        """
        frame = (session, sequence)
        if frame < self.next_frame:
            return None
        return frame == self.next_frame or (sequence == 0 and session > self.next_frame[0])

    def followed(self, session: int, sequence: int) -> None:
        """Record that the deltas of the last frame read have been stored."""
        self.deltas.commit()
        self.next_frame = (session, sequence + 1)

    def resync_due(self, now_ns: int) -> bool:
        """Return whether to report a gap now, because a gap is not reported again for every later frame."""
        if now_ns < self._resync_at_ns:
            return False
        self._resync_at_ns = now_ns + RESYNC_NOT_BEFORE_NS
        return True
