"""The checker on histories made by hand: one of every class, and what may be said of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.guarantees.checker import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE, GOING_BACK, Verdict, check
from tests.guarantees.history import Element, Failed, History, Output
from tests.guarantees.specs import SPECS, Folded, Merged, Passed, fold_keys, folded, merged

ALL = (EXACTLY_ONCE, AT_MOST_ONCE, AT_LEAST_ONCE, GOING_BACK)
NOTHING: tuple[str, ...] = ()
CRASH = Failed("kill")
COUNT = 6
INPUTS = {"left": COUNT, "right": COUNT}
Events = list[Output | Failed]


def elements(*places: int, channel: str = "left") -> list[Element]:
    return [Element(channel, place) for place in places]


def passing(order: Sequence[Element]) -> Events:
    return [Output(each.channel, each.channel, each) for each in order]


def folding(order: Sequence[Element]) -> Events:
    """Return the events of one task that performs these elements without a failure."""
    rows: dict[str, Any] = {}
    events: Events = []
    for each in order:
        for key in fold_keys(each.channel, each.place):
            rows[key] = folded(rows.get(key), each.place)
            events.append(Output("fold/0", key, each, rows[key]))
    return events


def merging(order: Sequence[Element], dice: float = 0.5) -> Events:
    """Return the same with a chain, and random numbers that distinguish two executions."""
    rows: dict[Any, Any] = {}
    events: Events = []
    for each in order:
        [key] = Merged().keys(each)
        rows[key] = merged(rows.get(key), each, dice)
        events.append(Output("merge/0", str(key), each, rows[key]))
    return events


LEFT, RIGHT = elements(*range(COUNT)), elements(*range(COUNT), channel="right")
IN_TURN = [each for both in zip(LEFT, RIGHT, strict=True) for each in both]
MAKE: dict[str, Callable[[Sequence[Element]], Events]] = {"passed": passing, "folded": folding, "merged": merging}


def verdict(spec: str, events: Events, **more: Any) -> Verdict:
    return check(SPECS[spec], History(INPUTS, events, **more))


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("order", [IN_TURN, [*LEFT, *RIGHT], [*RIGHT, *LEFT]])
def test_every_order_of_the_channels_is_an_execution(spec: str, order: Sequence[Element]) -> None:
    judged = verdict(spec, MAKE[spec](order))
    assert judged == Verdict(ALL, lost=0, doubled=0, contradicted=0, reordered=0, impossible=0, vanished=0)


@pytest.mark.parametrize("spec", SPECS)
def test_a_run_under_way_may_have_rows_to_come_and_one_that_ended_may_not(spec: str) -> None:
    events = MAKE[spec](IN_TURN)[:-2]
    assert verdict(spec, events, ended=False).satisfied == ALL
    judged = verdict(spec, events)
    assert judged.lost == 2 and EXACTLY_ONCE not in judged.satisfied and AT_LEAST_ONCE not in judged.satisfied


@pytest.mark.parametrize("spec", SPECS)
def test_an_element_that_left_nothing_anywhere_is_lost_and_the_rest_goes_on_without_it(spec: str) -> None:
    judged = verdict(spec, MAKE[spec]([each for each in IN_TURN if each != LEFT[2]]))
    assert judged.satisfied == (AT_MOST_ONCE,)
    assert judged.lost == len(SPECS[spec].keys(LEFT[2]))


def test_an_element_that_left_one_of_its_two_rows_was_not_atomic() -> None:
    whole = folding(IN_TURN)
    key = fold_keys("left", COUNT - 1)[1]
    torn = [each for each in whole if not (isinstance(each, Output) and each.key == key and each.element == LEFT[-1])]
    assert len(torn) == len(whole) - 1
    judged = verdict("folded", torn)
    assert (judged.satisfied, judged.lost) == (NOTHING, 1)
    assert AT_MOST_ONCE in verdict("folded", torn, ended=False).satisfied


@pytest.mark.parametrize("spec", SPECS)
def test_an_element_that_entered_twice_is_at_least_once(spec: str) -> None:
    twice = [*IN_TURN[:5], *IN_TURN[3:]]
    judged = verdict(spec, MAKE[spec](twice))
    assert AT_LEAST_ONCE in judged.satisfied and EXACTLY_ONCE not in judged.satisfied
    assert AT_MOST_ONCE not in judged.satisfied
    assert judged.doubled == 2 * len(SPECS[spec].keys(LEFT[2])) and judged.lost == judged.contradicted == 0


def test_rows_again_from_an_earlier_state_are_no_input_given_twice() -> None:
    """A rollback after visible rows repeats the same rows, if nothing is nondeterministic."""
    first, again = folding(IN_TURN[:6]), folding(IN_TURN)[6:]
    judged = verdict("folded", [*first, CRASH, *again])
    assert judged.satisfied == (GOING_BACK,) and judged.doubled == len(first) + len(again) - 4 * COUNT
    assert judged.contradicted > 0, "the sum after the failure does not follow from the one before it"


def test_without_state_nobody_can_tell_going_back_from_an_input_given_twice() -> None:
    judged = verdict("passed", [*passing(LEFT[:4]), CRASH, *passing(LEFT[2:]), *passing(RIGHT)])
    assert judged.satisfied == (AT_LEAST_ONCE, GOING_BACK) and judged.doubled == 2


def test_by_chance_the_rows_that_come_again_are_others() -> None:
    before, after = merging(IN_TURN[:7], dice=0.25), merging(IN_TURN, dice=0.75)
    assert verdict("merged", [*before, CRASH, *after]).satisfied == (GOING_BACK,)
    assert verdict("merged", [*before, *after]).satisfied == NOTHING, "nothing failed"
    assert verdict("merged", [*before, CRASH, *after[1:]]).satisfied == NOTHING, "not where it had been"


def test_going_back_needs_everything_in_the_end_and_a_failure_each_time() -> None:
    rows = folding(IN_TURN)
    assert verdict("folded", [*rows[:8], CRASH, *rows[4:]]).satisfied == (GOING_BACK,)
    assert verdict("folded", [*rows[:8], CRASH, *rows[4:-1]]).satisfied == NOTHING
    twice = [*rows[:8], CRASH, *rows[:8], *rows]
    assert verdict("folded", twice).satisfied == NOTHING
    assert verdict("folded", [*rows[:8], CRASH, *rows[:8], CRASH, *rows]).satisfied == (GOING_BACK,)


def test_a_state_that_begins_anew_is_nothing_of_all_this() -> None:
    """A failed task that continues without state: its sums begin again with elements from the middle."""
    judged = verdict("folded", [*folding(IN_TURN[:6]), CRASH, *folding(IN_TURN[6:])])
    assert judged.satisfied == NOTHING and judged.lost == judged.doubled == 0 and judged.contradicted > 0


@pytest.mark.parametrize("spec", SPECS)
def test_a_channel_that_was_reordered_is_no_execution(spec: str) -> None:
    order = [*IN_TURN[:2], LEFT[2], RIGHT[1], LEFT[1], *IN_TURN[5:]]
    judged = verdict(spec, MAKE[spec](order))
    assert (judged.satisfied, judged.reordered) == (NOTHING, len(SPECS[spec].keys(LEFT[1])))


def test_two_tasks_that_saw_repeats_in_orders_that_exclude_each_other() -> None:
    """Each for itself had an input with repeats; no one input gives both."""

    def shown(order: Sequence[int]) -> Events:
        return [
            Output(stage, key, Element("left", place), None) for stage, key, place in zip("ab" * 99, "xy" * 99, order)
        ]

    class Two(Passed):
        def keys(self, element: Element) -> Sequence[str]:
            return ("x", "y")

    one = History({"left": 2}, shown([0, 0, 1, 0, 0, 1, 1, 1]))
    assert [each.element.place for each in one.outputs if each.stage == "a"] == [0, 1, 0, 1]
    assert [each.element.place for each in one.outputs if each.stage == "b"] == [0, 0, 1, 1]
    assert AT_LEAST_ONCE not in check(Two(), one).satisfied
    same = History({"left": 2}, shown([0, 0, 1, 1, 0, 0, 1, 1]))
    assert AT_LEAST_ONCE in check(Two(), same).satisfied


def test_what_no_element_leaves_is_impossible() -> None:
    rows = passing(IN_TURN)
    assert isinstance(rows[0], Output)
    for foreign in (
        replace(rows[0], element=Element("left", COUNT)),
        replace(rows[0], key="nowhere"),
        replace(rows[0], stage="another task"),
    ):
        judged = verdict("passed", [*rows, foreign])
        assert (judged.satisfied, judged.impossible) == (NOTHING, 1)


def test_a_row_with_another_content_contradicts() -> None:
    rows = merging(IN_TURN)
    assert isinstance(rows[4], Output)
    rows[4] = replace(rows[4], content={**rows[4].content, "dice": 0.1})
    judged = verdict("merged", rows)
    assert judged.satisfied == NOTHING and judged.contradicted > 0


@pytest.mark.parametrize("spec", SPECS)
def test_an_output_that_is_taken_back_was_never_right(spec: str) -> None:
    judged = verdict(spec, MAKE[spec](IN_TURN), vanished=1)
    assert (judged.satisfied, judged.vanished) == (NOTHING, 1)


def test_the_reference_run_is_the_only_exactly_once_output_of_what_is_determined() -> None:
    reference = Folded().reference(INPUTS)
    rows = [event for event in folding([*RIGHT, *LEFT]) if isinstance(event, Output)]
    assert {key: [(each.element, each.content) for each in rows if each.key == key] for key in reference} == reference
    for key, line in reference.items():
        for at in range(len(line)):
            element, content = line[at]
            damaged: Events = [
                replace(each, content={**content, "sum": content["sum"] + 1})
                if (each.key, each.element) == (key, element)
                else each
                for each in rows
            ]
            assert EXACTLY_ONCE not in verdict("folded", damaged).satisfied
