"""Equal keys have one spelling, wherever they enter: what came, and in which order, shows nowhere."""

from __future__ import annotations

import decimal
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import IntEnum, StrEnum
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import operators.engine.chain
from causal.records.values import decode, encode
from causal.records.vectors import Vectors
from operators import (
    BroadcastOperator,
    Count,
    ListState,
    MapState,
    Operator,
    Pipeline,
    Session,
    Sliding,
    Sum,
    Tumbling,
    ValueState,
)  # fmt: skip
from operators.engine.plan import plan
from operators.queries.key_spelling import key_of as key_of_text
from operators.records.keys import (
    Unroutable,
    canonical_key,
    canonical_keys,
    key_group,
    key_groups_of,
    task_of_group,
)
from operators.records.keys import canonical as canonical_bytes
from operators.state.snapshot_parts import read_part
from operators.testing import run
from tests.members import examples
from tests.unit.operators.scene import NoSink, Services, chain_of, config, listed, parts_of, records_in, source
from tests.unit.operators.test_rescaling import fed, owned, rescaled, saved
from tests.unit.operators.test_rescaling import planned as planned_ringing
from tests.unit.operators.test_vectors import on_vectors
from tests.unit.operators.vector_scene import give

ROOT = Path(__file__).parents[3]
HOUR = timedelta(hours=1)
NOON = datetime(2024, 6, 1, 12, tzinfo=UTC)

# One key each, in the spellings that records may have.
SPELLINGS: list[list[Any]] = [
    [5, 5.0, Decimal(5), Decimal("5.00")],
    [1, True, 1.0, Decimal("1")],
    [0, False, 0.0, -0.0, Decimal("-0.00")],
    [2.5, Decimal("2.5"), Decimal("2.500")],
    [Decimal("0.1"), Decimal("0.10")],
    [NOON, NOON.astimezone(timezone(2 * HOUR)), NOON.replace(fold=1), NOON.astimezone(timezone(-9.5 * HOUR))],
    [datetime(2024, 6, 1), datetime(2024, 6, 1, fold=1)],
    [(1, ("a", 2.0)), (True, ("a", 2)), (Decimal(1), ("a", Decimal("2.0")))],
    [2**80, float(2**80), Decimal(2**80)],
    ["5"],
    [b"5"],
    [None],
]


def spelled(key: Any) -> Any:
    """Return the one spelling, written from the guide."""
    if isinstance(key, tuple):
        return tuple(map(spelled, key))
    if isinstance(key, datetime):
        return key.replace(fold=0) if key.tzinfo is None else key.replace(fold=0).astimezone(UTC)
    if not isinstance(key, (int, float, Decimal)):
        return key
    value = Fraction(key)
    if value.denominator == 1:
        return int(value)
    if Fraction(float(value)) == value:
        return float(value)
    with decimal.localcontext(prec=400):
        return (Decimal(value.numerator) / Decimal(value.denominator)).normalize()


class Colour(IntEnum):
    RED = 5


class Word(StrEnum):
    FIVE = "5"


class Pair(NamedTuple):
    a: Any
    b: Any


@pytest.mark.parametrize("same", SPELLINGS, ids=lambda same: repr(same[0]))
def test_equal_keys_have_one_spelling(same: list[Any]) -> None:
    for key in same:
        assert encode(canonical_key(key)) == encode(spelled(same[0])) and canonical_key(key) == key
        assert key_group(key, 128) == key_group(same[0], 128)


numbers = st.one_of(
    st.integers(), st.booleans(), st.floats(allow_nan=False, allow_infinity=False),
    st.decimals(allow_nan=False, allow_infinity=False, places=3),
    st.sampled_from([5, 5.0, 1, True, 0.1, Decimal("0.1")]),
)  # fmt: skip
zones = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))
times = st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=st.one_of(st.none(), zones))
scalars = numbers | times | st.text(max_size=3) | st.binary(max_size=3) | st.none()
keys = st.recursive(scalars, lambda inner: st.tuples(inner, inner), max_leaves=4)


