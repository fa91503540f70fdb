"""A function that a call would not run, or that takes other arguments, is refused where the pipeline is built."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial, partialmethod, wraps
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from causal.errors import PipelineError
from operators import (
    Aggregate,
    CountWindow,
    Operator,
    Pipeline,
    Reduce,
    ReducingState,
    Sum,
    Trigger,
    Tumbling,
    WatermarkGenerator,
)
from operators.functions import place_of
from operators.sinks import CallbackSink
from operators.sources import GeneratedSource, SequenceSource, SparkSource
from tests.unit.operators.scene import planned, source

Build = Callable[[Any, Any], object]
"""A function of (stream, function of the user) that builds a part of a pipeline."""

ONE_VALUE: list[tuple[Build, str]] = [
    (lambda s, fn: s.map("x", fn), "map 'x' was given"),
    (lambda s, fn: s.filter("x", fn), "filter 'x' was given"),
    (lambda s, fn: s.map_batches("x", fn), "map_batches 'x' was given"),
    (lambda s, fn: s.call("x", fn), "call 'x' was given"),
    (lambda s, fn: s.call("x", pow, combine=fn), "combine of call 'x' was given"),
    (lambda s, fn: s.key_by(fn), "key_by was given"),
    (lambda s, fn: s.watermarks("x", fn), "time of watermarks 'x' was given"),
    (lambda s, fn: s.watermarks("x", abs, generator=fn), "generator of watermarks 'x' was given"),
    (lambda s, fn: s.timed(fn), "timed was given"),
    (lambda s, fn: s.key_by(abs).reduce("x", fn), "reduce 'x' was given"),
    (lambda s, fn: s.key_by(abs).reduce("x", max, fn), "initial of reduce 'x' was given"),
    (lambda s, fn: s.key_by(abs).join("x", s.key_by(str), (0, 1), fn=fn), "join 'x' was given"),
    (lambda s, fn: s.key_by(abs).join_table("x", s.key_by(str).table("t"), fn), "join_table 'x' was given"),
    (lambda s, fn: s.key_by(abs).table("t").filter("x", fn), "filter 'x' was given"),
    (lambda s, fn: s.key_by(abs).table("t").map_values("x", fn), "map_values 'x' was given"),
    (lambda s, fn: s.key_by(abs).table("t").group_by("x", fn), "group_by 'x' was given"),
    (lambda s, fn: s.key_by(abs).table("t").to_stream("x", fn), "to_stream 'x' was given"),
    (lambda s, fn: Aggregate(fn, max), "initial of an aggregate is"),
    (lambda s, fn: Aggregate(int, max, merge=fn), "merge of an aggregate is"),
    (lambda s, fn: Sum(fn), "of of Sum is"),
    (lambda s, fn: Reduce(fn), "fn of Reduce is"),
    (lambda s, fn: ReducingState(fn), "ReducingState was given"),
    (lambda s, fn: GeneratedSource(fn, 1), "GeneratedSource was given"),
]
"""Builders that take a function which returns one value."""

RECORDS: list[tuple[Build, str]] = [
    (lambda s, fn: s.flat_map("x", fn), "flat_map 'x' was given"),
    (lambda s, fn: s.window("x", 10, fn), "window 'x' was given"),
]
"""Builders that take a function which may be a generator function."""


async def awaited(*arguments: Any) -> Any:
    return arguments[0]


async def streamed(*arguments: Any) -> Any:
    yield arguments[0]


def generated(*arguments: Any) -> Any:
    yield arguments[0]


class Asynchronous:
    async def __call__(self, *arguments: Any) -> Any:
        return arguments[0]

    async def method(self, *arguments: Any) -> Any:
        return arguments[0]


class Decorated(Asynchronous):
    def __get__(self, instance: Any, owner: Any) -> Any:
        return self


class Generates:
    def __call__(self, *arguments: Any) -> Any:
        yield arguments[0]


def refusal(build: Build, fn: Any) -> str:
    """Return the message with which `fn` is refused, without its place in this file, if it names that."""
    with pytest.raises(PipelineError) as failure:
        build(Pipeline("test").source("in", source()), fn)
    assert "\n" not in str(failure.value)
    return re.sub(rf"^{re.escape(__file__)}:\d+: ", "", str(failure.value))


@pytest.mark.parametrize(("build", "what"), ONE_VALUE + RECORDS)
@pytest.mark.parametrize(
    "fn", [awaited, Asynchronous(), Asynchronous().method, partial(partial(awaited), 1), Decorated()]
)
def test_a_coroutine_function_is_refused(build: Build, what: str, fn: Any) -> None:
    assert refusal(build, fn).startswith(f"{what} a coroutine function; pass a plain function")
    assert refusal(build, streamed).startswith(f"{what} an async generator function; pass a plain function")


@pytest.mark.parametrize(("build", "what"), ONE_VALUE)
@pytest.mark.parametrize(
    "fn", [generated, Generates(), Generates().__call__, partial(generated, 1), partial(Generates())]
)
def test_a_generator_function_is_refused_where_one_value_is_wanted(build: Build, what: str, fn: Any) -> None:
    assert refusal(build, fn) == f"{what} a generator function; pass a plain function, which returns its result"


@pytest.mark.parametrize("build", [build for build, _ in RECORDS])
@pytest.mark.parametrize("fn", [generated, Generates(), partial(generated, 1)])
def test_a_generator_function_may_give_records(build: Build, fn: Any) -> None:
    build(Pipeline("test").source("in", source()), fn)


@pytest.mark.parametrize("name", ["open", "process", "on_timer", "finish", "process_batch"])
def test_a_method_of_an_operator_that_is_a_coroutine_function_is_refused(name: str) -> None:
    operator = counting(**{name: awaited})
    expected = f"process 'x': Counts.{name} is a coroutine function; pass a plain function"
    assert refusal(lambda s, fn: s.process("x", fn), operator) == expected


def test_a_method_of_an_operator_may_be_a_generator_function_unless_it_gives_no_records() -> None:
    operator = counting(on_timer=generated, finish=generated)
    planned(lambda s: s.process("x", operator))
    operator.open = generated
    assert refusal(lambda s, fn: s.process("x", fn), operator).startswith("process 'x': Counts.open is a generator")


def test_other_methods_and_functions_of_users_are_looked_at_as_well() -> None:
    marks = type("Marks", (WatermarkGenerator,), {"on_batch": awaited})
    rule = type("Rule", (Trigger,), {"on_record": generated})()
    with pytest.raises(PipelineError, match="generator of watermarks 'x': Marks.on_batch is a coroutine function"):
        planned(lambda s: s.watermarks("x", abs, generator=marks)).chain(0)
    message = refusal(lambda s, fn: s.window("x", Tumbling(1), generated, trigger=fn), rule)
    assert message.startswith("trigger of window 'x': Rule.on_record is a generator function")
    with pytest.raises(PipelineError, match=r"^CallbackSink was given a coroutine function; pass a plain function$"):
        CallbackSink(awaited)


def counting(**methods: Any) -> Any:
    return type("Counts", (Operator,), {"process": generated, **methods})()


@pytest.mark.parametrize(
    ("name", "method", "line"),
    [
        ("process", lambda self, record: [], "takes (record), not (record, ctx); define process(self, record, ctx)"),
        ("process", lambda record, ctx: [], "takes (ctx), not (record, ctx); define process(self, record, ctx)"),
        ("process", lambda self, record, ctx, more: [], "takes (record, ctx, more), not (record, ctx); define "),
        ("process", lambda self, record, ctx, *, more: [], "takes (record, ctx, *, more), not (record, ctx); define "),
        ("on_timer", lambda self, ctx: [], "takes (ctx), not (name, ctx); define on_timer(self, name, ctx)"),
        ("finish", lambda self: [], "takes (), not (ctx); define finish(self, ctx)"),
        ("open", lambda self: None, "takes (), not (ctx); define open(self, ctx)"),
        ("process_batch", lambda self, rs, ctx: [], "takes (rs, ctx), not (records, keys, ctx); define "),
    ],
)
def test_a_method_that_takes_other_arguments_is_refused(name: str, method: Any, line: str) -> None:
    message = refusal(lambda s, fn: s.process("x", fn), counting(**{name: method}))
    assert message.startswith(f"process 'x': Counts.{name} {line}")


@pytest.mark.parametrize(
    "process",
    [
        lambda self, *arguments: [],
        lambda self, record, ctx, more=0: [],
        lambda self, anything, else_: [],
        lambda *arguments, **options: [],
        wraps(lambda self: [])(lambda *arguments: []),
        staticmethod(lambda record, ctx: []),
        classmethod(lambda cls, record, ctx: []),
        partialmethod(lambda self, first, record, ctx: [], 1),
    ],
)
def test_a_method_that_can_be_called_is_taken(process: Any) -> None:
    planned(lambda s: s.process("x", counting(process=process)))


def per_window(key: Any, records: list[Any]) -> list[Any]:
    return records


def test_a_window_function_that_takes_other_arguments_is_refused() -> None:
    for assigner in (10, Tumbling(10), CountWindow(2)):
        message = refusal(lambda s, fn: s.window("x", assigner, fn), per_window)  # noqa: B023
        assert message == (
            f"window 'x' was given a function of (key, records) at {place_of(per_window)}; pass a function of "
            "(key, records, window)"
        )
    of_vectors = refusal(lambda s, fn: s.to_vectors("v", {"n": "int64"}).window("x", 10, fn), three)
    assert of_vectors.startswith("window 'x' was given a function of (first, second, third) at ")
    assert of_vectors.endswith("; pass a function of (batch, window)")


def none() -> None:
    return None


def three(first: Any, second: Any, third: Any) -> Any:
    return first


WANTED = {
    "initial": "a function without parameters",
    "generator": "a function without parameters",
    "reduce": "a function of (accumulated, record)",
    "Reduce": "a function of (accumulated, record)",
    "join": "a function of (left, right)",
    "join_table": "a function of (record, row)",
    "map_batches": "a function of (batch)",
    "call": "a function of (record, key)",
    "combine": "a function of (record, response)",
    "merge": "a function of (first, second)",
    "ReducingState": "a function of (value, added)",
    "GeneratedSource": "a function of (partition, i)",
}
"""The advice by the first word of the message of an entry of `ONE_VALUE`; the others take a record, or a row."""


@pytest.mark.parametrize(
    ("build", "what"), [*ONE_VALUE, *RECORDS[:1], (lambda s, fn: Aggregate(int, fn), "add of an aggregate is")]
)
def test_a_function_that_takes_other_arguments_is_refused_with_its_place(build: Build, what: str) -> None:
    message = refusal(build, three)
    assert f"{what} a function of (first, second, third) at {place_of(three)}; pass a function" in message
    wanted = WANTED.get(what.split()[0])
    assert wanted is None or message.endswith(f"; pass {wanted}")
    if wanted != "a function without parameters":
        assert f"a function of () at {place_of(none)}; pass a function of (" in refusal(build, none)


def test_a_class_with_its_types_in_brackets_is_refused_where_it_is_called() -> None:
    with pytest.raises(PipelineError, match=rf"^{re.escape(__file__)}:\d+: of of Sum is a function of \(\)"):
        Sum[int](none)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("build", "parameters"),
    [(CallbackSink, "delivery"), (lambda fn: SequenceSource(fn, 1), "partition, start, stop"), (SparkSource, "spark")],
)
def test_sinks_and_other_sources_refuse_a_function_that_takes_other_arguments(build: Any, parameters: str) -> None:
    line = rf"given a function of \(\) at .*; pass a function of \({parameters}\)$"
    with pytest.raises(PipelineError, match=line):
        build(none)


class Calls:
    def __call__(self, record: Any) -> Any:
        return record


@pytest.mark.parametrize(
    "fn",
    [
        len, int, dict, sorted, [].append, Path, UUID, lambda r, more=1: r, lambda *all: all, partial(three, 1, 2),
        partial(three, second=1, third=2), Calls(),
    ],
)  # fmt: skip
def test_functions_that_can_be_called_with_a_record_are_taken(fn: Any) -> None:
    planned(lambda s: s.map("x", fn))


@pytest.mark.parametrize(
    "fn", [print, max, zip, lambda *a: a, lambda k, rs, w, n=1: rs, partial(print, 2), Generates()]
)
def test_a_window_function_that_can_be_called_or_does_not_say_is_taken(fn: Any) -> None:
    planned(lambda s: s.window("x", 10, fn))
