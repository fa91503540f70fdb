"""The kinds of upgrades by name, and one example of a kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from random import Random

from tests.properties.upgrades import graphs, options
from tests.properties.upgrades.driving import Invalid, Outcome, Scene, performed
from tests.properties.upgrades.judging import judged

ATTEMPTS = 50
GRAPHS_PER_OPTION = 2
"""The number of graphs of a kind that are examined while every option is examined once."""

GRAPHS: Mapping[str, Callable[[Random], Scene]] = {
    f"{kinds} {core}": partial(graphs.scene, kinds, core) for kinds in graphs.KINDS for core in graphs.CHOICES
}
SCENES: Mapping[str, Callable[[Random], Scene]] = {
    **{change.name: partial(options.scene, change) for change in options.changes()},
    **GRAPHS,
}
NAMES = (*(change.name for change in options.changes()), *[*GRAPHS] * GRAPHS_PER_OPTION)


def examine(name: str, seed: int) -> str:
    """Draw an upgrade and perform it; returns whether it passed or was refused.

    Raises:
        Mismatch: the rows are not those of the model; any other exception is a failure as well.
    """
    return _drawn(name, seed, lambda scene, chance: judged(scene, chance))


def examine_in_two(name: str, seed: int, changes: bool = True) -> str:
    """Draw an upgrade whose state is converted early, and its changes alone; returns `ALONE`, or why it was not so.

    Args:
        changes: whether the version that continues is another one.

    Raises:
        Mismatch, AssertionError: the rows or the state are others; any other exception is a failure as well.
    """
    reasons = []

    def perform(scene: Scene, chance: Random, ready: Callable[[], None]) -> Outcome:
        early = Random(scene.shown).randint(0, scene.barrier - 1)
        outcome = performed(scene, chance, ready, early=early)
        reasons.append(outcome.increment)
        return outcome

    def judge(scene: Scene, chance: Random) -> str:
        return judged(scene if changes else replace(scene, after=scene.before), chance, perform)

    result = _drawn(name, seed, judge)
    return reasons[-1] if reasons else result


def _drawn(name: str, seed: int, judge: Callable[[Scene, Random], str]) -> str:
    for attempt in range(ATTEMPTS):
        place = f"{name} {seed} {attempt}"
        try:
            return judge(SCENES[name](Random(place)), Random(f"{place} chance"))
        except Invalid:
            continue
    raise AssertionError(f"{name}, seed {seed}: no pipeline in {ATTEMPTS} can run on its own")
