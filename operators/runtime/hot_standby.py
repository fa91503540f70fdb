"""The part of a standby process that performs its task's events milliseconds after the task (D18, 0026).

This part is pure: its inputs are echo frames, loaded states and turns. The same class runs in a worker and in the
simulator. Whenever its input is inconsistent, it reports this and begins again from a later checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from causal.cut import Cut
from causal.effects import Effect, RemoveSegments, Send, SpillSegment
from causal.errors import CausalError, PeerViolation, invariant
from causal.events import Event, GreetAhead, Promoted, Shadowed, Turn
from causal.logs.rollback import Rollback
from causal.snapshot_files import SnapshotFile
from causal.task.shadow import Shadow
from causal.task.task import TaskProtocol

TURNS_PER_LOOK = 8
ANSWERS_MAX = 256
"""The maximum number of frames from downstream that wait for the promotion; without them, the task greets again."""


class Restored(Protocol):
    """A state that was restored from checkpoint files."""

    cut: Cut


Image = TypeVar("Image", bound=Restored)


@dataclass(frozen=True, slots=True)
class Promotion:
    """The order to a hot standby to become its task in a given incarnation, starting from a given checkpoint."""

    incarnation: int
    epoch: int
    files: Sequence[SnapshotFile]
    rollback: Rollback


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A downstream neighbour of the task that a hot standby follows."""

    task: int
    endpoint: str
    incarnation: int

    @property
    def keeps_greetings(self) -> bool:
        """Whether it keeps a HELLO in advance; a task on another host takes frames only from where its peer runs."""
        return "@" not in self.endpoint


@dataclass(frozen=True, slots=True)
class Greeting:
    """A connection to dial, and the HELLO to send over it; `parts` is empty if nothing is to be sent yet."""

    task: int
    endpoint: str
    parts: list[bytes]


