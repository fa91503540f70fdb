"""The comparison of a canary: unchanged code never differs, and changed code differs where it was changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.cut import Cut
from operators import Operator, Pipeline
from operators.replay.comparison import Comparison
from operators.replay.input_steps import Positions, steps_between
from operators.replay.performance import Checkpoint, Performance
from operators.runtime.regrouping import Saved
from operators.sources import GeneratedSource
from operators.testing.running import world_of
from tests.members import examples
from tests.unit.operators.scene import NoSink

SECOND_NS = 1_000_000_000
COOKBOOK = {
    "alerts": ["readings"],
    "as_of": ["rates", "orders"],
    "deduplication": ["events"],
    "fraud_rules": ["payments", "rules"],
    "late_data": ["clicks"],
    "sessions": ["clicks"],
    "top_n": ["sales"],
}
"""Program → its sources; the others ask the outside world, or need a server or an extra."""


class Drawing(Operator):
    """Gives rows of everything that is not determined by its input."""

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        if ctx.random.random() < 0.3:
            ctx.set_timer(ctx.now() + ctx.random.random(), "bell")
        yield ctx.key, ctx.state["n"], ctx.now(), ctx.random.random(), str(ctx.uuid())

    def on_timer(self, name: str, ctx: Any) -> Iterator[Any]:
        yield ctx.key, name, ctx.now(), ctx.random.random(), ctx.state["n"]


def drawing(parallelism: int, *after: Any) -> Pipeline:
    """Return a pipeline of two partitions whose rows pass through these functions."""
    pipeline = Pipeline("drawing")
    numbers = pipeline.source("in", GeneratedSource(lambda p, i: 7 * p + i, count=500, partitions=2), parallelism=2)
    stream: Any = numbers.key_by(lambda number: number % 5).process("draw", Drawing(), parallelism=parallelism)
    for number, function in enumerate(after):
        stream = stream.map(f"map{number}", function)
    stream.sink("out", NoSink())
    return pipeline


class Begun:
    """Performances from the first checkpoint of a job, which has read nothing before."""

    def __init__(self, pipeline: Pipeline, scratch: Path) -> None:
        world = self.world = world_of(pipeline, {}, {}, 0, 1000.0, 0, 1, {})
        for partition in world.partitions.values():
            partition.endless, partition._records, partition._due_ns = True, [], []
        world.begin()
        world.checkpoint()
        world.settle()
        files = {
            task: [world.snapshots[task.index, name][0] for name, _, _ in world._files[task.index]]
            for task in world.topology.tasks
        }
        saved = [
            Saved(task, Cut.unpack(own[-1][0]), tuple(tuple(parts[1:]) for parts in own)) for task, own in files.items()
        ]
        self.checkpoint = Checkpoint(world.complete, world.topology, saved, lambda: nullcontext(world.plan))
        self._scratch = scratch

    def performance(self, pipeline: Pipeline) -> Performance:
        return Performance(pipeline, self.world.config, self.checkpoint, False, self._scratch, self._scratch)

    def compared(self, before: Pipeline, after: Pipeline, stations: Sequence[Positions]) -> Comparison:
        """Perform two versions from one station to the next, a second each."""
        comparison, first, second = Comparison(), self.performance(before), self.performance(after)
        at: Positions = {}
        for number, station in enumerate(stations):
            begun_ns = (1000 + number) * SECOND_NS
            for step in steps_between(at, station, begun_ns, begun_ns + SECOND_NS):
                comparison.add(step, first.perform(step), second.perform(step))
            at = station
        return comparison


stations = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300)), min_size=1, max_size=4).map(
    lambda read: [
        {("in", place): (max(each[place] for each in read[: number + 1]), False) for place in (0, 1)}
        for number in range(len(read))
    ]
)


@examples(5)
@given(stations, st.integers(1, 3))
def test_unchanged_code_gives_the_same_rows(
    tmp_path_factory: pytest.TempPathFactory, read: list[Positions], parallelism: int
) -> None:
    begun = Begun(drawing(parallelism), tmp_path_factory.getbasetemp())
    comparison = begun.compared(drawing(parallelism), drawing(parallelism), read)
    assert not comparison.differs
    assert comparison.rows >= 2 * sum(stop for stop, _ in read[-1].values())


@examples(5)
@given(stations)
def test_another_chain_draws_the_same_numbers(tmp_path_factory: pytest.TempPathFactory, read: list[Positions]) -> None:
    begun = Begun(drawing(2), tmp_path_factory.getbasetemp())
    comparison = begun.compared(drawing(2), drawing(2, lambda row: row), read)
    assert not comparison.differs


@examples(5)
@given(stations)
def test_only_changed_rows_differ(tmp_path_factory: pytest.TempPathFactory, read: list[Positions]) -> None:
    begun = Begun(drawing(2), tmp_path_factory.getbasetemp())
    comparison = begun.compared(drawing(2), drawing(2, lambda row: (*row, "new") if row[0] == 3 else row), read)
    elements = [7 * place + number for (_, place), (stop, _) in read[-1].items() for number in range(stop)]
    out = comparison.sinks.get("out")
    assert comparison.differs == any(number % 5 == 3 for number in elements)
    for difference in out.differing.values() if out else ():
        assert difference.row.startswith("[3, ")
        assert difference.row.endswith('"new"]') == (difference.surplus > 0)


class Wasting(Drawing):
    """Draws once more than `Drawing`, for one record."""

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        assert ctx.replaying, "what has effects is not repeated"
        if record == 20:
            ctx.random.random()
        yield from super().process(record, ctx)


def test_an_additional_draw_changes_the_rows_of_its_step_only(tmp_path: Path) -> None:
    before, after = Pipeline("drawing"), Pipeline("drawing")
    for pipeline, operator in (before, Drawing()), (after, Wasting()):
        numbers = pipeline.source("in", GeneratedSource(lambda p, i: i, count=500))
        numbers.key_by(lambda number: 0).process("draw", operator).sink("out", NoSink())
    read: list[Positions] = [{("in", 0): (position, False)} for position in (10, 30, 50, 500)]
    comparison = Begun(before, tmp_path).compared(before, after, read)
    bell = '"bell"'
    firsts = {each.step.start for each in comparison.sinks["out"].differing.values() if bell not in each.row}
    assert firsts == {10}


@pytest.mark.parametrize("name", COOKBOOK)
def test_programs_of_the_cookbook_give_the_same_rows(name: str, tmp_path: Path) -> None:
    pipeline: Pipeline = import_module(f"examples.cookbook.{name}").pipeline
    ends = {source: pipeline.sources[source].count for source in COOKBOOK[name]}  # type: ignore[attr-defined]
    read = [{(source, 0): (end * share // 3, share == 3) for source, end in ends.items()} for share in (1, 2, 3)]
    comparison = Begun(pipeline, tmp_path).compared(pipeline, pipeline, read)
    assert comparison.rows and not comparison.differs
