"""The session of a receiving end: which process the sender is, which of its frames is next, which HELLO waits.

The session follows the table `causal.channels.states.RECEIVER`.  It is a queue of elements, filled from the youngest
incarnation of the sender only (D2, D6); a frame that is not the next one is answered with where this end stands.
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
"""A gap is reported at most so often."""


@dataclass(frozen=True, slots=True)
class EarlyHello:
    """A HELLO of an incarnation that the supervisor has not announced yet.

    Attributes:
        link: where its sender is answered.
    """

    incarnation: int
    link: bytes
    hello: Hello


class Upstream(NamedTuple):
    """The tasks whose determinants a channel carries, as the graph says.

    Attributes:
        behind: the tasks whose logs its elements may depend on.
        shared: the tasks whose logs the sender passes on.
        held_by_sender: the tasks whose logs the sender holds.  Another path may bypass the sender, so that this
            task holds logs that the sender is too far away to hold.
    """

    behind: tuple[TaskIndex, ...] = ()
    shared: frozenset[TaskIndex] = frozenset()
    held_by_sender: tuple[TaskIndex, ...] = ()


class Receiver(FramedQueue):
    """One channel from a task upstream; its arguments are those of a queue, and the tasks from the graph."""

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
        """The connection on which the sender is answered."""
        self.next_frame = (0, 0)
        """The session, and the number in it, of the frame that follows the last one."""
        self.deltas = DeltaReader()
        self.staged: list[LogDelta] = []
        """Deltas that travelled ahead of the frame whose elements depend on them."""
        self._held_hello: Hello | None = None
        self._early_hello: EarlyHello | None = None
        self._resync_at_ns = 0
        self.corrupt_frames = 0
        """Frames in a row that were next in line and could not be taken."""

    # -- the session ---------------------------------------------------------------------------------------

    def _step(self, step: ReceiverStep) -> None:
        self.state = transition(RECEIVER, self.state, step, channel=self.id)

    def announce(self, incarnation: int) -> None:
        """Record that the sender is that incarnation; a new one numbers its sessions from the beginning."""
        self._step(ReceiverStep.ANNOUNCED)
        if incarnation != self.peer_incarnation:
            self.peer_incarnation = incarnation
            self.next_frame = (0, 0)

    def collected(self) -> Hello | None:
        """Record that this task may answer, and return the HELLO that waited for that."""
        self._step(ReceiverStep.COLLECTED)
        hello, self._held_hello = self._held_hello, None
        return hello

    def greet(self, link: bytes, hello: Hello) -> Hello | None:
        """Accept a HELLO of the announced sender; returns it if it can be answered now, otherwise it is held."""
        self.link = link
        if self.state is ReceiverState.OPEN:
            return hello
        self._held_hello = hello
        return None

    def keep_early(self, early: EarlyHello) -> None:
        """Keep a HELLO until its incarnation is announced; of several the lowest, which is the next to be announced."""
        if self._early_hello is None or early.incarnation <= self._early_hello.incarnation:
            self._early_hello = early

    def take_early(self) -> EarlyHello | None:
        """Return the HELLO that was kept, once its incarnation is announced; one below the announced is dropped."""
        early = self._early_hello
        if early is None or early.incarnation > self.peer_incarnation:
            return None
        self._early_hello = None
        return early if early.incarnation == self.peer_incarnation else None

    def welcome(self, attempt: int) -> Welcome:
        """Return the answer to a HELLO, or with attempt 0 the report of a gap, without determinants."""
        return Welcome(attempt, self.next, self.digest, [], [], [], self.credited)

    def give_back(self) -> None:
        self.staged.clear()
        self._held_hello = None
        super().give_back()

    # -- frames in -----------------------------------------------------------------------------------------

    def follows(self, session: int, sequence: int) -> bool | None:
        """Return true if a frame is the next one, false if frames before it are missing, None if it is an old one.

        Positions alone cannot show it: a frame that was lost may have repeated elements that are here already, and
        yet have carried determinants that are not (found by the rough world, seed 117).
        """
        frame = (session, sequence)
        if frame < self.next_frame:
            return None
        return frame == self.next_frame or (sequence == 0 and session > self.next_frame[0])

    def followed(self, session: int, sequence: int) -> None:
        """Record that the deltas of the last frame read are stored."""
        self.deltas.commit()
        self.next_frame = (session, sequence + 1)

    def resync_due(self, now_ns: int) -> bool:
        """Return whether a gap is to be reported now: not for every later frame."""
        if now_ns < self._resync_at_ns:
            return False
        self._resync_at_ns = now_ns + RESYNC_NOT_BEFORE_NS
        return True
