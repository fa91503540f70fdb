"""The simulator with several hosts in the test suite: a few seeds, every fault, and the same run every time."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from tests.members import sample
from tests.simulation.layout import HOST_FAULTS, LEADER_DEAF, LEADER_FAULTS, LEADERS_LOST
from tests.simulation.scenario import draw, draw_hosts, from_json
from tests.simulation.test_simulation import failing
from tests.simulation.trial import run

GROUP = 4
GROUPS = sample(range(0, 120, GROUP), 1)
FIRST_SEEDS = [first for first in GROUPS if isinstance(first, int)]


@pytest.mark.parametrize("first", GROUPS)
def test_every_promise_is_kept_whatever_happens_to_hosts(first: int) -> None:
    outcomes = [run(draw_hosts(seed)) for seed in range(first, first + GROUP)]
    assert not failing(outcomes), failing(outcomes)
    assert sum(outcome.figures["checks"] for outcome in outcomes) > 100 * GROUP


def test_every_fault_of_hosts_is_drawn_and_so_is_every_number_of_hosts() -> None:
    drawn = [draw_hosts(seed) for seed in range(120)]
    assert {fault.kind for each in drawn for fault in each.faults} >= {
        *HOST_FAULTS,
        *LEADER_FAULTS,
        LEADERS_LOST,
        LEADER_DEAF,
    }
    layouts = [each.layout for each in drawn if each.layout is not None]
    assert {len(layout.hosts) for layout in layouts} == {1, 2, 3, 4}
    assert {layout.successors for layout in layouts} == {0, 1, 2}
    assert any(layout.pins for layout in layouts) and not all(layout.keys for layout in layouts)


def test_a_job_on_one_machine_is_what_it_was_before_there_were_hosts() -> None:
    for seed in range(120):
        alike, several = draw(seed), draw_hosts(seed)
        assert alike.layout is None
        assert (several.layers, several.kinds, several.records) == (alike.layers, alike.kinds, alike.records)
        of_hosts = {*HOST_FAULTS, *LEADER_FAULTS, LEADERS_LOST, LEADER_DEAF}
        kept = [fault for fault in several.faults if fault.kind not in of_hosts]
        assert set(kept) <= set(alike.faults)


def test_the_same_scenario_is_the_same_run_also_when_it_was_printed() -> None:
    scenario = draw_hosts(FIRST_SEEDS[0])
    again = from_json(json.dumps(asdict(scenario)))
    assert again == scenario
    assert run(again).digest == run(scenario).digest
