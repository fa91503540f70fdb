"""The steps between two checkpoints, and the comparison of the rows that they cause."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.cut import Cut
from operators import Pipeline
from operators.engine.plan import plan
from operators.replay import comparison as comparing
from operators.replay.comparison import Comparison
from operators.replay.input_steps import ELEMENTS_MAX, Positions, count, positions_in, steps_between
from operators.replay.performance import Step
from tests.unit.operators.scene import NoSink, config, source

STEP = Step(5, "in", 0, 10, 14)
partitions = st.dictionaries(
    st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 3)),
    st.tuples(st.integers(0, 1_000), st.integers(0, 1_000), st.booleans()),
)


@given(partitions)
def test_steps_have_each_element_once_in_order_of_time(read: dict[tuple[str, int], tuple[int, int, bool]]) -> None:
    before: Positions = {partition: (first, False) for partition, (first, _, _) in read.items()}
    after: Positions = {partition: (first + more, ended) for partition, (first, more, ended) in read.items()}
    steps = list(steps_between(before, after, 100, 1_100))
    assert sum(step.stop - step.start for step in steps) == count(before, after)
    assert [step.at_ns for step in steps] == sorted(step.at_ns for step in steps)
    at = {partition: first for partition, (first, _) in before.items()}
    ended = defaultdict[tuple[str, int], int](int)
    for step in steps:
        partition = step.source, step.partition
        assert step.start == at[partition] and not ended[partition]
        assert step.stop - step.start <= ELEMENTS_MAX and 100 < step.at_ns <= 1_100
        at[partition] = step.stop
        ended[partition] += step.ends
    assert at == {partition: stop for partition, (stop, _) in after.items()}
    assert {partition for partition in ended if ended[partition]} == {each for each, (_, over) in after.items() if over}
    assert not list(steps_between(after, after, 1_100, 2_100))


@pytest.mark.parametrize("processes", ["per-task", "stages"])
def test_positions_do_not_count_the_end_of_a_partition(processes: str) -> None:
    pipeline = Pipeline("test")
    pipeline.source("in", source(2), parallelism=2).sink("out", NoSink(), parallelism=2)
    topology = plan(pipeline, config(processes=processes)).topology
    cuts = {
        str(task.name): Cut(
            inputs={channel.id: (7, 0, channel.partition == 1) for channel in topology.inputs(task.index)}
        )
        for task in topology.tasks
        if topology.is_source(task.index)
    }
    assert positions_in(topology, cuts) == {("in", 0): (7, False), ("in", 1): (6, True)}


def test_rows_are_compared_as_multisets_of_a_sink() -> None:
    comparison = Comparison()
    comparison.add(STEP, {"out/0": [b"a", b"b", b"b"]}, {"out/1": [b"b", b"a"], "more/0": [b"c"]})
    out, more = comparison.sinks["out"], comparison.sinks["more"]
    assert (out.same, out.only_before, out.only_after) == (2, 1, 0)
    assert (more.same, more.only_before, more.only_after) == (0, 0, 1)
    assert [each.shown() for each in out.first()] == ["- b  (out/0, in[0] 10–13)"]
    assert comparison.differs and comparison.rows == 6
    comparison.add(STEP, {"more/0": [b"c"]}, {"out/0": [b"b"]})
    assert not comparison.differs, "rows that come later are the same rows"
    assert (out.same, more.same) == (3, 1)


def test_the_memory_of_a_comparison_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "DIFFERING_BYTES_MAX", 10 * (comparing.ENTRY_BYTES + 200))
    comparison = Comparison()
    for number in range(1_000):
        comparison.add(STEP, {"out/0": [b"%100d" % number]}, {"out/0": [b"%100d" % number]})
    assert not comparison.full
    for number in range(10):
        assert not comparison.full
        comparison.add(STEP, {"out/0": [b"%100d" % number]}, {})
    assert comparison.full
    comparison.add(STEP, {}, {"out/0": [b"%100d" % 3]})
    assert not comparison.full


def test_long_rows_are_cut_when_they_are_shown() -> None:
    comparison = Comparison()
    comparison.add(STEP, {"out/0": [b"x" * 1_000]}, {})
    [difference] = comparison.sinks["out"].first()
    assert len(difference.shown()) < 400 and len(difference.row) == 1_000
