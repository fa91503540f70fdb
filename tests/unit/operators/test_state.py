"""A snapshot holds the state at its barrier, however slowly it is encoded and whatever happens meanwhile."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import strategies as st

from causal.errors import CorruptData, InvariantViolation, OperatorFailed, PipelineError
from causal.records.values import decode, encode
from operators import MapState, Operator
from operators.kinds.process.accumulating import AccumulatorTable
from operators.state.keyed_tables import (
    LARGE_BYTES,
    UNDIVIDED,
    UNDIVIDED_MAX,
    WAITING_MAX,
    KeyedTable,
    States,
    StateTable,
)
from operators.state.snapshot_parts import ChainSnapshot, group_of_part, read_part
from operators.state.spool import content_of
from tests.unit.operators.scene import chain_of, give, keyed, parts_of, planned

keys = st.sampled_from([0, 1, "a", "b", b"c", (1, "x"), None])


def table() -> StateTable:
    return StateTable("t", "op", 16, States())


def contents(table: KeyedTable) -> dict[Any, Any]:
    return {key: value for key, value in table.values.items() if value}


def done(job: Any) -> Any:
    while job.step(7) == 7:
        pass
    return job


def load(table: KeyedTable, job: Any) -> None:
    for fragments in job.fragments.values():
        for fragment in fragments:
            table.load(fragment)


def test_many_values_of_one_group_are_one_fragment() -> None:
    live = KeyedTable("t", "op", 1, {n: n for n in range(3 * WAITING_MAX + 1)})
    job = live.snapshot(full=True)
    while job.step(5) == 5:
        pass
    assert len(job.fragments[0]) == 3
    restored = KeyedTable("t", "op", 1)
    load(restored, job)
    assert restored.values == live.values


def test_a_key_whose_value_waits_and_cannot_be_carried_is_named() -> None:
    live = KeyedTable("t", "op", 1, dict.fromkeys(range(9), 1) | {"bad": object()})
    job = live.snapshot(full=True)
    with pytest.raises(OperatorFailed, match="operator 'op', key 'bad': its state cannot be checkpointed"):
        job.step(100) and job.fragments


def test_where_keys_stay_and_most_have_changed_the_next_snapshot_has_all_and_the_one_behind_it_few() -> None:
    live, restored = AccumulatorTable("op", "op", 8), AccumulatorTable("op", "op", 8)

    def count(*keys: str) -> None:
        live.touch(keys)
        live.values.update({key: live.values.get(key, 0) + 1 for key in keys})

    def saved() -> set[str]:
        job = live.snapshot(full=False)
        job.step(100)
        load(restored, job)
        return {
            key
            for fragments in job.fragments.values()
            for fragment in fragments
            for key in decode(content_of(fragment))[0]
        }

    count(*"abcdefgh")
    assert saved() == set("abcdefgh")
    count("a")
    count("b")
    assert saved() == {"a", "b"}
    for key in "cdefghi":
        count(key)
    assert saved() == set("abcdefghi") and restored.values == live.values
    count("i")
    assert saved() == {"i"} and restored.values == live.values
    for key in "abcdefghi":
        count(key)
    live.clear()
    assert saved() == set()


def test_an_empty_table_has_nothing_to_write() -> None:
    live = AccumulatorTable("op", "op", 8)
    live.touch(["a"])
    job = live.snapshot(full=False)
    assert job.step(1) == 0 and job.fragments == {}


def test_only_touched_keys_are_in_the_next_snapshot_and_empty_ones_leave() -> None:
    live, restored = table(), table()
    live.touch(["a", "b"])
    live.values["a"]["n"] = live.values["b"]["n"] = 1
    first = live.snapshot(full=True)
    first.step(9)
    load(restored, first)
    live.touch(["a", "c"])
    live.values["a"].clear()
    assert live.values["c"] == {}
    second = live.snapshot(full=False)
    assert second.step(9) == 2
    load(restored, second)
    assert restored.values == {"b": {"n": 1}} == live.values
    assert live.snapshot(full=False).step(9) == 0


def test_a_snapshot_that_is_asked_for_too_early_completes_the_one_before() -> None:
    live, restored = table(), table()
    live.touch(["k"])
    live.values["k"]["n"] = 1
    first = live.snapshot(full=False)
    live.snapshot(full=False)
    load(restored, first)
    assert contents(restored) == {"k": {"n": 1}}


class Keeps(Operator):
    def process(self, record: Any, ctx: Any) -> Any:
        ctx.state["v"] = record[1]


def test_parts_of_a_complete_snapshot_are_grouped_by_key_group() -> None:
    chain = keyed(lambda s: s.process("keeps", Keeps()), "keeps/0", key_groups=4)
    give(chain, [(key, key) for key in range(100)])
    header, *groups = [read_part(part) for part in parts_of(chain, full=True)]
    assert header[0] is not None
    assert len(groups) == 4
    assert all(list(tables) == ["keeps"] for _, tables in groups)
    assert parts_of(chain)[1:] == []  # nothing was touched since
    assert len(parts_of(chain, full=True)) == 5


def test_an_increment_is_one_part_that_every_key_needs() -> None:
    chain = keyed(lambda s: s.process("keeps", Keeps()), "keeps/0", key_groups=4)
    give(chain, [(key, 0) for key in range(100)])
    whole = parts_of(chain, full=True)
    assert sorted(str(group_of_part(part)) for part in whole[1:]) == ["0", "1", "2", "3"]
    give(chain, [(key, key) for key in range(50)])
    header, *increment = parts_of(chain)
    assert [group_of_part(part) for part in (header, *increment)] == [None, None]
    restored = keyed(lambda s: s.process("keeps", Keeps()), "keeps/0", key_groups=4)
    restored.restore(whole)
    restored.restore([header, *increment])
    assert [restored.inspect("keeps", key) for key in (49, 50)] == [chain.inspect("keeps", key) for key in (49, 50)]


def test_many_values_of_an_increment_are_few_fragments() -> None:
    live = KeyedTable("t", "op", 16, dict.fromkeys(range(5000), 0))
    load(restored := KeyedTable("t", "op", 16), done(live.snapshot(full=True)))
    live.touch(range(4000))
    live.values.update((n, n) for n in range(3000))
    for n in range(3000, 4000):
        del live.values[n]
    job = done(live.snapshot(full=False))
    assert list(job.fragments) == [UNDIVIDED]
    assert len(job.fragments[UNDIVIDED]) <= 1 + 4000 // UNDIVIDED_MAX
    load(restored, job)
    assert restored.values == live.values


def test_a_full_snapshot_replaces_what_was_loaded() -> None:
    class Forgets(Operator):
        def process(self, record: Any, ctx: Any) -> Any:
            if record[1]:
                ctx.state["v"] = record[1]
            else:
                ctx.state.clear()
            yield sorted(ctx.state)

    one = keyed(lambda s: s.process("f", Forgets()), "f/0")
    standby = keyed(lambda s: s.process("f", Forgets()), "f/0")
    give(one, [("a", 1), ("b", 1)])
    standby.restore(parts_of(one, full=True))
    give(one, [("a", 0)])
    standby.restore(parts_of(one, full=True))
    header, *groups = [read_part(part) for part in parts_of(standby, full=True)]
    assert header[0] is not None
    assert len(groups) == 1


@pytest.mark.parametrize("value", [{1, 2}, object(), [{"x": frozenset()}]])
def test_state_that_cannot_be_carried_names_operator_key_and_mend(value: Any) -> None:
    chain = keyed(lambda s: s.process("keeps", Keeps()), "keeps/0")
    give(chain, [("good", 1), ("bad", value)])
    with pytest.raises(
        OperatorFailed, match="operator 'keeps', key 'bad': its state cannot be checkpointed: .*use.*defined at.*py:"
    ):
        parts_of(chain)


class KeepsByValue(Operator):
    """Keeps what it is sent as the key of an entry."""

    seen: MapState[Any, int] = MapState()

    def __init__(self, where: str) -> None:
        self._where = where

    def process(self, record: Any, ctx: Any) -> Any:
        if self._where == "state":
            ctx.state[record[1]] = 1
        else:
            self.seen[record[1]] = 1


@pytest.mark.parametrize("disk", [False, True])
@pytest.mark.parametrize("where", ["state", "seen"])
@pytest.mark.parametrize("entry", [math.nan, Decimal("nan"), (1, math.nan)], ids=repr)
def test_nan_as_the_key_of_an_entry_is_refused(entry: Any, where: str, disk: bool) -> None:
    chain = keyed(lambda s: s.process("f", KeepsByValue(where), state="disk" if disk else "memory"), "f/0")
    with pytest.raises(OperatorFailed, match="operator 'f'.*: its state .*a key is NaN") as caught:
        give(chain, [("good", 1), ("good", math.inf), ("bad", entry)])
        parts_of(chain)
    assert "key 'bad'" in str(caught.value)


@pytest.mark.parametrize("disk", [False, True])
def test_state_that_cannot_be_carried_names_the_entry(disk: bool) -> None:
    chain = keyed(lambda s: s.process("keeps", Keeps(), state="disk" if disk else "memory"), "keeps/0")
    with pytest.raises(OperatorFailed, match="key 'bad'") as caught:
        give(chain, [("good", 1), ("bad", [{"x": (1, UUID(int=1))}])])
        parts_of(chain)
    place = "in ['v'][0]['x'][1]" if disk else "ctx.state['v'][0]['x'][1]"
    defined = f" (defined at {__file__}:{Keeps.process.__code__.co_firstlineno})"
    assert str(caught.value).endswith(
        f"{place}: uuid.UUID cannot be encoded; use str(value){defined}; "
        "correct the pipeline and resume with --code new"
    )


def test_a_snapshot_of_another_pipeline_is_refused() -> None:
    one = keyed(lambda s: s.process("keeps", Keeps()), "keeps/0")
    give(one, [("a", 1)])
    with pytest.raises(PipelineError, match="has state 'keeps', which this pipeline does not have"):
        keyed(lambda s: s.count("n"), "n/0").restore(parts_of(one))
    with pytest.raises(PipelineError, match="'keeps' was a 'process' when .* is a 'count' now"):
        keyed(lambda s: s.count("keeps"), "keeps/0").restore(parts_of(one))
    wide = planned(lambda s: s.process("p", Keeps(), parallelism=3))
    with pytest.raises(PipelineError, match="belongs to a different task graph"):
        keyed(lambda s: s.count("n"), "n/0").restore(parts_of(chain_of(wide, "in/0")))


@pytest.mark.parametrize("part", [b"", b"\xc1", encode([1, 2]), encode([9, 0, {}]), encode({})])
def test_a_part_that_is_none_is_corrupt(part: bytes) -> None:
    with pytest.raises(CorruptData, match="a part of a snapshot"):
        read_part(part)


def test_parts_wait_for_all_steps() -> None:
    live = table()
    live.touch([1, 2])
    live.values[1]["n"] = live.values[2]["n"] = 1
    snapshot = ChainSnapshot(False, {}, [live.snapshot(full=False)])
    assert not snapshot.step(1)
    with pytest.raises(InvariantViolation):
        snapshot.parts()
    assert snapshot.step(9)
    assert len(snapshot.parts()) >= 2


def test_a_large_value_is_named_in_the_log_once(caplog: pytest.LogCaptureFixture) -> None:
    table = KeyedTable("keeps", "keeps", 8)
    for round in range(3):
        for key, size in (("small", 10), ("large", LARGE_BYTES + 1)):
            table.touch((key,))
            table.values[key] = f"{round}" * size
        job = table.snapshot(full=False)
        job.step(100)
        assert job.fragments
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == 1
    assert warnings[0].startswith("operator 'keeps', key 'large': its state has 1,048,582 bytes")


def test_many_values_that_are_large_together_are_not_named(caplog: pytest.LogCaptureFixture) -> None:
    table = KeyedTable("keeps", "keeps", 1)
    keys = list(range(1000))
    table.touch(keys)
    table.values.update(dict.fromkeys(keys, "x" * 2000))
    job = table.snapshot(full=False)
    job.step(1000)
    assert sum(len(part) for parts in job.fragments.values() for part in parts) > LARGE_BYTES
    assert not caplog.records
