"""State of one graph as the state of another: every key where it belongs, timers in order, nothing twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from causal.checkpointing import Cut
from causal.errors import PipelineError
from causal.ids import OUTSIDE
from causal.values import decode
from operators import Operator, Pipeline
from operators.keys import key_group, task_of_group
from operators.plan import Plan, plan
from operators.rescaling import Rescaling, Saved
from tests.unit.operators.scene import NoSink, Services, config, listed, made, parts_of, source

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


def saved(found: Plan, parts: dict[str, Sequence[list[bytes]]]) -> list[Saved]:
    """All tasks at a barrier; those without parts in their first state."""
    told = []
    for task in found.topology.tasks:
        inputs = {channel.id: (7, 1, False) for channel in found.topology.inputs(task.index)}
        outputs: dict[int, tuple[int, int]] = {channel.id: (9, 2) for channel in found.topology.outputs(task.index)}
        files = parts.get(task.name) or [parts_of(found.chain(task.index), True)]
        told.append(Saved(task, Cut(4, inputs, outputs, 11), tuple(map(tuple, files))))
    return told


def fed(found: Plan, name: str, batches: Sequence[list[Any]]) -> list[list[bytes]]:
    """The files of a keyed task that was given these batches of its own keys, a checkpoint behind each."""
    task = found.topology.named(name)
    assert task is not None
    chain = found.chain(task.index)
    files = []
    for place, batch in enumerate(batches):
        if batch:
            chain.deliver(0, listed(batch), 0, Services())
        files.append(parts_of(chain, place == 0))
    return files


def rescaled(before: Plan, told: list[Saved], after: Plan, allow: bool = False) -> Rescaling:
    return Rescaling(before.topology, told, after, GROUPS, allow)


def owned(batch: Sequence[Any], index: int, parallelism: int) -> list[Any]:
    return [key for key in batch if task_of_group(key_group(key, GROUPS), parallelism, GROUPS) == index]


keys = st.one_of(st.integers(0, 30), st.sampled_from(["a", "b", ("c", 1), 2.5, b"d"]))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(keys, max_size=12), min_size=1, max_size=4), st.integers(1, 4), st.integers(1, 5))
def test_every_key_goes_on_where_its_group_is_now(batches: list[list[Any]], old: int, new: int) -> None:
    before, after = planned(old), planned(new)
    parts = {f"ring/{i}": fed(before, f"ring/{i}", [owned(batch, i, old) for batch in batches]) for i in range(old)}
    chains = rescaled(before, saved(before, parts), after).chains()
    rang: dict[Any, int] = {}
    for index in range(new):
        task = after.topology.named(f"ring/{index}")
        assert task is not None
        chain = after.chain(task.index)
        chain.restore(chains[task.name])
        for key, count in made(chain.fire(6_000_000_000_000, Services())):
            assert owned([key], index, new) == [key] and key not in rang
            rang[key] = count
    flat = [key for batch in batches for key in batch]
    assert rang == {key: flat.count(key) for key in flat}


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
    told = saved(before, {})
    for each in told:
        if each.task.name.startswith("in/"):
            each.cut.finished = True
            each.cut.inputs = dict.fromkeys(each.cut.inputs, (7, 1, True))
    cuts = rescaled(before, told, after).cuts({"out/0": (0, 0), "out/1": (0, 0), "out/2": (0, 0)})
    assert cuts["in/0"].finished and all(ended for _, _, ended in cuts["in/0"].inputs.values())
    assert all(ended for _, _, ended in cuts["ring/2"].inputs.values()) and not cuts["ring/2"].finished


def test_a_partition_that_had_ended_says_so_again_to_a_task_that_goes_on() -> None:
    before, after = planned(2), planned(2)
    told = saved(before, {})
    told[0].cut.inputs = dict.fromkeys(told[0].cut.inputs, (7, 1, True))
    cuts = rescaled(before, told, after).cuts({"out/0": (0, 0), "out/1": (0, 0)})
    assert [where[0] for where in cuts["in/0"].inputs.values()] == [6]


def test_state_that_has_no_operator_any_more_is_refused_or_left() -> None:
    before = planned(2)
    after = planned(2, lambda stream, parallelism: stream.key_by(lambda r: r).count("other", parallelism=parallelism))
    told = saved(before, {"ring/0": fed(before, "ring/0", [owned(list(range(9)), 0, 2)])})
    with pytest.raises(PipelineError, match="state 'ring' of operator 'ring'.*--allow-dropped-state"):
        rescaled(before, told, after)
    assert set(rescaled(before, told, after, allow=True).chains()) == {task.name for task in after.topology.tasks}


def test_an_operator_whose_state_is_empty_may_go() -> None:
    after = planned(2, lambda stream, parallelism: stream.key_by(lambda r: r).count("other", parallelism=parallelism))
    before = planned(2)
    assert rescaled(before, saved(before, {}), after).chains()


def test_state_per_task_keeps_its_tasks() -> None:
    def alone(stream: Any, parallelism: int) -> Any:
        return stream.key_by(lambda r: r).count("c", parallelism=parallelism).process("alone", Ringing())

    before = planned(2, alone)
    told = saved(before, {"alone/0": fed(before, "alone/0", [owned(list(range(9)), 0, 2)])})
    assert rescaled(before, told, planned(2, alone)).chains()
    with pytest.raises(PipelineError, match="operator 'alone' keeps state per task; it cannot go from 2 tasks to 3"):
        rescaled(before, told, planned(3, alone)).chains()


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
