"""A hot standby: receives the echo of its task, and has a task of its own perform it (D18, 0026).

It begins at a checkpoint from which on everything was echoed.  Whatever does not fit ends it without harm: the process
is a passive standby then, which has to load the last checkpoint again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from causal.channels import wire
from causal.cut import Cut
from causal.errors import PeerViolation
from causal.events import Echoed
from causal.logs.deltas import unpack_deltas
from causal.task.echo import ECHO_BYTES_MAX, outputs_digest
from causal.task.task import TaskProtocol

_NOWHERE = (0, 0, False)
Frame = tuple[wire.Header, bytes | memoryview]


def read_frames(header: wire.Header, body: bytes) -> list[Frame]:
    """Reads the frames in the body of an ECHO.

    Raises:
        PeerViolation: they are not what its header says.
    """
    frames: list[Frame] = []
    view, place = memoryview(body), 0
    for _ in range(header.count):
        inner = wire.read_echoed(view[place : place + wire.HEADER_BYTES], header.job)
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
        task: what performs the echo; None until a checkpoint is loaded from which it can begin.
        compared: the barriers at which its outputs were those of its task.
    """

    def __init__(self, job: int) -> None:
        self.task: TaskProtocol | None = None
        self.compared = 0
        self.incarnation = 0
        """The incarnation of the task whose echo counts, as the supervisor says."""
        self._job = job
        self._echo = (0, 0)
        """The incarnation of the task, and the number of its echo."""
        self._sequence = 0
        self._link = b""
        self._starts: dict[int, int] = {}
        """The position from which on each input is echoed."""
        self._parts: list[Echoed] = []
        """The frames that have arrived of a turn of the task that is not complete."""
        self._waiting: deque[Echoed] = deque()
        self._waiting_bytes = 0
        self._marks: dict[int, int] = {}
        """The digest of the task's outputs at each barrier that is still to be compared."""
        self._acknowledged = -1
        self._losing = False
        """Whether the task has still to hear that this echo is lost."""

    def receive(self, link: bytes, parts: Sequence[bytes]) -> bool:
        """Takes a frame; returns whether what was performed so far is void, because another echo has begun.

        Raises:
            PeerViolation: it is no frame of an echo, or does not follow on the one before.
        """
        try:
            header = wire.read_header(parts, self._job)
        except PeerViolation:
            return False  # if it was of this echo, the next one has a gap before it
        if header.kind != wire.ECHO or header.incarnation != self.incarnation:
            return False  # of a session, whose sender will hear of another receiver; or of another life of the task
        echo = (header.incarnation, header.session)
        if echo < self._echo or (echo == self._echo and self._sequence < 0):
            return False
        void = False
        if echo > self._echo:
            void = self.task is not None
            self._forget()
            self._echo, self._sequence, self._link = echo, 0, link
            if header.sequence:  # its first frame was lost, or came before the supervisor had named that incarnation
                self.lose()
                return void
        if header.sequence != self._sequence:
            raise PeerViolation(f"frame {header.sequence} of an echo, {self._sequence} is the next")
        self._link = link
        frames = read_frames(header, parts[2])
        if not header.sequence:
            self._starts = {}
        self._starts |= {inner.channel: inner.position for inner, _ in frames if not inner.count}
        self._parts.append(Echoed(*unpack_deltas(parts[1]), [frame for frame in frames if frame[0].count]))
        self._sequence += 1
        self._marks[header.position] = header.digest
        self._waiting_bytes += len(parts[1]) + len(parts[2])
        if self._waiting_bytes > 2 * ECHO_BYTES_MAX:
            raise PeerViolation("more of an echo waits than its task may send")
        if not header.origin_ns:  # otherwise logs follow that its events have asked for
            self._waiting += self._parts
            self._parts = []
        return void

    def _forget(self) -> None:
        self.task = None
        self._starts, self._marks = {}, {}
        self._parts = []
        self._waiting.clear()
        self._waiting_bytes, self._acknowledged = 0, -1

    def lose(self) -> None:
        """Gives up this echo; the next one begins from a later checkpoint."""
        self._forget()
        self._sequence, self._losing = -1, True

    def follows(self, cut: Cut) -> bool:
        """Whether everything that the task has taken since a checkpoint was echoed."""
        starts = self._starts
        return bool(starts) and all(start <= cut.inputs.get(each, _NOWHERE)[0] for each, start in starts.items())

    def hand_over(self, now_ns: int) -> None:
        """Hands what has arrived to the task, whose turns perform it.

        Raises:
            PeerViolation: it does not follow on what the task has.
        """
        task = self.task
        while task is not None and self._waiting:
            task.handle(self._waiting.popleft(), now_ns)
        if task is not None:
            self._waiting_bytes = 0

    def compare(self) -> str:
        """Compares the outputs at each barrier that both have passed; returns what differs, empty for nothing."""
        task = self.task
        if task is None:
            return ""
        cuts = task.execution.checkpointing.cuts
        for epoch in [epoch for epoch in self._marks if epoch <= task.schedule.epoch]:
            digest = self._marks.pop(epoch)
            if epoch in cuts and epoch > 0:
                if outputs_digest(cuts[epoch]) != digest:
                    return f"{task.name}: its hot standby has other output at barrier {epoch} than the task itself"
                self.compared += 1
        return ""

    def acknowledgement(self) -> tuple[bytes, list[bytes]] | None:
        """Returns the link of the task and the frame that reports how much has been performed; None for no news."""
        position, lost, self._losing = self._acknowledged, self._losing, False
        if self.task is not None:
            self._acknowledged = sum(channel.delivered for channel in self.task.channels.network)
        if not lost and position == self._acknowledged:
            return None
        header = wire.Header(
            wire.ECHOED, self._job, 0, *self._echo, count=lost, position=max(0, self._acknowledged)
        )  # fmt: skip
        return self._link, [header.pack()]

    @property
    def behind(self) -> int:
        """The elements that have been echoed and not been performed yet."""
        return 0 if self.task is None else sum(channel.queued for channel in self.task.channels.network)
