"""State on disk is the state that would be in memory: whatever is put away comes back, and snapshots are the same."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.errors import PipelineError, Unavailable
from causal.ports import Chain
from causal.storage.files import each_part, write_parts
from operators.state.cold_store import ColdStore
from operators.state.cold_values import ColdValues, cold_key
from operators.state.fragments import unpacked
from operators.state.keyed_tables import KeyedTable
from operators.state.snapshot_parts import ChainSnapshot, read_part
from operators.state.spool import Spool, content_of
from tests.properties.test_chain_machine import Keeper
from tests.unit.operators.scene import Services, give, keyed, parts_of, records_in

SMALL = 1 << 16
"""About thirty keys of each state."""

KEYS: list[Any] = [
    0,
    1,
    1.0,
    True,
    0.5,
    Decimal("0.5"),
    -0.0,
    10**30,
    float("inf"),
    "1",
    b"1",
    (1, "x"),
    (1.0, "x"),
    None,
]
KEYS += [datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))]
KEYS += [datetime(2026, 1, 1), ("ratio", 1, 2), (0.5,), 1e300, Decimal("1e3"), 1000]


@pytest.mark.parametrize("one", KEYS, ids=repr)
def test_keys_are_one_key_in_the_store_if_they_are_one_in_a_dict(one: Any) -> None:
    assert [cold_key(one) == cold_key(other) for other in KEYS] == [one == other for other in KEYS]


INFINITY = float("inf")
numbers = st.one_of(
    st.integers(-3, 3),
    st.integers(-(10**400), 10**400),
    st.booleans(),
    st.floats(allow_nan=False),
    st.sampled_from([0.0, -0.0, 5e-324, -2.2e-308, 1.8e308 / 2, 1e22, 0.1]),
    st.builds(
        lambda sign, digits, exponent: Decimal((sign, digits, exponent)),
        st.integers(0, 1),
        st.lists(st.integers(0, 9), min_size=1, max_size=30).map(tuple),
        st.sampled_from([-(10**15), -(10**7), -4400, -1100, 0, 300, 4290, 4299, 4300, 10**7, 10**15])
        | st.integers(-40, 40),
    ),
)


def spellings(number: Any) -> list[Any]:
    """Return the number in every type that has it, and others close to it."""
    if not isinstance(number, Decimal):
        return [number, -number, Decimal(number), *([] if number in (INFINITY, -INFINITY) else [int(number)])]
    sign, digits, exponent = number.as_tuple()
    same = [number, Decimal((sign, (*digits, 0), int(exponent) - 1)), Decimal((1 - sign, digits, int(exponent)))]
    return [*same, float(number), *([int(number)] if number.adjusted() < 4300 else [])]


@given(st.lists(numbers, min_size=1, max_size=6))
def test_numbers_are_one_key_in_the_store_if_they_are_equal(several: list[Any]) -> None:
    keys = [spelling for number in several for spelling in spellings(number)]
    for one in keys:
        assert [cold_key((one, "x")) == cold_key((other, "x")) for other in keys] == [one == other for other in keys]
        assert [cold_key(one) == cold_key(other) for other in keys] == [one == other for other in keys]


def no_change(value: Any) -> Any:
    return value


actions = st.lists(
    st.tuples(st.sampled_from(["put", "get", "del", "pop", "in", "touch", "shrink", "default"]), st.sampled_from(KEYS)),
    max_size=60,
)


@given(actions)
def test_it_behaves_as_a_dict_wherever_its_values_are(steps: list[tuple[str, Any]]) -> None:
    model: dict[Any, Any] = {}
    cold = ColdValues(ColdStore("/tmp"), 1000, no_change, no_change)
    for number, (what, key) in enumerate(steps):
        if what == "put":
            model[key] = [number]
            cold[key] = [number]
        elif what == "get":
            assert cold.get(key, "none") == model.get(key, "none")
        elif what == "del" and key in model:
            del model[key]
            del cold[key]
        elif what == "pop":
            assert cold.pop(key, None) == model.pop(key, None)
        elif what == "touch":
            cold.touch([key, "other"])
        elif what == "shrink":
            cold.shrink()
        elif what == "default":
            cold.setdefault(key, [number]).append(number)
            model.setdefault(key, [number]).append(number)
        else:
            assert (key in cold) == (key in model)
    assert dict(cold.items()) == model
    keys = list(cold)
    assert len(keys) == len(model) and set(keys) == set(model), "each once; which of its equal forms is the caller's"
    assert len(cold) == len(model) and bool(cold) == bool(model)
    with pytest.raises(KeyError):
        cold["absent"]
    cold.clear()
    assert list(cold) == []


@given(
    st.lists(st.tuples(st.sampled_from(["put", "del", "shrink", "get"]), st.sampled_from(KEYS)), max_size=40),
    st.lists(
        st.tuples(st.sampled_from(["take", "put", "del", "shrink", "get"]), st.sampled_from(KEYS), st.integers(1, 5)),
        max_size=60,
    ),
)
def test_pending_keys_are_those_of_the_moment_each_once_whatever_changes(
    before: list[tuple[str, Any]], after: list[tuple[str, Any, int]]
) -> None:
    cold = ColdValues(ColdStore("/tmp"), 1000, no_change, no_change)
    for what, key in before:
        change(cold, what, key)
    expected, pending = dict(cold.items()), cold.pending()
    read: dict[Any, Any] = {}

    def encode(keys: list[Any]) -> None:
        values = cold.read(keys)
        assert not [key for key in keys if key in read], "twice"
        read.update({key: values.get(key, "absent") for key in keys})

    for what, key, count in after:
        if what == "take":
            encode(pending.take(count))
        else:
            if what in ("put", "del"):
                encode(pending.claim([key, key, *KEYS[:count]]))
            change(cold, what, key)
    while keys := pending.take(3):
        encode(keys)
    assert not pending
    assert read == expected
    cold.clear()


def change(cold: ColdValues, what: str, key: Any) -> None:
    if what == "put":
        cold[key] = [len(cold)]
    elif what == "del":
        cold.pop(key, None)
    elif what == "get":
        cold.get(key)
    else:
        cold._recent.clear()
        cold._put_away(dict.__len__(cold))


def test_what_a_standby_loads_stays_within_the_memory_of_its_table(tmp_path: Path) -> None:
    values = {key: bytes([key % 256]) * 1000 for key in range(2000)}
    job = KeyedTable("table", "operator", 4, dict(values)).snapshot(full=True)
    while job.step(100) == 100:
        pass
    table = KeyedTable("table", "operator", 4)
    cold = ColdValues(ColdStore(str(tmp_path)), SMALL, no_change, no_change)
    table.keep(cold, cold)
    for fragments in job.fragments.values():
        for fragment in fragments:
            table.load(content_of(fragment))
            assert dict.__len__(cold) <= SMALL // 1000
    assert dict(cold.items()) == values
    table.values.clear()


def chain(directory: Path, state: Literal["memory", "disk"]) -> Chain:
    return keyed(
        lambda stream: stream.process("keeper", Keeper(), parallelism=1, state=state),
        "keeper/0",
        state_memory_bytes_max=SMALL,
        state_directory=str(directory),
        key_groups=4,
    )


def records(first: int, count: int) -> list[Any]:
    what = ("put", "timer", "put", "remove", "clear")
    return [(f"k{number * 7 % 400}", what[number % 11 % 5], number) for number in range(first, first + count)]


def entries(parts: Sequence[bytes]) -> list[Any]:
    """Return a snapshot without the order in which its keys came, and without what a full one says to be gone: nothing
    was.
    """
    contents: list[Any] = []
    full = False
    for part in parts:
        header, tables = read_part(part)
        full = full or header is not None and header["full"]
        contents.append(header)
        for name, fragments in sorted(tables.items()):
            rows: list[Any] = []
            for fragment in fragments:
                keys, values, gone = unpacked(fragment)
                rows += [(name, repr(key), repr(value)) for key, value in zip(keys, values, strict=True)]
                rows += [(name, repr(key), "gone") for key in gone if not full]
            contents += sorted(rows)
    return contents


def test_snapshots_and_outputs_are_those_of_state_in_memory(tmp_path: Path) -> None:
    disk, memory = chain(tmp_path, "disk"), chain(tmp_path, "memory")
    services = [Services(), Services()]
    snapshots: list[Sequence[bytes]] = []
    for turn in range(20):
        batch = records(turn * 60, 60)
        assert give(disk, batch, services[0]) == give(memory, batch, services[1])
        if turn % 4 == 3:
            full = turn in (3, 11)
            jobs = [each.snapshot(full) for each in (disk, memory)]
            done, later = [False, False], 0
            while not all(done):
                done = [ended or job.step(20) for ended, job in zip(done, jobs)]
                later += 3  # keys of earlier turns, keys that are removed meanwhile, and new ones
                batch = [*records(turn * 60 + later, 3), (f"new{turn}.{later}", "put", later)]
                assert give(disk, batch, services[0]) == give(memory, batch, services[1])
            one, other = (job.parts() for job in jobs)
            assert entries(one) == entries(other)
            if full:
                snapshots.clear()
            snapshots.append(one)
    restored = chain(tmp_path, "disk")
    for parts in snapshots:
        restored.restore(parts)
    back = chain(tmp_path, "memory")
    for parts in snapshots:
        back.restore(parts)
    assert entries(parts_of(restored, full=True)) == entries(parts_of(back, full=True))
    batch = records(5000, 300)
    assert give(restored, batch) == give(back, batch)
    assert records_in(restored.finish(Services())) == records_in(back.finish(Services()))


def test_a_tenth_is_in_memory_and_no_file_is_left(tmp_path: Path) -> None:
    live = chain(tmp_path, "disk")
    for turn in range(40):
        give(live, [(f"k{number}", "put", number) for number in range(turn * 50, turn * 50 + 50)])
    stage = live._stages[0]  # type: ignore[attr-defined]
    for table in stage._cold:
        hot = dict.__len__(table.values)
        assert hot < 200
        assert len(table.values) == (2000 if table.name != "keeper" else hot), "what is empty is not kept at all"
    assert list(tmp_path.iterdir()) == [], "the file has no name once it is open"
    assert live.inspect("keeper", "k3")["log"] == [3]


def test_what_a_snapshot_encodes_of_state_on_disk_is_on_disk_and_read_in_another_thread(tmp_path: Path) -> None:
    cold = ColdValues(ColdStore(str(tmp_path)), SMALL, no_change, no_change)
    table = KeyedTable("table", "operator", 4)
    table.keep(cold, cold)
    for key in range(500):
        table.touch((key,))
        cold[key] = bytes([key % 256]) * 1000
        table.shrink()
    snapshot = ChainSnapshot(True, {}, [table.snapshot(True)])
    while not snapshot.step(100):
        pass
    parts = snapshot.parts(b"cut")
    fragments = [each for _, tables in parts._groups for each in tables["table"]]
    assert fragments and not any(isinstance(each, bytes) for each in fragments)
    assert list(tmp_path.iterdir()) == [], "its file has no name, either"
    with ThreadPoolExecutor(1) as pool:
        size, digest = pool.submit(write_parts, tmp_path / "snapshot", parts, False).result()
    assert size == (tmp_path / "snapshot").stat().st_size
    first, *others = each_part(tmp_path / "snapshot", digest)
    assert (first, others) == (b"cut", parts[1:])
    loaded = KeyedTable("table", "operator", 4)
    for part in others:
        for fragment in read_part(part)[1].get("table", []):
            loaded.load(fragment)
    assert loaded.values == dict(cold.items())


def test_a_full_disk_under_a_snapshot_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(str(tmp_path))
    kept = spool.append(b"abc")
    with monkeypatch.context() as patch:
        patch.setattr("os.pwrite", lambda *arguments: 1)
        with pytest.raises(Unavailable, match="1 of 3 bytes were written; free space there"):
            spool.append(b"def")
    assert content_of(spool.append(b"gh")) == b"gh" and content_of(kept) == b"abc"
    file = tmp_path / "a file"
    file.touch()
    with pytest.raises(Unavailable, match="cannot be encoded in .*a file"):
        Spool(str(file / "directory"))


def test_what_cannot_be_put_away_is_named(tmp_path: Path) -> None:
    values = ColdValues(ColdStore(str(tmp_path)), 0, no_change, no_change)
    values["bad"] = {1}
    values.touch(["bad"])
    with pytest.raises(TypeError, match="key 'bad': a set does not keep its order"):
        values.shrink()


def test_a_disk_that_refuses_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Unavailable, match="state cannot be kept in .*; free space there, or set state to memory"):
        ColdStore(str(tmp_path / "file")).put_many([(b"k", b"v", None)])


def test_state_is_memory_or_disk() -> None:
    with pytest.raises(PipelineError, match=r"test_state_disk.py:\d+: process 'keeper' has state 'ssd'; use 'memory'"):
        keyed(lambda stream: stream.process("keeper", Keeper(), state="ssd"), "keeper/0")  # type: ignore[call-overload]
    with pytest.raises(PipelineError, match="setting state is 'ssd'; it must be memory or disk"):
        keyed(lambda stream: stream.process("keeper", Keeper()), "keeper/0", state="ssd")
