"""The checker against the definitions themselves: on a small system every execution is made, and every output compared.

Two channels into one state that counts; an output says its element and the count.  What the checker says of all
outputs up to four rows must be what holds by trying: is it the output of an execution from such inputs?
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import combinations, product

import pytest

from tests.guarantees.checker import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE, GOING_BACK, check
from tests.guarantees.history import Element, Failed, History, Output
from tests.members import campaign

INPUTS = {"a": 2, "b": 1}
A = (Element("a", 0), Element("a", 1))
B = (Element("b", 0),)
ROWS_MAX = 4

Execution = tuple[tuple[Element, int], ...]
"""(element, count) of each row."""


class Counted:
    """One key; the nth row says n."""

    def keys(self, element: Element) -> Sequence[Hashable]:
        return ("key",)

    def follows(self, before: Output | None, output: Output) -> bool:
        return bool(output.content == (before.content if before is not None else 0) + 1)


def mixed(one: Sequence[Element], other: Sequence[Element]) -> Iterator[tuple[Element, ...]]:
    """Yield all ways in which two channels can come together."""
    for places in combinations(range(len(one) + len(other)), len(one)):
        first, second = iter(one), iter(other)
        yield tuple(next(first) if at in places else next(second) for at in range(len(one) + len(other)))


def executed(one: Sequence[Element], other: Sequence[Element]) -> set[Execution]:
    """Return the output of every execution without failures from these inputs."""
    return {tuple((each, n) for n, each in enumerate(order, 1)) for order in mixed(one, other)}


def some_of(channel: Sequence[Element]) -> Iterator[tuple[Element, ...]]:
    for count in range(len(channel) + 1):
        yield from combinations(channel, count)


def with_repeats(channel: Sequence[Element]) -> Iterator[tuple[Element, ...]]:
    """Orders of the elements that have the channel itself within them."""
    for length in range(len(channel), ROWS_MAX + 1):
        for order in product(channel, repeat=length):
            rest = iter(order)
            if all(any(each == other for other in rest) for each in channel):
                yield order


def after_one_failure() -> set[tuple[Execution, int]]:
    """(rows, after how many of them it failed): performed, some time after that cut back, and performed to the end."""
    executions: set[tuple[Execution, int]] = set()
    for rows in executed(A, B):
        for cut in range(len(rows) + 1):
            for kept in range(cut + 1):
                again = [whole for whole in executed(A, B) if whole[:kept] == rows[:kept]]
                executions |= {(rows[:cut] + whole[kept:], failed) for whole in again for failed in range(cut + 1)}
    return executions


def everything(rows_max: int = ROWS_MAX) -> Iterator[Execution]:
    """Yield all outputs up to that many rows that could be thought of."""
    for length in range(rows_max + 1):
        yield from product(product((*A, *B), range(1, ROWS_MAX + 1)), repeat=length)


def outputs(execution: Execution) -> list[Output]:
    return [Output("task", "key", element, n) for element, n in execution]


def test_the_checker_says_what_the_definitions_say() -> None:
    exactly = executed(A, B)
    at_most = {rows for a in some_of(A) for b in some_of(B) for rows in executed(a, b)}
    at_least = {rows for a in with_repeats(A) for b in with_repeats(B) for rows in executed(a, b)}
    assert exactly < at_most and exactly < at_least
    tried = 0
    for execution in everything():
        satisfied = check(Counted(), History(INPUTS, outputs(execution))).satisfied
        assert (EXACTLY_ONCE in satisfied) == (execution in exactly), execution
        assert (AT_MOST_ONCE in satisfied) == (execution in at_most), execution
        assert (AT_LEAST_ONCE in satisfied) == (execution in at_least), execution
        tried += 1
    assert tried == sum(12**length for length in range(ROWS_MAX + 1))


@pytest.mark.parametrize("rows_max", [3, campaign(ROWS_MAX)])
def test_a_prefix_is_judged_by_what_it_can_still_become(rows_max: int) -> None:
    exactly = executed(A, B)
    prefixes = {rows[:length] for rows in exactly for length in range(len(rows) + 1)}
    for execution in everything(rows_max):
        satisfied = check(Counted(), History(INPUTS, outputs(execution), ended=False)).satisfied
        assert (EXACTLY_ONCE in satisfied) == (execution in prefixes), execution


@pytest.mark.campaign
def test_going_back_is_what_one_failure_can_do() -> None:
    possible = after_one_failure()
    for execution in everything():
        for failed in range(len(execution) + 1):
            rows = outputs(execution)
            history = History(INPUTS, [*rows[:failed], Failed("kill"), *rows[failed:]])
            assert (GOING_BACK in check(Counted(), history).satisfied) == ((execution, failed) in possible), (
                execution,
                failed,
            )
