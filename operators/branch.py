"""The tree of stages that a chain is: a stage, and what its output goes to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from operators.routing import DirectRoute, Route, StraightRoute
from operators.stages import Stage


@dataclass(slots=True)
class Branch:
    """A stage with what its output goes to: fused stages, routes out of the task, or both.

    Attributes:
        sides: by tag, what reads the records that the stage puts aside.
        ordinals: output channels that its watermarks go to: those of its routes.
        plain: whether the stage gives records and nothing else; the chain sets it.
        told: the last watermark that the stage was told; END_NS when its input has ended.
        passed: the last one that it passed on.
    """

    stage: Stage
    children: list[Branch] = field(default_factory=list)
    routes: list[Route] = field(default_factory=list)
    sides: list[tuple[str, Branch]] = field(default_factory=list)
    ordinals: list[int] = field(default_factory=list)
    made: Any = field(default_factory=list)
    """What the stage gave last in this event, to find the place of a record that cannot travel."""
    plain: bool = True
    told: int | None = None
    passed: int | None = None

    @property
    def leaves_straight(self) -> bool:
        """Whether all that the stage gives goes to channels as it is, never taken apart."""
        return all(type(route) is DirectRoute or type(route) is StraightRoute for route in self.routes)

    def side(self, tag: str) -> Branch | None:
        """What reads that side output."""
        return next((side for found, side in self.sides if found == tag), None)


class SideStage(Stage):
    """Stands at the head of what reads a side output."""

    traces = False


@dataclass(frozen=True, slots=True)
class Input:
    """One input channel: what messages call it, and of its edge: keys, side of the operator, event time.

    Attributes:
        item: of a record, that is its key, where `key_of` gives no more than one (see `operators.columns`).
    """

    label: str
    key_of: Callable[[Any], Any] | None = None
    side: int = 0
    time_of: Callable[[Any], Any] | None = None
    item: int | None = None


class Numbers:
    """Hands out 0, 1, 2 …; one per chain, part of its snapshot."""

    __slots__ = ("next",)

    def __init__(self) -> None:
        self.next = 0

    def __call__(self) -> int:
        self.next += 1
        return self.next - 1


def descend(branch: Branch) -> Iterable[Branch]:
    """The branch and all below it, each before its children, in the order of the stages' ordinals."""
    found = [branch]
    place = 0
    while place < len(found):
        found += found[place].children
        found += [side for _, side in found[place].sides]
        place += 1
    return sorted(found, key=lambda branch: branch.stage.ordinal)
