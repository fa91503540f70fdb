"""Rollback of the smallest set (D9): what is lost, who depends on it, who goes back, how far which log stands.

Beyond the sharing depth a failure can take determinants with it on which others depend.  Those are
orphans: what they did since cannot be reproduced.  Everybody is asked what it depends on and stands
still until the answer is decided; who depends on nothing lost stays as it is, the others go back to the last
complete checkpoint and replay their own logs as far as anybody who stays depends on them.  Going back
is not dying: a task keeps all it knows of determinants, so nothing more is lost by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from causal.errors import PeerViolation

Extent = tuple[int, int, int]
"""(task, epoch, bytes)."""

Vector = Mapping[tuple[int, int], int]
"""(task, epoch) → bytes of that log that something depends on."""


def beyond(depends: Vector, lost: Iterable[Extent]) -> Extent | None:
    """The first of the lost logs that `depends` reaches into; None if it depends on nothing lost.

    Args:
        lost: how many bytes of each of these logs could be collected.  Of later epochs of these tasks there is nothing.
    """
    for task, epoch, extent in lost:
        for (owner, its_epoch), depended in depends.items():
            if owner == task and (depended > extent if its_epoch == epoch else its_epoch > epoch and depended):
                return (task, epoch, extent)
    return None


def vector_of(extents: Iterable[Extent]) -> dict[tuple[int, int], int]:
    """The longest extent per log."""
    vector: dict[tuple[int, int], int] = {}
    for task, epoch, extent in extents:
        vector[task, epoch] = max(extent, vector.get((task, epoch), 0))
    return vector


@dataclass(frozen=True, slots=True)
class Retreat:
    """One task going back: its incarnation from then on, and the bytes per epoch of its log that stand."""

    incarnation: int
    stands: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rollback:
    """The outcome of the inquiries since the last complete checkpoint.

    Attributes:
        number: of the last one; 0 for none.
        lost: (number of the inquiry, task, epoch, bytes that could be collected).
        retreats: who goes back in the last one.
    """

    number: int = 0
    lost: tuple[tuple[int, int, int, int], ...] = ()
    retreats: Mapping[int, Retreat] = field(default_factory=dict)

    def lost_since(self, number: int) -> list[Extent]:
        """What was lost after `number` inquiries had been decided."""
        return [(task, epoch, extent) for at, task, epoch, extent in self.lost if at > number]

    def told(self) -> dict[str, Any]:
        """For a message or a journal; `read_rollback` gives it back."""
        retreats = [[task, r.incarnation, sorted(r.stands.items())] for task, r in sorted(self.retreats.items())]
        return {"number": self.number, "lost": [list(each) for each in self.lost], "retreats": retreats}


NO_ROLLBACK = Rollback()


def read_rollback(told: Any) -> Rollback:
    """What `Rollback.told` gave; None where nothing was decided.

    Raises:
        PeerViolation: it is not such.
    """
    if told is None:
        return NO_ROLLBACK
    try:
        lost = tuple((at, task, epoch, extent) for at, task, epoch, extent in told["lost"])
        retreats = {task: Retreat(incarnation, dict(stands)) for task, incarnation, stands in told["retreats"]}
        number = told["number"]
    except (KeyError, TypeError, ValueError) as problem:
        raise PeerViolation(f"a rollback with other fields ({problem})") from None
    going = [(task, r.incarnation, *r.stands, *r.stands.values()) for task, r in retreats.items()]
    if not all(type(n) is int for each in (*lost, (number,), *going) for n in each):
        raise PeerViolation("a rollback whose numbers are none")
    return Rollback(number, lost, retreats)


@dataclass(frozen=True, slots=True)
class Finding:
    """What one task answers when asked.

    Attributes:
        settled: it has collected; one that has not has no state to lose, and begins again.
        orphan: what it depends on that is lost; None if nothing.
        stands: all that it depends on if it stays; of an orphan what its rows depend on that can stay visible.
    """

    settled: bool
    orphan: Extent | None
    stands: tuple[Extent, ...]


def decide(findings: Mapping[int, Finding]) -> dict[int, dict[int, int]]:
    """Who goes back, and how far the log of each stands: as far as anybody who stays depends on it.

    What stands depends on nothing lost, for whoever depends on it would depend on that too and be an orphan.
    """
    stands: dict[int, dict[int, int]] = {
        task: {} for task, finding in sorted(findings.items()) if finding.orphan is not None or not finding.settled
    }
    for (task, epoch), extent in vector_of(e for finding in findings.values() for e in finding.stands).items():
        if task in stands:
            stands[task][epoch] = extent
    return stands
