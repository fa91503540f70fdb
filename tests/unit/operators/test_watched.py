"""Records are announced when their stage takes them, each once, and nothing else about a replay changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from causal.config import JobConfig
from causal.records.batch import LISTED, Chunk, watermark
from operators import Operator, Pipeline
from operators.engine.plan import plan
from operators.replay.watched import Arriving, watch
from operators.sinks import JsonLinesSink
from operators.sources import GeneratedSource

CONFIG = JobConfig(run="r", name="job", pipeline="/p.py")


class Closed:
    """Services of a pipeline that asks nothing."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} is asked for")


class Summed(Operator):
    """Adds the records of a key; one in ten raises."""

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        SEEN.append(("process", record, ctx.state.get("sum", 0)))
        ctx.state["sum"] = ctx.state.get("sum", 0) + record
        yield ctx.state["sum"]


SEEN: list[tuple[Any, ...]] = []


def chains() -> tuple[Any, Any]:
    SEEN.clear()

    def doubled(record: int) -> int:
        SEEN.append(("map", record))
        return 2 * record

    pipeline = Pipeline("p")
    read = pipeline.source("read", GeneratedSource(lambda partition, position: position, count=0))
    keyed = read.map("double", doubled).filter("most", lambda r: r % 10 != 4).key_by(lambda r: r % 4)
    keyed.process("sum", Summed()).sink("out", JsonLinesSink(Path("/nowhere")))
    planned = plan(pipeline, CONFIG)
    tasks = {str(task.name): task.index for task in planned.topology.tasks}
    return planned.chain(tasks["most/0"]), planned.chain(tasks["sum/0"])


def noted(watched: list[Arriving], each: Arriving) -> None:
    watched.append(each)
    SEEN.append(("before", each.record))


def performed(watched: list[Arriving] | None) -> list[Any]:
    outputs: list[Any] = []
    for chain in chains():
        if watched is not None:
            watch(chain, "t/0", partial(noted, watched))
        outputs += chain.deliver(0, [Chunk(LISTED, 6, [1, 2, 3, 4, 5, 6])], 0, Closed())
    return outputs


def test_a_record_is_announced_before_it_is_processed_and_after_the_records_before_it() -> None:
    plain = performed(None)
    watched: list[Arriving] = []
    assert performed(watched) == plain
    sums = [each for each in SEEN if each[0] == "process"]
    assert [(record, before) for _, record, before in sums] == [(1, 0), (2, 0), (3, 0), (4, 0), (5, 1), (6, 2)]
    places = {each: place for place, each in enumerate(SEEN)}
    at = [place for place, each in enumerate(SEEN) if each[0] in ("map", "process")]
    assert all(SEEN[place - 1] == ("before", SEEN[place][1]) for place in at), places


def test_each_record_is_announced_once_with_its_key_and_context() -> None:
    watched: list[Arriving] = []
    performed(watched)
    arrived = [(each.operator, each.record, each.key) for each in watched if each.operator in ("double", "sum")]
    assert arrived == [("double", n, None) for n in range(1, 7)] + [("sum", n, n % 4) for n in range(1, 7)]
    assert {each.task for each in watched} == {"t/0"}
    assert [each.ctx is not None for each in watched if each.operator == "sum"] == [True] * 6


def test_a_batch_is_announced_also_if_its_stage_does_not_take_record_by_record(monkeypatch: pytest.MonkeyPatch) -> None:
    def at_once(self: Summed, records: list[int], keys: list[int], ctx: Any) -> list[int]:
        return [len(records)]

    monkeypatch.setattr(Summed, "process_batch", at_once, raising=False)
    watched: list[Arriving] = []
    plain, again = performed(None), performed(watched)
    assert plain == again
    assert [each.record for each in watched if each.operator == "sum"] == [1, 2, 3, 4, 5, 6]


class Reminding(Operator):
    """Sets a timer for each record, a second later."""

    def process(self, record: Any, ctx: Any) -> None:
        SEEN.append(("process", record))
        ctx.state["last"] = record
        ctx.set_timer(record + 1, "due", clock="event")

    def on_timer(self, name: str, ctx: Any) -> Iterator[Any]:
        SEEN.append(("timer", ctx.key))
        yield ctx.key, ctx.state["last"]

    def finish(self, ctx: Any) -> Iterator[Any]:
        SEEN.append(("end", ctx.key))
        yield ctx.key


def others(build: Callable[[Any], Any], deliver: Callable[[Any], list[Any]]) -> tuple[list[Any], list[Any]]:
    """Return what the last operator of a pipeline emits, with and without a watch of all events."""
    results = []
    for watching in (False, True):
        SEEN.clear()
        pipeline = Pipeline("p")
        read = pipeline.source("read", GeneratedSource(lambda partition, position: position, count=0))
        build(read).sink("out", JsonLinesSink(Path("/nowhere")))
        planned = plan(pipeline, CONFIG)
        chain = planned.chain(next(task.index for task in planned.topology.tasks if "last" in task.operators))
        if watching:
            note = partial(noted_with_kind, chain)
            watch(chain, "t/0", note, note)
        results.append(deliver(chain))
    return results[0], results[1]


def noted_with_kind(chain: Any, each: Arriving) -> None:
    if each.operator == "last":
        SEEN.append(("before", each.kind, each.record, each.key, bool(chain.inspect("last", each.key))))


def times(*times_s: int) -> list[Any]:
    return [Chunk(LISTED, len(times_s), list(times_s))]


@pytest.mark.parametrize("delivery", ["arrival", "ordered"])
def test_timers_and_the_end_are_announced_with_their_key_before_they_happen(delivery: str) -> None:
    def built(read: Any) -> Any:
        timed = read.watermarks("time", lambda record: record, out_of_order_s=0)
        return timed.key_by(lambda record: record % 2).process("last", Reminding(), delivery=delivery)

    def delivered(chain: Any) -> list[Any]:
        mark = [watermark(3_000_000_000)]
        outputs = chain.deliver(0, times(1, 2, 3), 0, Closed()) + chain.deliver(0, mark, 3, Closed())
        return [*outputs, *chain.ended(0, Closed()), *chain.finish(Closed())]

    plain, again = others(built, delivered)
    assert plain == again
    happened = [each for each in SEEN if each[0] != "before"]
    before = [SEEN[place - 1] for place, each in enumerate(SEEN) if each[0] != "before"]
    assert [(each[1], each[3] if each[1] != "record" else each[2]) for each in before] == [
        (kind.replace("process", "record"), which) for kind, which in happened
    ]
    timers = [each for each in before if each[1] == "timer"]
    assert len(timers) == (2 if delivery == "arrival" else 3) and all(
        each[2]["timer"] == "due" and each[4] for each in timers
    )
