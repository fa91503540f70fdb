"""`Wakes` against a dict of times: due items and their times, however items are moved."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from operators.kinds.windows.wakes import Wakes
from operators.records.keys import ordered

pairs = st.tuples(st.sampled_from(["b", "a", "c", 1, (1, "x")]), st.integers(0, 1))
actions = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.tuples(pairs, st.integers(0, 12))),
        st.tuples(st.just("set"), st.tuples(pairs, st.integers(0, 12))),
        st.tuples(st.just("add"), st.tuples(st.sets(pairs), st.integers(0, 12))),
        st.tuples(st.just("forget"), st.sets(pairs, max_size=3)),
        st.tuples(st.just("next"), st.none()),
        st.tuples(st.just("due"), st.integers(0, 12)),
    ),
    min_size=10,
    max_size=60,
)


@given(actions)
def test_an_item_is_due_at_the_time_that_it_was_given_last(drawn: list[tuple[str, Any]]) -> None:
    wakes, model = Wakes(), dict[Any, int]()
    for what, more in [*drawn, ("due", 12)]:
        if what == "set":
            pair, at_ns = more
            wakes.set(pair, at_ns)
            model[pair] = at_ns
        elif what == "add":
            fresh = [pair for pair in sorted(more[0], key=repr) if pair not in model]
            wakes.add(fresh, more[1])
            model.update(dict.fromkeys(fresh, more[1]))
        elif what == "forget":
            wakes.forget(more)
            model = {pair: at_ns for pair, at_ns in model.items() if pair not in more}
        elif what == "due":
            rank = {key: place for place, key in enumerate(ordered({key: None for key, _ in model}))}
            due = sorted(
                (pair for pair in model if model[pair] <= more), key=lambda pair: (model[pair], rank[pair[0]], pair[1])
            )
            assert wakes.due(more) == due
            for pair in due:
                del model[pair]
        else:
            assert wakes.next_ns() == min(model.values(), default=None)
    assert wakes.next_ns() is None


def test_a_growing_item_leaves_nothing_behind() -> None:
    wakes = Wakes()
    for at_ns in range(10_000):
        wakes.set(("k", 0), at_ns + 50)
        wakes.due(at_ns)
        assert wakes.next_ns() == at_ns + 50
    index = wakes._index
    assert len(index._heap) <= 2 and len(index._buckets) <= 2
