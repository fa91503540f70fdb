"""Event time: watermarks and what is late by them, event-time timers, idleness, generators, side outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.errors import OperatorFailed, PipelineError
from causal.ports import Chain, Output
from causal.records.batch import RECORDS, WATERMARK, decode_records, stamp_of, watermark
from operators import Operator, Pipeline, WatermarkGenerator
from operators.engine.plan import Plan, plan
from operators.stage.event_times import ns_of, times_of
from operators.stage.watermark_merge import IDLE_NS
from operators.testing import At, every_crash, run
from tests.unit.operators.scene import NoSink, Services, chain_of, config, listed, parts_of, planned, records_in, source

S = 1_000_000_000


def second(record: Any) -> Any:
    return record[1]


class Late(Operator):
    """Says of each record whether it is late, and by which watermark."""

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        mark = ctx.watermark()
        if mark is not None and ctx.event_time() < mark:
            ctx.aside("late", record)
        else:
            yield record


def timed(build: Callable[[Any], Any], partitions: int = 1, **options: Any) -> Plan:
    pipeline = Pipeline("test")
    stream = pipeline.source("in", source(partitions)).watermarks("time", second, **options)
    build(stream).sink("out", NoSink())
    return plan(pipeline, config())


def marks_of(outputs: Sequence[Output]) -> list[int]:
    return [stamp_of(chunk) for _, chunk in outputs if chunk.kind == WATERMARK]


def give(chain: Chain, records: Sequence[Any], input: int = 0, services: Services | None = None) -> list[Output]:
    return chain.deliver(input, listed(records), 0, services or Services())


def test_a_watermark_is_the_largest_time_less_the_bound_behind_the_records() -> None:
    chain = chain_of(timed(lambda s: s, out_of_order_s=2), "time/0")
    outputs = give(chain, [("a", 5), ("b", 4), ("c", 6.5)])
    assert [chunk.kind for _, chunk in outputs] == [RECORDS, WATERMARK]
    assert marks_of(outputs) == [4_500_000_000]
    assert marks_of(give(chain, [("a", 6)])) == [], "one that does not rise is not sent"
    assert chain.finish(Services()) == [], "the end of the channel says it"


def test_the_least_over_the_inputs_goes_on_and_one_that_ended_is_not_waited_for() -> None:
    chain = chain_of(timed(lambda s: s, 3), "time/0")
    assert marks_of(give(chain, [("a", 5)], 0)) == []
    assert marks_of(give(chain, [("a", 9)], 1)) == []
    assert marks_of(give(chain, [("a", 7)], 2)) == [5 * S]
    assert marks_of(chain.ended(0, Services())) == [7 * S]
    assert marks_of(chain.ended(2, Services())) == [9 * S]
    assert chain.ended(1, Services()) == []


def test_a_task_behind_merges_the_marks_of_its_channels() -> None:
    pipeline = Pipeline("test")
    stream = pipeline.source("in", source(2), parallelism=2).watermarks("time", second)
    stream.key_by(second).process("late", Late()).sink("out", NoSink())
    chain = chain_of(plan(pipeline, config()), "late/0")
    outputs = [
        chain.deliver(input, [watermark(mark)], 0, Services()) for input, mark in [(0, 5), (1, 3), (1, 4), (0, 9)]
    ]
    assert list(map(marks_of, outputs)) == [[], [3], [4], []]


def late_chain() -> Chain:
    return chain_of(timed(lambda s: s.process("late", Late()), out_of_order_s=3), "late/0")


def test_a_batch_is_cut_only_where_a_record_is_late() -> None:
    chain = chain_of(timed(lambda s: s, out_of_order_s=1), "time/0")
    assert [chunk.kind for _, chunk in give(chain, [("a", 5), ("b", 4), ("c", 9)])] == [RECORDS, WATERMARK]
    outputs = give(chain, [("a", 20), ("late", 3), ("late too", 2), ("b", 30), ("in time", 29), ("late", 12)])
    sent = [decode_records(c.body) if c.kind == RECORDS else stamp_of(c) // S for _, c in outputs]
    assert sent == [
        [("a", 20)], 19, [("late", 3), ("late too", 2), ("b", 30), ("in time", 29)], 29, [("late", 12)],
    ]  # fmt: skip


def test_a_record_without_time_stops_the_job_or_is_a_dead_letter() -> None:
    with pytest.raises(OperatorFailed, match=r"'time', position 1 of partition 0.*a time is 'soon'; use seconds"):
        give(chain_of(timed(lambda s: s), "time/0"), [("a", 1), ("b", "soon")])
    pipeline = Pipeline("test")
    pipeline.source("in", source()).watermarks("time", second).sink("out", NoSink())
    chain = chain_of(plan(pipeline, config(on_error="dead-letter")), "time/0")
    outputs = give(chain, [("a", 1), ("b",), ("c", float("nan")), ("d", 2), ("e", True)])
    assert decode_records(outputs[0][1].body) == [("a", 1), ("d", 2)]
    letters = decode_records(outputs[-1][1].body)
    assert [(letter["position"], letter["error"].split(":")[0]) for letter in letters] == [
        (1, "IndexError"), (2, "ValueError"), (4, "TypeError"),
    ]  # fmt: skip


def test_times_are_whole_microseconds_and_datetimes_count_as_utc() -> None:
    paris = timezone(timedelta(hours=1))
    assert ns_of(datetime(1970, 1, 1, 0, 0, 1, 5)) == 1_000_005_000
    assert ns_of(datetime(1970, 1, 1, 1, 0, 1, tzinfo=paris)) == S
    assert ns_of(0.1 + 0.2) == 300_000_000
    last = 8_999_999_999.999999
    assert ns_of(ns_of(last) / 1e9) == ns_of(last)
    assert ns_of(datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)) == -S
    for wrong in (True, "1", None, float("inf"), 1e10):
        with pytest.raises((TypeError, ValueError), match="a time is"):
            ns_of(wrong)


def test_records_without_time_are_reported_by_their_places() -> None:
    lost: list[int] = []
    records = [1, "x", datetime(1970, 1, 1), None, 2.5]
    assert times_of(lambda r: r, records, lambda index, problem: lost.append(index)) == ([S, 0, 2_500_000_000], [1, 3])
    assert lost == [1, 3]


# Timers.


class Alarm(Operator):
    """(key, time, "set", at, name) sets, "clear" clears; each firing says what it saw."""

    def process(self, record: Any, ctx: Any) -> None:
        _, _, what, at_s, name = record
        if what == "set":
            ctx.set_timer(at_s, name, clock="event")
        elif what == "clear":
            ctx.clear_timer(name, clock="event")

    def on_timer(self, name: str, ctx: Any) -> Iterator[Any]:
        if name.startswith("again"):
            ctx.set_timer(ctx.event_time() + 1, "once", clock="event")
        if name == "forever":
            ctx.set_timer(0, name, clock="event")
        yield (ctx.key, name, ctx.event_time(), ctx.watermark())


def alarm(**options: Any) -> Chain:
    pipeline = Pipeline("test")
    stream = pipeline.source("in", source()).watermarks("time", second)
    stream.key_by(lambda r: r[0]).process("alarm", Alarm()).sink("out", NoSink())
    return chain_of(plan(pipeline, config(**options)), "alarm/0")


def rung(chain: Chain, at_s: float) -> list[Any]:
    return records_in(chain.deliver(0, [watermark(round(at_s * S))], 0, Services()))


def test_one_that_a_firing_sets_fires_at_once_when_it_is_due() -> None:
    chain = alarm()
    give(chain, [("a", 0, "set", 2, "again")])
    assert rung(chain, 2.5) == [("a", "again", 2, 2.5)]
    give(chain, [("b", 0, "set", 3, "again")])
    assert rung(chain, 9) == [("a", "once", 3, 9), ("b", "again", 3, 9), ("b", "once", 4, 9)]


def test_at_the_end_all_event_timers_fire_and_know_of_no_watermark() -> None:
    chain = alarm()
    give(chain, [("a", 0, "set", 5, "x"), ("a", 0, "set", 9, "again")])
    assert records_in(chain.ended(0, Services())) == [
        ("a", "x", 5, None),
        ("a", "again", 9, None),
        ("a", "once", 10, None),
    ]
    assert chain.finish(Services()) == []


def test_timers_that_set_one_another_for_ever_stop_the_job() -> None:
    chain = alarm(on_error="dead-letter")
    give(chain, [("a", 0, "set", 5, "forever")])
    with pytest.raises(
        OperatorFailed, match="operator 'alarm', key 'a': its event-time timers keep setting one another"
    ):
        rung(chain, 5)


def test_a_clock_that_is_none_is_refused() -> None:
    class Wrong(Operator):
        def process(self, record: Any, ctx: Any) -> None:
            ctx.set_timer(1, "x", clock="sun")

        def on_timer(self, name: str, ctx: Any) -> None:
            return None

    chain = chain_of(timed(lambda s: s.process("p", Wrong())), "p/0")
    with pytest.raises(OperatorFailed, match='has clock \'sun\'; use "processing" or "event"'):
        give(chain, [("a", 1)])


# Idleness.


CHECK_NS = 5 * S // 8


def idling(partitions: int = 2) -> Chain:
    return chain_of(timed(lambda s: s, partitions, idle_after_s=5), "time/0")


def checked(chain: Chain, count: int, services: Services) -> list[Any]:
    """Return what the chain emits at its next checks, each of which is on time."""
    return [output for _ in range(count) for output in chain.fire(chain.next_timer_ns() or 0, services)]


def test_an_input_on_which_nothing_came_between_two_firings_is_not_waited_for() -> None:
    chain, services = idling(), Services()
    assert chain.next_timer_ns() == 0, "it asks what time it is"
    assert chain.fire(100 * S, services) == []
    assert chain.next_timer_ns() == 100 * S + CHECK_NS
    assert marks_of(checked(chain, 8, services)) == []
    give(chain, [("a", 50)], 0, services)
    assert marks_of(checked(chain, 1, services)) == [50 * S]
    assert marks_of(give(chain, [("a", 60)], 0, services)) == [60 * S]
    parts = parts_of(chain, True)
    chain = idling()
    chain.restore(parts)
    assert give(chain, [("b", 55)], 1, services)[0][1].kind == RECORDS
    assert marks_of(give(chain, [("a", 70)], 0, services)) == [], "it is waited for again"
    assert marks_of(give(chain, [("b", 65)], 1, services)) == [65 * S]
    assert services.log == [], "no clock is read"


@given(st.integers(0, 20), st.integers(0, 10 * S) | st.integers(0, 10_000).map(lambda s: s * S))
def test_the_time_that_a_job_was_down_makes_no_input_idle(checks: int, down_ns: int) -> None:
    chain, services = idling(), Services()
    chain.fire(100 * S, services)
    for _ in range(checks):
        give(chain, [("a", 50)], 0, services)
        give(chain, [("b", 40)], 1, services)
        checked(chain, 1, services)
    give(chain, [("a", 50)], 0, services)
    give(chain, [("b", 40)], 1, services)
    parts = parts_of(chain, True)
    chain = idling()
    chain.restore(parts)
    due_ns, up_ns = chain.next_timer_ns() or 0, 100 * S + checks * CHECK_NS + down_ns
    assert marks_of(chain.fire(max(due_ns, up_ns), services)) == []
    assert marks_of(checked(chain, 7, services)) == []
    assert marks_of(give(chain, [("a", 60)], 0, services)) == []
    assert marks_of(checked(chain, 2, services)) == [60 * S]


def test_a_task_that_is_always_late_does_not_wait_for_an_idle_input_for_ever() -> None:
    chain, services = idling(), Services()
    for turn in range(18):
        give(chain, [("a", 50)], 0, services)
        assert marks_of(chain.fire((100 + 7 * turn) * S, services)) == []
    assert marks_of(chain.fire((100 + 7 * 18) * S, services)) == [50 * S]


def test_all_idle_is_told_on_and_the_next_record_ends_it() -> None:
    chain, services = idling(1), Services()
    chain.fire(100 * S, services)
    give(chain, [("a", 50)], 0, services)
    assert marks_of(checked(chain, 8, services)) == []
    assert marks_of(checked(chain, 1, services)) == [IDLE_NS]
    assert marks_of(checked(chain, 8, services)) == []
    assert marks_of(give(chain, [("a", 51)], 0, services)) == [51 * S]
    assert marks_of(checked(chain, 8, services)) == []
    assert marks_of(checked(chain, 1, services)) == [IDLE_NS]


def test_a_task_that_hears_of_an_idle_channel_goes_on_without_it() -> None:
    pipeline = Pipeline("test")
    stream = pipeline.source("in", source(2), parallelism=2).watermarks("time", second, idle_after_s=1)
    stream.key_by(second).process("late", Late()).sink("out", NoSink())
    chain = chain_of(plan(pipeline, config()), "late/0")
    marks = [(0, 5), (1, IDLE_NS), (0, 7), (1, 6), (1, 8), (0, IDLE_NS), (1, IDLE_NS)]
    merged = [marks_of(chain.deliver(input, [watermark(mark)], 0, Services())) for input, mark in marks]
    assert merged == [[], [5], [7], [], [], [8], [IDLE_NS]]


# Generators.


class EveryOther(WatermarkGenerator):
    """The largest time so far, with every second batch; falls on command."""

    def on_batch(self, times_ns: Sequence[int]) -> int | None:
        n = self.state["n"] = self.state.get("n", 0) + 1
        if min(times_ns) < 0:
            return -S
        return max(times_ns) if n % 2 == 0 else None


def generated() -> Chain:
    return chain_of(timed(lambda s: s, generator=EveryOther), "time/0")


def test_a_generator_decides_and_its_state_is_restored() -> None:
    chain = generated()
    assert marks_of(give(chain, [("a", 5)])) == []
    parts = parts_of(chain, True)
    chain = generated()
    chain.restore(parts)
    assert marks_of(give(chain, [("a", 6)])) == [6 * S]
    assert marks_of(give(chain, [("a", -1)])) == []
    assert chain.counts() == {"time": {"watermark_fell": 1}}
    parts = parts_of(chain, True)
    chain = generated()
    chain.restore(parts)
    assert chain.counts() == {"time": {"watermark_fell": 1}}, "counts are state"


def test_a_generator_that_gives_no_time_stops_the_job() -> None:
    class Wrong(WatermarkGenerator):
        def on_batch(self, times_ns: Sequence[int]) -> Any:
            return 0.5

    chain = chain_of(timed(lambda s: s, generator=Wrong), "time/0")
    with pytest.raises(OperatorFailed, match="'time'.*on_batch returned 0.5; return ns since 1970"):
        give(chain, [("a", 1)])


# Side outputs.


def with_side(fused: bool) -> Pipeline:
    pipeline = Pipeline("test")
    stream = pipeline.source("in", source()).watermarks("time", second, out_of_order_s=1)
    stream.process("late", Late()).sink("out", NoSink())
    late = pipeline.stream("late").side("late")
    if fused:
        late.map("again", lambda r: (*r, "late")).sink("late-out", NoSink())
    else:
        late.key_by(second).count("n").sink("late-out", NoSink())
    return pipeline


@pytest.mark.parametrize("fused", [True, False])
def test_records_put_aside_go_their_own_way(fused: bool) -> None:
    planned = plan(with_side(fused), config())
    chain = chain_of(planned, "again/0" if fused else "late/0")
    outputs = give(chain, [("a", 5), ("b", 1), ("c", 6)])
    by_channel: dict[int, list[Any]] = {}
    for ordinal, chunk in outputs:
        if chunk.kind == RECORDS:
            by_channel.setdefault(ordinal, []).extend(decode_records(chunk.body))
    aside = [("b", 1, "late")] if fused else [("b", 1)]
    assert list(by_channel.values()) == [[("a", 5), ("c", 6)], aside]
    assert chain.counts() == {}


def test_what_no_operator_reads_is_counted() -> None:
    chain = late_chain()
    assert records_in(give(chain, [("a", 5), ("b", 1), ("c", 6)])) == [("a", 5), ("c", 6)]
    assert chain.counts() == {"late": {"unread aside 'late'": 1}}


class Sorts(Operator):
    """Puts each record aside under its own tag, and refuses one of them afterwards."""

    def process(self, record: Any, ctx: Any) -> Any:
        ctx.aside(record, 1)
        return [1 / (record != "bad")]


def test_a_tag_that_nothing_reads_is_counted_without_what_failed_and_many_tags_are_together() -> None:
    chain = chain_of(planned(lambda s: s.process("p", Sorts()), on_error="dead-letter"), "p/0")
    give(chain, ["lte", "bad", "lte"])
    assert chain.counts() == {"p": {"unread aside 'lte'": 2}}
    give(chain, [f"t{number}" for number in range(30)])
    counts = chain.counts()["p"]
    assert len(counts) == 21 and counts["unread aside of other tags"] == 11 and sum(counts.values()) == 32


MISTAKES: list[tuple[Callable[[Pipeline, Any], object], str]] = [
    (lambda p, s: s.watermarks("t", second, out_of_order_s=-1), "'t' has out_of_order_s -1; use seconds, at least 0"),
    (lambda p, s: s.watermarks("t", second, idle_after_s=0), "'t' has idle_after_s 0; use seconds, at least 0.001"),
    (lambda p, s: s.watermarks("t", "time"), "time of watermarks 't' was given a str; pass a function"),
    (
        lambda p, s: s.watermarks("t", second, generator=list),
        "is the class list; use a subclass of WatermarkGenerator",
    ),
    (
        lambda p, s: s.watermarks("t", second, generator=EveryOther, out_of_order_s=1),
        "'t' has out_of_order_s and a generator; pass only one",
    ),
    (lambda p, s: s.key_by(second).watermarks("t", second), "watermarks 't' follows key_by"),
    (
        lambda p, s: s.watermarks("t", second).map("m", len).watermarks("u", second).sink("o", NoSink()),
        r"watermarks 'u' follows other watermarks \('t', .*test_time.py:\d+\), but a stream can have watermarks only",
    ),
    (lambda p, s: s.timed(3), "timed was given a int; pass a function"),
    (
        lambda p, s: s.map("m", len).side("late"),
        "operator 'm' never puts records aside as 'late'; it has no side output",
    ),
    (
        lambda p, s: s.key_by(len).side("late"),
        r"side 'late' does not follow an operator; put .side\('late'\) directly after",
    ),
    (lambda p, s: s.process("p", Late()).side(""), "use the tag that is passed to ctx.aside"),
    (
        lambda p, s: (s.process("p", Late()).sink("o", NoSink()), p.stream("p").side("late")),
        "nothing reads the output of side; follow it with an operator or a sink",
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


# In whole tasks, killed at every record.


def test_idleness_is_logged_and_replayed() -> None:
    pipeline = Pipeline("test")
    stream = pipeline.source("in", source(2)).watermarks("time", second, idle_after_s=5)
    stream.key_by(lambda r: r[0]).process("late", Late()).sink("out", NoSink())
    inputs = {"in": [[At(2, ("a", 1)), At(30, ("a", 20)), At(40, ("a", 15))], [At(3, ("b", 2)), At(60, ("b", 3))]]}
    for crash in [*every_crash(pipeline, inputs, checkpoint_every=2)][::2]:
        result = run(pipeline, inputs, crash=crash, checkpoint_every=2)
        assert sorted(result["out"]) == [("a", 1), ("a", 20), ("b", 2)], "b was not waited for, so its 3 is late"
        assert result.recoveries == 1
