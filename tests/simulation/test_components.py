"""Jobs whose graph has parts that no channel connects, below full depth: what one loses does not concern the other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.members import sample
from tests.simulation.clockwork import MS
from tests.simulation.scenario import Fault, Scenario, draw
from tests.simulation.trial import run

LOSING = (2, 3, 10)
"""Seeds in which determinants are lost; a change of what seeds mean leaves others."""


def separated(seed: int) -> Scenario:
    """Return the scenario of a seed on two graphs, with more neighbours that die at the same time than the depth
    covers.
    """
    several = (Fault("several", (400 + 270 * place) * MS, seed + place, 2 + place % 3) for place in range(4))
    faults = sorted((*draw(seed).faults, *several), key=lambda fault: fault.at_ns)
    plain = replace(draw(seed), guarantee="causal", production=False, separate=True, depth=1, flush=False)
    return replace(plain, layers=(1, 1, 1), faults=tuple(faults))


@pytest.mark.parametrize("seed", [*LOSING, *sample(range(100, 112), 2)])
def test_a_loss_in_one_part_asks_and_takes_back_no_task_of_another(seed: int) -> None:
    outcome = run(separated(seed))
    assert not outcome.problem, outcome.problem
    assert outcome.figures["rollbacks"] or seed not in LOSING
