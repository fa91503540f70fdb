"""The checker against the executable model: all executions of small systems with failures, and what each F gives.

Three operations on two channels: one passes, one counts, one concatenates.  The last is the example of the paper, whose
Table II shows why its order has to be recoverable.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import Any

import pytest

from tests.guarantees import model
from tests.guarantees.checker import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE, GOING_BACK, check
from tests.guarantees.history import Element, Failed, History, Output
from tests.guarantees.model import System, executions, history_of, possible, said
from tests.members import except_for

A, B = (Element("a", 0), Element("a", 1)), (Element("b", 0),)
INPUTS = {"a": A, "b": B}
COUNTS = {"a": 2, "b": 1}
ROWS_MAX = 4


def passes(value: Hashable, element: Element) -> tuple[Hashable, Hashable]:
    return None, "row"


def counts(value: Any, element: Element) -> tuple[Hashable, Hashable]:
    return value + 1, value + 1


def concatenates(value: Any, element: Element) -> tuple[Hashable, Hashable]:
    return (*value, element), (*value, element)


def adds(value: Any, element: Element) -> tuple[Hashable, Hashable]:
    """Its state does not depend on the order, and its rows do not show it."""
    return value + element.place + 1, ("added", element.place)


FIRST: dict[Any, Hashable] = {passes: None, counts: 0, concatenates: (), adds: 0}
OPERATIONS = tuple(FIRST)


class Explained:
    """The specification of an operation for the checker: one key, and which row can follow on which."""

    def __init__(self, operation: Any) -> None:
        self._operation = operation

    def keys(self, element: Element) -> Sequence[Hashable]:
        return ("key",)

    def follows(self, before: Output | None, output: Output) -> bool:
        stateless = self._operation in (passes, adds)
        value = FIRST[self._operation] if stateless or before is None else before.content
        return bool(self._operation(value, output.element)[1] == output.content)


def system(operation: Any, recovery: model.Recovery = model.reference, **options: Any) -> System:
    return System(INPUTS, operation, FIRST[operation], recovery, **options)


MODES: dict[str, tuple[model.Recovery, dict[str, Any]]] = {
    "causal": (model.by_determinants, {}),
    "epoch": (model.going_back, {"withheld": True}),
    "at-least-once": (model.going_back, {}),
    "none": (model.from_nothing, {"snapshots_max": 0}),
    "drops what was seen": (model.dropping_seen, {}),
}
ALWAYS, IF_IT_COMMUTES = ("causal", "epoch"), ("drops what was seen",)
EXACTLY = {*product(ALWAYS, OPERATIONS), *product(IF_IT_COMMUTES, (passes, adds))}
"""The pairs of F and an operation that are exactly-once."""
LONG = [("at-least-once", passes), ("at-least-once", concatenates)]


def moments(mode: str, operation: Any, failures: int = 1) -> list[model.Moment]:
    recovery, options = MODES[mode]
    return sorted(executions(system(operation, recovery, **options), failures), key=repr)


def some_of(channel: Sequence[Element]) -> Iterator[tuple[Element, ...]]:
    for count in range(len(channel) + 1):
        yield from combinations(channel, count)


def with_repeats(channel: Sequence[Element], length_max: int) -> Iterator[tuple[Element, ...]]:
    for length in range(len(channel), length_max + 1):
        for order in product(channel, repeat=length):
            rest = iter(order)
            if all(any(each == other for other in rest) for each in channel):
                yield order


def outputs_of(operation: Any, inputs: model.Inputs) -> set[tuple[Any, ...]]:
    """Return all rows of executions from these inputs without failures that have ended."""
    whole = tuple(len(elements) for elements in inputs.values())
    count = sum(whole)
    reached = possible(replace(system(operation), inputs=inputs))
    return {rows for entered, rows in reached if entered == whole and len(rows) == count}


@pytest.mark.parametrize(("mode", "operation"), except_for(product(MODES, OPERATIONS), *LONG))
def test_which_recovery_is_exactly_once_for_which_operation(mode: str, operation: Any) -> None:
    recovery, options = MODES[mode]
    assert model.exactly_once(system(operation, recovery, **options), 2) == ((mode, operation) in EXACTLY)


def test_only_operations_that_commute_need_no_order() -> None:
    """Theorem 1: without determinants and without waiting, exactly those that commute are exactly-once."""
    for operation in OPERATIONS:
        recovered = model.exactly_once(system(operation, model.dropping_seen), 1)
        assert model.commutes(system(operation)) == recovered, operation


def test_reference_recovery_adds_no_output() -> None:
    for operation in OPERATIONS:
        seen = {(m.entered, said(m.seen)) for m in executions(system(operation), 2)}
        assert seen == possible(system(operation))


def test_the_example_of_the_paper_is_found() -> None:
    """A reader has seen a0 and a0 b0; recovered in another order the state is a0 a1, which contradicts both."""
    consistent, recovered = possible(system(concatenates)), moments("drops what was seen", concatenates)
    bad = [moment for moment in recovered if (moment.entered, said(moment.seen)) not in consistent]
    contents = {tuple(row.content for row in moment.seen) for moment in bad}
    assert ((A[0],), (A[0], B[0]), (A[0], A[1])) in contents


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("mode", MODES)
def test_the_checker_agrees_on_exactly_once_at_every_moment_of_every_execution(mode: str, operation: Any) -> None:
    consistent = {rows for _, rows in possible(system(operation))}
    ended = outputs_of(operation, INPUTS)
    recovery, options = MODES[mode]
    whole = system(operation, recovery, **options)
    judged = 0
    for moment in moments(mode, operation):
        rows, over = said(moment.seen), whole.ended(moment)
        for finished in {False, over}:
            history = History(COUNTS, history_of(moment), ended=finished)
            satisfied = check(Explained(operation), history).satisfied
            assert (EXACTLY_ONCE in satisfied) == (rows in (ended if finished else consistent)), history
            judged += 1
    assert judged > 20


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("mode", MODES)
def test_the_checker_agrees_on_elements_left_out_or_repeated(mode: str, operation: Any) -> None:
    """Definitions 7 and 8, of executions that have ended, as far as all repeats of this many rows can be made."""
    left_out = {rows for a in some_of(A) for b in some_of(B) for rows in outputs_of(operation, {"a": a, "b": b})}
    repeated = {
        rows
        for a in with_repeats(A, ROWS_MAX - 1)
        for b in with_repeats(B, ROWS_MAX - len(a))
        for rows in outputs_of(operation, {"a": a, "b": b})
    }
    recovery, options = MODES[mode]
    whole = system(operation, recovery, **options)
    for moment in moments(mode, operation):
        rows = said(moment.seen)
        if whole.ended(moment) and len(rows) <= ROWS_MAX:
            satisfied = check(Explained(operation), History(COUNTS, history_of(moment))).satisfied
            assert (AT_MOST_ONCE in satisfied) == (rows in left_out), rows
            assert (AT_LEAST_ONCE in satisfied) == (rows in repeated), rows


@pytest.mark.parametrize("operation", OPERATIONS)
def test_going_back_is_what_the_mode_of_that_name_does(operation: Any) -> None:
    """And it is no at-least-once of the paper where there is state: no repeated input gives a count twice."""
    whole = system(operation, model.going_back)
    unsatisfied = 0
    for moment in moments("at-least-once", operation):
        if whole.ended(moment):
            history = History(COUNTS, history_of(moment))
            satisfied = check(Explained(operation), history).satisfied
            assert GOING_BACK in satisfied, history
            unsatisfied += AT_LEAST_ONCE not in satisfied
    assert bool(unsatisfied) == (operation in (counts, concatenates))


def test_without_state_none_leaves_elements_out_and_with_state_it_is_nothing() -> None:
    for operation, promised in ((passes, True), (counts, False)):
        whole = system(operation, model.from_nothing, snapshots_max=0)
        verdicts = {
            AT_MOST_ONCE in check(Explained(operation), History(COUNTS, history_of(moment))).satisfied
            for moment in moments("none", operation)
            if whole.ended(moment)
        }
        assert verdicts == ({True} if promised else {True, False})


def test_failures_take_part_in_every_execution_that_is_compared() -> None:
    assert any(isinstance(each, Failed) for moment in moments("causal", counts) for each in moment.left)
