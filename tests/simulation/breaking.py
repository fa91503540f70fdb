"""The rules that are broken on purpose, by name: what stands there instead, and scenarios in which that shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from tests.simulation.scenario import Scenario, draw

Patches = Mapping[tuple[Any, str], Any]
"""(where, name) → what stands there instead."""


@dataclass(frozen=True)
class Sabotage:
    """One broken rule.

    Attributes:
        seed: the scenario of this seed finds it, as `drawn_by` draws it; None if no such seed is known.
        first: scenarios of its own, tried before any seed.
        endless: a job does not end after it: a scenario takes long before it counts as that.
    """

    patches: Callable[[], Patches]
    seed: int | None
    drawn_by: Callable[[int], Scenario]
    first: tuple[Scenario, ...]
    endless: bool


SABOTAGES: dict[str, Sabotage] = {}


def found_by(
    seed: int | None,
    drawn_by: Callable[[int], Scenario] = draw,
    first: tuple[Scenario, ...] = (),
    endless: bool = False,
) -> Callable[[Callable[[], Patches]], Callable[[], Patches]]:
    """Register a sabotage under the name of its function."""

    def register(patches: Callable[[], Patches]) -> Callable[[], Patches]:
        SABOTAGES[patches.__name__[1:].replace("_", "-")] = Sabotage(patches, seed, drawn_by, first, endless)
        return patches

    return register


@contextmanager
def replaced(patches: Patches) -> Iterator[None]:
    """Replace these parts of the code under test while the context lasts."""
    with ExitStack() as stack:
        for (where, attribute), instead in patches.items():
            stack.enter_context(patch.object(where, attribute, instead))
        yield


def sabotaged(name: str) -> AbstractContextManager[None]:
    """Break the rule of that name while the context lasts.

    Raises:
        KeyError: there is no such sabotage.
    """
    return replaced(SABOTAGES[name].patches())
