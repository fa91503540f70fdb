"""`Slots` against a plain dict: due entries and their times, the slots of a key, and the same after any restore."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from causal.records.values import encode
from operators.records.keys import key_group, ordered
from operators.state.due_index import DueIndex
from operators.state.slots import Slots
from operators.state.spool import content_of

keys = st.sampled_from(["b", "a", "c", 1, (1, "x")])
actions = st.lists(
    st.tuples(st.sampled_from(["put", "put", "put", "first", "due", "restore"]), keys, st.integers(0, 12)), max_size=60
)


def slots() -> Slots:
    return Slots("op:held", "op", 16, lambda slot: slot // 2 * 10, by_key=True)


def restored(live: Slots, loaded: list[bytes], full: bool) -> Slots:
    """Return slots restored from all snapshots; `loaded` is extended by the newest."""
    job = live.table.snapshot(full)
    while job.step(2) == 2:
        pass
    if full:
        loaded.clear()
    loaded += [content_of(fragment) for fragments in job.fragments.values() for fragment in fragments]
    fresh = slots()
    for fragment in loaded:
        fresh.table.load(fragment)
    return fresh


def in_order(model: dict[Any, int], mark: int) -> list[Any]:
    rank = {key: place for place, key in enumerate(ordered({key: None for key, _ in model}))}
    due = [pair for pair in model if pair[1] // 2 * 10 <= mark]
    return sorted(due, key=lambda pair: (pair[1] // 2, rank[pair[0]], pair[1]))


@given(actions, st.booleans())
def test_they_are_a_dict_that_knows_what_is_due(drawn: list[tuple[str, Any, int]], full: bool) -> None:
    live, model, loaded = slots(), dict[Any, int](), list[bytes]()
    for number, (what, key, slot) in enumerate(drawn):
        pair = (key, slot)
        if what == "put":
            if pair in live.values:
                live.touch([pair])
                live.values[pair] = number
            else:
                live.add({pair: number})
            model[pair] = number
        elif what == "first":
            taken = live.take_first()
            assert len(taken) == bool(model)
            for pair, value in taken:
                assert pair[1] // 2 == min(slot // 2 for _, slot in model)
                assert model.pop(pair) == value
        elif what == "due":
            due = [pair for pair, _ in live.take(slot * 5)]
            same_types = [each for each in due if type(each[0]) is str]
            assert same_types == in_order({p: n for p, n in model.items() if type(p[0]) is str}, slot * 5)
            assert sorted(map(encode, due)) == sorted(encode(p) for p in model if p[1] // 2 * 10 <= slot * 5)
            for pair in due:
                del model[pair]
        else:
            live = restored(live, loaded, full or not loaded)
        assert live.values == model
        if what == "restore" and slot % 2:
            continue  # what was loaded is looked at only when something is changed
        assert live.of(key) == sorted(slot for each, slot in model if each == key)
        assert live.next_ns() == min((slot // 2 * 10 for _, slot in model), default=None)


def test_what_is_due_is_the_same_whatever_the_order_in_which_it_came() -> None:
    pairs = [("b", 3), ("a", 3), ("a", 2), ("c", 0), (7, 3)]
    by_order = []
    for order in (pairs, pairs[::-1]):
        live = slots()
        live.add(dict.fromkeys(order, 0))
        by_order.append(live.take(100))
    assert by_order[0] == by_order[1]
    assert by_order[0][0] == (("c", 0), 0)


def test_a_pair_lies_in_the_group_of_its_key() -> None:
    live = slots()
    live.add({("a", 1): 1, ("a", 2): 2, ("b", 1): 3})
    job = live.table.snapshot(True)
    job.step(9)
    assert sorted(job.fragments) == sorted({key_group("a", 16), key_group("b", 16)})
    assert live.table.inspect("a") == [[1, 1], [2, 2]]
    assert live.table.inspect("z") is None


def test_times_that_come_and_go_leave_nothing_behind() -> None:
    index = DueIndex()
    for number in range(1000):
        index.add(("a", number), 1_000_000 - number)
        index.remove(("a", number), 1_000_000 - number)
    assert len(index._heap) <= 65
    assert index.next_ns() is None
