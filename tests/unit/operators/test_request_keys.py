"""Keys of requests: unique per request, and the same whatever dies, wherever in a pipeline the request is made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from causal.cut import Cut
from causal.records.values import decode
from operators import Count, Operator, Pipeline, Tumbling
from operators.builder.pipeline import Stream
from operators.engine.chain import FusedChain
from operators.engine.plan import Plan, plan
from operators.runtime.regrouping import Saved
from operators.sources import SequenceSource
from operators.testing import At, run
from tests.members import sample
from tests.unit.operators.scene import NoSink, Services, chain_of, config, listed, parts_of, source
from tests.unit.operators.test_rescaling import rescaled


class Service:
    """An honest service: of the requests with one key it performs the first, and notices when they differ."""

    def __init__(self) -> None:
        self.performed: dict[str, Any] = {}
        self.asked = 0

    def __call__(self, record: Any, key: str) -> str:
        self.asked += 1
        assert self.performed.setdefault(key, record) == record, "one key for two requests"
        return key


class Counts(Operator):
    """Gives what a function makes of the number of a record of its key, the record and ctx."""

    def __init__(self, fn: Callable[[int, Any, Any], Any]) -> None:
        self._fn = fn

    def process(self, record: Any, ctx: Any) -> Any:
        n = ctx.state["n"] = ctx.state.get("n", 0) + 1
        return self._fn(n, record, ctx)


def numbered() -> Operator:
    """Rows that depend on the order in which records came."""
    return Counts(lambda n, record, ctx: [(n, record["id"])])


def split(n: int, record: Any, ctx: Any) -> Any:
    """Put every second record aside."""
    return [n] if n % 2 == 0 else ctx.aside("odd", n)


def plain(n: int, record: Any, ctx: Any) -> Any:
    return [(record, n % 3)]


def equal(n: int, record: Any, ctx: Any) -> Any:
    return ["same"]


class Alerts(Operator):
    """Two timers of equal content for each record."""

    def __init__(self, clock: str) -> None:
        self._clock = clock

    def process(self, record: Any, ctx: Any) -> Any:
        n = ctx.state["n"] = ctx.state.get("n", 0) + 1
        at_s = record["t"] + 5 if self._clock == "event" else ctx.now() + 1
        for name in (f"a{n}", f"b{n}"):
            ctx.set_timer(at_s, name, clock=self._clock)

    def on_timer(self, name: str, ctx: Any) -> Any:
        return ["alert"]


Build = Callable[[Stream[Any], Stream[Any]], Stream[Any]]


def user(record: Any) -> Any:
    return record["id"] % 2


def _timed(stream: Stream[Any], name: str = "time") -> Any:
    return stream.watermarks(name, lambda r: r["t"])


def _table(a: Stream[Any], b: Stream[Any]) -> Stream[Any]:
    table = a.union(b).key_by(user).table("t").group_by("g", lambda key, row: "all")
    return table.aggregate("n", Count()).revisions("changes")


PLACES: dict[str, Build] = {
    "process": lambda a, b: a.process("op", numbered()).union(b.process("two", numbered())),
    "union": lambda a, b: a.union(b).process("op", numbered()),
    "keyed union": lambda a, b: a.union(b).key_by(user).process("op", numbered(), parallelism=2),
    "timers": lambda a, b: a.union(b).key_by(user).process("op", Alerts("processing")),
    "event timers": lambda a, b: _timed(a.union(b)).key_by(user).process("op", Alerts("event")),
    "windows": lambda a, b: (
        _timed(a.union(b)).key_by(user).window("op", Tumbling(2), lambda key, rows, window: [len(rows)])
    ),
    "join": lambda a, b: _timed(a, "ta").key_by(user).join("op", _timed(b, "tb").key_by(user), within=(-2, 2)),
    "table join": lambda a, b: a.key_by(user).join_table("op", b.key_by(user).table("t"), how="left"),
    "table": _table,
    "side": lambda a, b: a.union(b).process("op", Counts(split)).side("odd"),
    "fan-out": lambda a, b: a.union(b).flat_map("op", lambda r: [1, 1]).process("last", Counts(plain)),
    "ordered": lambda a, b: (
        _timed(a.union(b)).key_by(user).process("op", Alerts("event"), delivery="ordered")
    ),
}  # fmt: skip


RECORDS = 8
SEEDS, SEEDS_EACH = 4, 2


def trial(place: str, service: Service, seed: int, crash: dict[str, Any], batch: int) -> Any:
    pipeline = Pipeline("keys")
    a, b = (pipeline.source(name, SequenceSource(lambda p, i, j: range(i, j), count=1)) for name in ("a", "b"))
    PLACES[place](a, b).call("rate", service, order="input" if seed % 2 else "completion").sink("out", NoSink())
    inputs = {name: [*(At(i // 2, {"id": i, "t": i}) for i in range(RECORDS)), At(60)] for name in ("a", "b")}
    return run(pipeline, inputs, seed=seed, crash=crash, batch=batch)


@pytest.mark.parametrize("first", sample(range(0, SEEDS, SEEDS_EACH), 1))
@pytest.mark.parametrize("place", PLACES)
def test_each_request_has_one_key_whoever_dies(place: str, first: int) -> None:
    crashes = 0
    for seed in range(first, first + SEEDS_EACH):
        chance, batch = Random(seed), 1 + seed % 4
        elements = trial(place, Service(), seed, {}, batch).elements
        for _ in range(3):
            victims = chance.sample(sorted(elements), k=min(len(elements), chance.randint(1, 3)))
            crash = {task: chance.randint(1, max(1, elements[task] - 1)) for task in victims if elements[task]}
            service = Service()
            result = trial(place, service, seed, crash, batch)
            crashes += result.recoveries
            keys = Counter(key for _, key in result["out"])
            assert keys and set(keys.values()) == {1}, "two requests have one key"
            assert set(keys) == set(service.performed), "a request was performed under an unknown key"
            assert all(service.performed[key] == asked for asked, key in result["out"])
    assert crashes > SEEDS_EACH


# A change of the graph at a savepoint: channels begin at position 0 again, the run stays the same.


def _asking_plan(parallelism: int, asks: bool = True) -> Plan:
    pipeline = Pipeline("test")
    stream = pipeline.source("in", source(2)).process("begin", Counts(equal), parallelism=1)
    if asks:
        stream = stream.call("rate", lambda record, key: key, parallelism=parallelism)
    stream.sink("out", NoSink())
    return plan(pipeline, config(key_groups=16))


def _asked(planned: Plan, parts: dict[str, Sequence[bytes]]) -> tuple[list[str], list[str], dict[str, Sequence[bytes]]]:
    """Return keys that were waiting, keys of three new requests of equal content per task, and the state after them."""
    waiting, fresh, after = list[str](), list[str](), dict[str, Sequence[bytes]]()
    for task in planned.topology.tasks:
        chain = planned.chain(task.index)
        if isinstance(chain, FusedChain):
            if task.name in parts:
                chain.restore(parts[task.name])
            waiting += [decode(request.body)[1] for request in chain.outstanding()]
            before = len(chain.outstanding())
            if "rate" in task.operators:
                chain.deliver(0, listed([{"id": 1}] * 3), 0, Services())
            fresh += [decode(request.body)[1] for request in chain.outstanding()[before:]]
        after[task.name] = parts_of(chain, True)
    return waiting, fresh, after


def test_no_key_recurs_behind_any_change_of_the_graph() -> None:
    graphs = [_asking_plan(1), _asking_plan(2), _asking_plan(1, asks=False), _asking_plan(1), _asking_plan(2)]
    asked, pending, state = list[str](), list[str](), dict[str, Sequence[bytes]]()
    for place, planned in enumerate(graphs):
        waiting, fresh, after = _asked(planned, state)
        if place != 3:  # nothing can wait for an operator that was not there
            assert sorted(waiting) == sorted(pending) or place == 2, "what waits keeps its key"
        asked += fresh
        pending = [*waiting, *fresh]
        saved = [
            Saved(
                task,
                Cut(
                    place + 1,
                    {channel.id: (7, 1, False) for channel in planned.topology.inputs(task.index)},
                    {channel.id: (9, 2) for channel in planned.topology.outputs(task.index)},
                    11,
                ),
                (tuple(after[task.name]),),
            )
            for task in planned.topology.tasks
        ]
        if place + 1 < len(graphs):
            state = rescaled(planned, saved, graphs[place + 1], allow=True).chains()
    assert len(asked) == 3 * (1 + 2 + 0 + 1 + 2) and len(set(asked)) == len(asked)


def test_equal_requests_of_another_run_operator_or_task_have_other_keys() -> None:
    def first_key(run: str = "run", operator: str = "rate", task: int = 0) -> Any:
        pipeline = Pipeline("test")
        asking = pipeline.source("in", source(2)).process("begin", Counts(equal), parallelism=1)
        asking.call(operator, lambda record, key: key, parallelism=2).map("end", str).sink("out", NoSink())
        chain = chain_of(plan(pipeline, replace(config(), run=run)), f"end/{task}")
        chain.deliver(0, listed(["same"]), 0, Services())
        return decode(chain.outstanding()[0].body)[1]

    assert first_key() == first_key()
    assert len({first_key(), first_key(run="other"), first_key(operator="other"), first_key(task=1)}) == 4
