"""Each rule of the protocol that is broken on purpose is found, with a path that a person can follow."""

from __future__ import annotations

import pytest

from tests.exhaustive.explore import Exploration
from tests.exhaustive.sabotages import SABOTAGES, in_force
from tests.exhaustive.story import breach_lines
from tests.members import campaign

STATES_MAX = 100_000


LONG = [name for name, sabotage in SABOTAGES.items() if sabotage.choices]


@pytest.mark.parametrize("name", SABOTAGES)
def test_a_sabotage_is_found(name: str) -> None:
    """A search that takes long is the campaign's; the path that it found is followed here."""
    sabotage = SABOTAGES[name]
    with in_force(sabotage):
        exploration = Exploration(sabotage.job, STATES_MAX)
        outcome = exploration.follow(sabotage.choices) if sabotage.choices else exploration.run()
        assert outcome.breach is not None, f"{sabotage.what}: not found in {outcome.states} states"
        lines = breach_lines(outcome, outcome.breach)
    assert any(sabotage.shows in what for what in outcome.breach.what), outcome.breach.what
    assert len(lines) == len(outcome.breach.what) + 1 + len(outcome.breach.path)


@pytest.mark.campaign
@pytest.mark.parametrize("name", LONG)
def test_the_choices_of_a_sabotage_are_what_a_search_finds(name: str) -> None:
    sabotage = SABOTAGES[name]
    with in_force(sabotage):
        exploration = Exploration(sabotage.job, STATES_MAX)
        outcome = exploration.run()
        assert outcome.breach is not None, f"{sabotage.what}: not found in {outcome.states} states"
        assert tuple(exploration.choices(outcome.breach.path)) == sabotage.choices


def test_a_breach_is_found_by_the_shortest_path() -> None:
    sabotage = SABOTAGES["stored-late"]
    with in_force(sabotage):
        outcome = Exploration(sabotage.job, STATES_MAX).run()
        assert outcome.breach is not None
        text = "\n".join(breach_lines(outcome, outcome.breach))
    kinds = [action[0] for action in outcome.breach.path]
    assert kinds == ["deliver", "deliver", "turn", "turn", "deliver", "turn"], text
    assert text.splitlines()[-2].endswith("DATA of channel 1, elements 0 to 0, log 0/0 from 0 to 32 arrives"), text


@pytest.mark.parametrize("states", [100, campaign(1_000)])
def test_without_sabotage_the_same_jobs_hold(states: int) -> None:
    for job in {sabotage.job.name: sabotage.job for sabotage in SABOTAGES.values()}.values():
        outcome = Exploration(job, states).run()
        assert outcome.breach is None, f"{job.name}: {outcome.breach}"
