"""Slots, due entries and wakes against plain dicts: each is due once, in order, and the same after any restore."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from causal.records.values import encode
from operators.kinds.windows.wakes import Wakes
from operators.records.keys import key_group, ordered
from operators.state.due_entries import DueEntries, in_key_order
from operators.state.due_index import DueIndex
from operators.state.keyed_tables import TableJob
from operators.state.slots import Slots, SlotTable
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


# `DueEntries` against a plain dict: due entries are taken once, in order, and the same after any restore.


entry_keys = st.sampled_from(["b", "a", 1, (1, "x")])
entry_actions = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(st.tuples(entry_keys, st.integers(0, 9)), max_size=4)),
        st.tuples(st.just("add"), st.lists(st.tuples(entry_keys, st.integers(0, 9)), max_size=4)),
        st.tuples(st.just("take"), st.integers(-1, 6)),
        st.tuples(st.just("snapshot"), st.booleans()),
        st.tuples(st.just("restore"), st.booleans()),
    ),
    min_size=15,
    max_size=40,
)
"""Times are relative to the last that was taken."""


def entries() -> DueEntries:
    return DueEntries("op:held", "op", 16)


def finished(job: TableJob, keys_max: int) -> list[bytes]:
    """Return all fragments of a job, encoded in steps of this many entry_keys."""
    while job.step(keys_max) == keys_max:
        pass
    return [content_of(fragment) for fragments in job.fragments.values() for fragment in fragments]


def check(table: DueEntries, expected: dict[Any, Any]) -> None:
    for key in ("b", "a", 1, (1, "x")):
        listed = [[slot, value] for (other, slot), value in sorted(expected.items(), key=str) if other == key]
        assert table.inspect(key) == (sorted(listed) or None)


@given(entry_actions, st.integers(1, 5))
def test_they_are_a_dict_from_which_what_is_due_is_taken(drawn: list[tuple[str, Any]], keys_max: int) -> None:
    live, expected, over, place = entries(), dict[Any, Any](), 0, 0
    at_snapshot: tuple[dict[Any, Any], int] = ({}, 0)
    written: list[bytes] = finished(live.snapshot(True), keys_max)
    waiting: tuple[bool, TableJob] | None = None
    for what, more in drawn:
        if what == "add":
            named, slots, values = [], [], []
            for key, later in more:
                named.append(key)
                slots.append((over + later, 0, place))
                values.append([place])
                place += 1
            live.add(named, slots, values)
            expected.update({(key, slot): list(value) for key, slot, value in zip(named, slots, values, strict=True)})
        elif what == "take":
            over = max(over, over + more)
            due = {pair: value for pair, value in expected.items() if pair[1][0] <= over}
            expected = {pair: value for pair, value in expected.items() if pair not in due}
            taken = in_key_order(live.take(over))
            order = sorted(due, key=lambda pair: (pair[1][0], encode(pair[0]), pair[1]))
            assert [((key, slot), value) for _, _, key, slot, value in taken] == [(pair, due[pair]) for pair in order]
            for *_, value in taken:
                value.append("changed by the user's code")
        elif what == "snapshot":
            if waiting is not None:  # the last one is encoded only now, and is still what it was
                full, job = waiting
                written = ([] if full else written) + finished(job, keys_max)
            waiting, at_snapshot = (more, live.snapshot(more)), (dict(expected), over)
        elif waiting is not None:
            full, job = waiting
            written, waiting = ([] if full else written) + finished(job, keys_max), None
            live = entries()
            for fragment in written:
                live.load(fragment)
                if more:  # looked at between two loads
                    live.take(-1)
            expected, over = dict(at_snapshot[0]), at_snapshot[1]
        check(live, expected)


def test_fragments_are_those_of_a_table_by_key_and_slot() -> None:
    live, other = entries(), SlotTable("op:held", "op", 16)
    live.add(["a", "b", "a"], [(5, 0, 0), (3, 0, 1), (1, 0, 2)], [{"n": 1}, {"n": 2}, {"n": 3}])
    for fragment in finished(live.snapshot(True), 2):
        other.load(fragment)
    live.take(1)
    live.add(["a"], [(9, 0, 3)], [{"n": 4}])
    for fragment in finished(live.snapshot(False), 2):
        other.load(fragment)
    assert other.values == {("a", (5, 0, 0)): {"n": 1}, ("b", (3, 0, 1)): {"n": 2}, ("a", (9, 0, 3)): {"n": 4}}
    again = entries()
    for fragment in finished(other.snapshot(True), 2):
        again.load(fragment)
    assert [entry[3] for entry in in_key_order(again.take(5))] == [(3, 0, 1), (5, 0, 0)]


# `Wakes` against a dict of times: due items and their times, however items are moved.


pairs = st.tuples(st.sampled_from(["b", "a", "c", 1, (1, "x")]), st.integers(0, 1))
wake_actions = st.lists(
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


@given(wake_actions)
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
