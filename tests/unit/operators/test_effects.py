"""The effects of an operator outside of its job: `ctx.replaying` and `ctx.log` say of each event whether it is new."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from operators import Operator, Pipeline
from operators.testing import run
from tests.unit.operators.scene import NoSink, source

COUNT = 12
NAMES = ("left", "right")


class Effects(Operator):
    """Notes each record for which it is not a replay; emits a row for each `every`-th one."""

    def __init__(self, notes: list[Any], every: int) -> None:
        self._notes = notes
        self._every = every

    def open(self, ctx: Any) -> None:
        ctx.log.info("opened")
        self._kept = ctx.log

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        ctx.state["n"] = n = ctx.state.get("n", 0) + 1
        if not ctx.replaying:
            self._notes.append((record["from"], record["i"]))
        self._kept.info("%s %s", record["from"], record["i"])
        ctx.log.debug("not shown, so nothing is asked")
        if n % self._every == 0:
            yield {**record, "n": n}


def united(notes: list[Any] | None, delivery: str, every: int = 1) -> Pipeline:
    """Return a pipeline whose operator notes its effects, or has none."""
    pipeline = Pipeline("effects")
    left, right = (pipeline.source(name, source()).watermarks(f"{name}-time", lambda r: r["i"]) for name in NAMES)
    silent: Any = type("Silent", (Operator,), {"process": lambda self, record, ctx: [record]})
    operator = silent() if notes is None else Effects(notes, every)
    processed = left.union(right).process("effects", operator, parallelism=1, delivery=delivery)
    processed.map("after", dict).sink("out", NoSink())
    return pipeline


INPUTS = {name: [{"from": name, "i": 2 * i + place} for i in range(COUNT)] for place, name in enumerate(NAMES)}
EVERYTHING = {(record["from"], record["i"]) for records in INPUTS.values() for record in records}
TASKS = ("effects/0", "after/0", "out/0")
CRASHES: list[dict[str, Any]] = [
    {},
    {"effects/0": 7},
    {"effects/0": [3, 9, 14]},
    {"after/0": 5},
    {"effects/0": 8, "out/0": 8},
    dict.fromkeys(TASKS, 6),
    dict.fromkeys(TASKS, [4, 11]),
]


@pytest.mark.parametrize("delivery", ["arrival", "ordered"])
@pytest.mark.parametrize("crash", CRASHES, ids=str)
def test_each_record_has_its_effects_once(
    delivery: str, crash: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """But for the one of an event that no other process had heard of when its task died."""
    elements = run(united([], delivery), INPUTS).elements  # operators may be in one task
    tasks = {task: at for task, at in crash.items() if task in elements}
    at = tasks.get("effects/0", [])
    deaths = len(at) if isinstance(at, list) else 1
    for seed, every in ((0, 0), (1, 7), (2, 0)):
        notes: list[Any] = []
        caplog.clear()
        with caplog.at_level(logging.INFO, "operators.effects"):
            result = run(united(notes, delivery), INPUTS, crash=tasks, seed=seed, checkpoint_every=every)
        assert len(result["out"]) == len(EVERYTHING)
        counts = Counter(notes)
        assert set(counts) == EVERYTHING
        assert sum(counts.values()) - len(EVERYTHING) <= deaths, (seed, counts)
        logged = [tuple(r.getMessage().split()) for r in caplog.records if r.getMessage() != "opened"]
        assert Counter((name, int(i)) for name, i in logged) == counts


@pytest.mark.parametrize("delivery", ["arrival", "ordered"])
def test_what_emits_seldom_has_its_effects_once_without_a_failure(delivery: str) -> None:
    notes: list[Any] = []
    run(united(notes, delivery, every=10), INPUTS)
    assert Counter(notes) == Counter(EVERYTHING)


def test_the_effects_of_an_ordered_task_are_known_after_the_death_of_all() -> None:
    """Its neighbours, which are dead as well, do not know how much of its output they had."""
    pipeline = united([], "ordered")
    tasks = list(run(pipeline, INPUTS).elements)
    for seed in range(4):
        notes: list[Any] = []
        run(united(notes, "ordered"), INPUTS, crash=dict.fromkeys(tasks, 9), seed=seed, checkpoint_every=0)
        assert set(notes) == EVERYTHING and len(notes) - len(EVERYTHING) <= 1


def test_an_ordered_task_that_does_not_ask_logs_nothing() -> None:
    assert not run(united(None, "ordered"), INPUTS).determinant_bytes.get("run")
    assert run(united([], "ordered"), INPUTS).determinant_bytes["run"] <= 2 * len(EVERYTHING)
