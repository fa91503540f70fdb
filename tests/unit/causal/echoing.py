"""Both ends of an echo for tests: the task's with one input, and the standby's, each without the process around it."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.harness.graphs import layered
from causal.channels import wire
from causal.channels.receiver import Receiver
from causal.channels.rolling import RollingDigest
from causal.channels.wire import Header
from causal.config import JobConfig
from causal.cut import Cut
from causal.effects import Effect, Send
from causal.ids import HOT_STANDBY
from causal.logs.dissemination import Holdings
from causal.logs.rollback import Extent
from causal.records.batch import barrier, pack_chunks
from causal.task.echo import Echo
from causal.task.echo_states import EchoState
from causal.task.shadow import Shadow
from causal.task.task import TaskProtocol
from operators.runtime.hot_standby import HotStandby
from tests.tasks import task_of

TOPOLOGY = layered((1, 1, 1))
CONFIG = JobConfig(run="r", name="n", pipeline="p", standbys="hot")
JOB = CONFIG.fingerprint(TOPOLOGY)
MIDDLE = TOPOLOGY.tasks[1].index
[INPUT] = [channel.id for channel in TOPOLOGY.inputs(MIDDLE)]
LINK = b"link"
ASKED: list[Effect] = []
"""The effects that hot standbys have asked of the disk."""


class Sending:
    """The sending end, with one input."""

    def __init__(self, depth: int = CONFIG.sharing_depth) -> None:
        self.receiver = Receiver(INPUT, 0, 0, 0, 0, False, 1 << 20)
        self.holdings = Holdings(TOPOLOGY, MIDDLE, depth, 0)
        self.said: list[str] = []
        self.echo = Echo(JOB, INPUT, [self.receiver], self.holdings, self.said.append)
        self._digest = RollingDigest()

    def take(self, payload: bytes, depends: Sequence[Extent] = ()) -> None:
        """The task has accepted a frame of one barrier more."""
        digest = self._digest.feed(payload)
        self._digest.close()
        header = Header(wire.DATA, JOB, INPUT, 1, count=1, position=self.receiver.next, digest=digest)
        header.plain_bytes = len(payload)
        self.receiver.accept(header, payload)
        self.echo.take(header, payload, depends)

    def due(self, now_ns: int = 0, incarnation: int = 1) -> list[list[bytes]]:
        effects = self.echo.due(Cut(), incarnation, now_ns)
        assert all(isinstance(effect, Send) and effect.target == HOT_STANDBY for effect in effects)
        return [effect.parts for effect in effects if isinstance(effect, Send)]

    def state(self) -> EchoState:
        """Return the state of the echo, read again at each call."""
        return self.echo.state

    def acknowledge(self, position: int, lost: bool = False, session: int = 1) -> None:
        header = Header(wire.ECHOED, JOB, 0, 1, session, count=lost, position=position)
        self.echo.answered(header, 0)


def begun(depth: int = CONFIG.sharing_depth, decided: int = 0) -> Sending:
    """Return a task that has a hot standby, and knows that decision of an inquiry."""
    sending = Sending(depth)
    sending.echo.rollback = decided
    sending.echo.begin()
    return sending


def barriers(count: int) -> list[bytes]:
    return [pack_chunks([barrier(epoch)]) for epoch in range(1, count + 1)]


def following(incarnation: int = 1) -> Shadow:
    shadow = Shadow(JOB)
    shadow.announce(incarnation)
    return shadow


class Image:
    """The state of a task that has none."""

    cut = Cut()


def hot(lines: list[str], loaded: bool = True) -> HotStandby[Image]:
    """Return a hot standby of incarnation 1."""

    def make(image: Image) -> TaskProtocol:
        return task_of(TOPOLOGY, MIDDLE, 0, CONFIG, cut=image.cut, report=lines.append)

    standby = HotStandby(JOB, make, ASKED.append, lambda line, blamed: lines.append(line))
    standby.follow(1, 0, [])
    if loaded:
        standby.loaded(Image(), 0)
    return standby
