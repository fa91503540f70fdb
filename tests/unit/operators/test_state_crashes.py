"""Wherever a task with declared state dies, the rows are those of a run in which none did: in memory and on disk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from operators import ListState, MapState, Operator, Pipeline, ReducingState, ValueState
from operators.state import cold_values
from operators.testing import At, every_crash, run
from tests.unit.operators.scene import NoSink, source


@dataclass
class Totals:
    n: int = 0
    seen: list[int] = field(default_factory=list)


class Keeper(Operator):
    """Emits all that it keeps."""

    items = ListState[int](ttl_s=3)
    brief = ListState[int](ttl_s=2, clock="processing")
    total = ValueState(Totals)
    by_rest = MapState[int, int](ttl_s=3)
    most = ReducingState[int](max)

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        number = record["n"]
        self.items.append(number)
        self.brief.append(number)
        self.total.value.n += 1
        self.total.value.seen.append(number)
        self.by_rest.pop(number % 5, None)
        self.by_rest[number % 3] = number
        self.most.add(-number)
        if number % 7 == 6:
            self.items.clear()
        yield [ctx.key, self.items[:], self.brief[:], self.total.value.n, list(self.by_rest.items()), self.most.value]

    def finish(self, ctx: Any) -> Iterator[Any]:
        yield [ctx.key, self.total.value.seen]


RECORDS = [At(100 + n * 0.7, {"k": n % 3, "n": n, "at": n * 0.7}) for n in range(16)]


def kept(state: Literal["memory", "disk"]) -> Pipeline:
    pipeline = Pipeline("kept")
    (
        pipeline.source("in", source())
        .watermarks("time", lambda record: record["at"], out_of_order_s=0.5)
        .key_by(lambda record: record["k"])
        .process("keep", Keeper(), state=state)
        .sink("out", NoSink())
    )
    return pipeline


def rows(state: Literal["memory", "disk"], crash: Any = None) -> Any:
    result = run(
        kept(state), {"in": RECORDS}, crash=crash, checkpoint_every=5, batch=2,
        state_memory_bytes_max=1 << 16, key_groups=4,
    )  # fmt: skip
    return result["out"], result.counts


CRASHES = [crash for crash in every_crash(kept("memory"), {"in": RECORDS}, batch=2) if "keep/0" in crash]


@pytest.mark.parametrize("state", ["memory", "disk"])
def test_a_crash_behind_each_record_shows_nowhere(
    state: Literal["memory", "disk"], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cold_values, "_BYTES_PER_VALUE", 1 << 20)  # all goes to disk after each event
    expected, counts = rows("memory")
    assert counts["keep"]["expired"] > 5 and len(CRASHES) == len(RECORDS)
    for crash in CRASHES:
        assert rows(state, crash) == (expected, counts), crash
