"""A recorded run as its definitions need it: what entered, what a reader saw in which order, and what failed when.

    History      inputs A, outputs B in the reader's order with failures between them, whether it has ended
    Spec         the transformations D: which rows an element leaves, and which row can follow which

An output carries what its operator's state was made of, so that one output shows whether another can follow it.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Element:
    """The element at `place` (from 0) of an input channel."""

    channel: str
    place: int


@dataclass(frozen=True, slots=True)
class Output:
    """One row as the reader saw it.

    `stage` is the task that made it, `key` the state it went through, `element` what entered for it, `content` all
    else that it says.
    """

    stage: str
    key: Hashable
    element: Element
    content: Any = None


@dataclass(frozen=True, slots=True)
class Failed:
    """Processes died here."""

    what: str


@dataclass(frozen=True, slots=True)
class History:
    """One run.

    `inputs` has the number of elements of each channel.  `vanished` counts rows that the reader saw and that were gone,
    or said something else, at the end.  A run that has not `ended` may still have rows to come.
    """

    inputs: Mapping[str, int]
    events: Sequence[Output | Failed]
    vanished: int = 0
    ended: bool = True

    @property
    def outputs(self) -> list[Output]:
        """The events without the failures."""
        return [event for event in self.events if isinstance(event, Output)]


class Spec(Protocol):
    """The behaviour of a pipeline without failures."""

    def keys(self, element: Element) -> Sequence[Hashable]:
        """Return the keys in which the element leaves a row, one in each, in this order."""
        ...

    def follows(self, before: Output | None, output: Output) -> bool:
        """Return whether an execution can leave `output` in its key right after `before` (None: as the first)."""
        ...
