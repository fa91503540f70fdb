"""Rollback of the smallest set (D9): lost determinants, the tasks that depend on them, and the valid log extents.

If failures exceed the sharing depth, determinants on which other tasks depend can be lost. These tasks are orphans: the
work that they based on the lost determinants cannot be reproduced. Every task connected to the lost determinants by
channels is asked for its dependencies and pauses until the decision. A task that depends on nothing lost is unchanged.
The others roll back to the last complete checkpoint and replay their own logs as far as unchanged tasks depend on them.
Unlike a failure, a rollback loses no further determinants, because a task keeps all determinants that it holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from causal.errors import PeerViolation

Extent = tuple[int, int, int]
"""The extent of a log: (task, epoch, number of bytes)."""

Vector = Mapping[tuple[int, int], int]
"""The dependencies of a state, row or element: (task, epoch) → the required number of bytes of that log."""


def beyond(depends: Vector, lost: Iterable[Extent]) -> Extent | None:
    """Return the first lost log for which `depends` includes lost bytes, or None if there is none.

    Args:
        lost: the number of bytes that could be collected of each of these logs; the later epochs of the same tasks are
            lost completely.
    """
    for task, epoch, extent in lost:
        for (owner, its_epoch), depended in depends.items():
            if owner == task and (depended > extent if its_epoch == epoch else its_epoch > epoch and depended):
                return (task, epoch, extent)
    return None


def vector_of(extents: Iterable[Extent]) -> dict[tuple[int, int], int]:
    """Return the longest extent of each log."""
    vector: dict[tuple[int, int], int] = {}
    for task, epoch, extent in extents:
        vector[task, epoch] = max(extent, vector.get((task, epoch), 0))
    return vector


@dataclass(frozen=True, slots=True)
class TaskRollback:
    """The rollback of one task: its next incarnation, and the number of bytes per epoch of its log that stay valid."""

    incarnation: int
    stands: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rollback:
    """The outcome of the inquiries since the last complete checkpoint.

    Attributes:
        number: the number of the last inquiry, or 0 if there was none.
        lost: (number of the inquiry, task, epoch, number of bytes that could be collected).
        retreats: the tasks that roll back as a result of the last inquiry.
    """

    number: int = 0
    lost: tuple[tuple[int, int, int, int], ...] = ()
    retreats: Mapping[int, TaskRollback] = field(default_factory=dict)

    def lost_since(self, number: int) -> list[Extent]:
        """Return the remaining extents of the logs whose determinants were lost in inquiries after inquiry `number`."""
        return [(task, epoch, extent) for at, task, epoch, extent in self.lost if at > number]

    def message(self) -> dict[str, Any]:
        """Return the rollback as part of a message or a journal, in the form that `read_rollback` reads."""
        retreats = [[task, r.incarnation, sorted(r.stands.items())] for task, r in sorted(self.retreats.items())]
        return {"number": self.number, "lost": [list(each) for each in self.lost], "retreats": retreats}


NO_ROLLBACK = Rollback()


def read_rollback(message: Any) -> Rollback:
    """Read the result of `Rollback.message`; None means that there has been no decision.

    Raises:
        PeerViolation: `message` is not a rollback.
    """
    if message is None:
        return NO_ROLLBACK
    try:
        lost = tuple((at, task, epoch, extent) for at, task, epoch, extent in message["lost"])
        retreats = {task: TaskRollback(incarnation, dict(stands)) for task, incarnation, stands in message["retreats"]}
        number = message["number"]
    except (KeyError, TypeError, ValueError) as problem:
        raise PeerViolation(f"a rollback has missing or unexpected fields ({problem})") from None
    going = [(task, r.incarnation, *r.stands, *r.stands.values()) for task, r in retreats.items()]
    if not all(type(n) is int for each in (*lost, (number,), *going) for n in each):
        raise PeerViolation("a rollback has malformed numbers")
    return Rollback(number, lost, retreats)


@dataclass(frozen=True, slots=True)
class OrphanAnswer:
    """The answer of one task to an inquiry.

    Attributes:
        settled: whether the task has collected its determinants; otherwise it has no state to lose and restarts.
        orphan: the lost log on which the task depends, or None if there is none.
        stands: the dependencies of the task if it does not roll back; for an orphan, the dependencies of its rows that
            may remain visible.
    """

    settled: bool
    orphan: Extent | None
    stands: tuple[Extent, ...]


def decide(findings: Mapping[int, OrphanAnswer]) -> dict[int, dict[int, int]]:
    """Return the tasks that roll back, each with the valid extents of its log, on which unchanged tasks depend.

    A valid extent depends on nothing lost; otherwise, the unchanged task that depends on it would be an orphan.
    """
    stands: dict[int, dict[int, int]] = {
        task: {} for task, finding in sorted(findings.items()) if finding.orphan is not None or not finding.settled
    }
    for (task, epoch), extent in vector_of(e for finding in findings.values() for e in finding.stands).items():
        if task in stands:
            stands[task][epoch] = extent
    return stands
