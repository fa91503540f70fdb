"""The changes of a running job that a scenario has, and what goes wrong in them; drawn apart from all else."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.simulation.clockwork import MS

STEPS = ("facts", "prepare", "follow", "follow again", "stand", "stores", "files", "commit", "over")
"""The steps of a command, in their order; `over` follows the answer to the commit."""

DIES, SLEEPS, CANCELS = "dies", "sleeps", "cancels"
COMMIT_DIES = "commit_dies"
TROUBLES = {
    "": 5,
    DIES: 5,
    SLEEPS: 2,
    CANCELS: 1,
    COMMIT_DIES: 4,
    "supervisor": 4,
    "agent": 1,
    "next": 3,
    "task": 4,
    "several": 2,
    "everything": 1,
    "store_away": 1,
    "disk_full": 1,
}
"""The troubles that may come at one step of a change, with how often each is drawn."""

SLEEP_MS_MAX = 8000


@dataclass(frozen=True, slots=True)
class Change:
    """One command that changes the job to its next version, which has the same graph.

    Attributes:
        at_ns: virtual time at which it begins, or later if another one is under way.
        pause_ms: the most that it pauses before each step.
        trouble: what goes wrong; `step`: at which of `STEPS`; `after_ms`: so much later.
        who: chooses the victim.
        extent: how long, how many, or after how many effects.
    """

    at_ns: int
    pause_ms: int = 5
    trouble: str = ""
    step: str = "facts"
    after_ms: int = 0
    who: int = 0
    extent: int = 1


def drawn_changes(rng: random.Random) -> tuple[Change, ...]:
    """Draw one to three changes."""
    at_ns, changes = rng.randint(500, 1000) * MS, list[Change]()
    for _ in range(rng.choice((1, 1, 2, 2, 3))):
        trouble = rng.choices(list(TROUBLES), list(TROUBLES.values()))[0]
        step = "commit" if trouble == COMMIT_DIES else rng.choice(STEPS)
        after_ms = rng.choice((0, 0, rng.randint(0, 10), rng.randint(0, 60)))
        pause_ms = rng.choice((1, 20, 20, 150))
        changes.append(Change(at_ns, pause_ms, trouble, step, after_ms, rng.randrange(1 << 16), rng.randint(1, 400)))
        at_ns += rng.randint(100, 900) * MS
    return tuple(changes)


def changes_from(fields: Sequence[Mapping[str, Any]]) -> tuple[Change, ...]:
    """Return the changes that `dataclasses.asdict` wrote."""
    return tuple(Change(**each) for each in fields)
