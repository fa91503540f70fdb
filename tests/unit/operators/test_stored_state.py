"""State read without the code of the pipeline is what a chain that the code builds shows."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators import ListState, MapState, Operator, Pipeline, ReducingState, Sliding, ValueState
from operators.engine.plan import plan
from operators.queries.inspection import as_of, owners
from operators.queries.stored_state import NeedsCode, StoredState, by_table
from operators.records.keys import canonical_key
from tests.members import examples
from tests.unit.operators.scene import NoSink, chain_of, config, first_field, give, source
from tests.unit.operators.test_inspection import stored

GROUPS = 8
KEYS = ("a", "b", "c", 7, ("d", 1))


@dataclass
class Point:
    x: int = 0
    more: Decimal = Decimal("1.10")


@dataclass
class Shapes:
    last: Point | None = None
    all: list[Point] = field(default_factory=list)
    named: dict[str, Point] = field(default_factory=dict)
    pair: tuple[Point, ...] = ()


class Everything(Operator):
    """Keeps one of everything for each key, forgets some of it, and sets timers."""

    numbers = ListState[int](ttl_s=1e6)
    points = ListState[Point]()
    seen = MapState[int, Point]()
    plain = MapState[str, int]()
    shapes = ValueState(Shapes)
    most = ReducingState[int](max)

    def process(self, record: Any, ctx: Any) -> None:
        _, number = record
        if number % 7 == 0:
            self.numbers.clear()
            self.seen.clear()
            ctx.state.clear()
            ctx.clear_timer("later")
            return
        point = Point(number)
        self.numbers.append(number)
        self.points.append(point)
        self.seen[number % 3] = point
        self.plain[str(number)] = number
        if len(self.plain) > 2:
            del self.plain[next(iter(self.plain))]
        shapes = self.shapes.value
        shapes.last, shapes.named[str(number)], shapes.pair = point, point, (point, point)
        shapes.all.append(point)
        self.most.add(number)
        ctx.state["n"] = [number, (number,)]
        ctx.set_timer(ctx.now() + 60.0, "later")

    def on_timer(self, name: str, ctx: Any) -> None: ...


class Last(Operator):
    """Keeps the last number of a key."""

    def process(self, record: Any, ctx: Any) -> None:
        ctx.state["n"] = record[1]


BUILDS: dict[str, Any] = {
    "process": lambda stream: stream.process("op", Everything(), parallelism=2),
    "count": lambda stream: stream.count("op", parallelism=2),
    "reduce": lambda stream: stream.reduce("op", lambda total, record: {**total, str(record[1] % 3): 1}, {}),
}


def job_of(build: Any) -> tuple[Pipeline, Any]:
    pipeline = Pipeline("test")
    timed = pipeline.source("in", source()).watermarks("time", lambda record: float(record[1]))
    build(timed.key_by(first_field)).sink("out", NoSink())
    return pipeline, plan(pipeline, config(key_groups=GROUPS))


@pytest.mark.parametrize("kind", BUILDS)
@examples(4)
@given(st.lists(st.tuples(st.booleans(), st.lists(st.tuples(st.sampled_from(KEYS), st.integers(0, 30))))))
def test_stored_state_is_what_a_chain_shows(
    tmp_path_factory: pytest.TempPathFactory, kind: str, epochs: list[tuple[bool, list[Any]]]
) -> None:
    directory = tmp_path_factory.mktemp("checkpoints")
    pipeline, planned = job_of(BUILDS[kind])
    for key in KEYS:
        [task] = owners(pipeline, planned, "op", key, GROUPS)
        chain, files = chain_of(planned, task.name), list[tuple[str, int, str]]()
        for number, (full, records) in enumerate([(True, [(key, 1)]), *epochs]):
            give(chain, records)
            whole = full or not files
            files = [*([] if whole else files), stored(directory, chain, f"{task.index}-{number}", whole)]
            state = StoredState(directory, files, "op", GROUPS)
            expected = as_of(planned, task, files, directory, "op", canonical_key(key), GROUPS)
            assert state.get(key) == expected and list(state.get(key)) == list(expected) and state.keyed
            assert state.get("absent") == {}


@pytest.mark.parametrize(
    "build",
    [
        lambda stream: stream.window("op", Sliding(10, 5), lambda k, r, w: r),
        lambda stream: stream.process("op", Last(), delivery="speculative").revisions("changes"),
        lambda stream: stream.call("op", lambda record, key: record),
    ],
    ids=["window", "speculative", "call"],
)
def test_other_state_needs_the_code_of_the_pipeline(tmp_path: Path, build: Any) -> None:
    _, planned = job_of(build)
    [task] = [each for each in planned.topology.tasks if "op" in each.operators]
    chain = chain_of(planned, task.name)
    files = [stored(tmp_path, chain, "1", True)]
    with pytest.raises(NeedsCode):
        StoredState(tmp_path, files, "op", GROUPS)


def test_an_operator_without_keys_is_not_keyed(tmp_path: Path) -> None:
    pipeline = Pipeline("test")
    pipeline.source("in", source()).watermarks("time", first_field).process("op", Everything()).sink("out", NoSink())
    planned = plan(pipeline, config(key_groups=GROUPS))
    [task] = [each for each in planned.topology.tasks if "op" in each.operators]
    chain = chain_of(planned, task.name)
    give(chain, [(1, 2)])
    state = StoredState(tmp_path, [stored(tmp_path, chain, "1", True)], "op", GROUPS)
    assert not state.keyed and state.get(None)["numbers"] == [2]


def test_tables_are_named_without_their_operator() -> None:
    tables = {"n": 1, "n:panes": 2, "n.order:waiting": 3, "numbers": 4}
    assert list(by_table(tables, "n")) == ["state", "panes", "order:waiting", "numbers"]
