"""A hot standby on the stage: the frames between it and its task wait for commands, and what it performs is a line.

`B*` is the hot standby of B.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from causal.cut import Cut
from causal.effects import Effect
from causal.logs.rollback import NO_ROLLBACK
from causal.task.shadow import Shadow
from causal.task.task import TaskProtocol
from operators.runtime.hot_standby import HotStandby, Promotion
from tests.transcripts.operators import Numbering
from tests.transcripts.process import Elements, Onlooker, Process
from tests.transcripts.words import Words

LINK = b"task"
LOOKS_MAX = 100
FILES = (("f", 1, "d"),)


class Image:
    """The state of a task at a checkpoint."""

    def __init__(self, operator: Numbering, parts: Sequence[bytes]) -> None:
        self.cut = Cut.unpack(parts[0]) if parts else Cut()
        self.operator = operator
        self.operator.restore(parts[1:])


class ShadowProcess(Process):
    """The process of a hot standby."""

    @property
    def shown(self) -> str:
        return f"{self.name}*"


class Standby:
    """The hot standby of one task.

    Args:
        make: makes a task in an incarnation from a state, with the list of lines that it is to log to.
        say: writes a line of the conversation.
        elements: the names of elements.

    Attributes:
        echoes, answers: the frames on their way to it, and back.
    """

    def __init__(
        self,
        index: int,
        words: Words,
        job: int,
        make: Callable[[Image, list[str]], TaskProtocol],
        say: Callable[..., None],
        elements: Elements,
    ) -> None:
        self.echoes: deque[list[bytes]] = deque()
        self.answers: deque[list[bytes]] = deque()
        self.heard: list[str] = []
        self._index = index
        self._words = words
        self._job = job
        self._say = say
        self._elements = elements
        self._hot: HotStandby[Image] = HotStandby(job, lambda image: make(image, self.heard), self._asked, self._report)

    @property
    def shown(self) -> str:
        return f"{self._words.names[self._index]}*"

    @property
    def shadow(self) -> Shadow:
        return self._hot._shadow

    def _report(self, line: str, blamed: bool) -> None:
        self._say(self.shown, "reports", line)

    def _asked(self, effect: Effect) -> None:
        raise AssertionError("what it keeps is far from every bound")

    def follow(self, incarnation: int, epoch: int, image: Callable[[], Image]) -> None:
        """Take which checkpoint is complete; loads it, unless it performs past it."""
        if self._hot.follow(incarnation, epoch, []):
            self._say(self.shown, "hears", f"checkpoint {epoch} is complete")
            self._perform()
            return
        self._hot.take_image()
        self._say(self.shown, "loads", f"checkpoint {epoch}" if epoch else "the state at the beginning")
        self._watched(lambda: self._hot.loaded(image(), 0))

    def arrives(self) -> None:
        """The oldest frame of the echo arrives, and what can be performed is."""
        parts = self.echoes.popleft()
        self._say(self.shown, "takes", self._words.gist(parts, self._job))
        self._watched(lambda: self._hot.receive(LINK, parts, 0))
        self._perform()

    def _watched(self, action: Callable[[], None]) -> None:
        """Take an action that may change the state of the shadow."""
        before = self.shadow.state
        action()
        if self.shadow.state is not before:
            self._say(self.shown, "is", self.shadow.state.value)

    def _perform(self) -> None:
        for _ in range(LOOKS_MAX):
            watched = self._onlooker()
            answer = self._hot.turn(0)
            for line in watched.lines() if watched is not None else ():
                self._say(line.who, line.what, *line.parts)
            if answer is not None:
                self.answers.append(answer[1])
                task = f"{self._words.names[self._index]}{self._hot.incarnation}"
                self._say(f"{self.shown} -> {task}", *self._said(answer[1]))
            if self._hot.idle:
                return

    def _said(self, parts: list[bytes]) -> tuple[str, ...]:
        kind, said = self._words.frame(parts, self._job, lambda task, epoch: b"")
        return (kind, *said)

    def _onlooker(self) -> Onlooker | None:
        task = self.shadow.task
        if task is None:
            return None
        fields: dict[str, Any] = {"index": self._index, "incarnation": 0, "protocol": task, "heard": []}
        return Onlooker(ShadowProcess(**fields, name=self._words.names[self._index], words=self._words), self._elements)

    def promoted(self, incarnation: int, epoch: int) -> TaskProtocol | None:
        """Return the task that it has become; None if that incarnation has to begin from the checkpoint."""
        promotion = Promotion(incarnation, epoch, FILES[: bool(epoch)], NO_ROLLBACK)
        return self._hot.promote(promotion, 0)
