"""A hot standby: receives the echo of its task, and makes its own task object perform the echo (D18, 0026).

The shadow begins at a checkpoint after which everything has been echoed. Any input that does not fit ends the shadow
without harm: the process is then a passive standby, which has to load the last checkpoint again. The states are those
of `causal.task.echo_states.SHADOW`, and ARRIVALS defines the handling of each frame.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from causal.channels import wire
from causal.channels.echo_headers import EchoedHeader, EchoHeader, read_echo, read_start
from causal.channels.states import transition
from causal.cut import Cut
from causal.errors import PeerViolation
from causal.events import Echoed
from causal.logs.deltas import unpack_deltas
from causal.task.echo import ECHO_BYTES_MAX, outputs_digest
from causal.task.echo_states import ARRIVALS, SHADOW, Action, Arrival, ShadowState, ShadowStep
from causal.task.task import TaskProtocol

_NOWHERE = (0, 0, False)
Frame = tuple[wire.Header, bytes | memoryview]


def read_frames(job: int, count: int, body: bytes) -> list[Frame]:
    """Read the frames in the body of an ECHO; `count` is their number, as stated in the header.

    Raises:
        PeerViolation: the body contradicts the header.
    """
    frames: list[Frame] = []
    view, place = memoryview(body), 0
    for _ in range(count):
        inner = wire.read_echoed(view[place : place + wire.HEADER_BYTES], job)
        place += wire.HEADER_BYTES
        payload = view[place : place + inner.plain_bytes]
        if len(payload) != inner.plain_bytes:
            raise PeerViolation("an echo is shorter than its frames")
        place += len(payload)
        frames.append((inner, payload))
    if place != len(body):
        raise PeerViolation("an echo is longer than its frames")
    return frames


class Shadow:
    """The receiving end of an echo.

    Args:
        job: the fingerprint of the job.

    Attributes:
        state: the state of the shadow.
        task: the task object that performs the echo; None in every state except PERFORMING.
        compared: the number of barriers at which the outputs of both tasks were equal.
    """

    def __init__(self, job: int) -> None:
        self.state = ShadowState.UNKNOWN
        self.task: TaskProtocol | None = None
        self.compared = 0
        self.incarnation = 0
        """The incarnation whose echo this shadow follows, as announced by the supervisor."""
        self.rollback = 0
        """The number of the last rollback known to the task when its echo began."""
        self._job = job
        self._echo = 0
        """The number of the last echo that has begun; 0 if the current incarnation has not begun one."""
        self._following = 0
        """The number of the next frame expected in that echo."""
        self._link = b""
        self._starts: dict[int, int] = {}
        """The position from which each input is echoed."""
        self._parts: list[Echoed] = []
        """The frames that have arrived from a turn of the task that is still incomplete."""
        self._waiting: deque[Echoed] = deque()
        self._waiting_bytes = 0
        self._marks: dict[int, int] = {}
        """The digest of the task's outputs at each barrier that has not been compared yet."""
        self._acknowledged = -1
        self._answer_due = False
        """Whether the task has to be informed, possibly again, that this echo is lost."""

    def _step(self, step: ShadowStep) -> None:
        self.state = transition(SHADOW, self.state, step, incarnation=self.incarnation, echo=self._echo)

    def announce(self, incarnation: int) -> bool:
        """Set the incarnation of the task to follow; return whether the work so far is void.

        Another incarnation may have performed different events since the checkpoint, because a task is free to do so if
        no other process holds its determinants.
        """
        if incarnation == self.incarnation:
            return False
        void = self.task is not None
        self._forget()
        self._step(ShadowStep.ANNOUNCED)
        self.incarnation, self._echo, self._answer_due = incarnation, 0, False
        return void

    def receive(self, link: bytes, parts: Sequence[bytes]) -> bool:
        """Store a frame; return whether the work so far is void because another echo has begun.

        Raises:
            PeerViolation: the frame does not follow the previous one, so the echo is lost.
        """
        try:
            echo = read_echo(wire.read_header(parts, self._job))
        except PeerViolation:
            return False  # if the frame belonged to this echo, the next frame will reveal a gap
        action = ARRIVALS[self.state][self._arrival(echo)]
        if action is Action.DROP:
            return False
        self._link = link
        if action is Action.ANSWER:
            self._answer_due = True
            return False
        void = action is Action.BEGIN and self.task is not None
        following, self._echo = self._following if echo.echo == self._echo else 0, echo.echo
        if action is Action.LOSE:
            self.lose()
            raise PeerViolation(f"frame {echo.number} of an echo arrived, but the next frame is {following}")
        if action is Action.BEGIN:
            self._forget()
            self._step(ShadowStep.BEGUN)
        try:
            self._take(echo, parts)
        except PeerViolation:
            self.lose()
            raise
        return void

    def _arrival(self, echo: EchoHeader) -> Arrival:
        if echo.incarnation != self.incarnation:
            return Arrival.FOREIGN
        if echo.echo != self._echo:
            later = Arrival.HEADLESS if echo.number else Arrival.FIRST
            return later if echo.echo > self._echo else Arrival.PAST
        if echo.number == self._following:
            return Arrival.NEXT
        return Arrival.AHEAD if echo.number > self._following else Arrival.REPEATED

    def _take(self, echo: EchoHeader, parts: Sequence[bytes]) -> None:
        frames = read_frames(self._job, echo.frames, parts[2])
        taken: list[Frame] = []
        for frame in frames:
            start = read_start(frame[0])
            if start is None:
                taken.append(frame)
            else:
                self._starts[start.channel], self.rollback = start.position, start.rollback
        self._parts.append(Echoed(*unpack_deltas(parts[1]), taken))
        self._following = echo.number + 1
        self._marks[echo.barrier] = echo.outputs
        self._waiting_bytes += len(parts[1]) + len(parts[2])
        if self._waiting_bytes > 2 * ECHO_BYTES_MAX:
            raise PeerViolation("more bytes of an echo are waiting than its task may send")
        if not echo.more:  # otherwise, more frames of the same turn follow, which must be performed together with these
            self._waiting += self._parts
            self._parts = []

    def _forget(self) -> None:
        self.task = None
        self._following = 0
        self._starts, self._marks = {}, {}
        self._parts = []
        self._waiting.clear()
        self._waiting_bytes, self._acknowledged = 0, -1

    def lose(self) -> None:
        """Give up the current echo; the next one will begin from a later checkpoint."""
        self._forget()
        self._step(ShadowStep.LOST)
        self._answer_due = True

    def begin(self, task: TaskProtocol) -> None:
        """Start to perform the echo with `task`, whose restored state is where the echo continues."""
        self._step(ShadowStep.LOADED)
        self.task = task

    def follows(self, cut: Cut) -> bool:
        """Return whether everything that the task has accepted since the checkpoint of `cut` has been echoed."""
        starts = self._starts
        behind = all(start <= cut.inputs.get(each, _NOWHERE)[0] for each, start in starts.items())
        return self.state is ShadowState.BUFFERING and bool(starts) and behind

    def hand_over(self, now_ns: int) -> None:
        """Pass the frames that have arrived to the task, whose turns perform them.

        Raises:
            PeerViolation: the frames do not continue the elements that the task already has.
        """
        task = self.task
        while task is not None and self._waiting:
            task.handle(self._waiting.popleft(), now_ns)
        if task is not None:
            self._waiting_bytes = 0

    def compare(self) -> str:
        """Compare the outputs at each barrier that both tasks have passed; return a message on a difference, or ""."""
        task = self.task
        if task is None:
            return ""
        cuts = task.execution.checkpointing.cuts
        for epoch in [epoch for epoch in self._marks if epoch <= task.cursor.epoch]:
            digest = self._marks.pop(epoch)
            if epoch in cuts and epoch > 0:
                if outputs_digest(cuts[epoch]) != digest:
                    return f"{task.name}: at barrier {epoch}, its hot standby has output that differs from the task's"
                self.compared += 1
        return ""

    def acknowledgement(self) -> tuple[bytes, list[bytes]] | None:
        """Return the link to the task and a frame that reports progress, or None if there is nothing new to report."""
        position, lost, self._answer_due = self._acknowledged, self._answer_due, False
        if self.task is not None:
            self._acknowledged = sum(channel.delivered for channel in self.task.channels.network)
        if not lost and position == self._acknowledged:
            return None
        header = EchoedHeader(self.incarnation, self._echo, lost, max(0, self._acknowledged))
        return self._link, [header.pack(self._job)]

    @property
    def behind(self) -> int:
        """The number of elements that have been echoed but not performed yet."""

        return 0 if self.task is None else sum(channel.queued for channel in self.task.channels.network)
