"""Arguments of another kind are reported in one line with its place: sinks, tags, states, generators, the kit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from causal.errors import CausalError, OperatorFailed, PipelineError
from operators import ListState, MapState, Operator, Pipeline, ReducingState, ValueState, WatermarkGenerator
from operators.sinks import JsonLinesSink, SqliteSink
from operators.sources import GeneratedSource
from operators.testing import run


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


def numbers() -> tuple[Pipeline, Any]:
    pipeline = Pipeline("wrong")
    return pipeline, pipeline.source("in", GeneratedSource(lambda p, i: i, count=3))


def message_of(build: Callable[[Any], Any], **options: Any) -> str:
    pipeline, stream = numbers()
    build(stream).sink("out", SqliteSink("out.db"))
    with pytest.raises(CausalError) as failure:
        run(pipeline, checkpoint_every=1, **options)
    assert "\n" not in str(failure.value)
    assert isinstance(failure.value, (OperatorFailed, PipelineError))
    return str(failure.value)


@pytest.mark.parametrize(
    ("act", "line"),
    [
        (
            lambda op, ctx: setattr(op, "total", 5),
            "state 'total' was assigned to; change its content: self.total.value =",
        ),
        (lambda op, ctx: setattr(op, "items", [1]), "self.items.append("),
        (lambda op, ctx: setattr(op, "by_day", {}), "self.by_day[…] ="),
        (lambda op, ctx: setattr(op, "most", 1), "self.most.add("),
        (lambda op, ctx: bool(op.total), "state 'total' is not its value; use self.total.value"),
        (lambda op, ctx: op.total == 5, "state 'total' is not its value; use self.total.value"),
        (lambda op, ctx: op.most != 5, "state 'most' is not its value; use self.most.value"),
        (lambda op, ctx: not op.most, "state 'most' is not its value; use self.most.value"),
        (add_in_place, "state 'total' is not its value; use self.total.value"),
        (lambda op, ctx: 1 - op.most, "state 'most' is not its value; use self.most.value"),
        (lambda op, ctx: op.total > 1, "state 'total' is not its value; use self.total.value"),
        (lambda op, ctx: ctx.aside(3, "x"), "the tag of a side output is a str, not int"),
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
        (
            lambda s: s.process("op", Totals(lambda op, ctx: ctx.call(later, 1))),
            "ctx.call is given a coroutine function",
        ),
    ],
)
def test_functions_that_give_coroutines_are_named(build: Callable[[Any], Any], line: str) -> None:
    message = message_of(build)
    assert line in message and "coroutine" in message and "; give a plain function" in message


def test_named_arguments_of_a_call_are_refused_with_the_remedy() -> None:
    act: Any = lambda op, ctx: ctx.call(dict, a=1)  # noqa: E731
    message = message_of(lambda stream: stream.process("op", Totals(act)))
    assert "ctx.call has no argument a; give functools.partial(fn, a=…), or a lambda" in message


def test_declared_state_is_used_as_ever_by_two_instances_of_one_class() -> None:
    def act(operator: Any, ctx: Any) -> None:
        operator.total.value = (operator.total.value or 0) + 1
        operator.items.append(operator.total.value)
        ctx.aside("seen", (operator.name, list(operator.items)))

    pipeline, stream = numbers()
    for name in "ab":
        operator: Any = Totals(act)
        operator.name = name
        output = stream.process(name, operator)
        output.sink(f"{name}-none", SqliteSink("out.db"))
        output.side("seen").sink(f"{name}-seen", SqliteSink("out.db"))
    result = run(pipeline, checkpoint_every=1, crash={"b/0": 2})
    assert result["a-seen"] == [("a", [1]), ("a", [1, 2]), ("a", [1, 2, 3])]
    assert result["b-seen"] == [("b", [1]), ("b", [1, 2]), ("b", [1, 2, 3])]


def test_a_generator_that_is_none_or_cannot_be_checkpointed_names_its_watermarks() -> None:
    assert "generator of watermarks 'time' made 3; give a WatermarkGenerator" in message_of(
        lambda stream: stream.watermarks("time", lambda n: n, generator=lambda: 3)
    )
    assert (
        "watermarks 'time': the state of its generator cannot be checkpointed: a set does not keep its order"
        in message_of(lambda stream: stream.watermarks("time", lambda n: n, generator=Forgets))
    )


@pytest.mark.parametrize("path", [None, 3, "", b"out.db", ["out.db"], object()])
def test_a_sink_whose_path_is_none_says_whose_and_what_to_give(path: Any) -> None:
    with pytest.raises(PipelineError, match=r"^SqliteSink: path is .*; give a path, as a str or a Path$"):
        SqliteSink(path)
    with pytest.raises(PipelineError, match=r"^JsonLinesSink: directory is .*; give a path, as a str or a Path$"):
        JsonLinesSink(path)


def test_an_operator_is_found_by_a_name_alone() -> None:
    names: Any = ["in"]
    with pytest.raises(PipelineError, match=r"there is no operator \['in'\]; there are in$"):
        numbers()[0].stream(names)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"inputs": 3}, "inputs is 3; give a dict"),
        ({"crash": ["in/0"]}, "crash is ['in/0']; give a dict"),
        ({"settings": "x"}, "settings is 'x'; give a dict"),
        ({"clock_s": None}, "clock_s is None; give seconds since 1970, before 2255"),
        ({"clock_s": float("nan")}, "clock_s is nan; give seconds"),
        ({"checkpoint_every": "x"}, "checkpoint_every is 'x'; give a number of records, or 0 for none"),
        ({"checkpoint_every": -1}, "checkpoint_every is -1; give a number of records"),
    ],
)
def test_the_kit_says_what_it_wants(options: dict[str, Any], line: str) -> None:
    pipeline, stream = numbers()
    stream.sink("out", SqliteSink("out.db"))
    with pytest.raises(PipelineError) as failure:
        run(pipeline, **options)
    assert line in str(failure.value)


def test_the_kit_runs_pipelines_and_files_of_them() -> None:
    wrong: Any = 3
    with pytest.raises(PipelineError, match="the pipeline is a int; give a Pipeline, or the path of its file"):
        run(wrong)