@given(keys, keys)
def test_a_spelling_is_of_the_value_alone(one: Any, other: Any) -> None:
    canonical = canonical_key(one)
    assert canonical == one and hash(canonical) == hash(one)
    assert encode(canonical) == encode(spelled(one)) == encode(canonical_key(canonical))
    assert (one == other) == (encode(canonical) == encode(canonical_key(other)))
    assert one != other or canonical_bytes(one) == canonical_bytes(other)


@given(st.lists(keys) | st.lists(st.tuples(st.text(), st.integers())) | st.lists(st.text()) | st.lists(st.integers()))
def test_many_at_once_are_spelled_as_each(drawn: list[Any]) -> None:
    assert encode(canonical_keys(drawn)) == encode([canonical_key(key) for key in drawn])
    assert key_groups_of(drawn, 128) == [key_group(key, 128) for key in drawn]


def test_keys_that_need_nothing_are_the_same_list() -> None:
    for canonical in (["a", "b"], [1, 2], [("a", 1), ("b", 2)], [None, "a", b"c"], []):
        assert canonical_keys(canonical) is canonical


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (Colour.RED, 5), (Word.FIVE, "5"), (Pair(1.0, "x"), (1, "x")), (Decimal("Infinity"), float("inf")),
        (1e300, int(1e300)), (Decimal("1E+4299"), 10**4299), (Decimal("10E+9999"), Decimal("1E+10000")),
        (Decimal("1E-400"), Decimal("1E-400")), (datetime(2024, 6, 1, 14, tzinfo=ZoneInfo("Europe/Berlin")), NOON),
    ],
)  # fmt: skip
def test_what_looks_like_a_key_becomes_one(key: Any, expected: Any) -> None:
    assert repr(canonical_key(key)) == repr(expected)
    assert key_group(key, 128) == key_group(expected, 128)


@pytest.mark.parametrize(
    "key",
    [float("nan"), Decimal("NaN"), Decimal("sNaN"), (1, float("nan")), Fraction(1, 3), [1], frozenset(), 1j, object()],
)
def test_what_is_no_key_is_refused(key: Any) -> None:
    for refuse in (canonical_key, lambda key: canonical_keys([key]), lambda key: key_group(key, 8)):
        with pytest.raises(Unroutable, match="key by"):
            refuse(key)


