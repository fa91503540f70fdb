"""`Slots` against a plain dict: what is due and when, the slots of a key, and the same after any restore."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from causal.records.values import encode
from operators.records.keys import key_group, ordered
from operators.state.slots import Slots

keys = st.sampled_from(["b", "a", "c", 1, (1, "x")])
actions = st.lists(
    st.tuples(st.sampled_from(["put", "put", "put", "drop", "due", "restore"]), keys, st.integers(0, 12)), max_size=60
)


def slots() -> Slots:
    return Slots("op:held", "op", 16, lambda slot: slot // 2 * 10, by_key=True)


def restored(live: Slots, loaded: list[bytes], full: bool) -> Slots:
    """Returns slots restored from all snapshots; `loaded` is extended by the newest."""
    job = live.table.snapshot(full)
    while job.left:
        job.step(2)
    if full:
        loaded.clear()
    loaded += [fragment for fragments in job.fragments.values() for fragment in fragments]
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
            live.touch([pair])
            new = pair not in live.values
            live.values[pair] = model[pair] = number
            if new:
                live.added([pair])
        elif what == "drop":
            gone = [each for each in model if each[0] == key and each[1] <= slot]
            live.drop(gone)
            for each in gone:
                del model[each]
        elif what == "due":
            due = live.due(slot * 5)
            same_types = [each for each in due if type(each[0]) is str]
            assert same_types == in_order({p: n for p, n in model.items() if type(p[0]) is str}, slot * 5)
            assert sorted(map(encode, due)) == sorted(encode(p) for p in model if p[1] // 2 * 10 <= slot * 5)
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
        live.touch(order)
        live.values.update(dict.fromkeys(order, 0))
        live.added(order)
        by_order.append(live.due(100))
    assert by_order[0] == by_order[1]
    assert by_order[0][0] == ("c", 0)


def test_what_is_put_right_behind_a_restore_is_there_once() -> None:
    live = slots()
    live.touch([("a", 1)])
    live.values[("a", 1)] = 1
    live.added([("a", 1)])
    again = restored(live, [], True)
    again.touch([("a", 5)])
    again.values[("a", 5)] = 5
    again.added([("a", 5)])
    assert again.of("a") == [1, 5]
    again.drop([("a", 5)])
    assert again.of("a") == [1]
    assert again.due(100) == [("a", 1)]


def test_a_pair_lies_in_the_group_of_its_key() -> None:
    live = slots()
    live.touch([("a", 1), ("a", 2), ("b", 1)])
    live.values.update({("a", 1): 1, ("a", 2): 2, ("b", 1): 3})
    job = live.table.snapshot(True)
    job.step(9)
    assert sorted(job.fragments) == sorted({key_group("a", 16), key_group("b", 16)})
    assert live.table.inspect("a") == [[1, 1], [2, 2]]
    assert live.table.inspect("z") is None


def test_times_that_come_and_go_leave_nothing_behind() -> None:
    live = slots()
    for number in range(1000):
        pair = ("a", 1_000_000 - number)
        live.touch([pair])
        live.values[pair] = number
        live.added([pair])
        live.drop([pair])
    assert len(live._heap) <= 65
    assert live.next_ns() is None
