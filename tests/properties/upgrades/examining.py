"""The kinds of upgrades by name, and one example of a kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from random import Random

from tests.properties.upgrades import graphs, options
from tests.properties.upgrades.driving import Invalid, Scene
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
    for attempt in range(ATTEMPTS):
        place = f"{name} {seed} {attempt}"
        try:
            return judged(SCENES[name](Random(place)), Random(f"{place} chance"))
        except Invalid:
            continue
    raise AssertionError(f"{name}, seed {seed}: no pipeline in {ATTEMPTS} can run on its own")