def test_a_group_does_not_depend_on_the_process() -> None:
    keys = ("a", "é", b"a", 7, (1, "x"), None)
    program = f"from operators.records.keys import key_group; print([key_group(k, 128) for k in {keys}])"
    answers = [
        subprocess.run(
            [sys.executable, "-c", program], env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2")
    ]  # fmt: skip
    assert answers == [f"{[key_group(key, 128) for key in keys]}\n"] * 2


@given(st.integers(1, 300), st.integers(1, 64))
def test_every_task_owns_neighbouring_groups(groups: int, parallelism: int) -> None:
    owners = [task_of_group(group, parallelism, groups) for group in range(groups)]
    assert owners == sorted(owners) and set(owners) <= set(range(parallelism))
    assert parallelism > groups or set(owners) == set(range(parallelism))


def test_a_time_that_utc_cannot_say_is_refused() -> None:
    with pytest.raises(Unroutable, match="outside the years 1 to 9999"):
        canonical_key(datetime(1, 1, 1, tzinfo=timezone(HOUR)))


# Whole pipelines: every operator with keys, mixed spellings, crashes.


def key_of(record: Any) -> Any:
    return record["k"]


class Keeper(Operator):
    """Shows its key from everywhere, and keeps every kind of state."""

    total = ValueState[int](default=0)
    items = ListState[int]()
    entries = MapState[Any, int]()

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        self.total.value += record["n"]
        self.items.append(record["n"])
        self.entries[record["n"] % 3] = record["n"]
        ctx.set_timer(record["at"] + 3, "bell", clock="event")
        yield [ctx.key, ctx.state["n"], self.total.value, list(self.items), list(self.entries.items())]

    def on_timer(self, name: str, ctx: Any) -> Iterator[Any]:
        yield [ctx.key, name, ctx.state["n"]]

    def finish(self, ctx: Any) -> Iterator[Any]:
        yield [ctx.key, "end", self.total.value]


class Batched(Operator):
    def process_batch(self, records: Any, keys: Any, ctx: Any) -> Iterator[Any]:
        for record, state in zip(records, ctx.states([record["k"] for record in records]), strict=True):
            state["n"] = state.get("n", 0) + record["n"]
            yield state["n"]

    def finish(self, ctx: Any) -> Iterator[Any]:
        yield [ctx.key, ctx.state["n"]]


class Ruled(BroadcastOperator):
    def process_broadcast(self, record: Any, ctx: Any) -> None:
        if record["n"] % 4:
            ctx.broadcast[record["k"]] = record["n"]
        else:
            ctx.broadcast.pop(record["k"], None)

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        yield [ctx.key, list(ctx.broadcast.items())]


def numbered(key: Any, records: Any, window: Any) -> Iterator[Any]:
    yield [key, [record["n"] for record in records], window.start, window.end]


def pairs(left: Any, right: Any) -> Any:
    return [None if side is None else side["n"] for side in (left, right)]


Build = Callable[[Any, Any], Any]
BUILDS: dict[str, Build] = {
    "process": lambda a, b: a.process("op", Keeper()),
    "disk": lambda a, b: a.process("op", Keeper(), state="disk"),
    "ordered": lambda a, b: a.process("op", Keeper(), delivery="ordered"),
    "batches": lambda a, b: a.process("op", Batched()),
    "count": lambda a, b: a.count("op"),
    "reduce": lambda a, b: a.reduce("op", lambda total, record: total + record["n"], 0),
    "session": lambda a, b: a.window("op", Session(2), Sum(lambda record: record["n"])),
    "session of records": lambda a, b: a.window("op", Session(2), numbered),
    "tumbling": lambda a, b: a.window("op", Tumbling(3), numbered),
    "sliding": lambda a, b: a.window("op", Sliding(16, 1), Count()),
    "by the clock": lambda a, b: a.window("op", 1000.0, numbered),
    "window table": lambda a, b: a.window_table("op", Tumbling(3), Count()).revisions("rev"),
    "suppress": lambda a, b: a.window_table("op", Tumbling(3), Count()).suppress("s", until="closed").to_stream("rev"),
    "groups": lambda a, b: (
        a.table("t")
        .group_by("g", lambda key, row: row["k"])
        .aggregate("op", Sum(lambda row: row["n"]))
        .revisions("rev")
    ),
    "table join": lambda a, b: (
        a.aggregate_table("l", Count()).join("op", b.aggregate_table("r", Count()), how="outer").revisions("rev")
    ),
    "join": lambda a, b: a.join("op", b, within=(-2, 2), how="outer", fn=pairs),
    "window join": lambda a, b: a.window_join("op", b, Tumbling(3), how="outer", fn=pairs),
    "join table": lambda a, b: a.join_table(
        "op", b.aggregate_table("r", Count()), how="left", fn=lambda record, row: [record["n"], row]
    ),
    "broadcast": lambda a, b: a.broadcast("op", b, Ruled()),
}


TWO = {"table join", "join", "window join", "join table", "broadcast"}


def pipeline(name: str) -> Pipeline:
    mixed = Pipeline("mixed")

    def stream(side: str) -> Any:
        timed = mixed.source(side, source()).watermarks(f"{side}-time", lambda record: record["at"], out_of_order_s=1)
        return timed if (name, side) == ("broadcast", "b") else timed.key_by(key_of)

    BUILDS[name](stream("a"), stream("b") if name in TWO else None).sink("out", NoSink())
    return mixed


def without_bells(rows: list[Any]) -> list[Any]:
    return [row for row in rows if row[1] != "bell"]


@pytest.mark.parametrize("name", BUILDS)
@examples(divided_by=5)
@given(data=st.data())
def test_how_a_key_is_written_shows_nowhere(name: str, data: st.DataObject) -> None:
    """The rows are those of a run whose records have the one spelling, with and without crashes."""
    few = data.draw(st.lists(st.sampled_from(range(len(SPELLINGS))), min_size=1, max_size=4, unique=True))

    def drawn() -> list[dict[str, Any]]:
        drawn = data.draw(st.lists(st.tuples(st.sampled_from(few), st.integers(0, 6)), min_size=1, max_size=10))
        return [
            {"k": data.draw(st.sampled_from(SPELLINGS[which])), "n": n, "at": float(n + delay)}
            for n, (which, delay) in enumerate(drawn)
        ]

    inputs = {side: drawn() for side in ("ab" if name in TWO else "a")}
    plain = {side: [{**record, "k": spelled(record["k"])} for record in records] for side, records in inputs.items()}
    built = pipeline(name)
    options: dict[str, Any] = {
        "seed": data.draw(st.integers(0, 99)),
        "batch": data.draw(st.sampled_from([1, 3, 100])),
        "checkpoint_every": data.draw(st.sampled_from([1, 2, 5])),
        "state_memory_bytes_max": 1 << 16,
    }
    expected = encode(run(built, plain, **options)["out"])
    result = run(built, inputs, **options)
    assert encode(result["out"]) == expected
    where = [task for task, count in result.elements.items() if count]
    task = data.draw(st.sampled_from(where))
    crash = {task: data.draw(st.integers(1, result.elements[task]))}
    again = run(built, inputs, crash=crash, **options)["out"]  # raises ReplayDivergence where a replay differs
    if name in ("process", "disk"):  # a watermark may come between other records then, and find a timer not moved yet
        assert encode(without_bells(again)) == encode(without_bells(result["out"]))
    elif name not in TWO:
        assert encode(again) == expected
    elif name in ("table join", "broadcast"):  # which side comes first is chance, and the records after a crash too
        known = {encode(spelled(record["k"])) for records in inputs.values() for record in records}
        assert {encode(row[0]) for row in again} <= known
        assert name == "table join" or {encode(key) for row in again for key, _ in row[1]} <= known


class Entries(Operator):
    """Puts and removes entries of a map and of a dict."""

    entries = MapState[Any, int]()

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        in_state = ctx.state.setdefault("dict", {})
        for each in (self.entries, in_state):
            if record["put"]:
                each[record["entry"]] = record["n"]
            else:
                each.pop(record["entry"], None)
            if record["raises"]:
                each.pop(record["raises"][0], None)
                each[record["raises"][0]] = -1
        if record["raises"]:
            raise ValueError("as if it had never come")
        yield [list(self.entries.items()), list(in_state.items())]


@pytest.mark.parametrize("state", ["memory", "disk"])
@examples(divided_by=3)
@given(data=st.data())
def test_entries_of_a_map_are_written_as_a_dict_keeps_them(state: Any, data: st.DataObject) -> None:
    """The first spelling stays until the entry is removed, as in a dict, also after a restore."""
    entries = st.sampled_from(data.draw(st.sampled_from([SPELLINGS[0], SPELLINGS[0] + SPELLINGS[1], SPELLINGS[5]])))
    puts = data.draw(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2), entries), min_size=1, max_size=14))
    wrong = data.draw(st.lists(st.one_of(st.just([]), st.tuples(entries)), min_size=len(puts), max_size=len(puts)))
    records = [
        {"k": k, "put": put > 0, "entry": entry, "n": n, "raises": list(raises)}
        for n, ((k, put, entry), raises) in enumerate(zip(puts, wrong, strict=True))
    ]
    dicts: dict[int, dict[Any, int]] = {}
    expected = []
    for record in records:
        if record["raises"]:
            continue
        of_key = dicts.setdefault(record["k"], {})
        if record["put"]:
            of_key[record["entry"]] = record["n"]
        else:
            of_key.pop(record["entry"], None)
        expected.append([list(of_key.items())] * 2)
    entries_job = Pipeline("entries")
    keyed = entries_job.source("a", source()).key_by(key_of)
    keyed.process("op", Entries(), state=state).sink("out", NoSink())
    crash = {"op/0": data.draw(st.integers(1, len(records)))}
    every = data.draw(st.sampled_from([1, 2, 3]))
    options: dict[str, Any] = {"checkpoint_every": every, "seed": len(records), "on_error": "dead-letter"}
    result = run(entries_job, {"a": records}, crash=crash, state_memory_bytes_max=1 << 16, **options)
    assert encode(result["out"]) == encode(expected)


