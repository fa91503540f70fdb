"""The echo of a task: the task's input and logs, forwarded to its hot standby in order (D18, 0026).

An echo never delays its task. If a standby lags too far or has lost a frame, the echo ends. After a pause, another echo
begins, with which the standby can resume at a later checkpoint. The states are those of
`causal.task.echo_states.ECHO`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

import xxhash

from causal.channels import wire
from causal.channels.echo_headers import EchoHeader, Start, read_echoed
from causal.channels.receiver import Receiver
from causal.channels.states import transition
from causal.cut import Cut
from causal.effects import Effect, Send
from causal.ids import HOT_STANDBY
from causal.logs.deltas import pack_deltas, split_deltas
from causal.logs.dissemination import Holdings
from causal.logs.log import LogDelta
from causal.logs.rollback import Extent, vector_of
from causal.records.values import encode
from causal.task.echo_states import ANSWERS, ECHO, EchoState, EchoStep

ECHO_BYTES_MAX = 64 << 20
"""The maximum number of echoed bytes that a hot standby has not performed yet."""
FRAME_BYTES_TARGET = 16 << 20
"""The target size in bytes of the payloads in one frame, and of the logs in one frame."""
FRAMES_MAX = 1 << 31
"""The maximum number of frames in one echo; frame numbers have 32 bits."""
AGAIN_NS_MIN, AGAIN_NS_MAX = 1_000_000_000, 60_000_000_000
"""The pause between the end of an echo and the next one; it doubles with each echo that the task gives up."""
_ACTIVE, _ABSENT = EchoState.ACTIVE, EchoState.ABSENT


def outputs_digest(cut: Cut) -> int:
    """Return a digest of the positions of a task's outputs at a barrier and of all elements sent before it."""
    return xxhash.xxh3_64_intdigest(encode([[channel, *cut.outputs[channel]] for channel in sorted(cut.outputs)]))


