"""The merged watermark never falls and is never above an input that is neither idle nor ended."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from operators.stage.watermark_merge import END_NS, IDLE_NS, Merge

steps = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["mark", "mark", "mark", "idle", "active", "end"]), st.integers(0, 9)),
    max_size=40,
)


def perform(merge: Merge, step: tuple[int, str, int]) -> int | None:
    input, what, mark = step
    if what == "mark":
        return merge.update(input, mark)
    if what == "idle":
        return merge.update(input, IDLE_NS)
    if what == "end":
        return merge.ended(input)
    merge.active(input)
    return None


@given(steps)
def test_it_is_the_least_of_those_that_are_awake_and_never_falls(drawn: list[tuple[int, str, int]]) -> None:
    merge = Merge(3)
    marks: dict[int, int] = {}
    asleep: dict[int, str] = {}
    highest = -1
    for input, what, mark in drawn:
        if asleep.get(input) == "end":
            continue
        rose = perform(merge, (input, what, mark))
        asleep.pop(input, None)
        if what == "mark":
            marks[input] = max(mark, marks.get(input, mark))
        elif what != "active":
            asleep[input] = what
        awake = [each for each in range(3) if each not in asleep]
        if rose == IDLE_NS:
            assert not awake and "idle" in asleep.values()
        elif rose is not None:
            assert rose > highest
            assert rose == min((marks[each] for each in awake), default=END_NS)
            highest = rose
        elif what != "active" and awake and all(each in marks for each in awake):
            assert min(marks[each] for each in awake) <= highest, "a rise was not reported"


@given(steps, st.integers(0, 40))
def test_restored_anywhere_it_goes_on_as_before(drawn: list[tuple[int, str, int]], at: int) -> None:
    def run(restore_at: int | None) -> list[Any]:
        merge, marks = Merge(3), []
        for place, step in enumerate(drawn):
            if place == restore_at:
                header = merge.header()
                merge = Merge(3)
                merge.load(header)
            marks.append(perform(merge, step))
        return [*marks, merge.merged]

    assert run(at) == run(None)


def test_an_input_without_a_mark_holds_all_back_until_it_ends() -> None:
    merge = Merge(2)
    assert merge.update(0, 5) is None
    assert merge.ended(1) == 5
    assert merge.update(0, 4) is None
    assert merge.ended(0) == END_NS


def test_all_idle_is_reported_once_and_again_after_an_input_was_awake() -> None:
    merge = Merge(2)
    assert [merge.update(0, IDLE_NS), merge.update(1, IDLE_NS), merge.update(1, IDLE_NS)] == [None, IDLE_NS, None]
    merge.active(0)
    assert merge.update(0, IDLE_NS) == IDLE_NS
    assert merge.update(1, 7) == 7, "one that comes back alone decides"


def test_an_input_that_continues_several_is_as_far_as_the_slowest_and_awake() -> None:
    one, other = Merge(2), Merge(2)
    for merge, marks in ((one, (5, 9)), (other, (7, None))):
        for input, mark in enumerate(marks):
            if mark is not None:
                merge.update(input, mark)
    one.update(1, IDLE_NS)
    other.ended(0)
    origins = [[(0, 1)], [(0, 0), (1, 0)], [(0, 0), (1, 1)], []]
    continued = Merge(4)
    continued.load(Merge.rewired([one.header(), other.header()], origins))
    assert continued.header() == {
        "marks": [9, 5, None, None],
        "idle": [False] * 4,
        "ended": [False] * 4,
        "merged": None,
        "waiting": True,
    }
    assert [continued.update(3, 8), continued.update(2, 6)] == [None, 5]
