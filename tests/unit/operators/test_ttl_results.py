"""Times to live in whole pipelines: by event time exact however records arrive, by the wall clock within bounds."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from causal.errors import PipelineError
from operators import ListState, MapState, Operator, Pipeline, ReducingState, Stream, ValueState
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource
from operators.state import cold_values
from operators.testing import At, OperatorTrial, run

TTL_S = 8
DISK: dict[str, Any] = {"state": "disk"}


@pytest.fixture(autouse=True)
def nothing_stays_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """State on disk takes so much, by its own estimate, that all of it leaves memory after each event."""
    monkeypatch.setattr(cold_values, "_BYTES_PER_VALUE", 1 << 40)


def built(operator: Operator, bound_s: float, parallelism: int = 1, partitions: int = 1, **how: Any) -> Pipeline:
    pipeline = Pipeline("lives")
    stream: Stream[Any] = pipeline.source("in", GeneratedSource(lambda p, i: 0, count=0, partitions=partitions))
    timed = stream.watermarks("time", lambda r: r["at"], out_of_order_s=bound_s)
    processed = timed.key_by(lambda r: r["key"]).process("op", operator, parallelism=parallelism, **how)
    processed.sink("out", SqliteSink("out.db"))
    return pipeline


class FirstOnly(Operator):
    """Deduplication, as most would write it."""

    seen = ValueState[bool](ttl_s=TTL_S)

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        if not self.seen.value:
            self.seen.value = True
            yield record["at"]


def random_records(seed: int, disorder_s: int, count: int = 120) -> list[dict[str, Any]]:
    chance, now_s, records = random.Random(seed), 0, list[dict[str, Any]]()
    for n in range(count):
        now_s += chance.choice([0, 0, 1, 1, 2, 3, 9, 40])
        records.append({"key": chance.randint(0, 2), "at": now_s - chance.randint(0, disorder_s), "n": n})
    return records


class Timed(Operator):
    """Emits the state that timers see, and the rest at the end."""

    seen = MapState[int, int](ttl_s=TTL_S)

    def process(self, record: Any, ctx: Any) -> None:
        self.seen[record["n"]] = record["n"]
        ctx.set_timer(record["at"] + record["n"] % 12, str(record["n"]), clock="event")

    def on_timer(self, name: str, ctx: Any) -> Iterator[Any]:
        yield (ctx.key, name, ctx.event_time(), list(self.seen))
        if int(name) % 3 == 0:
            self.seen[-int(name)] = 0

    def finish(self, ctx: Any) -> Iterator[Any]:
        yield ("end", ctx.key, list(self.seen))


def test_in_order_timers_and_the_end_find_what_their_times_say() -> None:
    # No two have the same time: in which order those of two partitions come is chance.
    records = [{**record, "at": record["at"] + record["n"] / 1000} for record in random_records(11, 4)]
    parts = [records[0::2], records[1::2]]
    runs = [
        run(
            built(Timed(), 5, parallelism=2, partitions=2, delivery="ordered"),
            {"in": parts},
            batch=batch,
            seed=seed,
            crash={"op/0": 20, "op/1": 10} if seed else {},
        )
        for batch, seed in product((1, 5, 200), range(3))
    ]
    rows = [sorted(result["out"], key=str) for result in runs]
    assert all(each == rows[0] for each in rows)
    assert sum(row[0] == "end" and bool(row[2]) for row in rows[0])  # something was left, and something was not
    assert len([row for row in rows[0] if row[0] == "end"]) <= 3


def test_what_has_no_event_time_is_refused() -> None:
    pipeline = Pipeline("none")
    stream = pipeline.source("in", GeneratedSource(lambda p, i: 0, count=0))
    stream.key_by(lambda r: r).process("op", FirstOnly()).sink("out", SqliteSink("o.db"))
    with pytest.raises(PipelineError, match=r"'seen' of operator 'op' has a time to live by event time, but 'in'"):
        run(pipeline, {"in": []})
    pipeline = Pipeline("lost")
    stream = pipeline.source("in", GeneratedSource(lambda p, i: 0, count=0)).watermarks("time", lambda r: r)
    mapped = stream.map("m", lambda r: r)
    mapped.key_by(lambda r: r).process("op", FirstOnly()).sink("out", SqliteSink("o.db"))
    with pytest.raises(PipelineError, match=r"put .timed\(fn\) after 'm', or use clock=\"processing\""):
        run(pipeline, {"in": []})


class Emptied(Operator):
    """Fills all states, empties them in the way that a record names, or emits what is in them."""

    value = ValueState[int](ttl_s=TTL_S)
    items = ListState[int](ttl_s=TTL_S)
    named = MapState[str, int](ttl_s=TTL_S)
    fold = ReducingState[int](max, ttl_s=TTL_S)

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        what = record["what"]
        if what == "fill":
            self.value.value = 1
            self.items.append(1)
            self.named[str(record["at"])] = 1
            self.fold.add(1)
        elif what in EMPTIED:
            EMPTIED[what](self)
        else:
            yield [self.value.value, list(self.items), dict(self.named), self.fold.value]


def no_more(operator: Emptied) -> None:
    """Empty each state in a way of its own."""
    operator.value.clear()
    del operator.items[:]
    while operator.named:
        operator.named.popitem()
    operator.fold.clear()


def cleared(operator: Emptied) -> None:
    for state in (operator.value, operator.items, operator.named, operator.fold):
        state.clear()


def cleared_and_failed(operator: Emptied) -> None:
    cleared(operator)
    raise ValueError("the state is as it was")


EMPTIED: dict[str, Any] = {"clear": cleared, "other ways": no_more, "fail": cleared_and_failed}


def of_one_key(*steps: tuple[str, float]) -> list[dict[str, Any]]:
    return [{"key": 0, "what": what, "at": at_s} for what, at_s in steps]


@pytest.mark.parametrize("settings", [{}, DISK], ids=["memory", "disk"])
@pytest.mark.parametrize("how", EMPTIED)
def test_what_has_expired_for_a_record_is_not_deleted_by_it(how: str, settings: dict[str, Any]) -> None:
    kept: list[Any] = [1, [1], {"0": 1}, 1]
    nothing: list[Any] = [None, [], {}, None]
    records = of_one_key(("fill", 0), ("read", 7), (how, 8), ("read", 8), ("read", 7))
    for batch in (1, 2, 100):
        result = run(built(Emptied(), 100), {"in": records}, batch=batch, on_error="dead-letter", **settings)
        assert result["out"] == [kept, nothing, kept]
    records = of_one_key(("fill", 0), (how, 7), ("read", 7), ("read", 1))
    result = run(built(Emptied(), 100), {"in": records}, on_error="dead-letter", **settings)
    assert result["out"] == [kept if how == "fail" else nothing] * 2


@pytest.mark.parametrize("how", EMPTIED)
def test_of_a_map_the_entries_that_have_not_expired_are_deleted(how: str) -> None:
    records = of_one_key(("fill", 0), ("fill", 5), (how, 8), ("read", 8), ("read", 7))
    result = run(built(Emptied(), 100), {"in": records}, on_error="dead-letter")
    rest = {"5": 1} if how == "fail" else {}
    assert [list(row[2].items()) for row in result["out"]] == [list(rest.items()), [("0", 1), *rest.items()]]


@pytest.mark.parametrize("how", ["clear", "other ways"])
def test_how_much_has_expired_does_not_depend_on_batches(how: str) -> None:
    records = of_one_key(("fill", 0), (how, 8), ("fill", 8), (how, 9), ("read", 30))
    counts = [run(built(Emptied(), 0), {"in": records}, batch=batch).counts["op"] for batch in (1, 2, 3, 100)]
    assert counts == [{"expired": 4}] * 4


# The wall clock.


class ByClock(Operator):
    """Four states of different times to live; each record writes one and reads all."""

    a = ListState[float](ttl_s=8, clock="processing")
    b = ValueState[float](ttl_s=3, clock="processing")
    c = MapState[int, float](ttl_s=5, clock="processing")
    d = ReducingState[float](lambda a, b: b, ttl_s=20, clock="processing")

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        now_s = ctx.now()
        yield (ctx.key, now_s, "read", list(self.a), self.b.value, dict(self.c), self.d.value)
        for what in record["writes"]:
            if what == "a":
                self.a.append(now_s)
            elif what == "b":
                self.b.value = now_s
            elif what == "c":
                self.c[record["entry"]] = now_s
            else:
                self.d.add(now_s)
            yield (ctx.key, now_s, what, record["entry"])


def violations(rows: list[Any]) -> list[str]:
    """Return a line for each state that was gone before its time, or there long after it."""
    lives = {"a": 8, "b": 3, "c": 5, "d": 20}
    written: dict[Any, float] = {}
    problems: list[str] = []
    for key, now_s, what, *rest in rows:
        if what != "read":
            written[key, what, rest[0] if what == "c" else None] = now_s
            continue
        items, value, entries, fold = rest
        there: dict[Any, Any] = {("a", None): items[-1:], ("b", None): value, ("d", None): fold}
        there |= {("c", entry): at_s for entry, at_s in entries.items()}
        for (other, state, entry), at_s in written.items():
            if other == key:
                age_s, known = now_s - at_s, there.get((state, entry))
                if age_s < lives[state] and known in (None, []):
                    problems.append(f"{state} of {key} was gone after {age_s} s")
                if age_s > lives[state] * 9 / 8 + 0.01 and known not in (None, []):
                    problems.append(f"{state} of {key} was there after {age_s} s")
    return problems


def clock_records(seed: int) -> list[Any]:
    chance, at_s, records = random.Random(seed), 0.0, list[Any]()
    for n in range(40):
        at_s += chance.choice([0, 0.5, 1, 2, 4, 9, 30])
        writes = chance.sample("abcd", chance.randint(0, 3))
        records.append(At(at_s, {"key": chance.randint(0, 1), "writes": writes, "entry": n % 3}))
    return records


def by_clock() -> Pipeline:
    pipeline = Pipeline("clock")
    stream: Stream[Any] = pipeline.source("in", GeneratedSource(lambda p, i: 0, count=0))
    stream.key_by(lambda r: r["key"]).process("op", ByClock(), parallelism=1).sink("out", SqliteSink("out.db"))
    return pipeline


@pytest.mark.parametrize("settings", [{}, DISK], ids=["memory", "disk"])
def test_several_states_by_the_wall_clock_live_as_long_as_each_says(settings: dict[str, Any]) -> None:
    for seed in range(6):
        result = run(
            by_clock(), {"in": clock_records(seed)}, seed=seed, crash={"op/0": 17} if seed % 2 else {}, **settings
        )
        assert violations(result["out"]) == []


def test_the_state_that_was_lost_at_once() -> None:
    class Two(Operator):
        items = ListState[int](ttl_s=8, clock="processing")
        value = ValueState[int](ttl_s=8, clock="processing")

        def process(self, record: Any, ctx: Any) -> Iterator[Any]:
            if record == "value":
                self.value.value = 1
            elif record == "append":
                self.items.append(1)
            yield list(self.items)

    for settings in ({}, DISK):
        trial = OperatorTrial(Two(), key=lambda r: "k", **settings)
        trial.give("value")
        trial.advance(20)
        trial.give("append")
        trial.advance(1)
        assert trial.give("read") == [[1]]
