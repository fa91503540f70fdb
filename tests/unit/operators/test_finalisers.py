"""Finalisers in an operator, in jobs that crash: the collector runs them at another place in each process."""

from __future__ import annotations

import gc
import time
from typing import Any

import pytest

from operators import Operator, Pipeline
from operators.sources import GeneratedSource
from operators.testing import run
from tests.unit.operators.scene import NoSink


class Cyclic:
    """Garbage that only the collector finds, and that reads the clock when it does."""

    def __init__(self) -> None:
        self.me = self

    def __del__(self) -> None:
        time.time()


class Littering(Operator):
    """Makes garbage; the collector is triggered where it would be by chance: every few calls of this process."""

    calls = 0

    def process(self, record: Any, ctx: Any) -> Any:
        Cyclic()
        Littering.calls += 1
        if Littering.calls % 3 == 0:
            gc.collect(0)
        yield (record, ctx.now(), time.time())


def pipeline() -> Pipeline:
    littering = Pipeline("littering")
    numbers = littering.source("numbers", GeneratedSource(lambda p, i: i, count=12))
    littered = numbers.key_by(key_of).process("litter", Littering())
    littered.key_by(lambda row: row[0]).process("again", Littering()).sink("out", NoSink())
    return littering


def key_of(record: Any) -> Any:
    Cyclic()
    if record % 5 == 0:
        gc.collect(0)
    return record % 2


@pytest.mark.parametrize("task", ["litter/0", "again/0"])
def test_when_the_collector_runs_makes_no_difference(task: str) -> None:
    for seed in range(2):
        for place in range(1, 13, 3):
            assert len(run(pipeline(), crash={task: place}, seed=seed)["out"]) == 12
