"""Every kind of operator that keeps something shows what it keeps for a key, live and out of parts."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from causal.cut import Cut
from causal.errors import CorruptData, PipelineError
from causal.storage.files import write_parts
from operators import ListState, MapState, Operator, Pipeline, ValueState
from operators.engine.chain import FusedChain
from operators.engine.plan import plan
from operators.kinds.windows.assigners import Session, Sliding, Tumbling
from operators.queries.inspection import LOADED_BYTES_MAX, as_of, keys_as_of, owners
from operators.queries.key_spelling import key_of, text_of_key
from operators.records.keys import canonical_key
from tests.unit.operators.scene import (
    NoSink,
    Services,
    chain_of,
    config,
    first_field,
    give,
    keyed,
    parts_of,
    planned,
    source,
)  # fmt: skip

RECORDS = [("a", 1), ("b", 2), ("a", 3)]


@pytest.mark.parametrize(
    ("build", "name", "kept"),
    [
        (lambda stream: stream.count("op"), "op/0", {"op": 2}),
        (lambda stream: stream.reduce("op", lambda total, record: total + record[1], 0), "op/0", {"op": 4}),
        (lambda stream: stream.window("op", 5.0, lambda k, r, w: r), "op/0", {"op:window": [("a", 1), ("a", 3)]}),
    ],
    ids=["count", "reduce", "window"],
)
def test_each_kind_says_what_it_keeps(build: Any, name: str, kept: dict[str, Any]) -> None:
    live, restored = keyed(build, name), keyed(build, name)
    give(live, RECORDS[:1])
    restored.restore(parts_of(live, full=True))
    give(live, RECORDS[1:])
    assert live.inspect("op", "a") == kept
    restored.restore(parts_of(live))
    assert restored.inspect("op", "a") == kept
    assert restored.inspect("op", "absent") == {} == restored.inspect("other", "a")


def test_numbers_and_windows_of_vectors_too() -> None:
    pa = pytest.importorskip("pyarrow")
    pytest.importorskip("numpy")
    from causal.records.vectors import Vectors
    from operators.kinds.vectors.vector_stages import KeyedStage
    from operators.kinds.windows.vector_windows import VectorWindowStage
    from operators.stage.failures import Failures

    scope: Any = SimpleNamespace(ordinal=0, failures=Failures(None, 1 << 20), config=SimpleNamespace(key_groups=8))

    def node(name: str, **more: Any) -> Any:
        return SimpleNamespace(name=name, column="k", subject=lambda batch, window: None, keyed=True, **more)

    rows = [{"k": "a", "n": 1}, {"k": "b", "n": 2}, {"k": "a", "n": 3}]
    vectors = Vectors(pa.RecordBatch.from_pylist(rows))
    count = KeyedStage(node("count"), scope)
    count.run(vectors, None)
    assert (count.inspect("a"), count.inspect("z")) == ({"count": 2}, {})
    window = VectorWindowStage(node("w", options={"assigner": Tumbling(1, clock="processing")}), scope)
    window.begin(Services())
    window.run(vectors, None)
    assert (window.inspect("a"), window.inspect("z")) == ({"w:window": [rows[0], rows[2]]}, {})


@pytest.mark.parametrize(
    ("text", "key"),
    [
        *((text, text) for text in (
            "ann", "a b", "order-7", "7 days", "NaN", "tru", "müller", "1.2.3", "a[0]", "-x",
        )),
        ('"ann"', "ann"), ("3", 3), ('["a", [1, null]]', ("a", (1, None))), ("true", 1), ("5.0", 5), ("2.5", 2.5),
        ('{"bytes": "00ff"}', b"\x00\xff"),
        ('["z", [2, {"decimal": "1.1"}]]', ("z", (2, Decimal("1.1")))),
        ('{"decimal": "2.50"}', 2.5),
        ('{"datetime": "2026-01-01T00:00:00+01:00"}', datetime(2025, 12, 31, 23, tzinfo=UTC)),
        ('{"datetime": "2026-01-01T00:00:00"}', datetime(2026, 1, 1)),
        ('{"float": "inf"}', float("inf")), ('["a", {"float": "-inf"}]', ("a", float("-inf"))),
        ("Infinity", "Infinity"),
    ],
)  # fmt: skip
def test_a_key_is_json_or_a_plain_text(text: str, key: Any) -> None:
    """An object stands for a kind that JSON does not have."""
    assert key_of(text) == key and type(key_of(text)) is type(key)
    assert text != key or text_of_key(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        '"ann',
        '{"a": 1}',
        "{}",
        '{"decimal": 1}',
        '{"decimal": "x"}',
        '{"decimal": "NaN"}',
        '{"bytes": "z"}',
        '{"float": "nan"}',
    ]
    + ["[a]", "[" * 100_000],
)
def test_what_is_no_key_is_said_in_one_line(text: str) -> None:
    with pytest.raises(PipelineError) as caught:
        key_of(text)
    assert "other JSON: a string in double quotes" in str(caught.value) and len(str(caught.value)) < 400


@example(float("inf"))
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text() | st.binary() | st.datetimes()
        | st.floats(allow_nan=False) | st.decimals(allow_nan=False, allow_infinity=False, places=3),
        lambda inner: st.lists(inner, max_size=3).map(tuple),
    )
)  # fmt: skip
def test_a_listed_key_is_typed_as_it_is_listed(key: Any) -> None:
    key = canonical_key(key)
    assert key_of(text_of_key(key)) == key


class Everything(Operator):
    """Keeps one of everything for each key."""

    numbers = ListState[int]()
    seen = MapState[str, int]()
    last = ValueState(int)

    def process(self, record: Any, ctx: Any) -> None:
        self.numbers.append(record[1])
        self.seen[record[0]] = record[1]
        self.last.value = record[1]
        ctx.state["n"] = record[1]
        ctx.set_timer(ctx.now() + 60.0, "later")

    def on_timer(self, name: str, ctx: Any) -> None: ...


@pytest.mark.parametrize(
    "build",
    [
        lambda stream: stream.count("op"),
        lambda stream: stream.reduce("op", lambda total, record: total + record[1], 0),
        lambda stream: stream.window("op", 5.0, lambda k, r, w: r),
        lambda stream: stream.window("op", Sliding(10, 5), lambda k, r, w: r),
        lambda stream: stream.window("op", Session(5), lambda k, r, w: r),
        lambda stream: stream.process("op", Everything()),
        lambda stream: stream.call("op", lambda record, key: record),
        lambda stream: stream.table("op").revisions("changes"),
    ],
    ids=["count", "reduce", "tumbling", "sliding", "session", "process", "call", "table"],
)
def test_each_kind_lists_the_keys_for_which_it_keeps_something(build: Any) -> None:
    def timed(stream: Any) -> Any:
        return build(stream.watermarks("time", lambda record: record[1] / 1).key_by(first_field))

    job = planned(timed)
    [task] = [each for each in job.topology.tasks if "op" in each.operators]
    live, restored = (cast(FusedChain, job.chain(task.index)) for _ in range(2))
    give(live, [("a", 1), (("b", 2), 2)])
    restored.restore(parts_of(live, full=True))
    give(live, [("c", 3)])
    assert set(live.kept_keys("op")) == {"a", ("b", 2), "c"} and not set(live.kept_keys("other"))
    restored.restore(parts_of(live))
    assert set(restored.kept_keys("op")) == {"a", ("b", 2), "c"}
    assert all(restored.inspect("op", key) for key in restored.kept_keys("op"))


def piped(build: Any) -> Pipeline:
    pipeline = Pipeline("test")
    build(pipeline.source("in", source()).key_by(first_field)).sink("out", NoSink())
    return pipeline


def counting() -> Pipeline:
    return piped(lambda stream: stream.count("count", parallelism=3).map("same", lambda record: record))


def stored(directory: Path, chain: Any, name: str, full: bool) -> tuple[str, int, str]:
    """Write a snapshot of a chain."""
    return (name, *write_parts(directory / name, [Cut().pack(), *parts_of(chain, full)], durable=False))


def test_the_one_task_that_owns_the_key_is_asked_for_the_parts_of_its_group(tmp_path: Path) -> None:
    pipeline = counting()
    planned = plan(pipeline, config(key_groups=8))
    tasks = {key: owners(pipeline, planned, "count", key, 8) for key in ("a", "b", "c", 1, None)}
    assert all(len(owning) == 1 for owning in tasks.values())
    assert len({owning[0].name for owning in tasks.values()}) > 1
    [task] = tasks["a"]
    chain = chain_of(planned, task.name)
    give(chain, RECORDS)
    files = [stored(tmp_path, chain, "1.snap", True)]
    give(chain, RECORDS)
    files.append(stored(tmp_path, chain, "2.snap", False))
    assert as_of(planned, task, files, tmp_path, "count", "a", 8) == {"count": 4}
    assert as_of(planned, task, files[:1], tmp_path, "count", "a", 8) == {"count": 2}
    assert keys_as_of(planned, task, files, tmp_path, "count", 8) == ({"a", "b"}, True)
    with pytest.raises(CorruptData):
        as_of(planned, task, [(*files[0][:2], files[1][2])], tmp_path, "count", "a", 8)
    large = [(path, 3 * LOADED_BYTES_MAX, digest) for path, _, digest in files]
    keys, complete = keys_as_of(planned, task, large, tmp_path, "count", 8)
    assert keys <= {"a", "b"} and not complete, "of a large state only some key groups are loaded"


class Log(Operator):
    """Keeps all numbers of a key."""

    numbers = ListState[int]()

    def process(self, record: Any, ctx: Any) -> None:
        if record[1] < 0:
            self.numbers.clear()
        self.numbers.append(record[1])


def test_lists_that_increments_continue_are_complete_for_the_key_that_is_asked_for(tmp_path: Path) -> None:
    pipeline = piped(lambda stream: stream.process("log", Log()))
    planned = plan(pipeline, config(key_groups=8))
    [task] = owners(pipeline, planned, "log", "k0", 8)
    chain, files, lists = chain_of(planned, task.name), list[tuple[str, int, str]](), dict[str, list[int]]()
    for turn in range(6):
        rows = [(f"k{turn * 7 + step}", turn) for step in range(20)] + [(f"k{turn * 5}", -1 - turn)]
        give(chain, rows)
        for key, number in rows:
            lists[key] = [number] if number < 0 else [*lists.get(key, []), number]
        files.append(stored(tmp_path, chain, f"{turn}.snap", turn == 0))
    for key, numbers in lists.items():
        assert as_of(planned, task, files, tmp_path, "log", key, 8)["numbers"] == numbers


def test_every_task_of_an_operator_without_keys_is_asked() -> None:
    pipeline = counting()
    planned = plan(pipeline, config())
    assert len(owners(pipeline, planned, "same", None, 128)) == 3
    with pytest.raises(PipelineError, match="operator 'cuont' does not exist; the operators are count, same"):
        owners(pipeline, planned, "cuont", "a", 128)
