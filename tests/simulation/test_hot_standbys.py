"""The simulator with hot standbys in the test suite: every promise, and that they do take over."""

from __future__ import annotations

import pytest

from causal.channels.sender import Sender
from operators.runtime.hot_standby import HotStandby
from tests.members import members
from tests.simulation.scenario import draw_hot
from tests.simulation.test_simulation import failing
from tests.simulation.trial import run

GROUP = 10
SAMPLED = range(14, 18)
"""The seeds of every run; hot standbys take over in some of them."""
GROUPS = members([SAMPLED, *(range(first, first + GROUP) for first in range(0, 400, GROUP))], SAMPLED)


@pytest.mark.parametrize("seeds", GROUPS, ids=str)
def test_every_promise_is_kept_with_hot_standbys(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    promote, hot = HotStandby.promote, 0

    def counted(*arguments: object) -> object:
        nonlocal hot
        task = promote(*arguments)  # type: ignore[arg-type]
        hot += task is not None
        return task

    monkeypatch.setattr(HotStandby, "promote", counted)
    outcomes = [run(draw_hot(seed)) for seed in seeds]
    assert not failing(outcomes), failing(outcomes)
    assert hot, "no hot standby has taken over"


def test_those_that_take_over_have_greeted_their_neighbours_in_advance(monkeypatch: pytest.MonkeyPatch) -> None:
    dial, answered = Sender.dial, 0

    def counted(self: Sender, incarnation: int, now_ns: int) -> None:
        nonlocal answered
        answered += self.greeted == incarnation
        dial(self, incarnation, now_ns)

    monkeypatch.setattr(Sender, "dial", counted)
    outcomes = [run(draw_hot(seed)) for seed in SAMPLED]
    assert not failing(outcomes) and answered
