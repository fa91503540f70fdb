"""A test whose user code fails shows the frames of the user, and none of the runtime."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from causal.errors import OperatorFailed
from causal.records.values import NotCarried, encode
from operators import Context, Operator, Pipeline
from operators.sinks import JsonLinesSink
from operators.sources import GeneratedSource
from operators.testing import OperatorTrial, run
from operators.tracebacks import OURS


class Fails(Operator):
    def process(self, record: Any, ctx: Context) -> Iterator[Any]:
        yield record["nope"]


def pipeline() -> Pipeline:
    built = Pipeline("fails")
    source: GeneratedSource[Any] = GeneratedSource(lambda p, i: {"a": i}, 3)
    built.source("in", source).process("fails", Fails()).sink("out", JsonLinesSink("rows"))
    return built


@pytest.mark.parametrize("fail", [lambda: run(pipeline()), lambda: OperatorTrial(Fails()).give({"a": 1})])
def test_only_the_frames_of_the_user_are_shown(fail: Callable[[], Any]) -> None:
    with pytest.raises(OperatorFailed) as caught:
        fail()
    shown, each = list[traceback.FrameSummary](), caught.value.__cause__
    assert isinstance(each, KeyError)
    cause = traceback.extract_tb(each.__traceback__)
    assert [(frame.filename, frame.name) for frame in cause] == [(__file__, "process")]
    shown = [*traceback.extract_tb(caught.value.__traceback__)]
    assert [frame.name for frame in shown if frame.filename.startswith(OURS)] == ["called"], "which pytest hides"


@pytest.mark.parametrize(
    ("attribute", "instead"),
    [
        ("model_dump", "value.model_dump()"),
        ("__attrs_attrs__", "attrs.asdict(value)"),
        ("__struct_fields__", "msgspec.to_builtins(value)"),
    ],
)
def test_a_record_of_a_library_says_what_to_use(attribute: str, instead: str) -> None:
    kind = type("Bid", (SimpleNamespace,), {attribute: ()})
    with pytest.raises(NotCarried, match="Bid cannot be encoded; use ") as caught:
        encode(kind())
    assert str(caught.value).endswith(instead)
