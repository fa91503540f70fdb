"""Tables of any kind restore as they were, whatever happens around barriers; an append costs an append."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.errors import CorruptData, OperatorFailed
from causal.records.values import decode
from operators.kinds.process.accumulating import AccumulatorTable
from operators.state.fragments import unpacked
from operators.state.keyed_tables import KeyedTable, States, StateTable
from operators.state.lists import ListTable
from operators.state.maps import MapTable
from operators.state.schema import Codec, codec_of
from operators.state.ttl import ClockExpiry, EventExpiry, Expiry
from operators.state.values import ValueTable

KEYS = [0, "a", (1, "x")]


def a_list(expiry: Expiry | None = None) -> ListTable:
    return ListTable("op:list", "op", 4, expiry=expiry)


def a_map(expiry: Expiry | None = None) -> MapTable:
    return MapTable("op:map", "op", 4, expiry=expiry)


def a_value(expiry: Expiry | None = None) -> ValueTable:
    return ValueTable("op:value", "op", 4, Codec(), expiry)


def load(table: KeyedTable, job: Any) -> None:
    for fragments in job.fragments.values():
        for fragment in fragments:
            table.load(fragment)


def done(job: Any) -> Any:
    while job.step(2) == 2:
        continue
    return job


def in_order(values: dict[Any, Any]) -> dict[Any, Any]:
    """Return dicts as lists of pairs, so that the order of their entries is compared too."""
    return {key: list(value.items()) if type(value) is dict else value for key, value in values.items()}


def copied(table: KeyedTable) -> dict[Any, Any]:
    """Return the values of now; a key with an empty dict has none."""
    values = {key: value.copy() if isinstance(value, (list, dict)) else value for key, value in table.values.items()}
    return {key: value for key, value in values.items() if value != {}}


def change_list(table: ListTable, key: Any, number: int) -> None:
    if number % 7 == 0:
        table.drop(key)
    elif number % 7 == 1 and key in table.values:
        table.touch((key,))
        table.values[key][0] = -number
    elif number % 7 == 2:
        table.extend(key, [number, number + 1])
    else:
        table.append(key, number)


def change_map(table: MapTable, key: Any, number: int) -> None:
    entry = number % 4
    if number % 11 == 0:
        table.drop(key)
    elif number % 3 == 0 and entry in table.values.get(key, {}):
        table.remove(key, entry)
    else:
        table.put(key, entry, number)


def change_value(table: ValueTable, key: Any, number: int) -> None:
    if number % 5 == 0:
        table.drop(key)
    else:
        table.put(key, number)


def change_state(table: StateTable, key: Any, number: int) -> None:
    table.touch((key,))
    table.values[key] = {number % 3: number, "n": (number,)} if number % 5 else {}


def change_any(table: KeyedTable, key: Any, number: int) -> None:
    table.touch((key,))
    if number % 4 == 0:
        table.values.pop(key, None)
    elif number % 4 == 1 and type(table.values.get(key)) is list:
        table.values[key] += [number]  # in place
    else:
        table.values[key] = [number] if number % 3 else number


def change_number(table: KeyedTable, key: Any, number: int) -> None:
    table.touch([key, key])
    table.values[key] = number


def numbers(numeric: bool) -> AccumulatorTable:
    table = AccumulatorTable("op", "op", 4)
    table.numeric = numeric
    return table


def change_number_or_list(table: KeyedTable, key: Any, number: int) -> None:
    table.touch([key] * (1 + number % 4))
    if number % 5 == 0 and type(table.values.get(key)) is list:
        table.values[key] += [number]  # in place
    elif number % 7:  # otherwise, the key is touched but has no new value
        table.values[key] = [number] if number % 3 == 0 else number


Make = Callable[..., Any]
Change = Callable[[Any, Any, int], None]
KINDS: list[tuple[Make, Change]] = [(a_list, change_list), (a_map, change_map), (a_value, change_value)]
FOREVER: list[tuple[Make, Change]] = [
    (lambda expiry: StateTable("t", "op", 4, States()), change_state),
    (lambda expiry: KeyedTable("t", "op", 2), change_any),
    (lambda expiry: numbers(True), change_number),
    (lambda expiry: numbers(False), change_number),
    (lambda expiry: numbers(True), change_number_or_list),
]
"""Kinds of tables without times to live."""

rounds = st.lists(
    st.tuples(
        st.booleans(),
        st.lists(st.tuples(st.sampled_from([*KEYS, None]), st.integers(0, 30)), max_size=25),
    ),
    min_size=1,
    max_size=6,
)


def ages_of(table: Any) -> dict[Any, Any]:
    """Return the age of each place as a snapshot has it."""
    if getattr(table, "expiry", None) is None:
        return {}
    places = table.expiry.written if isinstance(table.expiry, EventExpiry) else table.expiry.places
    return {place: table.expiry.age(place) for place in places}


@pytest.mark.parametrize(
    ("make", "change", "clock"),
    [(*kind, clock) for kind in KINDS for clock in ("event", "processing")] + [(*kind, "none") for kind in FOREVER],
)
@given(rounds=rounds)
def test_each_barrier_restores_what_was_there(make: Any, change: Any, clock: str, rounds: Any) -> None:
    now_ns = 0

    def fresh() -> Expiry:
        return EventExpiry(80, lambda: now_ns) if clock == "event" else ClockExpiry(80, lambda: now_ns)

    live, restored = make(fresh()), make(fresh())
    for number, (full, actions) in enumerate(rounds):
        now_ns = number * 10
        if clock != "none":
            live.expiry.advance(now_ns)
        full = full or number == 0
        expected, ages = in_order(copied(live)), ages_of(live)
        job = live.snapshot(full)
        for key, step in actions:
            if key is None:
                job.step(1 + step % 3)
            else:
                change(live, key, step)
        done(job)
        if full:
            restored.clear()
        load(restored, job)
        assert in_order(copied(restored)) == expected
        assert ages_of(restored) == ages


@pytest.mark.parametrize(("make", "change"), KINDS)
@given(rounds=rounds)
def test_a_restored_table_goes_on_as_the_one_that_was_lost(make: Any, change: Any, rounds: Any) -> None:
    """Increments upon a full snapshot, by tables each of which was restored from those before."""
    live, stored = make(), []
    for number, (_, actions) in enumerate(rounds):
        for key, step in actions:
            if key is not None:
                change(live, key, step)
        stored.append(done(live.snapshot(number == 0)))
        again = make()
        for job in stored:
            load(again, job)
        assert in_order(again.values) == in_order(live.values)
        live = again


def test_an_append_to_a_long_list_is_written_as_an_append() -> None:
    table = a_list()
    table.extend("k", range(100_000))
    first = done(table.snapshot(full=True))
    assert sum(len(part) for parts in first.fragments.values() for part in parts) > 100_000
    table.append("k", 7)
    second = done(table.snapshot(full=False))
    [[fragment]] = second.fragments.values()
    assert unpacked(fragment) == (["k"], [(100_000, [7], None)], [])
    assert len(fragment) < 40
    third = done(table.snapshot(full=False))
    assert third.fragments == {}


def test_an_append_while_a_snapshot_is_encoded_is_not_in_it() -> None:
    table = a_list()
    table.extend("k", range(1000))
    job = table.snapshot(full=True)
    table.append("k", "later")
    restored = a_list()
    load(restored, done(job))
    assert restored.values == {"k": list(range(1000))}


def test_one_changed_entry_of_a_large_map_is_written_alone() -> None:
    table = a_map()
    for entry in range(10_000):
        table.put("k", entry, entry)
    done(table.snapshot(full=True))
    table.put("k", 5_000, -1)
    table.remove("k", 3)
    [[fragment]] = done(table.snapshot(full=False)).fragments.values()
    assert decode(fragment) == [["k"], [[False, [5_000], [-1], [3], []]], []]


def test_a_list_that_goes_on_elsewhere_is_damage() -> None:
    table, other = a_list(), a_list()
    table.extend("k", range(3))
    done(table.snapshot(full=True))
    table.append("k", 3)
    with pytest.raises(CorruptData, match="continues at 3, but it has 0 items"):
        load(other, done(table.snapshot(full=False)))


@dataclass
class Point:
    x: int
    y: int = 0


def test_values_of_another_type_are_named_with_their_key() -> None:
    table = ValueTable("op:point", "op", 4, codec_of(Point))
    table.put("k", 7)
    with pytest.raises(OperatorFailed, match="operator 'op', key 'k': its state 'point' cannot be checkpointed.*Point"):
        done(table.snapshot(full=True))


def test_what_cannot_be_carried_is_named_with_its_key() -> None:
    table = a_list()
    table.append("good", 1)
    table.append("bad", {1})
    with pytest.raises(OperatorFailed, match="key 'bad': its state 'list' cannot be checkpointed"):
        done(table.snapshot(full=True))


def test_group_of_says_which_part_of_a_key_decides_its_group() -> None:
    def first(pair: Any) -> Any:
        return pair[0]

    table = KeyedTable("op:slots", "op", 128, group_of=first)
    pairs = [("k", number) for number in range(50)]
    table.touch(pairs)
    table.values.update(dict.fromkeys(pairs, 1))
    assert len(done(table.snapshot(full=True)).fragments) == 1


def test_a_few_numbers_are_copied_at_a_barrier(monkeypatch: pytest.MonkeyPatch) -> None:
    table, restored = numbers(True), numbers(True)
    table.values |= dict.fromkeys(range(5), 1)
    job = table.snapshot(full=True)
    table.values |= dict.fromkeys(range(5), 2)  # without a look at the job
    load(restored, done(job))
    assert restored.values == dict.fromkeys(range(5), 1)
    monkeypatch.setattr("operators.kinds.process.accumulating.COPIED_MAX", 4)
    job = table.snapshot(full=True)
    table.touch([3])
    table.values[3] = 3
    load(restored, done(job))
    assert restored.values == dict.fromkeys(range(5), 2)


@pytest.mark.parametrize(("numeric", "written"), [(True, 5), (False, 1)])
def test_a_batch_as_large_as_a_table_of_numbers_changes_all_of_it(numeric: bool, written: int) -> None:
    table = numbers(numeric)
    table.values |= dict.fromkeys(range(5), 1)
    done(table.snapshot(full=True))
    table.numeric = numeric
    table.touch([2] * 5)
    [fragments] = done(table.snapshot(full=False)).fragments.values()
    assert sum(len(unpacked(fragment)[0]) for fragment in fragments) == written
