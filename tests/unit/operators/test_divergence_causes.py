"""The first difference of two traces is found, and the cause follows from what was observed."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any

import pytest

from causal.process.clock import SystemEnvironment
from operators.replay.causes import Cause, cause_of
from operators.replay.difference import Difference, first_difference
from operators.replay.user_trace import Question, Step, UserTrace, said

FILE = __file__
seen: dict[str, int] = {}


class Counting:
    def __init__(self, count: int) -> None:
        self.count = count

    def process(self, record: Any) -> Any:
        key = record["k"]
        return self.more(key)

    def more(self, key: Any) -> Any:
        self.count += 1
        return key, self.count


def branching(number: int) -> int:
    if number > 1:
        number += 1
    return number


def asking() -> Any:
    return time.monotonic(), random.random(), os.environ.get("NOT_THERE"), os.urandom(1)


def traced(function: Any, *arguments: Any) -> UserTrace:
    """Return the trace of a call; this file counts as the user's, which is not below the packages of the runtime."""
    trace = UserTrace()
    trace.begin(lines=True)
    try:
        function(*arguments)
    finally:
        trace.end()
    return trace


def line_of(text: str) -> int:
    return next(n for n, line in enumerate(Path(FILE).read_text().splitlines(), 1) if text in line)


def difference_of(one: UserTrace, other: UserTrace) -> Difference | None:
    return first_difference(one.steps, other.steps, {**one.uses, **other.uses})


def test_equal_calls_have_equal_traces_and_sets_have_no_order() -> None:
    assert difference_of(traced(branching, 2), traced(branching, 2)) is None
    assert said({"b", "a"}) == said({"a", "b"}) == "{'a', 'b'}" and "0x…" in said(object())
    assert said("x" * 1000) != said("x" * 999 + "y") and len(said("x" * 1000)) < 400


def test_what_is_kept_is_named_with_the_line_that_uses_it() -> None:
    difference = difference_of(traced(Counting(5).process, {"k": 1}), traced(Counting(0).process, {"k": 1}))
    assert (
        difference is not None
        and difference.kept
        and (difference.name, difference.before, difference.after) == ("self.count", "5", "0")
    )
    assert (difference.line, difference.function) == (line_of("self.count += 1"), "Counting.more")


def test_a_line_that_gives_another_value_or_another_line_is_named() -> None:
    def drawn() -> int:
        number = next(numbers)
        return number

    numbers = iter((1, 2))
    difference = difference_of(traced(drawn), traced(drawn))
    assert difference is not None and (difference.name, difference.before, difference.after) == ("number", "1", "2")
    assert difference.line == line_of("number = next(numbers)") and not difference.kept
    one, other = [
        [
            Step("call", "a.py", 1, "f", 0, {}),
            Step("line", "a.py", 2, "f", 0, {}),
            Step("line", "a.py", line, "f", 0, {}),
        ]
        for line in (3, 4)
    ]
    difference = first_difference(one, other, {})
    assert difference is not None and (difference.line, difference.name, difference.before) == (2, "", "line 3 follows")


def test_questions_are_noted_with_the_users_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        os, "urandom", SystemEnvironment._urandom
    )  # an earlier test of the process may have replaced it
    asked = {(each.kind, each.name) for each in traced(asking).asked if each.line == line_of("return time.monotonic()")}
    names = {("clock", "time.monotonic"), ("environment", "os.environ"), ("random", "os.urandom")}
    assert names <= asked and any(kind == "random" and name.endswith(".random") for kind, name in asked)


AT = Difference(3, FILE, line_of("seen: dict"), "process", "x", "1", "2")
HERE = Question("clock", "time.time", "", AT.file, AT.line, AT.function)
ELSEWHERE = Question("file", "open()", "/etc/rates", "other.py", 9, "f")


def judged(difference: Difference | None, *asked: Question, **facts: Any) -> Cause:
    return cause_of(difference, asked, facts.pop("changed", ()), **{"fresh": False, "hashes": False, **facts})


def test_a_question_at_the_line_is_the_cause() -> None:
    cause = judged(AT, ELSEWHERE, HERE)
    assert (cause.kind, cause.file, cause.line) == ("clock", AT.file, AT.line) and "ctx.now()" in cause.remedy


def test_what_only_a_fresh_process_does_differently_was_kept() -> None:
    changed = [("global `x` of shop.py changed while operators ran", "keep it in ctx.state")]
    assert judged(AT, HERE, fresh=True, changed=changed).what == changed[0][0]
    assert judged(AT, fresh=True).what == "`x` is kept outside of ctx.state"


def test_another_hash_seed_or_a_set_is_an_order(tmp_path: Path) -> None:
    assert judged(AT, hashes=True).what == "the order of a set, which follows from the hash seed"
    program = tmp_path / "shop.py"
    program.write_text("def f(xs):\n    for x in set(xs):\n        return x\n")
    assert judged(Difference(1, str(program), 2, "f", "x", "1", "2")).kind == "order"
    assert judged(Difference(1, str(program), 3, "f", "return", "1", "2")).kind != "unknown"


def test_without_a_difference_versions_and_questions_are_named() -> None:
    assert judged(None, ELSEWHERE, versions=["numpy was 1.26 and is 2.0"]) == Cause(
        "version", "numpy was 1.26 and is 2.0"
    )
    assert judged(None, HERE, ELSEWHERE).what == "a file is read (/etc/rates)"
    assert judged(None).kind == "unknown"


@pytest.mark.parametrize("event", ["open", "socket.connect", "subprocess.Popen"])
def test_files_connections_and_programs_are_noted(event: str) -> None:
    import sys

    trace = UserTrace(asking=True)
    trace.audited(event, ("/etc/rates",), sys._getframe())
    [question] = trace.asked
    assert question.detail == "/etc/rates" and question.kind in ("file", "network", "process")
