"""Merged snapshots restore the same state as the snapshots that they replace, from every barrier that they cover.

Tables of every kind change at random; snapshots of them are merged at random, also repeatedly, and also when a merge or
its replacement is lost. A fresh table that loads the files, and one that follows them and skips some, equal the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from causal.errors import CorruptData
from operators.state.due_entries import DueEntries
from operators.state.fragments import packed
from operators.state.keyed_tables import KeyedTable, StateTable
from operators.state.lists import ListTable
from operators.state.maps import MapTable
from operators.state.merging import merged_parts, part_count
from operators.state.slots import PairTable
from operators.state.snapshot_parts import ChainSnapshot, read_part, table_part
from operators.state.ttl import EventExpiry
from operators.state.values import PLAIN, ValueTable
from tests.members import members

GROUPS = 4
KEYS = [*range(9), "a", "b", ("pair", 1), None]
TTL_NS = 1_000_000_000

Tables = dict[str, KeyedTable]


def tables() -> Tables:
    aged: Any = EventExpiry(TTL_NS, lambda: 0)
    return {
        table.name: table
        for table in (
            KeyedTable("plain", "op", GROUPS),
            StateTable("state", "op", GROUPS),
            PairTable("pairs", "op", GROUPS),
            ValueTable("values", "op", GROUPS, PLAIN, aged),
            ListTable("lists", "op", GROUPS),
            MapTable("maps", "op", GROUPS),
        )
    }


def changed(state: Tables, draw: Random) -> None:
    key, value = draw.choice(KEYS), draw.randrange(1000)
    lists, maps, values = state["lists"], state["maps"], state["values"]
    assert isinstance(lists, ListTable) and isinstance(maps, MapTable) and isinstance(values, ValueTable)
    for name, place in (("plain", key), ("state", key), ("pairs", (key, draw.randrange(3)))):
        table = state[name]
        table.touch((place,))
        if draw.random() < 0.3:
            table.values.pop(place, None)
        else:
            table.values[place] = {"n": value} if name == "state" else value
    if draw.random() < 0.2:
        values.drop(key)
    else:
        values.put(key, value)
    chance = draw.random()
    if chance < 0.15:
        lists.drop(key)
    elif chance < 0.3 and key in lists.values:
        lists.touch((key,))
        del lists.values[key][0]
        if not lists.values[key]:
            lists.values[key].append(value)
    else:
        lists.extend(key, [value, value + 1])
    entry = draw.choice("wxyz")
    chance = draw.random()
    if chance < 0.05:
        maps.drop(key)
    elif chance < 0.4 and entry in maps.values.get(key, {}):
        maps.remove(key, entry)
    else:
        maps.put(key, entry, value)


def snapshot(state: Tables, epoch: int, full: bool) -> list[bytes]:
    job = ChainSnapshot(full, {"epoch": epoch}, [table.snapshot(full) for table in state.values()])
    assert job.step(1 << 30)
    return list(job.parts())


def load(state: Tables, parts: Sequence[bytes]) -> int:
    epoch = 0
    for part in parts:
        header, fragments = read_part(part)
        if header is not None:
            epoch = header["epoch"]
            if header["full"]:
                for table in state.values():
                    table.clear()
        for name, several in fragments.items():
            for fragment in several:
                state[name].load(fragment)
    return epoch


def shown(state: Tables) -> dict[str, Any]:
    """The content of each table; the entries of a map are in order, its keys are not."""
    return {
        name: sorted(
            ((repr(key), repr(list(value.items()) if name == "maps" else value)) for key, value in table.values.items())
        )
        for name, table in state.items()
    } | {"ages": sorted(map(repr, state["values"].expiry.written.items()))}  # type: ignore[attr-defined]


def merged(sources: Sequence[Sequence[bytes]], state: Tables, complete: bool) -> list[bytes]:
    rules = {name: table.merge_rule for name, table in state.items()}
    parts = list(merged_parts(sources, rules, GROUPS, complete))
    assert len(parts) == part_count(rules, GROUPS)
    return parts


@pytest.mark.parametrize("first", members(range(0, 200, 10), 0))
def test_merged_snapshots_restore_the_state_from_every_barrier_that_they_cover(first: int) -> None:
    for seed in range(first, first + 10):
        draw = Random(seed)
        state, follower = tables(), tables()
        chain: list[tuple[int, list[bytes]]] = []
        followed = 0
        for epoch in range(1, 25):
            for _ in range(draw.randrange(12)):
                changed(state, draw)
            chain.append((epoch, snapshot(state, epoch, full=not chain)))
            if draw.random() < 0.5 and len(chain) > 1:
                start = draw.randrange(len(chain) - 1)
                stop = draw.randrange(start + 1, len(chain) + 1)
                run = chain[start:stop]
                one = run[-1][0], merged([parts for _, parts in run], state, complete=start == 0)
                if draw.random() < 0.8:  # otherwise the task dies before a checkpoint names the file
                    chain[start:stop] = [one]
            fresh = tables()
            for last, parts in chain:
                assert load(fresh, parts) == last
            assert shown(fresh) == shown(state), (seed, epoch)
            if draw.random() < 0.5:
                left = [each for each in chain if each[0] > followed]
                if left[0] is chain[0]:
                    follower = tables()
                for _, parts in left:
                    load(follower, parts)
                followed = epoch
                assert shown(follower) == shown(state), (seed, epoch)


def test_pairs_that_were_removed_and_added_again_are_merged_in_order() -> None:
    def due() -> DueEntries:
        return DueEntries("due", "op", GROUPS)

    def content(table: DueEntries) -> Any:
        fresh = due()
        job = table.snapshot(True)
        while job.step(100):
            pass
        for fragments in job.fragments.values():
            for fragment in fragments:
                assert isinstance(fragment, bytes)
                fresh.load(fragment)
        return sorted(fresh.values.items(), key=repr)

    for seed in range(40):
        draw, table, files = Random(seed), due(), list[list[bytes]]()
        for epoch in range(6):
            table.add(list(range(4)), [(draw.randrange(5), epoch * 10 + key) for key in range(4)], [epoch] * 4)
            table.take(draw.randrange(4))
            files.append(snapshot({"due": table}, epoch, full=not files))
        rules = {"due": table.merge_rule}
        later = list(merged_parts(files[1:], rules, GROUPS, complete=False))
        whole = list(merged_parts([files[0], later], rules, GROUPS, complete=True))
        for chain in (files, [files[0], later], [whole]):
            fresh = due()
            for parts in chain:
                load({"due": fresh}, parts)
            assert content(fresh) == content(table), seed


@pytest.mark.parametrize(
    ("table", "value"),
    [(ListTable("t", "op", GROUPS), (3, [4], None)), (MapTable("t", "op", GROUPS), [False, ["a"], [1], [], []])],
)
def test_a_value_that_continues_a_missing_one_is_refused(table: KeyedTable, value: Any) -> None:
    base = snapshot({"t": table}, 1, full=True)
    header = snapshot({"t": table}, 2, full=False)[0]
    later = [header, table_part(-2, {"t": [packed(([1], [value], []))]})]
    with pytest.raises(CorruptData, match="continues|changes"):
        merged([base, later], {"t": table}, complete=True)
    assert merged([later], {"t": table}, complete=False)


def test_a_merge_copies_what_has_not_changed() -> None:
    table = KeyedTable("t", "op", GROUPS)
    table.touch(range(1000))
    table.values.update(dict.fromkeys(range(1000), "x" * 100))
    base = snapshot({"t": table}, 1, full=True)
    table.touch([7])
    table.values[7] = "new"
    whole = merged([base, snapshot({"t": table}, 2, full=False)], {"t": table}, complete=True)
    fragments = {fragment for part in base[1:] for fragment in read_part(part)[1]["t"]}
    again = {fragment for part in whole[1:] for fragment in read_part(part)[1]["t"]}
    assert len(fragments - again) == 1 and len(again - fragments) == 2
