"""`DueEntries` against a plain dict: due entries are taken once, in order, and the same after any restore."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from causal.records.values import encode
from operators.state.due_entries import DueEntries, in_key_order
from operators.state.keyed_tables import TableJob
from operators.state.slots import SlotTable
from operators.state.spool import content_of

keys = st.sampled_from(["b", "a", 1, (1, "x")])
actions = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(st.tuples(keys, st.integers(0, 9)), max_size=4)),
        st.tuples(st.just("add"), st.lists(st.tuples(keys, st.integers(0, 9)), max_size=4)),
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
    """Return all fragments of a job, encoded in steps of this many keys."""
    while job.step(keys_max) == keys_max:
        pass
    return [content_of(fragment) for fragments in job.fragments.values() for fragment in fragments]


def check(table: DueEntries, expected: dict[Any, Any]) -> None:
    for key in ("b", "a", 1, (1, "x")):
        listed = [[slot, value] for (other, slot), value in sorted(expected.items(), key=str) if other == key]
        assert table.inspect(key) == (sorted(listed) or None)


@given(actions, st.integers(1, 5))
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
