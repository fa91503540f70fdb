"""Plans turn names into tasks and channels: fusion, spreading, routing, dead letters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from causal.errors import PipelineError
from causal.ids import OUTSIDE
from operators import Operator, Pipeline
from operators.engine.plan import Plan, plan
from operators.sinks.files.jsonlines import JsonLinesSink
from operators.sources import GeneratedSource
from tests.unit.operators.scene import NoSink, config, first_field, planned, source


class Echo(Operator):
    def process(self, record: Any, ctx: Any) -> Any:
        yield record


def names(job_plan: Plan) -> dict[str, tuple[str, ...]]:
    return {task.name: task.operators for task in job_plan.topology.tasks}


def edges(job_plan: Plan) -> list[str]:
    def name(task: int) -> str:
        return "outside" if task == OUTSIDE else job_plan.topology.tasks[task].name

    return [f"{name(channel.source)} {name(channel.target)}" for channel in job_plan.topology.channels]


def test_the_pipeline_of_the_contract() -> None:
    job_plan = planned(lambda s: s.map("double", abs).key_by(first_field).process("count", Echo(), parallelism=2), 2)
    assert names(job_plan) == {
        "double/0": ("in", "double"),
        "count/0": ("count",),
        "count/1": ("count",),
        "out/0": ("out",),
    }
    assert job_plan.describe()["tasks"][0] == {
        "task": "double/0",
        "operators": ["in", "double"],
        "inputs": ["in[0]", "in[1]"],
        "outputs": ["count/0", "count/1"],
    }
    assert job_plan.describe()["tasks"][3]["outputs"] == ["outside"]
    assert job_plan.describe()["pipeline"] == "test"
    assert job_plan.sources == ("in",)


def test_operators_between_two_shuffles_are_one_task() -> None:
    job_plan = planned(
        lambda s: s.map("a", abs).filter("b", abs).key_by(abs).process("c", Echo()).map("d", abs).process("e", Echo())
    )
    assert names(job_plan) == {"b/0": ("in", "a", "b"), "e/0": ("c", "d", "e"), "out/0": ("out",)}


def test_branches_stay_fused_as_a_tree_named_after_the_last() -> None:
    pipeline = Pipeline("test")
    begin = pipeline.source("in", source())
    left = begin.map("left", abs)
    begin.map("right", abs).sink("out", NoSink())
    left.sink("log", NoSink())
    job_plan = plan(pipeline, config())
    assert names(job_plan) == {"right/0": ("in", "left", "right"), "out/0": ("out",), "log/0": ("log",)}
    assert edges(job_plan) == ["outside right/0", "right/0 out/0", "right/0 log/0", "out/0 outside", "log/0 outside"]


def test_a_union_begins_a_task_and_each_parent_routes() -> None:
    pipeline = Pipeline("test")
    one, two = pipeline.source("one", source()), pipeline.source("two", source())
    one.union(two).map("both", abs).sink("out", NoSink())
    job_plan = plan(pipeline, config())
    assert list(names(job_plan)) == ["one/0", "two/0", "both/0", "out/0"]
    assert edges(job_plan)[2:4] == ["one/0 both/0", "two/0 both/0"]


def test_partitions_are_spread_over_the_tasks_of_a_source() -> None:
    pipeline = Pipeline("test")
    pipeline.source("in", source(5), parallelism=2).sink("out", NoSink())
    job_plan = plan(pipeline, config())
    partitions = [[c.partition for c in job_plan.topology.inputs(task.index)] for task in job_plan.topology.tasks[:2]]
    assert partitions == [[0, 2, 4], [1, 3]]
    # fewer sinks than senders: one channel for each sender
    assert edges(job_plan)[5:7] == ["in/0 out/0", "in/1 out/0"]


@pytest.mark.parametrize(
    ("partitions", "build", "between"),
    [
        (1, lambda s: s.process("p", Echo(), parallelism=3), ["in/0 p/0", "in/0 p/1", "in/0 p/2"]),
        (5, lambda s: s.process("p", Echo(), parallelism=2),
         ["in/0 p/0", "in/1 p/1", "in/2 p/0", "in/3 p/1", "in/4 p/0"]),
    ],
    ids=["more readers than senders are all connected", "fewer readers share the senders evenly"],
)  # fmt: skip
def test_readers_and_senders(partitions: int, build: Any, between: list[str]) -> None:
    pipeline = Pipeline("test")
    build(pipeline.source("in", source(partitions), parallelism=partitions)).sink("out", NoSink())
    assert edges(plan(pipeline, config()))[partitions : partitions + len(between)] == between


def test_connect_adds_an_edge_in_topological_order() -> None:
    pipeline = Pipeline("test")
    pipeline.source("one", source()).key_by(first_field).count("n").sink("out", NoSink())
    pipeline.source("late", source())
    pipeline.connect("late", "n")
    job_plan = plan(pipeline, config())
    assert sorted(edges(job_plan)[2:4]) == ["late/0 n/0", "one/0 n/0"]
    assert job_plan.topology.ancestors(job_plan.topology.tasks[-1].index)


def test_dead_letters_are_a_hidden_sink_of_all_tasks(tmp_path: Path) -> None:
    job_plan = planned(lambda s: s.key_by(abs).count("n"), on_error="dead-letter")
    assert list(names(job_plan)) == ["in/0", "n/0", "out/0", "dead-letters/0"]
    assert edges(job_plan)[-4:] == [
        *(f"{task}/0 dead-letters/0" for task in ("in", "n", "out")),
        "dead-letters/0 outside",
    ]
    job_plan.check(tmp_path)
    job_plan.store(job_plan.topology.channels[-1], tmp_path).open("dead-letters/0", "run", 1).logs  # noqa: B018
    assert (tmp_path / "dead-letters").is_dir()


def test_more_tasks_than_key_groups_are_refused() -> None:
    with pytest.raises(PipelineError, match="'n' has parallelism 4, but the job has only 3 key groups"):
        planned(lambda s: s.key_by(abs).count("n", parallelism=4), key_groups=3)


def test_readers_and_stores_belong_to_channels_from_and_to_outside(tmp_path: Path) -> None:
    pipeline = Pipeline("test")
    pipeline.source("in", GeneratedSource(lambda p, i: (p, i), 10, 2)).sink("out", JsonLinesSink(tmp_path / "rows"))
    job_plan = plan(pipeline, config())
    read = job_plan.reader(job_plan.topology.channels[1], tmp_path, 0).read(3, 2)
    assert read is not None
    assert read.records == [(1, 3), (1, 4)]
    assert job_plan.store(job_plan.topology.channels[-1], tmp_path).open("out/0", "run", 1).next == 0
    assert job_plan.companions(tmp_path) == []
    job_plan.check(tmp_path)


def test_a_plan_is_the_same_in_every_process() -> None:
    def build(stream: Any) -> Any:
        return stream.map("a", abs).key_by(abs).count("n", parallelism=3)

    assert repr(planned(build).topology) == repr(planned(build).topology)


def test_what_is_in_a_shared_store_is_bound_to_no_host(tmp_path: Path) -> None:
    def pipeline_to(sink: Any) -> Pipeline:
        pipeline = Pipeline("test")
        asked = pipeline.source("in", source()).call("ask", lambda record, key: record)
        asked.sink("out", sink)
        return pipeline

    local = plan(pipeline_to(JsonLinesSink(tmp_path)), config(on_error="dead-letter"))
    assert [task for task, _ in local.bound()] == ["ask/0", "out/0", "dead-letters/0"]
    stored = config(on_error="dead-letter", store="s3://bucket/jobs")
    assert plan(pipeline_to(JsonLinesSink("s3://bucket/out")), stored).bound() == []
    directory = config(on_error="dead-letter", store="s3://bucket/jobs", dead_letters=str(tmp_path))
    [(task, reason)] = plan(pipeline_to(JsonLinesSink("s3://bucket/out")), directory).bound()
    assert (task, reason) == ("dead-letters/0", "dead letters are kept on the machine of their task")
