"""An exception in user code is laid at the user's own line, and a replay writes the same text again."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from traceback import extract_tb
from types import SimpleNamespace
from typing import Any

import pytest

from causal.errors import OperatorFailed
from causal.records.values import NotCarried, decode, encode
from operators import Operator
from operators.stage.calls import outcome
from operators.testing import OperatorTrial
from operators.tracebacks import (
    OURS,
    TRACEBACK_CHARACTERS_MAX,
    described,
    location,
    own_location,
    shown,
    user_traceback,
)
from tests.unit.operators.scene import Services, chain_of, give, listed, planned, ran


def deepest(record: Any) -> Any:
    return record["deep"]


def middle(record: Any) -> Any:
    return deepest(record)


def parses(record: Any) -> Any:
    return json.loads(record)


def endless(record: Any) -> Any:
    return endless(record)


def chained(record: Any) -> Any:
    try:
        return deepest(record)
    except KeyError as problem:
        raise ValueError("no depth") from problem


def raised(fn: Callable[[Any], Any], record: Any) -> Exception:
    try:
        fn(record)
    except Exception as problem:
        return problem
    raise AssertionError("nothing was raised")


def line_of(fn: Callable[..., Any], offset: int) -> str:
    code = fn.__code__
    return f"{__file__}:{code.co_firstlineno + offset} in {code.co_name}"


def test_a_library_that_raised_is_laid_at_the_users_line_that_called_it() -> None:
    problem = raised(parses, "{")
    assert location(problem) == own_location(problem) == line_of(parses, 1)
    assert "json/decoder.py" in user_traceback(problem)


@pytest.mark.parametrize(
    ("fn", "record", "line"),
    [
        (middle, {}, rf"KeyError: 'deep' at {line_of(deepest, 1)}; record {{}}"),
        (json.loads, "{", r"JSONDecodeError: .* at .*json/decoder\.py:\d+ in raw_decode; record '\{'"),
        (int, "y", r"'x', position 0 of .*: ValueError: invalid literal .*'y' \(defined at .*; record 'y'"),
    ],
    ids=["of the user", "of a library that the pipeline calls itself", "of a builtin, which has no line"],
)
def test_the_one_line_names_file_and_line(fn: Any, record: Any, line: str) -> None:
    with pytest.raises(OperatorFailed, match=line) as caught:
        give(chain_of(planned(lambda s: s.map("x", fn)), "x/0"), [record])
    assert "\n" not in str(caught.value)
    cause = caught.value.__cause__
    assert cause is not None and bool(own_location(cause)) == (fn is middle)


def test_a_traceback_has_every_frame_of_the_user_and_none_of_ours() -> None:
    with pytest.raises(OperatorFailed) as caught:
        give(chain_of(planned(lambda s: s.map("x", middle)), "x/0"), [{}])
    assert caught.value.__cause__ is not None
    assert location(caught.value.__cause__) == line_of(deepest, 1)
    lines = user_traceback(caught.value.__cause__).splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert [line.rpartition(" in ")[2] for line in lines if line.startswith('  File "')] == ["middle", "deepest"]
    assert lines[-1] == "KeyError: 'deep'"


class Fails(Operator):
    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        yield record["nope"]


@pytest.mark.parametrize(
    "fail",
    [lambda: ran(lambda s: s.process("x", Fails()), [{"a": 1}]), lambda: OperatorTrial(Fails()).give({"a": 1})],
)
def test_only_the_frames_of_the_user_are_shown_where_a_test_fails(fail: Callable[[], Any]) -> None:
    with pytest.raises(OperatorFailed) as caught:
        fail()
    cause = caught.value.__cause__
    assert isinstance(cause, KeyError)
    assert [(frame.filename, frame.name) for frame in extract_tb(cause.__traceback__)] == [(__file__, "process")]
    frames = [frame.name for frame in extract_tb(caught.value.__traceback__) if frame.filename.startswith(OURS)]
    assert frames == ["called"], "which pytest hides"


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
    with pytest.raises(NotCarried, match=rf"Bid cannot be encoded; use .*{re.escape(instead)}$"):
        encode(kind())


class Mute(Exception):
    """Cannot say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no")


def test_an_exception_whose_text_raises_is_described_by_its_type() -> None:
    def asked() -> None:
        raise Mute

    assert described(Mute()) == "Mute: <its str raises RuntimeError>"
    assert "Mute" in user_traceback(Mute())
    well, body = outcome(asked)
    assert not well and decode(body)[:3] == [False, "Mute", "<its str raises RuntimeError>"]


def test_causes_are_shown() -> None:
    text = user_traceback(raised(chained, {}))
    assert "KeyError: 'deep'" in text and "direct cause" in text and text.endswith("ValueError: no depth\n")


def test_an_exhausted_stack_gives_the_same_text_from_any_depth() -> None:
    def deeper(depth: int) -> Exception:
        return deeper(depth - 1) if depth else raised(endless, 1)

    texts = {(location(p), user_traceback(p), described(p)) for p in map(deeper, range(0, 60, 7))}
    assert len(texts) == 1
    assert line_of(raised, 2) in next(iter(texts))[1]


def test_addresses_of_objects_do_not_appear() -> None:
    class Plain:
        def __repr__(self) -> str:
            return object.__repr__(self)

    def look_up(record: Any) -> Any:
        return dict[Any, Any]()[Plain()]

    problem = raised(look_up, 1)
    assert "0x" in str(problem)
    for text in (described(problem), user_traceback(problem), shown(Plain())):
        assert "at 0x…" in text


def test_a_traceback_is_bounded_and_keeps_its_end() -> None:
    def raises(record: Any) -> Any:
        raise ValueError("long " * 100_000 + "end")

    text = user_traceback(raised(raises, 1))
    assert len(text) <= TRACEBACK_CHARACTERS_MAX + 10 and text.endswith("long end\n")


def test_a_dead_letter_is_the_same_whatever_was_delivered_at_once() -> None:
    def letters(sizes: list[int]) -> list[Any]:
        chain = chain_of(planned(lambda s: s.map("x", middle), on_error="dead-letter"), "x/0")
        rows, first = [], 0
        for size in sizes:
            rows += give(chain, [{}] * size, first=first)
            first += size
        return rows

    assert letters([4]) == letters([1, 1, 1, 1]) == letters([3, 1])
    assert all(letter["traceback"] for letter in letters([4]))


def test_a_letter_stays_within_what_a_record_may_have() -> None:
    def raises(record: Any) -> Any:
        raise ValueError("long " * 10_000)

    chain = chain_of(planned(lambda s: s.map("x", raises), record_bytes_max=4000, on_error="dead-letter"), "x/0")
    outputs = chain.deliver(0, listed([1]), 0, Services())
    assert sum(chunk.size for _, chunk in outputs) < 4000
