"""An operator that is new at a savepoint knows which inputs had ended by then, and waits for no idle one forever."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest

from causal.records.batch import WATERMARK, stamp_of, watermark
from operators import BroadcastOperator, Operator, Pipeline
from operators.engine.plan import Plan, plan
from operators.kinds.windows.aggregates import Count
from operators.kinds.windows.assigners import Tumbling
from tests.unit.operators.scene import NoSink, Services, config, parts_of, records_chunk, records_in, source
from tests.unit.operators.test_rescaling import GROUPS, rescaled, saved

S = 1_000_000_000
Build = Callable[[Any, Any], Any]


class Ruled(BroadcastOperator):
    """Each record, and how many rules there are."""

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        yield (record, len(ctx.broadcast))

    def process_broadcast(self, record: Any, ctx: Any) -> None:
        ctx.broadcast[record[0]] = record


PASSING: Any = type("Passing", (Operator,), {"process": lambda self, record, ctx: [record]})


def key_of(record: Any) -> Any:
    return record[0]


def time_of(record: Any) -> Any:
    return record[1]


def joined(wait: bool) -> Build:
    return lambda left, right: left.key_by(key_of).join_table(
        "new", right.key_by(key_of).table("rows"), how="left", wait=wait
    )


def ruled(wait: bool) -> Build:
    return lambda left, right: left.key_by(key_of).broadcast("new", right, Ruled(), wait=wait)


def nothing(left: Any, right: Any) -> Any:
    return left.key_by(key_of).join_table("old", right.key_by(key_of).table("rows"), how="left")


def united(left: Any, right: Any) -> Any:
    return left.union(right).process("both", PASSING())


def marked(left: Any, right: Any) -> Any:
    return united(left, right).watermarks("new", time_of)


def planned(build: Build, timed: bool = False) -> Plan:
    pipeline = Pipeline("test")
    left, right = (pipeline.source(name, source()) for name in ("L", "R"))
    if timed:
        left, right = left.watermarks("lw", time_of), right.watermarks("rw", time_of)
    build(left, right).sink("out", NoSink())
    return plan(pipeline, config(key_groups=GROUPS))


def upgraded(before: Plan, after: Plan, ended: str | None = "R") -> dict[str, Any]:
    """Return the chains of the new plan by task; the source that is named had ended, and the table of its rows."""
    tasks = saved(before, {})
    for each in tasks:
        if ended in each.task.operators or (ended == "R" and "rows" in each.task.operators):
            each.cut.finished = True
            each.cut.inputs = dict.fromkeys(each.cut.inputs, (7, 1, True))
    parts = rescaled(before, tasks, after, allow=True).chains()
    chains = dict[str, Any]()
    for task in after.topology.tasks:
        if task.name != "out/0":
            chains[task.name] = after.chain(task.index)
            chains[task.name].restore(parts[task.name])
    return chains


def input_of(job_plan: Plan, sender: str) -> int:
    """Return the input of the new task from that sender."""
    topology = job_plan.topology
    [reader] = [each for each in topology.tasks if each.name == "new/0"]
    senders = [topology.tasks[channel.source].operators for channel in topology.inputs(reader.index)]
    return next(place for place, operators in enumerate(senders) if sender in operators)


@pytest.mark.parametrize("build", [joined, ruled])
@pytest.mark.parametrize("before", [nothing, joined(False), ruled(False)], ids=["new", "joined", "ruled"])
def test_a_record_does_not_wait_for_a_side_that_had_ended(build: Callable[[bool], Build], before: Build) -> None:
    plans = planned(before), planned(build(True))
    try:
        chain = upgraded(*plans)["new/0"]
    except Exception as problem:  # another kind of the same name
        assert "'new' was a" in str(problem) and before is not nothing
        return
    out = chain.deliver(input_of(plans[1], "L"), [records_chunk([(1, 5)])], 0, Services())
    assert len(records_in(out)) == 1


@pytest.mark.parametrize("build", [joined, ruled])
def test_a_record_waits_for_a_side_that_has_not_ended(build: Callable[[bool], Build]) -> None:
    plans = planned(nothing), planned(build(True))
    chain, services = upgraded(*plans, ended=None)["new/0"], Services()
    assert not chain.deliver(input_of(plans[1], "L"), [records_chunk([(1, 5)])], 0, services)
    assert len(records_in(chain.ended(input_of(plans[1], "rows" if build is joined else "R"), services))) == 1


def test_watermarks_that_are_new_wait_for_no_input_that_had_ended() -> None:
    plans = planned(united), planned(marked)
    out = upgraded(*plans)["new/0"].deliver(input_of(plans[1], "L"), [records_chunk([(1, 5)])], 0, Services())
    assert [stamp_of(chunk) for _, chunk in out if chunk.kind == WATERMARK] == [5 * S]


def test_a_task_that_is_new_waits_for_no_input_that_had_ended() -> None:
    def windows(left: Any, right: Any) -> Any:
        return left.union(right).key_by(key_of).window("new", Tumbling(10), Count())

    def none(left: Any, right: Any) -> Any:
        return left.union(right).key_by(key_of).count("old")

    plans = planned(none, timed=True), planned(windows, timed=True)
    chain = upgraded(*plans)["new/0"]
    place = input_of(plans[1], "L")
    chain.deliver(place, [records_chunk([(1, 5)])], 0, Services())
    out = chain.deliver(place, [watermark(20 * S)], 1, Services())
    assert records_in(out) == [(1, 1, 0.0, 10.0)]


def test_an_input_that_is_idle_says_so_again_to_an_operator_that_is_new() -> None:
    def idle(*more: str) -> Build:
        def build(left: Any, right: Any) -> Any:
            right = right.watermarks("rw", time_of, idle_after_s=1)
            stream = left.watermarks("lw", time_of).union(right).key_by(key_of)
            for name in more:
                stream.window(name, Tumbling(10), Count()).sink(f"out-{name}", NoSink())
            return stream.count("old")

        return build

    before, after = planned(idle()), planned(idle("new"))
    reading, later = (next(each for each in of.topology.tasks if "rw" in each.operators) for of in (before, after))
    reader, again = before.chain(reading.index), after.chain(later.index)
    services, times_ns = Services(), iter(range(S // 4, 100 * S, S // 4))

    def ten_seconds(chain: Any) -> set[int]:
        """Return the outputs on which there are watermarks."""
        outputs = [output for at_ns in islice(times_ns, 40) for output in chain.fire(at_ns, services)]
        return {ordinal for ordinal, chunk in outputs if chunk.kind == WATERMARK}

    ten_seconds(reader)
    parts = rescaled(before, saved(before, {reading.name: [parts_of(reader, True)]}), after).chains()
    again.restore(parts[later.name])
    assert len(ten_seconds(again)) == 2, "both readers hear that it is idle"