# State of older versions, other parallelism, queries.


def old_files(name: str, records: list[Any]) -> tuple[Any, list[list[bytes]]]:
    """Return a plan and two snapshots of its keyed task, as a version wrote them that kept the spelling that came."""
    job_plan = plan(pipeline(name), config())
    chain = chain_of(job_plan, "op/0")
    files = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(operators.engine.chain, "canonical_keys", lambda keys: keys)
        for place, record in enumerate(records):
            chain.deliver(0, listed([record]), place, Services())
            if place in (0, len(records) - 1):
                files.append(parts_of(chain, place == 0))
    return job_plan, files


@pytest.mark.parametrize("name", ["process", "disk", "session", "by the clock", "tumbling"])
def test_state_that_was_written_in_other_spellings_goes_on(name: str) -> None:
    respelled = [{"k": key, "n": n, "at": 0.0} for n, key in enumerate([5.0, True, 5, Decimal("5.0"), (1.0, -0.0)])]
    job_plan, files = old_files(name, respelled)
    chain = chain_of(job_plan, "op/0")
    for parts in files:
        chain.restore(parts)
    chain.deliver(0, listed([{"k": Decimal("5.00"), "n": 9, "at": 0.5}]), 9, Services())
    rows = [row for row in records_in(chain.finish(Services())) if "end" in row or name != "process"]
    shown = {encode(row[0]) for row in rows}
    assert shown == {encode(key) for key in (5, 1, (1, 0))}
    if name == "process":
        assert sorted(row[2] for row in rows if row[0] == 5) == [0 + 2 + 3 + 9]
        assert chain.inspect("op", key_of_text("5.0"))["state"] == {"n": 4}
        assert chain.inspect("op", key_of_text("[true, 0.0]"))["total"] == 4


