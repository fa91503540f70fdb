"""Witnesses as in `option_cases`: of windows, triggers, aggregates, declared states and timers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import operators
from operators import (
    Aggregate,
    Count,
    CountWindow,
    Global,
    ListState,
    MapState,
    Max,
    Mean,
    Min,
    Operator,
    Reduce,
    ReducingState,
    Session,
    Sliding,
    Sum,
    Tumbling,
    ValueState,
    after_each,
    every,
    every_s,
)
from operators.testing import At
from tests.oracles.frame import AnySink
from tests.unit.operators.option_cases import (
    BY_THE_CLOCK,
    ROWS,
    Case,
    Draft,
    Row,
    Values,
    key,
    listed,
    records,
    row,
    value,
)

MORE_BY_THE_CLOCK = [*BY_THE_CLOCK, At(500)]


def _windowed(draft: Draft, keyed: bool, assigner: Any, contents: Any, **options: Any) -> Any:
    stream = draft.timed(BY_THE_CLOCK, out_of_order_s=2)
    stream = stream.key_by(key) if keyed else stream
    return stream.window("x", assigner, contents, parallelism=1, **options)


BESIDE: Values = {
    "contents": (listed(), records),
    "trigger": (None, every(3)),
    "delivery": ("arrival", "ordered"),
    "keyed": (True, False),
    "lateness_s": (0, 6),
}
TRIGGERED: Values = {
    "assigner": (Global(), Sliding(20, 10)),
    "contents": (listed(), records),
    "keyed": (True, False),
}


def _assigned(make: Callable[..., Any]) -> Callable[..., Any]:
    def build(draft: Draft, **options: Any) -> Any:
        beside = {name: options.pop(name) for name in BESIDE}
        return _windowed(draft, assigner=make(**options), **beside)

    return build


def _triggered(make: Callable[..., Any]) -> Callable[..., Any]:
    def build(draft: Draft, **options: Any) -> Any:
        beside = {name: options.pop(name) for name in TRIGGERED}
        return _windowed(draft, trigger=make(**options), **beside)

    return build


def _of_windows(make: Callable[..., Any]) -> Callable[..., Any]:
    rows = [*ROWS, row("c", 1, 1), row("c", 7, 2), row("c", 4, 4)]  # the last joins two sessions
    return lambda draft, **options: draft.keyed(rows, out_of_order_s=50).window("x", Session(4), make(**options))


def _of_tables(make: Callable[..., Any]) -> Callable[..., Any]:
    def build(draft: Draft, **options: Any) -> Any:
        table = draft.rows().key_by(lambda r: (r["k"], r["at"] < 3)).table("t")
        return table.group_by("g", lambda key, r: r["k"]).aggregate("x", make(**options))

    return build


# States.


@dataclass
class Typed:
    """A typed value."""

    n: int = 0


def _state(make: Callable[..., Any], use: Callable[[Any, Row], Any]) -> Callable[..., Any]:
    def build(draft: Draft, disk: bool, **options: Any) -> Any:
        class Uses(Operator):
            kept = make(**options)

            def process(self, record: Any, ctx: Any) -> Any:
                yield use(self.kept, record)

        rows = [row("a", 1, 1), row("a", 2, 2), row("a", 6, 3), row("a", 7, 4)]
        stream = draft.keyed([At(110 + 3 * number, each) for number, each in enumerate(rows)])
        return stream.process("x", Uses(), parallelism=1, state="disk" if disk else "memory")

    return build


def _use_value(state: Any, record: Row) -> Any:
    before = state.value
    if isinstance(before, Typed):
        before.n += 1
        return before.n
    state.value = record["v"]
    return before


def _use_list(state: Any, record: Row) -> Any:
    state.append(record["v"])
    return len(state)


def _use_map(state: Any, record: Row) -> Any:
    state[record["v"]] = 1
    return len(state)


def _use_fold(state: Any, record: Row) -> Any:
    state.add(record["v"])
    return state.value


DISK = {"disk": (False, True)}
AGES: Values = {"ttl_s": (8.0, 2.0), "clock": ("event", "processing")}
REFUSED = frozenset({("ttl_s", "kind"), ("clock", "kind"), ("fn", "kind")})
"""The other `kind` refuses the first value, whatever the other options are."""


class Acts(Operator):
    """Performs an act for each record, and shows its timers."""

    def __init__(self, act: Callable[[Any], Any]) -> None:
        self._act = act

    def process(self, record: Any, ctx: Any) -> Any:
        self._act(ctx)

    def on_timer(self, name: str, ctx: Any) -> Any:
        yield name, ctx.event_time(), ctx.key


def _timer(draft: Draft, at_s: float, name: str, clock: str) -> Any:
    return draft.keyed(MORE_BY_THE_CLOCK).process("x", Acts(lambda ctx: ctx.set_timer(at_s, name, clock=clock)))


def _clear(draft: Draft, name: str, clock: str) -> Any:
    def act(ctx: Any) -> None:
        for each in ("one", "two"):
            ctx.set_timer(110.0, each)
            ctx.set_timer(110.0, each, clock="event")
        ctx.clear_timer(name, clock=clock)

    return draft.keyed(MORE_BY_THE_CLOCK).process("x", Acts(act))


def _context_aside(draft: Draft, tag: str, record: Any) -> Any:
    output = draft.rows().process("x", Acts(lambda ctx: ctx.aside(tag, record)))
    output.side("one").sink("one", AnySink())
    return output.side("two")


WINDOW_CASES = [
    Case(Tumbling, {"size_s": (4, 6), "offset_s": (0.0, 1.5), "clock": ("event", "processing")},
         _assigned(Tumbling), BESIDE),
    Case(Sliding, {
        "size_s": (6, 12), "every_s": (3, 2), "offset_s": (0.0, 1.5), "clock": ("event", "processing"),
    }, _assigned(Sliding), BESIDE),
    Case(Session, {"gap_s": (2, 4), "clock": ("event", "processing")}, _assigned(Session), BESIDE),
    Case(CountWindow, {"n": (4, 3), "every": (2, 1)}, _assigned(CountWindow), BESIDE),
    Case(Global, {}, _assigned(Global), BESIDE),
    Case(every, {"n": (2, 3), "purge": (False, True)}, _triggered(every), TRIGGERED),
    Case(after_each, {"purge": (False, True)}, _triggered(after_each), TRIGGERED),
    Case(every_s, {"seconds": (3, 25), "clock": ("event", "processing"), "purge": (False, True)},
         _triggered(every_s), TRIGGERED),
    Case(Aggregate, {
        "initial": (int, lambda: 100), "add": (lambda total, r: total + r["v"], lambda total, r: total + 2 * r["v"]),
        "result": (None, lambda total: [total]), "merge": (lambda a, b: a + b, lambda a, b: a + b + 1000),
    }, _of_windows(Aggregate), without={"subtract": "the next case"}),
    Case(Aggregate, {
        "initial": (int, lambda: 100), "add": (lambda total, r: total + r["v"], lambda total, r: total + 2 * r["v"]),
        "result": (None, lambda total: [total]),
        "subtract": (lambda total, r: total - r["v"], lambda total, r: total - 3 * r["v"]),
    }, _of_tables(Aggregate), without={"merge": "the case before"}),
    *[Case(each, {"of": (value, lambda r: r["v"] * 2 + 1)}, within(each))
      for each in (Sum, Min, Max, Mean) for within in (_of_windows, _of_tables)],
    Case(Reduce, {"fn": (lambda a, b: {**a, "v": a["v"] + b["v"]}, lambda a, b: {**a, "v": max(a["v"], b["v"])})},
         _of_windows(Reduce)),
    Case(Count, {}, _of_windows(Count)),
]  # fmt: skip
STATE_CASES = [
    Case(ValueState, {"kind": (None, Typed), "default": (None, 7), **AGES}, _state(ValueState, _use_value), DISK,
         hidden=frozenset({("default", "kind"), ("kind", "default")})),
    Case(ListState, {"kind": (None, Typed), **AGES}, _state(ListState, _use_list), DISK, hidden=REFUSED),
    Case(MapState, {"kind": (None, Typed), **AGES}, _state(MapState, _use_map), DISK, hidden=REFUSED),
    Case(ReducingState, {"fn": (max, min), "kind": (None, Typed), **AGES}, _state(ReducingState, _use_fold), DISK,
         hidden=REFUSED),
    Case(operators.Context.set_timer, {
        "at_s": (105.0, 300.0), "name": ("one", "two"), "clock": ("processing", "event"),
    }, _timer),
    Case(operators.Context.clear_timer, {"name": ("one", "two"), "clock": ("processing", "event")}, _clear),
    Case(operators.Context.aside, {"tag": ("one", "two"), "record": (1, 2)}, _context_aside),
]  # fmt: skip