class Echo:
    """The sending end, which sends one numbered echo after another.

    Args:
        job: the fingerprint that every frame carries.
        channel: an output channel of the task, which identifies the sender of a frame to a process on another host.
        report: called once, with one line, if a standby cannot begin.
    """

    def __init__(
        self,
        job: int,
        channel: int,
        inputs: Iterable[Receiver],
        holdings: Holdings,
        report: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.state = EchoState.ABSENT
        self.rollback = 0
        """The number of the last rollback known to the task."""
        self._job = job
        self._channel = channel
        self._inputs = list(inputs)
        self._holdings = holdings
        self._incarnation = 0
        """The incarnation of the task in the last frame that was sent."""
        self._number = 0
        self._sequence = 0
        self._echoed: dict[int, dict[int, int]] = {}
        """Task → epoch → the number of bytes of that log echoed so far."""
        self._grown: dict[int, int] = {}
        self._depends: list[Extent] = []
        """The extents on which the frames waiting to be echoed depend."""
        self._frames: list[bytes | memoryview] = []
        self._frame_count = self._frame_bytes = 0
        self._full: list[tuple[bytes, int]] = []
        """The bodies of full frames, each with the number of DATA frames that it contains."""
        self._outstanding: deque[tuple[int, int]] = deque()
        """The end position and size in bytes of each frame that has been sent but not yet performed."""
        self._outstanding_bytes = 0
        self._report = report
        self._reported = False
        self._answered = False
        """Whether the standby has performed any part of this echo."""
        self._again_at_ns = 0
        self._again_ns = AGAIN_NS_MIN
        self._marked: tuple[int, int] = (-1, 0)
        """The last barrier, and the digest of the outputs at that barrier."""

    def _step(self, step: EchoStep) -> None:
        self.state = transition(ECHO, self.state, step, channel=self._channel)

    def begin(self) -> None:
        """Begin an echo immediately, because a new standby is connected."""
        self._step(EchoStep.ANNOUNCED)
        self._again_ns = AGAIN_NS_MIN
        self._open()

    def end(self) -> None:
        """End the echo, because there is no standby any more."""
        self._step(EchoStep.GONE)
        self._clear()

    def give_up(self, now_ns: int) -> None:
        """End an echo that the standby cannot follow; another one begins after a pause."""
        if self.state is _ACTIVE:
            self._clear()
            self._again_at_ns = now_ns + self._again_ns
            self._again_ns = min(2 * self._again_ns, AGAIN_NS_MAX)
        self._step(EchoStep.GIVEN_UP)

    def _clear(self) -> None:
        self._frames, self._full, self._depends = [], [], []
        self._outstanding.clear()
        self._frame_count = self._frame_bytes = self._outstanding_bytes = 0

    def _open(self) -> None:
        self._clear()
        self._number += 1
        self._sequence = 0
        self._echoed, self._grown = {}, {}
        self._answered = False
        if self._holdings.partial:
            self._depends = [*self._holdings.dependencies()]
            self._depends += [extent for receiver in self._inputs for extent in receiver.queued_depends()]
        for receiver in self._inputs:  # announce the position from which each input is echoed
            self._take(Start(receiver.id, receiver.next, self.rollback).header(self._job), b"")

    def take(self, header: wire.Header, payload: bytes | memoryview, depends: Sequence[Extent]) -> None:
        """Queue the uncompressed payload of a frame that the task has accepted, and its elements' dependencies."""
        if self.state is _ACTIVE:
            if self._holdings.partial:
                self._depends += depends
            header.flags, header.plain_bytes = 0, len(payload)
            self._take(header, payload)

    def _take(self, header: wire.Header, payload: bytes | memoryview) -> None:
        size = wire.HEADER_BYTES + len(payload)
        if self._frame_bytes + size > FRAME_BYTES_TARGET and self._frame_count:
            self._fill()
        self._frames += (header.pack(), payload)
        self._frame_count += 1
        self._frame_bytes += size

    def _fill(self) -> None:
        self._full.append((b"".join(self._frames), self._frame_count))
        self._frames, self._frame_count, self._frame_bytes = [], 0, 0

    def answered(self, header: wire.Header, now_ns: int) -> None:
        """Process the standby's report of how much of an echo it has performed, or that it has lost the echo.

        Raises:
            PeerViolation: `header` is not an ECHOED header.
        """
        report = read_echoed(header)
        if not ANSWERS[self.state] or (report.incarnation, report.echo) != (self._incarnation, self._number):
            return
        if report.lost:
            self.give_up(now_ns)
            return
        outstanding = self._outstanding
        while outstanding and outstanding[0][0] <= report.performed:
            self._outstanding_bytes -= outstanding.popleft()[1]
            self._again_ns = AGAIN_NS_MIN
            self._answered = True

    def due(self, cut: Cut, incarnation: int, now_ns: int) -> list[Effect]:
        """Return the frames to send at the end of a turn.

        Args:
            cut: the position of the task at the last barrier that it has passed.
        """
        if self.state is not _ACTIVE:
            if self.state is _ABSENT or now_ns < self._again_at_ns:
                return []
            self._step(EchoStep.DUE)
            self._open()
        deltas = self._fresh()
        if not self._frames and not deltas:
            return []
        if cut.epoch != self._marked[0]:
            self._marked = (cut.epoch, outputs_digest(cut))
        self._incarnation = incarnation
        self._fill()
        bodies = deque(self._full)
        groups = deque(split_deltas(deltas, FRAME_BYTES_TARGET))
        effects: list[Effect] = []
        while groups or bodies:
            # Elements are sent with or after the last logs, because the shadow needs the logs to perform them.
            body, count = bodies.popleft() if len(groups) < 2 else (b"", 0)
            logs = groups.popleft() if groups else []
            effects.append(self._frame(logs, body, count, more=bool(groups or bodies)))
        self._full, self._depends = [], []
        if self._outstanding_bytes > ECHO_BYTES_MAX or self._sequence >= FRAMES_MAX:
            self._report_late()
            self.give_up(now_ns)
        return effects

    def _report_late(self) -> None:
        """Report once that the standby has not begun because no checkpoint completed within `ECHO_BYTES_MAX`."""
        if not (self._answered or self._reported):
            self._reported = True
            self._report(
                f"its hot standby has not started within {ECHO_BYTES_MAX >> 20} MiB of input, and stays passive "
                "until a checkpoint completes within that much input; lower checkpoint_interval_s"
            )

    def _fresh(self) -> list[LogDelta]:
        """Return the parts of all logs that the standby lacks.

        These include the task's entire own log, because the shadow has to perform all of it.
        """

        deltas: list[LogDelta] = []
        for log in self._holdings.logs.values():
            if self._grown.get(log.task) == log.grown:
                continue
            self._grown[log.task] = log.grown
            echoed = self._echoed.get(log.task, {})
            self._echoed[log.task] = extents = log.extents()
            for epoch, extent in extents.items():
                start, begin = echoed.get(epoch, 0), log.begins.get(epoch, 0)
                if start < begin:
                    deltas.append(LogDelta(log.task, epoch, begin, b""))
                    start = begin
                if start < extent:
                    deltas.append(LogDelta(log.task, epoch, start, log.bytes_of(epoch, start)))
        return deltas

    def _frame(self, deltas: list[LogDelta], body: bytes, count: int, more: bool) -> Effect:
        """Return one frame; the last frame of a turn carries the dependencies of all elements in the turn."""

        depends = [] if more else [(*log, extent) for log, extent in sorted(vector_of(self._depends).items())]
        logs = pack_deltas(deltas, depends)
        header = EchoHeader(
            self._channel, self._incarnation, self._number, self._sequence, count, *self._marked, more, len(body)
        )
        self._sequence += 1
        size = len(body) + len(logs)
        self._outstanding.append((sum(receiver.next for receiver in self._inputs), size))
        self._outstanding_bytes += size
        return Send(HOT_STANDBY, [header.pack(self._job), logs, body])