def test_state_of_equal_keys_is_one_after_a_change_of_parallelism() -> None:
    before, after = planned_ringing(3), planned_ringing(2)
    batches: list[list[Any]] = [[5.0, True, 2.5], [Decimal(5), 1, (1, 0.0)], [5, 1.0, Decimal("2.50"), (True, 0)]]
    parts = {f"ring/{at}": fed(before, f"ring/{at}", [owned(batch, at, 3) for batch in batches]) for at in range(3)}
    chains = rescaled(before, saved(before, parts), after).chains()
    rang = []
    for index in range(2):
        chain = chain_of(after, f"ring/{index}")
        chain.restore(chains[f"ring/{index}"])
        rang += records_in(chain.fire(6_000_000_000_000, Services()))
    assert {encode(key): n for key, n in rang} == {encode(key): n for key, n in [(5, 3), (1, 3), (2.5, 2), ((1, 0), 2)]}
    assert len(rang) == 4


# Vectors.


@pytest.mark.parametrize("order", [("int64", "double"), ("double", "int64"), ("bool", "double")])
def test_vectors_write_one_spelling_whatever_column_comes_first(order: tuple[str, str]) -> None:
    snapshots = []
    for kinds in (order, order[::-1]):
        chain = on_vectors(lambda stream: stream.count("op"))
        for kind in kinds:
            vectors = Vectors.of({"k": pa.array([1, 0, 1], "int64").cast(kind)})
            rows = give(chain, vectors)
            assert [encode(row["k"]) for row in rows] == [
                encode(value) for value in vectors.batch.column(0).to_pylist()
            ]
        snapshots.append(parts_of(chain, True))
        assert {encode(key) for key in keys_in_snapshot(snapshots[-1])} == {encode(1), encode(0)}


def test_a_key_column_of_vectors_has_one_zero() -> None:
    rows = give(on_vectors(lambda stream: stream.count("op")), Vectors.of({"k": pa.array([0.0, -0.0, None, 2.5])}))
    assert [repr(row["k"]) for row in rows] == ["0.0", "0.0", "None", "2.5"]
    assert [row["count"] for row in rows] == [1, 2, 1, 1]


def keys_in_snapshot(parts: list[bytes]) -> Iterator[Any]:
    for part in parts:
        header, tables = read_part(part)
        if header is None:
            for fragments in tables.values():
                for fragment in fragments:
                    yield from decode(fragment)[0]
