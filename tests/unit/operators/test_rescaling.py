"""State of one graph as the state of another: every key where it belongs, timers in order, nothing twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from causal.cut import Cut
from causal.errors import PipelineError
from causal.ids import OUTSIDE
from causal.records.batch import watermark
from causal.records.values import decode
from operators import Operator, Pipeline
from operators.engine.plan import Plan, plan
from operators.records.keys import key_group, task_of_group
from operators.runtime.regrouping import Saved
from operators.runtime.rescaling import Rescaling
from tests.unit.operators.scene import NoSink, Services, config, listed, parts_of, source

GROUPS = 16
Build = Callable[[Any, int], Any]


class Ringing(Operator):
    """Counts, and sets a timer for each key at the same moment: their numbers say who comes first."""

    def process(self, record: Any, ctx: Any) -> None:
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        ctx.set_timer(5000.0, "bell")

    def on_timer(self, name: str, ctx: Any) -> Iterator[Any]:
        yield (ctx.key, ctx.state["n"])


def ringing(stream: Any, parallelism: int) -> Any:
    return stream.key_by(lambda record: record).process("ring", Ringing(), parallelism=parallelism)


def planned(parallelism: int, build: Build = ringing, sources: int = 2) -> Plan:
    pipeline = Pipeline("test")
    build(pipeline.source("in", source(2), parallelism=sources), parallelism).sink(
        "out", NoSink(), parallelism=parallelism
    )
    return plan(pipeline, config(key_groups=GROUPS))


def saved(job_plan: Plan, parts: Mapping[str, Sequence[list[bytes]]]) -> list[Saved]:
    """Return all tasks at a barrier; those without parts in their first state."""
    saved_tasks = []
    for task in job_plan.topology.tasks:
        inputs: dict[int, tuple[int, int, bool]] = {
            channel.id: (7, 1, False) for channel in job_plan.topology.inputs(task.index)
        }
        outputs: dict[int, tuple[int, int]] = {channel.id: (9, 2) for channel in job_plan.topology.outputs(task.index)}
        files = parts.get(task.name) or [parts_of(job_plan.chain(task.index), True)]
        saved_tasks.append(Saved(task, Cut(4, inputs, outputs, 11), tuple(map(tuple, files))))
    return saved_tasks


def fed(job_plan: Plan, name: str, batches: Sequence[list[Any]]) -> list[list[bytes]]:
    """Return the files of a keyed task that got these batches of its own keys, a checkpoint after each."""
    task = job_plan.topology.named(name)
    assert task is not None
    chain = job_plan.chain(task.index)
    files = []
    for place, batch in enumerate(batches):
        if batch:
            chain.deliver(0, listed(batch), 0, Services())
        files.append(parts_of(chain, place == 0))
    return files


def rescaled(before: Plan, saved_tasks: list[Saved], after: Plan, allow: bool = False) -> Rescaling:
    return Rescaling(before.topology, saved_tasks, after, GROUPS, allow, lambda: nullcontext(before))


def owned(batch: Sequence[Any], index: int, parallelism: int) -> list[Any]:
    return [key for key in batch if task_of_group(key_group(key, GROUPS), parallelism, GROUPS) == index]


def test_where_tasks_begin() -> None:
    before, after = planned(2), planned(3)
    cuts = rescaled(before, saved(before, {}), after).cuts({"out/0": (9, 2), "out/1": (4, 4), "out/2": (0, 0)})
    for task in after.topology.tasks:
        cut = cuts[task.name]
        assert (cut.epoch, cut.last_ns, cut.finished) == (4, 11, False)
        for channel in after.topology.inputs(task.index):
            assert cut.inputs[channel.id] == ((7, 1, False) if channel.source == OUTSIDE else (0, 0, False))
    assert list(cuts["out/0"].outputs.values()) == [(9, 2)]
    assert all(not cuts[f"ring/{index}"].outputs for index in range(3))


def test_a_task_that_was_finished_stays_so_and_its_readers_wait_for_nothing() -> None:
    before, after = planned(2), planned(3)
    saved_tasks = saved(before, {})
    for each in saved_tasks:
        if each.task.name.startswith("in/"):
            each.cut.finished = True
            each.cut.inputs = dict.fromkeys(each.cut.inputs, (7, 1, True))
    cuts = rescaled(before, saved_tasks, after).cuts({"out/0": (0, 0), "out/1": (0, 0), "out/2": (0, 0)})
    assert cuts["in/0"].finished and all(ended for _, _, ended in cuts["in/0"].inputs.values())
    assert all(ended for _, _, ended in cuts["ring/2"].inputs.values()) and not cuts["ring/2"].finished


def test_a_task_that_is_new_behind_finished_ones_has_finished() -> None:
    def rings_late(stream: Any, parallelism: int) -> Any:
        return ringing(stream, parallelism).key_by(str).process("late", Ringing(), parallelism=2)

    before, after = planned(1), planned(1, rings_late)
    tasks = saved(before, {})
    finished = [Saved(each.task, replace(each.cut, finished=each.task.name != "out/0"), each.files) for each in tasks]
    cuts = rescaled(before, finished, after).cuts({"out/0": (9, 2)})
    assert {name: cut.finished for name, cut in cuts.items() if name.startswith("late")} == {
        "late/0": True, "late/1": True
    }  # fmt: skip
    running = rescaled(before, tasks, after).cuts({"out/0": (9, 2)})
    assert not any(cut.finished for cut in running.values())


def united(stream: Any, parallelism: int) -> Any:
    other = stream.pipeline.source("more", source(1))
    return ringing(stream.union(other), parallelism)


def test_an_input_that_is_new_to_a_task_that_had_finished_is_refused() -> None:
    before, after = planned(1), planned(1, united)
    tasks = saved(before, {})
    finished = [Saved(each.task, replace(each.cut, finished=each.task.name != "out/0"), each.files) for each in tasks]
    with pytest.raises(PipelineError, match="operator 'ring' had finished at the savepoint but now has an input"):
        rescaled(before, finished, after)


def test_a_task_that_waited_for_an_input_that_is_gone_is_refused() -> None:
    before, after = planned(1, united), planned(1)
    tasks = saved(before, {})
    finished = [
        Saved(each.task, replace(each.cut, finished=each.task.name.startswith("in/")), each.files) for each in tasks
    ]
    with pytest.raises(PipelineError, match="all inputs of operator 'ring' have ended.* a new name"):
        rescaled(before, finished, after, allow=True)


def test_a_partition_that_had_ended_says_so_again_to_a_task_that_goes_on() -> None:
    before, after = planned(2), planned(2)
    saved_tasks = saved(before, {})
    saved_tasks[0].cut.inputs = dict.fromkeys(saved_tasks[0].cut.inputs, (7, 1, True))
    cuts = rescaled(before, saved_tasks, after).cuts({"out/0": (0, 0), "out/1": (0, 0)})
    assert [where[0] for where in cuts["in/0"].inputs.values()] == [6]


def test_state_that_has_no_operator_any_more_is_refused_or_left() -> None:
    before = planned(2)
    after = planned(2, lambda stream, parallelism: stream.key_by(lambda r: r).count("other", parallelism=parallelism))
    saved_tasks = saved(before, {"ring/0": fed(before, "ring/0", [owned(list(range(9)), 0, 2)])})
    with pytest.raises(
        PipelineError, match="state 'ring' of operator 'ring'.* names of renamed operators, .*--allow-dropped-state"
    ):
        rescaled(before, saved_tasks, after)
    assert set(rescaled(before, saved_tasks, after, allow=True).chains()) == {
        task.name for task in after.topology.tasks
    }


def test_an_operator_of_another_kind_does_not_take_the_state_of_its_name() -> None:
    before = planned(2)
    after = planned(3, lambda stream, parallelism: stream.key_by(lambda r: r).count("ring", parallelism=parallelism))
    saved_tasks = saved(before, {"ring/0": fed(before, "ring/0", [owned(list(range(9)), 0, 2)])})
    with pytest.raises(PipelineError, match="'ring' was a 'process' when .* is a 'count' now"):
        rescaled(before, saved_tasks, after, allow=True).chains()


def test_an_operator_whose_state_is_empty_may_go() -> None:
    after = planned(2, lambda stream, parallelism: stream.key_by(lambda r: r).count("other", parallelism=parallelism))
    before = planned(2)
    assert rescaled(before, saved(before, {}), after).chains()


def test_state_per_task_keeps_its_tasks() -> None:
    def alone(stream: Any, parallelism: int) -> Any:
        return stream.key_by(lambda r: r).count("c", parallelism=parallelism).process("alone", Ringing())

    before = planned(2, alone)
    saved_tasks = saved(before, {"alone/0": fed(before, "alone/0", [owned(list(range(9)), 0, 2)])})
    assert rescaled(before, saved_tasks, planned(2, alone)).chains()
    with pytest.raises(
        PipelineError, match="operator 'alone' keeps state per task, so its parallelism cannot change from 2 to 3"
    ):
        rescaled(before, saved_tasks, planned(3, alone)).chains()


class Still(Operator):
    """Has state and no timers."""

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        yield ctx.state["n"]


class Plain(Operator):
    """Has no state."""

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        yield record


def performed_by(operator: Operator, by_key: bool = True) -> Build:
    return lambda stream, parallelism: (stream.key_by(lambda r: r) if by_key else stream).process(
        "op", operator, parallelism=parallelism
    )


@pytest.mark.parametrize("by_key", [True, False])
def test_state_by_key_and_state_without_one_are_not_mistaken_for_each_other(by_key: bool) -> None:
    def upgraded(operator: Operator) -> Any:
        before, after = planned(1, performed_by(operator, by_key), 1), planned(1, performed_by(operator, not by_key), 1)
        name = next(str(task.name) for task in before.topology.tasks if "op" in task.operators)
        return rescaled(before, saved(before, {name: fed(before, name, [[1, 2, 3]])}), after).chains()

    assert upgraded(Plain()), "an operator without state may be changed freely"
    was, now = ("by key", "without a key") if by_key else ("without a key", "by key")
    with pytest.raises(PipelineError, match=f"'op' kept its state {was} at the savepoint, and would look for it {now}"):
        upgraded(Still())


def test_timers_of_an_operator_that_can_have_none_any_more_are_refused() -> None:
    before = planned(2, performed_by(Ringing()))
    after = planned(2, performed_by(Still()))
    assert rescaled(before, saved(before, {}), after).chains()
    saved_tasks = saved(before, {"op/0": fed(before, "op/0", [owned(list(range(9)), 0, 2)])})
    with pytest.raises(PipelineError, match="has timers of operator 'op', .* Still .* define on_timer"):
        rescaled(before, saved_tasks, after).chains()


def test_requests_of_several_tasks_go_to_one_and_are_numbered_anew() -> None:
    def asking(stream: Any, parallelism: int) -> Any:
        return stream.call("ask", lambda record, key: record)

    before, after = planned(1, asking), planned(1, asking, sources=1)
    parts = {f"ask/{index}": fed(before, f"ask/{index}", [[10 + index, 20 + index]]) for index in (0, 1)}
    chain = after.chain(0)
    chain.restore(rescaled(before, saved(before, parts), after).chains()["ask/0"])
    waiting = chain.outstanding()
    assert [decode(request.body)[0] for request in waiting] == [10, 11, 20, 21]
    assert len({request.number for request in waiting}) == 4
    chain.deliver(0, listed([5]), 0, Services())
    assert chain.asked()[0].number > max(request.number for request in waiting)


def test_requests_of_a_keyed_operator_are_where_their_key_is() -> None:
    def asking(stream: Any, parallelism: int) -> Any:
        keyed = stream.key_by(lambda record: record // 100)
        return keyed.call("ask", lambda record, key: record, parallelism=parallelism)

    before, after = planned(2, asking), planned(3, asking)
    records = [100 * key + number for number in range(4) for key in range(12)]
    names = [f"ask/{index}" for index in (0, 1)]
    mine = [[each for each in records if owned([each // 100], index, 2)] for index in (0, 1)]
    parts = {name: fed(before, name, [batch]) for name, batch in zip(names, mine, strict=True)}
    chains = rescaled(before, saved(before, parts), after).chains()
    for index in range(3):
        task = after.topology.named(f"ask/{index}")
        assert task is not None
        chain = after.chain(task.index)
        chain.restore(chains[task.name])
        waiting = [decode(request.body)[0] for request in chain.outstanding()]
        assert sorted(waiting) == sorted(each for each in records if owned([each // 100], index, 3))
        for key in {each // 100 for each in waiting}:
            of_key = [each for each in waiting if each // 100 == key]
            assert of_key == sorted(of_key)


def key_of(record: Any) -> Any:
    return record[0]


def timed(build: Build) -> Build:
    return lambda s, p: build(s.watermarks("time", lambda record: record[1], out_of_order_s=2.0), p)


def chains_of(job_plan: Plan) -> list[Any]:
    tasks = [task for task in job_plan.topology.tasks if "op" in task.operators]
    return [job_plan.chain(task.index) for task in tasks]


def test_a_source_that_asks_for_its_partitions_may_get_more() -> None:
    def of(partitions: int, asks: bool = True) -> Plan:
        pipeline = Pipeline("test")
        numbers = source(partitions)
        numbers.asks_partitions = asks
        pipeline.source("in", numbers, parallelism=min(2, partitions)).sink("out", NoSink())
        return plan(pipeline, config(key_groups=GROUPS))

    before, after = of(2), of(3)
    saved_tasks = saved(before, {})
    for each in saved_tasks:
        each.cut.places = {channel: 70 + channel for channel in each.cut.inputs if channel < 2}
    rescaling = rescaled(before, saved_tasks, after)
    assert rescaling.places() == {("in", 0): (7, 70), ("in", 1): (7, 71), ("in", 2): (0, None)}
    rescaling.chains()
    cuts = rescaling.cuts({"out/0": (0, 0)})
    assert [dict(cuts[name].places) for name in ("in/0", "in/1")] == [{0: 70}, {1: 71}]
    for fewer_or_fixed in (of(1), of(3, asks=False)):
        with pytest.raises(PipelineError, match="the number of partitions of source 'in' was 2"):
            rescaled(before, saved(before, {}), fewer_or_fixed)


@pytest.mark.parametrize("tasks", [1, 2])
@pytest.mark.parametrize("by_key", [True, False])
def test_what_an_operator_had_passed_is_late_once_its_records_are_ordered(by_key: bool, tasks: int) -> None:
    # An operator without a key was in the task of its source, whose inputs have no watermarks.
    def of(ordered: bool) -> Build:
        def build(stream: Any, parallelism: int) -> Any:
            if ordered:
                other = stream.pipeline.source("more", source(1))
                stream = stream.union(other.watermarks("more-time", lambda record: record[1]))
            stream = stream.key_by(key_of) if by_key else stream
            delivery = "ordered" if ordered else "arrival"
            return stream.process("op", Plain(), delivery=delivery, parallelism=parallelism)

        return timed(build)

    before, after = planned(tasks, of(False), sources=tasks), planned(tasks, of(True), sources=tasks)
    names = [str(task.name) for task in before.topology.tasks if "op" in task.operators]
    reaching = watermark(8 * 10**9) if by_key else listed([(1, 10.0)])[0]
    parts = {}
    for name in names:
        task = before.topology.named(name)
        assert task is not None
        chain = before.chain(task.index)
        for number, _ in enumerate(before.topology.inputs(task.index)):
            chain.deliver(number, [reaching], 0, Services())
        parts[name] = [parts_of(chain, True)]
    chains = rescaled(before, saved(before, parts), after).chains()
    for task in after.topology.tasks:
        if "op" in task.operators:
            for number, _ in enumerate(after.topology.inputs(task.index)):
                chain = after.chain(task.index)
                chain.restore(chains[task.name])
                chain.deliver(number, listed([(1, 7.0), (1, 9.0)]), 0, Services())
                assert chain.counts() == {"op": {"late": 1}}, f"input {number} of {task.name}"
