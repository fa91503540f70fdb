"""The decisions of `causal rescale --auto` against jobs whose load is known: they end, and they never contradict.

A load is a share of one processor for each key group.  A task works for at most all of its time, so what it shows of
its load is bounded, as in a real job.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations_with_replacement, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.changes.scaling import Bounds, Load, Sample, Scaling, Spent, Thresholds
from operators.records.keys import task_of_group

GROUPS = 16
STEPS_MAX = 400
"""The number of samples, several for each measurement of shares: enough for all changes that are possible, and more."""

Weights = Sequence[float]
Loads = Callable[[int], Weights]
"""The load of each key group at a step."""


def constant(load: Weights) -> Loads:
    return lambda step: load


class Operator:
    """An operator whose tasks work off a load, and the decisions about it."""

    def __init__(self, bounds: Bounds, thresholds: Thresholds, tasks: int) -> None:
        self.bounds, self.for_s = bounds, thresholds.for_s
        self.scaling = Scaling(thresholds, {"count": bounds})
        self.tasks, self.at_s, self.incarnation = tasks, 0.0, 1
        self.numbers = [tasks]
        self._spent: list[tuple[float, float]] = [(0.0, 0.0)] * tasks

    def step(self, seconds: float, weights: Weights) -> None:
        """Make the tasks work, take a sample, and carry out the decision."""
        demand = [0.0] * self.tasks
        for group, weight in enumerate(weights):
            demand[task_of_group(group, self.tasks, GROUPS)] += weight
        self.at_s += seconds
        self._spent = [
            (busy_s + seconds * min(1.0, share), whole_s + seconds)
            for (busy_s, whole_s), share in zip(self._spent, demand, strict=True)
        ]
        load = Load(self.tasks, [Spent(*each) for each in self._spent])
        decision = self.scaling.take(Sample(self.at_s, (self.incarnation,) * self.tasks, {"count": load}))
        if decision is None:
            return
        assert decision.operator == "count" and decision.tasks != self.tasks
        self.tasks, self._spent = decision.tasks, [(0.0, 0.0)] * decision.tasks
        self.at_s, self.incarnation = self.at_s + 1, self.incarnation + 1000
        self.numbers.append(self.tasks)
        self.scaling.changed()

    def run(self, loads: Loads, steps: int = STEPS_MAX) -> None:
        """Make the tasks work off the load of each step."""
        for step in range(steps):
            self.step(self.for_s / 4, loads(step))


@st.composite
def operators(draw: st.DrawFn) -> Operator:
    least = draw(st.integers(1, GROUPS))
    bounds = Bounds(least, draw(st.integers(least, GROUPS)))
    busy = draw(st.floats(0.05, 0.99))
    thresholds = Thresholds(busy, draw(st.floats(0, busy, exclude_max=True)), draw(st.sampled_from([1.0, 30.0])))
    return Operator(bounds, thresholds, draw(st.integers(1, GROUPS)))


weights = st.one_of(
    st.floats(0, 3).map(lambda load: [load / GROUPS] * GROUPS),
    st.lists(st.floats(0, 0.3), min_size=GROUPS, max_size=GROUPS),
    st.lists(st.sampled_from([0.0, 0.01, 0.5, 5.0]), min_size=GROUPS, max_size=GROUPS),
)
"""Loads that are even, uneven, and of a few hot keys."""


def in_bounds(operator: Operator) -> list[int]:
    """Return the numbers that were decided; one decision may bring the first number into the bounds."""
    bounds = operator.bounds
    decided = operator.numbers[1:] if not bounds.least <= operator.numbers[0] <= bounds.most else operator.numbers
    assert all(bounds.least <= number <= bounds.most for number in decided), (bounds, operator.numbers)
    return decided


@pytest.mark.parametrize("tasks", range(1, 7))
@pytest.mark.parametrize("thresholds", [Thresholds(), Thresholds(0.5, 0.49), Thresholds(0.9, 0.05)])
def test_each_number_of_tasks_suits_each_even_load_in_the_end(tasks: int, thresholds: Thresholds) -> None:
    """The number of tasks is the same from some time on, and no other number within the bounds would change to it."""
    for least, most in combinations_with_replacement(range(1, 7), 2):
        for tenths in range(0, 65, 3):
            operator, share = Operator(Bounds(least, most), thresholds, tasks), tenths / 10 / GROUPS
            operator.run(constant([share] * GROUPS), 60)
            numbers = in_bounds(operator)
            assert numbers in (sorted(numbers), sorted(numbers, reverse=True)), (numbers, tenths)
            settled = numbers[-1]
            before = len(operator.numbers)
            operator.run(constant([share] * GROUPS), 40)
            assert len(operator.numbers) == before, operator.numbers
            if settled < most:
                assert tenths / 10 / settled <= thresholds.busy + 1e-9, (operator.numbers, tenths)
            fewer = (settled + 1) // 2
            if least <= fewer < settled:
                kept_up = tenths / 10 / fewer > 0.9 * thresholds.busy - 1e-9
                busy = max(1, -(-GROUPS // settled)) * share > thresholds.busy
                assert kept_up or busy or tenths / 10 / settled >= thresholds.idle - 1e-9, (operator.numbers, tenths)


@given(operators(), weights)
def test_decisions_about_a_constant_load_have_one_direction_and_end(operator: Operator, load: Weights) -> None:
    operator.run(constant(load))
    numbers = in_bounds(operator)
    assert numbers in (sorted(numbers), sorted(numbers, reverse=True)), numbers
    assert len(numbers) <= 1 + GROUPS.bit_length(), numbers


@given(operators(), weights, st.floats(0, 0.05))
def test_an_operator_that_has_grown_under_a_rising_load_never_shrinks(
    operator: Operator, load: Weights, slope: float
) -> None:
    operator.run(lambda step: [weight * (1 + slope * step) for weight in load])
    directions = [after > before for before, after in pairwise(in_bounds(operator))]
    assert directions == sorted(directions), operator.numbers


@given(operators(), weights, st.floats(0, 0.05))
def test_an_operator_that_has_shrunk_under_a_falling_load_never_grows(
    operator: Operator, load: Weights, slope: float
) -> None:
    operator.run(lambda step: [weight / (1 + slope * step) for weight in load])
    directions = [after > before for before, after in pairwise(in_bounds(operator))]
    assert directions == sorted(directions, reverse=True), operator.numbers


@given(st.lists(st.tuples(st.integers(1, 200), weights), max_size=6), operators())
def test_no_load_leads_out_of_the_bounds(phases: list[tuple[int, Weights]], operator: Operator) -> None:
    for steps, load in phases:
        operator.run(constant(load), steps)
    in_bounds(operator)
