"""Arguments of another kind are reported in one line with its place: sinks, tags, states, generators, the kit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from causal.errors import OperatorFailed, PipelineError
from operators import ListState, MapState, Operator, Pipeline, ReducingState, ValueState, WatermarkGenerator
from operators.sinks import JsonLinesSink, SqliteSink
from operators.testing import run
from tests.unit.operators.scene import NoSink, ran, source


class Totals(Operator):
    """Has one state of each kind, and performs the given act on it."""

    total = ValueState(int)
    items = ListState[int]()
    by_day = MapState[str, int]()
    most = ReducingState[int](max)

    def __init__(self, act: Callable[[Any, Any], None]) -> None:
        self.act = act

    def process(self, record: Any, ctx: Any) -> None:
        self.act(self, ctx)


def add_in_place(op: Any, ctx: Any) -> None:
    op.total += 1


class Forgets(WatermarkGenerator):
    """Keeps what no checkpoint can hold."""

    def on_batch(self, times_ns: Any) -> None:
        self.state["seen"] = set(times_ns)


def message_of(build: Callable[[Any], Any]) -> str:
    with pytest.raises((OperatorFailed, PipelineError)) as failure:
        ran(build, range(3), checkpoint_every=1)
    assert "\n" not in str(failure.value)
    return str(failure.value)


@pytest.mark.parametrize(
    ("act", "line"),
    [
        (lambda op, ctx: setattr(op, "total", 5), "'total' was replaced; change its content: self.total.value ="),
        (lambda op, ctx: setattr(op, "items", [1]), "self.items.append("),
        (lambda op, ctx: setattr(op, "by_day", {}), "self.by_day[…] ="),
        (lambda op, ctx: setattr(op, "most", 1), "self.most.add("),
        (lambda op, ctx: bool(op.total), "'total' was used like its value; use self.total.value"),
        (lambda op, ctx: op.total == 5, "'total' was used like its value; use self.total.value"),
        (lambda op, ctx: op.most != 5, "'most' was used like its value; use self.most.value"),
        (lambda op, ctx: not op.most, "'most' was used like its value; use self.most.value"),
        (add_in_place, "'total' was used like its value; use self.total.value"),
        (lambda op, ctx: 1 - op.most, "'most' was used like its value; use self.most.value"),
        (lambda op, ctx: op.total > 1, "'total' was used like its value; use self.total.value"),
        (lambda op, ctx: ctx.aside(3, "x"), "the tag of a side output must be a str, not int"),
    ],
)
def test_what_would_be_lost_in_silence_fails_with_the_place(act: Callable[[Any, Any], None], line: str) -> None:
    message = message_of(lambda stream: stream.key_by(lambda n: n).process("sum", Totals(act)))
    assert line in message
    assert "operator 'sum', key 0, position 1 of" in message


async def later(record: Any) -> Any:
    return record


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("build", "line"),
    [
        (lambda s: s.map("m", lambda n: later(n)).key_by(lambda n: n["x"]).count("n"), "operator 'm', position 0 of"),
        (lambda s: s.filter("f", lambda n: later(n)), "operator 'f', position 0 of"),
        (lambda s: s.process("op", Totals(lambda op, ctx: ctx.call(later, 1))), "ctx.call was given a coroutine fun"),
    ],
)
def test_functions_that_give_coroutines_are_named(build: Callable[[Any], Any], line: str) -> None:
    message = message_of(build)
    assert line in message and "coroutine" in message and "; pass a plain function" in message


def test_named_arguments_of_a_call_are_refused_with_the_remedy() -> None:
    act: Any = lambda op, ctx: ctx.call(dict, a=1)  # noqa: E731
    message = message_of(lambda stream: stream.process("op", Totals(act)))
    assert "ctx.call has no argument a; pass functools.partial(fn, a=…), or a lambda" in message


def test_declared_state_is_used_as_ever_by_two_instances_of_one_class() -> None:
    def act(operator: Any, ctx: Any) -> None:
        operator.total.value = (operator.total.value or 0) + 1
        operator.items.append(operator.total.value)
        ctx.aside("seen", (operator.name, list(operator.items)))

    pipeline = Pipeline("same")
    stream = pipeline.source("in", source())
    for name in "ab":
        operator: Any = Totals(act)
        operator.name = name
        output = stream.process(name, operator)
        output.sink(f"{name}-none", NoSink())
        output.side("seen").sink(f"{name}-seen", NoSink())
    result = run(pipeline, {"in": range(3)}, checkpoint_every=1, crash={"b/0": 2})
    for name in "ab":
        assert result[f"{name}-seen"] == [(name, [1]), (name, [1, 2]), (name, [1, 2, 3])]


@pytest.mark.parametrize(
    ("generator", "line"),
    [
        (lambda: 3, "the generator of watermarks 'time' returned 3; return a WatermarkGenerator"),
        (
            Forgets,
            "watermarks 'time': the state of its generator cannot be checkpointed: a set does not",
        ),
    ],
)
def test_a_generator_that_is_none_or_cannot_be_checkpointed_names_its_watermarks(generator: Any, line: str) -> None:
    assert line in message_of(lambda stream: stream.watermarks("time", lambda n: n, generator=generator))


@pytest.mark.parametrize("path", [None, 3, "", b"out.db", ["out.db"], object()])
def test_a_sink_whose_path_is_none_says_whose_and_what_to_give(path: Any) -> None:
    with pytest.raises(PipelineError, match=r"^SqliteSink: path is .*; use a path, as a str or a Path$"):
        SqliteSink(path)
    with pytest.raises(PipelineError, match=r"^JsonLinesSink: directory is .*; use a path, as a str or a Path$"):
        JsonLinesSink(path)
