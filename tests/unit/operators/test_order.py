"""`delivery="ordered"`: one total order by event time, whatever arrives when, whatever dies; FlameStream's Table II."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.errors import PipelineError
from causal.ports import Chain
from causal.records.batch import RECORDS, decode_records, watermark
from operators import Operator, Pipeline
from operators.engine.plan import Plan, plan
from operators.testing import every_crash, run
from operators.testing.running import world_of
from tests.unit.operators.scene import (
    NoSink,
    Services,
    chain_of,
    config,
    first_field,
    parts_of,
    records_chunk,
    records_in,
    source,
)

S = 1_000_000_000


def second(record: Any) -> Any:
    return record[1]


class Say(Operator):
    """Gives each record on, numbered per key."""

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        yield (*record, ctx.key, ctx.state["n"])


def planned(build: Callable[[Any], Any], parallelism: int = 2) -> Plan:
    pipeline = Pipeline("test")
    stream = pipeline.source("in", source(parallelism), parallelism=parallelism).watermarks("time", second)
    build(stream).sink("out", NoSink())
    return plan(pipeline, config())


def unkeyed() -> Chain:
    return chain_of(planned(lambda s: s.process("say", Say(), parallelism=1, delivery="ordered")), "say/0")


def keyed() -> Chain:
    return chain_of(planned(lambda s: s.key_by(first_field).process("say", Say(), 1, "ordered")), "say/0")


# What the chain does with what the core gives it.

sequences = st.lists(st.lists(st.integers(0, 6), max_size=8), min_size=2, max_size=2)


def deliver(chain: Chain, input: int, first: int, records: Sequence[Any], mark: float | None = None) -> list[Any]:
    chunks = [records_chunk(records)] if records else []
    if mark is not None:
        chunks.append(watermark(round(mark * S)))
    return records_in(chain.deliver(input, chunks, first, Services()))


@given(sequences, st.randoms(use_true_random=False), st.booleans(), st.booleans())
def test_the_order_is_time_then_channel_then_position(steps: Any, chance: Any, by_key: bool, restore: bool) -> None:
    """Steps are how much later than the one before each record is; marks follow, and batches are cut anywhere."""
    make = keyed if by_key else unkeyed
    chain, entered, records = make(), list[tuple[int, int, int]](), list[Any]()
    queues = []
    for input, more in enumerate(steps):
        at, queue = 0, []
        for position, step in enumerate(more):
            at += step
            queue.append(("abc"[(at + position - input) % 3], at, input, position))
            entered.append((at, input, position))
        queues.append(queue)
    places = [0, 0]
    while any(queues):
        input = chance.choice([each for each in (0, 1) if queues[each]])
        count = chance.randint(1, len(queues[input]))
        batch, queues[input] = queues[input][:count], queues[input][count:]
        mark = batch[-1][1] if chance.random() < 0.7 else None
        records += deliver(chain, input, places[input], batch, mark)
        places[input] += count + (mark is not None)
        if restore and chance.random() < 0.3:
            parts, chain = parts_of(chain, True), make()
            chain.restore(parts)
    records += records_in(chain.ended(0, Services())) + records_in(chain.ended(1, Services()))
    assert [record[1:4] for record in records] == sorted(entered)
    numbers: dict[Any, int] = {}
    for record in records:
        numbers[record[4]] = numbers.get(record[4], 0) + 1
        assert record[4] == (record[0] if by_key else None)
        assert record[5] == numbers[record[4]], "the operator saw them in this order"


def test_a_record_is_released_by_the_first_mark_above_it() -> None:
    chain = unkeyed()
    assert deliver(chain, 0, 0, [("a", 5)], 5) == []
    assert deliver(chain, 1, 0, [("b", 4)], 4) == []
    assert deliver(chain, 1, 2, [("c", 5)], 5) == [("b", 4, None, 1)]
    assert deliver(chain, 0, 2, [], 6) == []
    assert deliver(chain, 1, 4, [], 7) == [("a", 5, None, 2), ("c", 5, None, 3)]


def test_late_is_what_is_below_its_own_channels_mark_and_goes_aside() -> None:
    pipeline = Pipeline("test")
    stream = pipeline.source("in", source(2), parallelism=2).watermarks("time", second)
    stream.process("say", Say(), 1, "ordered").sink("out", NoSink())
    pipeline.stream("say").side("late").sink("late-out", NoSink())
    chain = chain_of(plan(pipeline, config()), "say/0")
    assert deliver(chain, 0, 0, [("a", 5)], 5) == []
    outputs = chain.deliver(0, [records_chunk([("late", 4), ("b", 6), ("late", 3)])], 2, Services())
    assert [decode_records(chunk.body) for _, chunk in outputs if chunk.kind == RECORDS] == [[("late", 4), ("late", 3)]]
    assert deliver(chain, 1, 0, [("c", 3)]) == [], "the other channel is not that far"
    assert chain.counts() == {"say": {"late": 2}}
    assert [record[0] for record in deliver(chain, 1, 1, [], 9)] == ["c"]


def test_after_idleness_late_is_also_what_is_below_what_was_released() -> None:
    chain = unkeyed()
    deliver(chain, 1, 0, [("b", 2)], 2)
    deliver(chain, 0, 0, [("a", 5)], 9)
    chain.deliver(1, [watermark(-(1 << 63))], 2, Services())
    assert deliver(chain, 1, 3, [("c", 3), ("d", 9)]) == []
    assert chain.counts() == {"say": {"late": 1}}
    assert [record[0] for record in deliver(chain, 1, 5, [], 12)] == []
    assert [record[0] for record in deliver(chain, 0, 2, [], 12)] == ["d"]


def test_what_is_held_belongs_to_its_key_and_can_be_asked_for() -> None:
    chain = keyed()
    deliver(chain, 0, 0, [("a", 5), ("b", 6), ("a", 7)])
    shown = chain.inspect("say", "a")
    assert [slot for slot, _ in shown["say:held"]] == [(5 * S, 0, 0), (7 * S, 0, 2)]
    assert chain.inspect("say", "z") == {}


class Stamp(Operator):
    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        yield (record[0], ctx.event_time())


@pytest.mark.parametrize("delivery", ["arrival", "ordered"])
def test_inputs_may_have_their_times_in_different_places(delivery: str) -> None:
    pipeline = Pipeline("stamps")
    left = pipeline.source("left", source()).watermarks("left-time", lambda r: r[1])
    right = pipeline.source("right", source()).watermarks("right-time", lambda r: r[2] / 10)
    left.union(right).process("stamp", Stamp(), 1, delivery).sink("out", NoSink())
    result = run(pipeline, {"left": [("a", 1), ("c", 3), ("d", 4)], "right": [("b", 0, 20), ("e", 0, 50)]})
    assert sorted(result["out"]) == [("a", 1.0), ("b", 2.0), ("c", 3.0), ("d", 4.0), ("e", 5.0)]
    assert delivery == "arrival" or result["out"] == sorted(result["out"])


# FlameStream's Table II (see docs/guarantees.md): strings a, c | b, d | e on two inputs, windows of two, concatenated.


class Concatenate(Operator):
    """The record before and this one."""

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        yield ctx.state.get("last", "") + record[0]
        ctx.state["last"] = record[0]


LEFT, RIGHT = [("a", 1), ("b", 3), ("e", 5)], [("c", 2), ("d", 4)]


def table_two(delivery: str) -> Pipeline:
    pipeline = Pipeline("table-two")
    left = pipeline.source("left", source()).watermarks("left-time", second)
    right = pipeline.source("right", source()).watermarks("right-time", second)
    left.union(right).process("concat", Concatenate(), 1, delivery).sink("out", NoSink())
    return pipeline


def story(rows: Sequence[str]) -> str:
    """Return the order in which elements were taken; rows that contradict one another have none."""
    for before, after in zip(rows, rows[1:], strict=False):
        assert after[0] == before[-1], f"{after!r} does not follow {before!r}"
    return "".join(row[-1] for row in rows)


INPUTS = {"left": LEFT, "right": RIGHT}


def test_by_arrival_no_output_contradicts_an_earlier_one_whoever_dies_when() -> None:
    stories = {}
    for seed in range(4):
        for crash in every_crash(table_two("arrival"), INPUTS, checkpoint_every=2, seed=seed):
            result = run(table_two("arrival"), INPUTS, crash=crash, checkpoint_every=2, seed=seed)
            taken = story(result["out"])
            assert sorted(taken) == list("abcde")
            assert [c for c in taken if c in "abe"] == list("abe") and taken.index("c") < taken.index("d")
            assert result.recoveries == 1
            stories[taken] = crash
    assert len(stories) > 1, "arrival was a choice"


def test_an_ordered_task_logs_no_order() -> None:
    logged = {}
    for delivery in ("arrival", "ordered"):
        world = world_of(table_two(delivery), INPUTS, {}, 1, 0.0, 0, 1, {})
        world.begin()
        world.run()
        tasks = {str(process.protocol.name): process.protocol for process in world.processes.values()}
        logged[delivery] = tasks["concat/0"].counters()["determinant_bytes"]
    assert logged["arrival"]["order"] > 0
    assert not any(logged["ordered"].values())


def test_timers_of_an_ordered_operator_replay_among_records_in_order() -> None:
    class Ticking(Operator):
        def process(self, record: Any, ctx: Any) -> Iterator[Any]:
            ctx.set_timer(ctx.now() + 0.5, "tick")
            yield record[0]

        def on_timer(self, name: str, ctx: Any) -> Iterator[Any]:
            yield f"tick {ctx.now():.1f}"

    pipeline = Pipeline("ticking")
    stream = pipeline.source("in", source(2), parallelism=2).watermarks("time", second)
    stream.process("tick", Ticking(), 1, "ordered").sink("out", NoSink())
    inputs = {"in": [[("a", 1), ("c", 3), ("e", 5), ("g", 7)], [("b", 2), ("d", 4), ("f", 6)]]}
    for seed, crash in enumerate(every_crash(pipeline, inputs, checkpoint_every=3)):
        result = run(pipeline, inputs, crash=crash, checkpoint_every=3, seed=seed)
        assert [row for row in result["out"] if len(row) == 1] == list("abcdefg")
        assert result.recoveries == 1


MISTAKES: list[tuple[Callable[[Pipeline, Any], object], str]] = [
    (
        lambda p, s: s.process("o", Say(), delivery="sorted"),
        "'o' has delivery 'sorted'; use \"arrival\" or \"ordered\"",
    ),
    (
        lambda p, s: s.process("o", Say(), delivery="ordered").sink("out", NoSink()),
        "delivery=\"ordered\" of 'o' needs event time on all its inputs, but 'in' has none; put .watermarks",
    ),
    (
        lambda p, s: (
            s.watermarks("t", second)
            .union(p.source("b", source()))
            .process("o", Say(), delivery="ordered")
            .sink("out", NoSink())
        ),
        "of 'o' needs event time on all its inputs, but 'b' has none",
    ),
    (
        lambda p, s: (
            s.watermarks("t", second).map("m", len).process("o", Say(), delivery="ordered").sink("out", NoSink())
        ),
        "nothing says where the records of 'm' have their time; put .timed",
    ),
]


@pytest.mark.parametrize(("mistake", "message"), MISTAKES)
def test_a_mistake_is_one_line_with_place_and_mend(mistake: Callable[[Pipeline, Any], object], message: str) -> None:
    pipeline = Pipeline("test")
    stream = pipeline.source("in", source())
    with pytest.raises(PipelineError, match=message) as caught:
        mistake(pipeline, stream)
        pipeline.check()
    assert str(caught.value).startswith(f"{__file__}:")
    assert "\n" not in str(caught.value)
