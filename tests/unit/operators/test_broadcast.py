"""Rules that reach all tasks: alike everywhere, restored, waited for, kept by another parallelism."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from causal.errors import OperatorFailed, PipelineError
from operators import BroadcastOperator, Operator, Pipeline
from operators.engine.plan import Plan, plan
from operators.kinds.process import broadcast
from operators.sinks import JsonLinesSink
from operators.sources import GeneratedSource
from tests.unit.operators.join_scene import Task, key_of
from tests.unit.operators.scene import NoSink, config, source


class Tagged(BroadcastOperator):
    """Each record with the rules of the time, in their order, and how many of its key came."""

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        yield (record, [(name, list(rule)) for name, rule in ctx.broadcast.items()], ctx.state["n"])

    def process_broadcast(self, record: Any, ctx: Any) -> Iterator[Any]:
        name, value = record
        if value is None:
            del ctx.broadcast[name]
        elif name in ctx.broadcast:
            ctx.broadcast[name].append(value)
        else:
            ctx.broadcast[name] = [value]
        yield ("now", list(ctx.broadcast))


class Wrong(Tagged):
    """Does in each place what only the other may."""

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        ctx.broadcast["x"] = 1
        yield record

    def process_broadcast(self, record: Any, ctx: Any) -> Iterator[Any]:
        ctx.set_timer(5, "x")
        yield record

    def on_timer(self, name: str, ctx: Any) -> None:
        return None


def planned_rules(operator: BroadcastOperator, wait: bool = False, keyed: bool = True, parallelism: int = 2) -> Plan:
    pipeline = Pipeline("test")
    rules = pipeline.source("rules", source(2), parallelism=2)
    events = pipeline.source("events", source())
    events = events.key_by(key_of) if keyed else events
    events.broadcast("op", rules, operator, wait=wait, parallelism=parallelism).sink("out", NoSink())
    return plan(pipeline, config())


def test_every_task_gets_all_rules() -> None:
    task = Task(planned_rules(Tagged()), "rules/0")
    assert task.give(0, ("a", 1)) == [("a", 1)] * 2


@pytest.mark.parametrize("keyed", [True, False])
def test_a_record_sees_the_rules_that_came_before_it_in_key_order(keyed: bool) -> None:
    task = Task(planned_rules(Tagged(), keyed=keyed), "op/0")
    assert task.give(0, ("k", 1)) == [(("k", 1), [], 1)]
    assert task.give(1, ("b", 1), ("a", 2)) == [("now", ["b"]), ("now", ["a", "b"])]
    task.restore()
    assert task.give(2, ("b", 3), ("c", 4)) == [("now", ["a", "b"]), ("now", ["a", "b", "c"])]
    rules_seen = [("a", [2]), ("b", [1, 3]), ("c", [4])]
    assert task.give(0, ("k", 2)) == [(("k", 2), rules_seen, 2)]
    task.give(1, ("a", None))
    task.restore()
    task.restore(full=True)
    assert task.give(0, ("k", 3)) == [(("k", 3), rules_seen[1:], 3)]


@pytest.mark.parametrize("keyed", [True, False])
def test_records_wait_until_all_rules_are_there(keyed: bool) -> None:
    task = Task(planned_rules(Tagged(), wait=True, keyed=keyed), "op/0")
    assert task.give(0, ("k", 1), ("k", 2)) == []
    assert task.give(1, ("a", 1)) == [("now", ["a"])]
    task.restore()
    assert task.end(1) == []
    task.restore()
    assert task.end(2) == [(("k", 1), [("a", [1])], 1), (("k", 2), [("a", [1])], 2)]
    task.restore()
    assert task.give(0, ("k", 3)) == [(("k", 3), [("a", [1])], 3)]
    assert task.chain.counts() == {"op": {"held_back": 2}}


def test_what_waits_at_the_end_is_worked_on() -> None:
    task = Task(planned_rules(Tagged(), wait=True), "op/0")
    task.give(0, ("k", 1))
    assert task.finish() == [(("k", 1), [], 1)]


@pytest.mark.parametrize(
    ("input", "message"), [(0, "does not support item assignment"), (1, "process_broadcast has no key")]
)
def test_what_is_done_in_the_wrong_place_fails_with_one_line(input: int, message: str) -> None:
    task = Task(planned_rules(Wrong()), "op/0")
    with pytest.raises(OperatorFailed, match=f"^operator 'op'[^\n]*{message}[^\n]*$"):
        task.give(input, ("a", 1))


class InPlace(Tagged):
    """Changes a rule where it may only read it, as `read` of the rules reads it."""

    def __init__(self, read: Callable[[Any], Any]) -> None:
        self._read = read

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        self._read(ctx.broadcast).append(record)
        yield record


@pytest.mark.parametrize(
    "read", [lambda rules: rules["a"], lambda rules: rules.get("a"), lambda rules: next(iter(rules.values()))]
)
def test_a_rule_that_process_changes_is_named(read: Callable[[Any], Any]) -> None:
    task = Task(planned_rules(InPlace(read)), "op/0")
    task.give(1, ("a", 1))
    with pytest.raises(OperatorFailed, match=r"^operator 'op'[^\n]*process changed ctx.broadcast\['a'\] in place"):
        task.give(0, ("k", 1))


def test_a_large_rule_is_compared_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    digest_of, digests = broadcast._digest_of, list[Any]()

    def counted(value: Any) -> tuple[bytes, int]:
        digests.append(value)
        return digest_of(value)

    monkeypatch.setattr(broadcast, "_digest_of", counted)
    values: dict[Any, list[int]] = {"large": list(range(10_000)), **{n: [n] for n in range(200)}}
    rules = broadcast.Reading(values)
    for _ in range(100):
        assert len(rules.items()) == 201 and rules["large"][0] == 0
        assert rules.changed() == []
    assert len(digests) < 201 + 100 * broadcast.KEYS_PER_EVENT and len(digests) > 402
    rules["large"].append(1)
    events = 0
    while not rules.changed():
        events += 1
        rules.items()
    assert events < 40 and rules.copy() == values
    rules.forget()
    rules.items()
    assert rules.changed() == []


RULES = [("limit", 1), ("limit", 2), ("other", 3)]
EVENTS = [("k", 1), ("l", 2), ("k", 3), ("m", 4)]


def build() -> Pipeline:
    pipeline = Pipeline("ruled")
    rules = pipeline.source("rules", GeneratedSource(lambda p, i: RULES[i], len(RULES)))
    events = pipeline.source("events", GeneratedSource(lambda p, i: EVENTS[i], len(EVENTS))).key_by(key_of)
    events.broadcast("op", rules, Tagged(), wait=True, parallelism=2).sink("out", JsonLinesSink("/nowhere"))
    return pipeline


class Silent(Operator):
    def process(self, record: Any, ctx: Any) -> None:
        return None


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda s, r: s.broadcast("op", r, Silent()), "was given a Silent; pass an instance of a BroadcastOperator"),
        (lambda s, r: s.broadcast("op", r, Tagged), "was given the class Tagged"),
        (lambda s, r: s.broadcast("op", [1], Tagged()), "the rules of broadcast 'op' are a list"),
        (lambda s, r: s.broadcast("op", r.key_by(key_of), Tagged()), "are keyed, but every task receives all"),
        (lambda s, r: s.broadcast("op", r, Tagged(), wait=1), "has wait 1; use True or False"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(build: Any, message: str) -> None:
    pipeline = Pipeline("test")
    stream, rules = pipeline.source("in", source()), pipeline.source("rules", source())
    with pytest.raises(PipelineError, match=f"^[^\n]*{re.escape(message)}[^\n]*$"):
        build(stream, rules)
