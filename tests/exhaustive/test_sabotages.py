"""Each rule of the protocol that is broken on purpose is found, with a path that a person can follow."""

from __future__ import annotations

import pytest

from tests.exhaustive.explore import Exploration
from tests.exhaustive.sabotages import SABOTAGES, in_force
from tests.exhaustive.story import told

STATES_MAX = 100_000


@pytest.mark.parametrize("name", SABOTAGES)
def test_a_sabotage_is_found(name: str) -> None:
    sabotage = SABOTAGES[name]
    with in_force(sabotage):
        found = Exploration(sabotage.job, STATES_MAX).run()
        assert found.breach is not None, f"{sabotage.what}: not found in {found.states} states"
        lines = told(found, found.breach)
    assert any(sabotage.shows in what for what in found.breach.what), found.breach.what
    assert len(lines) == len(found.breach.what) + 1 + len(found.breach.path)


def test_a_breach_is_found_by_the_shortest_path() -> None:
    sabotage = SABOTAGES["stored-late"]
    with in_force(sabotage):
        found = Exploration(sabotage.job, STATES_MAX).run()
        assert found.breach is not None
        text = "\n".join(told(found, found.breach))
    kinds = [action[0] for action in found.breach.path]
    assert kinds == ["deliver", "deliver", "turn", "turn", "deliver", "turn"], text
    assert text.splitlines()[-2].endswith("DATA of channel 1, elements 0 to 0, log 0/0 from 0 to 32 arrives"), text


def test_without_sabotage_the_same_jobs_hold() -> None:
    for job in {sabotage.job.name: sabotage.job for sabotage in SABOTAGES.values()}.values():
        found = Exploration(job, 1_000).run()
        assert found.breach is None, f"{job.name}: {found.breach}"