class HotStandby(Generic[Image]):
    """A shadow of one task, and the state from which the shadow begins.

    Args:
        job: the fingerprint of the job.
        make: creates a task from a state.
        ask: asks the process's disk for an effect: to store in-flight entries that exceed their memory limit.
        report: called with a one-line message and with whether the task itself is at fault, because its operators
            depend on more than their input and their log.

    Attributes:
        image: the loaded state from which nothing has been performed yet; None if there is none.
    """

    def __init__(
        self,
        job: int,
        make: Callable[[Image], TaskProtocol],
        ask: Callable[[SpillSegment | RemoveSegments], None],
        report: Callable[[str, bool], None],
    ) -> None:
        self.image: Image | None = None
        self._shadow = Shadow(job)
        self._make = make
        self._ask = ask
        self._report = report
        self._completed: tuple[int, Sequence[SnapshotFile]] | None = None
        """A complete checkpoint, with its files, whose barrier has not been passed yet."""
        self._settled = 0
        self._neighbours: tuple[Neighbour, ...] = ()
        self._greets = False
        """Whether the downstream neighbours have to be greeted, because they or the shadow have changed."""
        self._connections: dict[int, str] = {}
        """Downstream task → the endpoint to which this process has dialled a connection."""
        self.kept: list[tuple[int, str]] = []
        """(task, endpoint) of each connection to keep; without a takeover, it must be dialled again."""
        self.answers: list[list[bytes]] = []
        """The frames from downstream, which answer greetings, and which the task takes once it has started."""

    @property
    def shadowing(self) -> bool:
        """Whether the standby is performing its task's events."""
        return self._shadow.task is not None

    @property
    def incarnation(self) -> int:
        """The incarnation of the task that the standby follows."""
        return self._shadow.incarnation

    @property
    def follows(self) -> int | None:
        """The latest loaded checkpoint on which the supervisor may rely; None if there is none."""
        if self.shadowing:
            return self._settled
        return None if self.image is None else self.image.cut.epoch

    def take_image(self) -> Image | None:
        """Return the loaded state, so that more files can be loaded into it or a performance can begin from it."""
        image, self.image = self.image, None
        return image

    @property
    def idle(self) -> bool:
        """Whether the standby has performed everything that has arrived."""
        task = self._shadow.task
        return task is None or task.idle

    @property
    def facts(self) -> Mapping[str, int]:
        """The metrics for a beat: current epoch, incarnation, elements not yet performed, and barriers compared."""
        shadow = self._shadow
        epoch = -1 if shadow.task is None else shadow.task.cursor.epoch
        facts = {"epoch": epoch, "incarnation": self.incarnation, "behind": shadow.behind}
        return {**facts, "compared": shadow.compared}

    def loaded(self, image: Image, now_ns: int) -> None:
        """Accept a loaded state; performance begins from it as soon as the echo reaches back that far."""
        self.image = image
        self._begin(now_ns)

    def follow(
        self, incarnation: int, epoch: int, files: Sequence[SnapshotFile], neighbours: tuple[Neighbour, ...] = ()
    ) -> bool:
        """Set the task incarnation to follow with its downstream neighbours, and the complete checkpoint.

        Return whether nothing needs to be loaded. In that case, in-flight data that the checkpoint covers is discarded
        once the checkpoint's barrier has been passed.
        """
        if neighbours != self._neighbours:
            self._neighbours, self._greets = neighbours, True
        if self._shadow.announce(incarnation):
            self._report("its task has a new incarnation; the standby loads the last checkpoint again", False)
        if self.shadowing and (self._completed is None or epoch > self._completed[0]):
            self._completed = epoch, files
        return self.shadowing

    def take(self, frames: Iterable[tuple[bytes, Sequence[bytes]]], now_ns: int) -> None:
        """Process frames, each with its link."""
        for link, parts in frames:
            self.receive(link, parts, now_ns)

    def receive(self, link: bytes, parts: Sequence[bytes], now_ns: int) -> None:
        """Process a frame, which may belong to the echo, answer a greeting, or be none of the standby's concern."""
        if not link:
            if len(self.answers) >= ANSWERS_MAX:
                self.answers.clear()
            self.answers.append(list(parts))
            return
        try:
            if self._shadow.receive(link, parts):
                self._report("its task started a new echo; the standby loads the last checkpoint again", False)
        except PeerViolation as problem:
            self._lose(str(problem))
            return
        self._begin(now_ns)

    def _begin(self, now_ns: int) -> None:
        image, shadow = self.image, self._shadow
        if image is None or not shadow.follows(image.cut):
            return
        self.image, self._completed, self._settled = None, None, image.cut.epoch
        task = self._make(image)
        task.handle(Shadowed(), now_ns)
        shadow.begin(task)
        self._greets = True

    def greetings(self, now_ns: int) -> list[Greeting]:
        """Return the connections to dial now, each with a HELLO as the next incarnation of the task.

        Each HELLO has a new connection, so that no answer to an earlier one can be mistaken for the answer to it.
        """
        task = self._shadow.task
        if not self._greets or task is None:
            return []
        self._greets = False
        self.answers.clear()
        peers = {each.task: each.incarnation for each in self._neighbours if each.keeps_greetings}
        frames: dict[int, list[bytes]] = {}
        for effect in task.handle(GreetAhead(self.incarnation + 1, peers), now_ns):
            if isinstance(effect, Send):
                frames[effect.target] = effect.parts
        self._connections = {each.task: each.endpoint for each in self._neighbours}
        return [Greeting(each.task, each.endpoint, frames.get(each.task, [])) for each in self._neighbours]

    def keeps(self, task: int, endpoint: str) -> bool:
        """Return whether the connection to a downstream task is kept when this standby takes over."""
        kept = self.shadowing and not self._greets and self._connections.get(task) == endpoint
        if kept:
            self.kept.append((task, endpoint))
        return kept

    def turn(self, now_ns: int) -> tuple[bytes, list[bytes]] | None:
        """Perform some of the events that have arrived; if an acknowledgement is due, return it and its link."""
        try:
            for _ in range(TURNS_PER_LOOK):
                if self._perform(now_ns):
                    break
        except CausalError as problem:
            self._lose(str(problem), blamed=not isinstance(problem, PeerViolation))
        return self._shadow.acknowledgement()

    def _perform(self, now_ns: int) -> bool:
        """Perform one turn; return whether nothing more can be performed."""
        shadow = self._shadow
        shadow.hand_over(now_ns)
        task = shadow.task
        if task is None:
            return True
        self._feed(task, Turn(), now_ns)
        different = shadow.compare()
        if different:
            self._lose(different, blamed=True)
        elif self._completed is not None and task.cursor.epoch >= self._completed[0]:
            self._asked(task.settle(*self._completed))
            self._settled, self._completed = self._completed[0], None
        return task.idle

    def answered(self, answer: Event, now_ns: int) -> None:
        """Process the disk's answer to a request, which must be one that the current task has made."""
        task = self._shadow.task
        if task is not None:
            self._feed(task, answer, now_ns)

    def _feed(self, task: TaskProtocol, event: Event, now_ns: int) -> None:
        self._asked(task.handle(event, now_ns))

    def _asked(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, SpillSegment | RemoveSegments):
                self._ask(effect)
            else:
                invariant(False, "a hot standby has no effect but on its disk", effect=type(effect).__name__)

    def _lose(self, why: str, blamed: bool = False) -> None:
        self._completed = None
        self._shadow.lose()
        self._report(why, blamed)

    def promote(self, promotion: Promotion, now_ns: int) -> TaskProtocol | None:
        """Return the task, which must then be started, or None if the process must load the checkpoint instead."""
        task = self._shadow.task
        self._completed = None
        try:
            while task is not None and not self._perform(now_ns):
                pass
        except CausalError as problem:
            self._report(str(problem), not isinstance(problem, PeerViolation))
            return None
        if task is None or self._shadow.task is None:
            return None
        if promotion.incarnation != self.incarnation + 1:
            before = f"it has performed incarnation {self.incarnation}, not the preceding one"
            self._report(f"it cannot take over as incarnation {promotion.incarnation}: {before}", False)
            return None
        if promotion.rollback.number != self._shadow.rollback:
            self._report(
                f"it cannot take over after rollback {promotion.rollback.number}, for which it has no echo", False
            )
            return None
        if not task.covers(promotion.epoch):
            self._report(f"it cannot take over at checkpoint {promotion.epoch}, so it loads that checkpoint", False)
            return None
        files = list(promotion.files)
        self._feed(task, Promoted(promotion.incarnation, promotion.epoch, files, promotion.rollback), now_ns)
        return task
