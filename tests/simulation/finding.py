"""The scenarios in which a sabotage is looked for, first of all one that is known to find it."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.sabotage import SABOTAGES
from tests.simulation.scenario import Scenario

FOUND_WITHIN_SEEDS = 2000

SOON = tuple(name for name, each in SABOTAGES.items() if (each.seed is not None or each.first) and not each.endless)
"""The sabotages that a known scenario finds within a few seconds; others are a campaign."""


def finding(name: str) -> Iterator[Scenario]:
    """Yield the scenarios in which to look for the sabotage of that name, up to seed `FOUND_WITHIN_SEEDS`."""
    sabotage = SABOTAGES[name]
    yield from sabotage.first
    if sabotage.seed is not None:
        yield sabotage.drawn_by(sabotage.seed)
    yield from map(sabotage.drawn_by, range(FOUND_WITHIN_SEEDS))
