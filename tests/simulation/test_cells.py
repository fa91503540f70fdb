"""The simulator with pipelines in cells in the test suite: every promise is kept, in each grouping."""

from __future__ import annotations

import pytest

from tests.members import members
from tests.simulation.scenario import draw_cells
from tests.simulation.test_simulation import failing
from tests.simulation.trial import run

GROUP = 10
GROUPS = members(range(0, 400, GROUP), 0, 30)


@pytest.mark.parametrize("first", GROUPS)
def test_every_promise_is_kept_in_cells(first: int) -> None:
    outcomes = [run(draw_cells(seed)) for seed in range(first, first + GROUP)]
    assert not failing(outcomes), failing(outcomes)
    assert {outcome.scenario.processes for outcome in outcomes} == {"one", "stages"}
