"""Operators change records, route them, and encode them as they leave."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from causal.records.batch import RECORDS, ROWS, WATERMARK, decode_records, stamp_of, watermark
from operators import Operator, Pipeline
from operators.engine.plan import plan
from operators.records.cutting import CHUNK_BYTES_TARGET
from operators.records.keys import key_group, task_of_group
from operators.stage.routing import KEYS_CACHED_MAX, KeyedRoute
from tests.unit.operators.scene import (
    NoSink,
    Services,
    chain_of,
    config,
    first_field,
    give,
    keyed,
    listed,
    parts_of,
    planned,
    records_chunk,
    records_in,
    source,
)  # fmt: skip

PAIRS = [("a", 1), ("b", 2), ("a", 3)]


class Calls(Operator):
    """Gives what a function of (record, ctx) returns."""

    def __init__(self, fn: Callable[[Any, Any], Any]) -> None:
        self._fn = fn

    def process(self, record: Any, ctx: Any) -> Any:
        return self._fn(record, ctx)


def sums(record: Any, ctx: Any) -> Any:
    ctx.state["sum"] = ctx.state.get("sum", 0) + record[1]
    return [{"key": ctx.key, "sum": ctx.state["sum"]}]


def summing(stream: Any) -> Any:
    return stream.process("sum", Calls(sums))


class SumOfBatch(Operator):
    def process_batch(self, records: Any, keys: Any, ctx: Any) -> Any:
        for record, state in zip(records, ctx.states(keys), strict=True):
            state["sum"] = state.get("sum", 0) + record[1]
        return [{"key": key, "sum": state["sum"]} for key, state in zip(keys, ctx.states(keys), strict=True)]


def test_process_batch_gets_all_at_once() -> None:
    chain = keyed(lambda s: s.process("sum", SumOfBatch()), "sum/0")
    assert give(chain, PAIRS) == [{"key": "a", "sum": 4}, {"key": "b", "sum": 2}, {"key": "a", "sum": 4}]


def test_without_key_by_there_is_one_state_per_task() -> None:
    assert give(chain_of(planned(summing), "sum/0"), PAIRS)[-1] == {"key": None, "sum": 6}


def test_tasks_do_not_share_their_operator() -> None:
    class Named(Operator):
        name = ""

        def open(self, ctx: Any) -> None:
            self.name = ctx.task

        def process(self, record: Any, ctx: Any) -> Any:
            yield self.name

    job_plan = planned(lambda s: s.key_by(first_field).process("named", Named(), parallelism=2))
    one, two = chain_of(job_plan, "named/0"), chain_of(job_plan, "named/1")
    assert (give(one, PAIRS)[0], give(two, PAIRS)[0], give(one, PAIRS)[0]) == ("named/0", "named/1", "named/0")


def test_what_was_yielded_does_not_change_with_the_state() -> None:
    def grows(record: Any, ctx: Any) -> Any:
        ctx.state.setdefault("all", []).append(record[1])
        ctx.state["n"] = len(ctx.state["all"])
        yield ctx.state
        yield ctx.state["all"]
        yield (ctx.state["all"], 1)
        yield {"all": ctx.state["all"]}

    one, two = [("k", 1)], [("k", 2)]
    apart, together = (keyed(lambda s: s.process("g", Calls(grows)), "g/0") for _ in "12")
    assert give(together, one + two) == give(apart, one) + give(apart, two)


def test_a_branch_does_not_see_what_another_does_to_its_records() -> None:
    def spoil(record: Any) -> Any:
        record["inner"].append("spoilt")
        record["v"] = 0
        return record

    pipeline = Pipeline("test")
    begin = pipeline.source("in", source())
    begin.map("spoil", spoil).sink("one", NoSink())
    begin.map("again", spoil).sink("two", NoSink())
    begin.sink("three", NoSink())
    chain = chain_of(plan(pipeline, config()), "again/0")
    outputs = chain.deliver(0, listed([{"v": 1, "inner": []}]), 0, Services())
    assert [decode_records(chunk.body)[0] for _, chunk in outputs] == [
        {"v": 0, "inner": ["spoilt"]},
        {"v": 0, "inner": ["spoilt"]},
        {"v": 1, "inner": []},
    ]


def test_a_record_goes_to_the_task_that_owns_its_key() -> None:
    chain = chain_of(planned(lambda s: s.key_by(lambda r: r).count("n", parallelism=3)), "in/0")
    records = [*range(100), *map(str, range(50)), True, 1.0]
    outputs = chain.deliver(0, listed(records), 0, Services())
    assert [ordinal for ordinal, _ in outputs] == [0, 1, 2]
    for ordinal, chunk in outputs:
        expected = [r for r in records if task_of_group(key_group(r, 128), 3, 128) == ordinal]
        assert decode_records(chunk.body) == expected
        assert chunk.count == len(expected)


def test_a_route_forgets_keys_beyond_its_bound() -> None:
    route = KeyedRoute("n", [0, 1], lambda r: r, 128)
    records = list(range(KEYS_CACHED_MAX + 10))
    route.add(records, lambda index, key, problem: pytest.fail(str(problem)))
    assert len(route._appends) == 10
    assert sorted(record for _, bucket in route.drain() for record in bucket) == records
    assert route.drain() == []


def test_each_task_in_turn_when_there_is_no_key() -> None:
    job_plan = planned(lambda s: s.map("m", abs).process("p", Calls(sums), parallelism=3))
    chain = chain_of(job_plan, "m/0")
    outputs = chain.deliver(0, listed([0, 1, 2, 3]), 0, Services())
    assert [decode_records(chunk.body) for _, chunk in outputs] == [[0, 3], [1], [2]]
    again = chain_of(job_plan, "m/0")
    again.restore(parts_of(chain))
    for other in (chain, again):
        outputs = other.deliver(0, listed([4, 5]), 0, Services())
        assert [(ordinal, decode_records(chunk.body)) for ordinal, chunk in outputs] == [(1, [4]), (2, [5])]


def test_one_chunk_per_channel_and_event_with_the_oldest_origin() -> None:
    chain = chain_of(planned(lambda s: s.map("m", abs)), "m/0")
    chunks = [records_chunk([1], 70), records_chunk([2], 0), records_chunk([3], 50)]
    ((ordinal, chunk),) = chain.deliver(0, chunks, 0, Services())
    assert (ordinal, chunk.kind, chunk.count, chunk.origin_ns) == (0, RECORDS, 3, 50)
    assert decode_records(chunk.body) == [1, 2, 3]


def test_how_records_were_cut_into_chunks_does_not_show() -> None:
    def outputs(*cuts: list[Any]) -> list[Any]:
        return keyed(summing, "sum/0").deliver(0, [records_chunk(cut) for cut in cuts], 0, Services())

    assert outputs(PAIRS) == outputs(PAIRS[:1], PAIRS[1:])


def test_an_empty_output_makes_no_chunk() -> None:
    chain = chain_of(planned(lambda s: s.filter("none", lambda r: False)), "none/0")
    assert chain.deliver(0, listed([1, 2]), 0, Services()) == []


def test_watermarks_follow_the_slowest_input() -> None:
    pipeline = Pipeline("test")
    one, two = pipeline.source("one", source()), pipeline.source("two", source())
    one.union(two).map("both", abs).sink("out", NoSink())
    job_plan = plan(pipeline, config(on_error="dead-letter"))
    chain = chain_of(job_plan, "both/0")

    def marks(chain: Any, input: int, *times: int) -> list[tuple[int, int]]:
        chunks = [watermark(time_ns) for time_ns in times]
        outputs = chain.deliver(input, [*chunks, records_chunk([1])], 0, Services())
        assert outputs[0][1].kind == RECORDS
        return [(ordinal, stamp_of(chunk)) for ordinal, chunk in outputs if chunk.kind == WATERMARK]

    assert marks(chain, 0, 10, 5) == []
    assert marks(chain, 1, 7) == [(0, 7)]
    restored = chain_of(job_plan, "both/0")
    restored.restore(parts_of(chain))
    for other in (chain, restored):
        assert marks(other, 0, 12) == []
        assert marks(other, 1, 20) == [(0, 12)]
        assert marks(other, 1, 19) == []


def test_a_sink_makes_rows() -> None:
    chain = chain_of(planned(lambda s: s), "out/0")
    chunks = [records_chunk([{"a": 1}], 3), watermark(1), records_chunk([2])]
    ((ordinal, chunk),) = chain.deliver(0, chunks, 0, Services())
    assert (ordinal, chunk.kind, chunk.count, chunk.origin_ns) == (0, ROWS, 2, 3)
    assert [json.loads(line) for line in chunk.body.splitlines()] == [{"a": 1}, 2]
    assert chain.deliver(0, [watermark(1)], 2, Services()) == []
    assert (chain.next_timer_ns(), chain.fire(1, Services()), chain.finish(Services())) == (None, [], [])
    restored = chain_of(planned(lambda s: s), "out/0")
    restored.restore(parts_of(chain))
    assert records_in(restored.finish(Services())) == []


def widened(size: int, records: int, wide: Callable[[int], bool] = lambda number: True) -> list[Any]:
    """Return what a task sends that widens records, all of them or some, by this many bytes."""
    widen = Calls(lambda record, ctx: [(record[1], bytes(size if wide(record[1]) else 1))])
    chain = keyed(lambda stream: stream.process("wide", widen), "wide/0")
    return list(chain.deliver(0, [records_chunk([(n % 3, n) for n in range(records)])], 0, Services()))


def test_what_is_too_much_for_a_chunk_is_cut_by_content_alone() -> None:
    outputs, again = widened(500_000, 40), widened(500_000, 40)
    assert len(outputs) > 3 and [chunk.body for _, chunk in outputs] == [chunk.body for _, chunk in again]
    assert all(chunk.size <= CHUNK_BYTES_TARGET for _, chunk in outputs)
    assert [number for number, _ in records_in(outputs)] == list(range(40))


def test_one_record_that_is_large_travels_alone() -> None:
    assert [chunk.count for _, chunk in widened(6 << 20, 3)] == [1, 1, 1]


def test_a_giant_among_many_is_there_a_few_times_only() -> None:
    """However often the batch around it has to be cut."""
    giant = 8 << 20
    traced = tracemalloc.is_tracing()
    tracemalloc.start()
    tracemalloc.reset_peak()  # another tool may be tracing already
    before, _ = tracemalloc.get_traced_memory()
    try:
        outputs = widened(giant, 1000, lambda number: number == 500)
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        if not traced:
            tracemalloc.stop()
    assert [chunk.count for _, chunk in outputs] == [500, 1, 499]
    assert peak < 5 * giant  # the record, its buffer, its body and that body after its tag
