"""Cells: which subtasks share a task, and what a cell does with events, ends, watermarks and snapshots (0036)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from causal.config import JobConfig
from causal.errors import CorruptData, PipelineError
from causal.ids import TaskIndex
from causal.records.batch import END, LISTED, WATERMARK, Chunk, stamp_of
from causal.topology import Topology
from operators import Operator, Pipeline
from operators.engine.operator_chain import OperatorChain
from operators.engine.plan import Plan, plan
from operators.sinks import JsonLinesSink
from operators.sources import GeneratedSource
from operators.state.snapshot_parts import increment_of
from operators.testing import run
from standby.blueprint import Blueprint, Constraint

Build = Callable[[Pipeline], Any]


def numbers(pipeline: Pipeline, name: str = "in", parallelism: int = 1) -> Any:
    source = GeneratedSource(lambda partition, i: {"k": i % 3, "at": i}, count=9, partitions=parallelism)
    return pipeline.source(name, source, parallelism)


def sink(stream: Any, name: str = "out", **options: Any) -> Any:
    return stream.sink(name, JsonLinesSink(Path("/nowhere")), **options)


def simple(pipeline: Pipeline) -> None:
    sink(numbers(pipeline).key_by(lambda r: r["k"]).count("count"))


def parallel(pipeline: Pipeline) -> None:
    counted = numbers(pipeline, parallelism=2).key_by(lambda r: r["k"]).count("count", parallelism=2)
    sink(counted, parallelism=2)


def two_exchanges(pipeline: Pipeline) -> None:
    counted = numbers(pipeline).key_by(lambda r: r["k"]).count("count", parallelism=2)
    sink(counted.key_by(lambda pair: pair[1]).count("again", parallelism=2), parallelism=2)


def two_sources(pipeline: Pipeline) -> None:
    both = numbers(pipeline, "a").union(numbers(pipeline, "b"))
    sink(both.key_by(lambda r: r["k"]).count("count"))


def ordered(pipeline: Pipeline) -> None:
    stream = numbers(pipeline).watermarks("marks", lambda r: float(r["at"]))
    counted = stream.key_by(lambda r: r["k"]).count("count", delivery="ordered")
    sink(counted.key_by(lambda pair: pair[0]).count("again"))


def lone_sink(pipeline: Pipeline) -> None:
    sink(numbers(pipeline))


def placed(pipeline: Pipeline) -> None:
    simple(pipeline)
    pipeline.place("out", "b")


def planned(build: Build, of_pipeline: str, **settings: Any) -> Plan:
    pipeline = Pipeline("p", processes=of_pipeline)
    build(pipeline)
    return plan(pipeline, JobConfig("run", "p", "/p.py", **settings))


@pytest.mark.parametrize(
    ("build", "processes", "settings", "tasks"),
    [
        (simple, "per-task", {}, {"in/0": ["in/0"], "count/0": ["count/0"], "out/0": ["out/0"]}),
        (simple, "one", {}, {"one/0": ["in/0", "count/0", "out/0"]}),
        (simple, "stages", {}, {"in/0": ["in/0"], "rest/0": ["count/0", "out/0"]}),
        (two_sources, "stages", {}, {"sources/0": ["a/0", "b/0"], "rest/0": ["count/0", "out/0"]}),
        (
            parallel, "stages", {},
            {"in/0": ["in/0"], "in/1": ["in/1"], "rest/0": ["count/0", "out/0"], "rest/1": ["count/1", "out/1"]},
        ),
        (
            two_exchanges, "stages", {},
            {"in/0": ["in/0"], "count/0": ["count/0"], "count/1": ["count/1"],
             "rest/0": ["again/0", "out/0"], "rest/1": ["again/1", "out/1"]},
        ),
        (ordered, "one", {}, {"marks/0": ["marks/0"], "count/0": ["count/0"], "one/0": ["again/0", "out/0"]}),
        (placed, "one", {}, {"one/0": ["in/0", "count/0"], "out/0": ["out/0"]}),
        (simple, "one", {"standbys": "hot"}, {"in/0": ["in/0"], "one/0": ["count/0", "out/0"]}),
        (
            simple, "one", {"standbys": "hot:count"},
            {"in/0": ["in/0"], "count/0": ["count/0"], "out/0": ["out/0"]},
        ),
        (simple, "one", {"on_error": "dead-letter"}, {"one/0": ["in/0", "count/0", "out/0", "dead-letters/0"]}),
        (
            lone_sink, "stages", {"on_error": "dead-letter"},  # `out/0` keeps its name
            {"in/0": ["in/0"], "out/0": ["out/0"], "dead-letters/0": ["dead-letters/0"]},
        ),
        (
            parallel, "stages", {"on_error": "dead-letter"},
            {"in/0": ["in/0"], "in/1": ["in/1"], "rest/0": ["count/0", "out/0"], "rest/1": ["count/1", "out/1"],
             "dead-letters/0": ["dead-letters/0"]},
        ),
    ],
)  # fmt: skip
def test_subtasks_that_may_share_a_task_do(
    build: Build, processes: str, settings: Mapping[str, Any], tasks: Mapping[str, list[str]]
) -> None:
    topology = planned(build, processes, **settings).topology
    shared = {task.name: [part.name for part in topology.subtasks_of(task.index)] for task in topology.tasks}
    assert shared == tasks
    assert {part: topology.performer(part) for parts in tasks.values() for part in parts} == {
        part: topology.named(name) for name, parts in tasks.items() for part in parts
    }
    assert topology.performer("nothing/0") is None


def test_the_command_line_overrides_the_pipeline() -> None:
    assert [task.name for task in planned(simple, "one", processes="per-task").topology.tasks] == [
        "in/0", "count/0", "out/0"
    ]  # fmt: skip
    with pytest.raises(PipelineError, match="processes is 'two'; use per-task, one, stages"):
        Pipeline("p", processes="two")
    with pytest.raises(PipelineError, match="setting processes is 'two'; it must be per-task or one or stages"):
        JobConfig("run", "p", "/p.py", processes="two")


def test_a_parallel_operator_is_refused_with_one() -> None:
    with pytest.raises(PipelineError, match=r"test_cells.py:\d+: operator 'in' has parallelism 2.*--processes stages"):
        planned(parallel, "one")


def test_a_cell_never_has_the_name_of_an_operator() -> None:
    def build(pipeline: Pipeline) -> None:
        sink(numbers(pipeline, "one").key_by(lambda r: r["k"]).count("one-2"))

    assert [task.name for task in planned(build, "one").topology.tasks] == ["one-3/0"]


@pytest.mark.parametrize(
    ("build", "settings", "operator", "reason"),
    [
        (ordered, {}, "count", "ordered"),
        (placed, {}, "out", "its place admits other hosts"),
        (simple, {"standbys": "hot"}, "in", "sources have no hot standbys"),
        (simple, {"standbys": "hot:count"}, "count", "a hot standby of its own"),
    ],
)
def test_operators_that_do_not_share_a_process_are_explained(
    build: Build, settings: Mapping[str, Any], operator: str, reason: str
) -> None:
    described = planned(build, "one", **settings).describe()
    assert described["processes"] == "one"
    reasons = {each["operator"]: each["reason"] for each in described["apart"]}
    assert reason in reasons[operator], reasons


def test_stores_and_partitions_keep_their_names() -> None:
    one, apart = planned(two_sources, "one"), planned(two_sources, "per-task")
    accounts = [{each.topology.account(c) for c in each.topology.channels if c.target == -1} for each in (one, apart)]
    assert accounts == [{"out/0"}, {"out/0"}]
    assert one.topology.subtasks == apart.topology and one.sink_places() == apart.sink_places()
    assert [node.name for node in one.nodes(0)] == ["a", "b", "count", "out"]


# Descriptions of jobs.


@pytest.mark.parametrize("processes", ["per-task", "one", "stages"])
def test_a_description_of_a_job_contains_its_subtasks(processes: str, tmp_path: Path) -> None:
    topology = planned(two_sources, processes).topology
    blueprint = Blueprint(topology, constraints={"rest/0": Constraint("a")})
    blueprint.save(tmp_path)
    assert Blueprint.load(tmp_path) == blueprint
    assert Blueprint.load(tmp_path).topology.subtasks == topology.subtasks
    assert ("subtasks" in (tmp_path / "topology.json").read_text()) == (processes != "per-task")


def test_cells_that_do_not_form_the_tasks_are_refused(tmp_path: Path) -> None:
    parts = planned(two_sources, "per-task").topology
    grouped = Topology.grouped(parts, [("sources/0", (0, 1)), ("rest/0", (2, 3))])
    Blueprint(Topology(grouped.tasks, grouped.channels, (("sources/0", (0, 1)),), parts)).save(tmp_path)
    with pytest.raises(PipelineError, match="is damaged"):
        Blueprint.load(tmp_path)


# Events.


def records(chunks: Any, **facts: Any) -> Any:
    return Chunk(LISTED, len(chunks), chunks)


def timed(pipeline: Pipeline) -> None:
    for name in ("a", "b"):
        stream = numbers(pipeline, name).watermarks(f"marks-{name}", lambda r: float(r["at"]))
        sink(stream, f"out-{name}")


def test_the_end_of_a_subtask_reaches_another_task_before_the_cell_ends() -> None:
    chain = planned(timed, "stages").chain(0)
    services: Any = None
    first = chain.ended(0, services)
    assert [(ordinal, chunk.kind) for ordinal, chunk in first if chunk.kind == END] == [(0, END)]
    assert chain.ended_outputs() == frozenset((0,))
    second = planned(timed, "stages").chain(0)
    second.restore(parts_of(chain, full=True))
    assert second.ended_outputs() == frozenset((0,))
    assert [ordinal for ordinal, chunk in second.ended(1, services) if chunk.kind == END] == [1]
    assert second.finish(services) == []


def test_the_event_time_of_each_partition_is_reported() -> None:
    chain = planned(timed, "stages").chain(0)
    services: Any = None
    assert [chain.mark_ns(input) for input in (0, 1)] == [None, None]
    out = chain.deliver(1, [records([{"at": 7.0, "k": 0}])], 0, services)
    marks = [stamp_of(chunk) for _, chunk in out if chunk.kind == WATERMARK]
    assert [chain.mark_ns(0), chain.mark_ns(1)] == [None, marks[-1]]
    chain.ended(1, services)
    assert chain.mark_ns(1) is None, "an input that has ended delays no other"


def parts_of(chain: Any, full: bool, behind: str = "") -> list[bytes]:
    job = chain.snapshot(full, behind)
    while not job.step(3):
        continue
    parts = job.parts(b"cut")
    assert parts[0] == b"cut" and list(parts) == [parts[place] for place in range(len(parts))] == parts[0:]
    return list(parts[1:])


def counted(pipeline: Pipeline) -> None:
    keyed = numbers(pipeline).key_by(lambda r: r["k"]).count("first").key_by(lambda pair: pair[0])
    sink(keyed.count("second"))


def rows(out: Any) -> list[bytes]:
    return [bytes(chunk.body) for _, chunk in out]


def test_increments_restore_all_subtasks() -> None:
    def make() -> OperatorChain:
        return planned(counted, "one").chain(0)

    chain, follower = make(), make()
    services: Any = None
    for number, full in enumerate((True, False, True)):
        chain.deliver(0, [records([{"k": number, "at": 0}] * 2)], 0, services)
        parts = parts_of(chain, full, "digest" if number == 2 else "")
        changed = increment_of(parts[0], "digest")
        assert (changed is not None) == (number == 2)
        follower.restore(changed if changed is not None else parts)
    alone = make()
    alone.restore(parts)
    probe = [records([{"k": key, "at": 0} for key in range(3)])]
    expected = rows(chain.deliver(0, probe, 6, services))
    assert rows(follower.deliver(0, probe, 6, services)) == rows(alone.deliver(0, probe, 6, services)) == expected
    assert chain.inspect("second", 1) == follower.inspect("second", 1) != {}
    assert sorted(chain.kept_keys("first")) == [0, 1, 2]


def test_some_key_groups_of_an_operator_are_loaded() -> None:
    chain = planned(counted, "one").chain(0)
    services: Any = None
    chain.deliver(0, [records([{"k": 1, "at": 0}] * 2)], 0, services)
    loaded = planned(counted, "one").chain(0)
    loaded.restore_groups(parts_of(chain, True), range(128))
    assert loaded.inspect("first", 1) == chain.inspect("first", 1)
    none = planned(counted, "one").chain(0)
    none.restore_groups(parts_of(chain, True), ())
    assert list(none.kept_keys("first")) == []


@pytest.mark.parametrize("damage", [lambda parts: [], lambda parts: parts[1:], lambda parts: [b"\x91\x01"]])
def test_a_snapshot_without_its_first_part_is_refused(damage: Callable[[list[bytes]], list[bytes]]) -> None:
    chain = planned(counted, "one").chain(0)
    with pytest.raises(CorruptData):
        planned(counted, "one").chain(0).restore(damage(parts_of(chain, True)))


def test_a_snapshot_of_other_subtasks_is_refused() -> None:
    with pytest.raises(CorruptData, match="contains first/0"):
        planned(simple, "one").chain(0).restore(parts_of(planned(counted, "one").chain(0), True))


# One meaning in every grouping.


@pytest.mark.parametrize("processes", ["per-task", "one", "stages"])
def test_a_change_of_a_record_downstream_does_not_change_it_upstream(processes: str) -> None:
    class Keep(Operator):
        def process(self, record: Any, ctx: Any) -> Any:
            kept = ctx.state.setdefault("kept", [])
            kept.append(record)
            yield {"seen": [each["seen"] for each in kept], "last": record}

    class Change(Operator):
        def process(self, record: Any, ctx: Any) -> Any:
            record["last"]["seen"] = "changed"
            yield record["seen"]

    pipeline = Pipeline("p", processes=processes)
    stream = numbers(pipeline).map("fresh", lambda r: {"seen": r["at"]}).key_by(lambda r: 0).process("keep", Keep())
    sink(stream.key_by(lambda r: 0).process("change", Change()))
    assert run(pipeline, {"in": [{"k": 0, "at": at} for at in range(4)]})["out"] == [
        [0],
        [0, 1],
        [0, 1, 2],
        [0, 1, 2, 3],
    ]


@pytest.mark.parametrize("processes", ["per-task", "one", "stages"])
def test_what_a_record_cannot_contain_is_refused_and_bytes_are_bytes(processes: str) -> None:
    pipeline = Pipeline("p", processes=processes)
    stream = numbers(pipeline).map("make", lambda r: {1, 2} if r["at"] == 1 else {"b": bytearray(b"x")})
    sink(
        stream.union(numbers(pipeline, "none").filter("no", lambda r: False)).map(
            "kind", lambda r: type(r["b"]).__name__
        )
    )
    result = run(pipeline, {"in": [{"at": 0}, {"at": 1}], "none": []}, on_error="dead-letter", batch=2)
    assert result["out"] == ["bytes"] and [each["operator"] for each in result["dead-letters"]] == ["make"]


def test_the_topology_of_subtasks_is_its_own_grouping() -> None:
    topology = planned(simple, "per-task").topology
    assert topology.subtasks is topology and topology.cells == ()
    assert [topology.subtask_channel(channel) for channel in topology.channels] == list(topology.channels)
    assert topology.subtasks_of(TaskIndex(1)) == (topology.tasks[1],)
