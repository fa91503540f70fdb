"""Jobs whose snapshots are merged all the time give the rows of any other job, wherever a task dies.

Pipelines, inputs and rows are those of the oracles. A task that dies is restored from its files, or continues as a
standby that loaded some earlier files and skips those that it does not need.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest

from causal.cut import Cut
from causal.ports import Chain
from causal.snapshot_files import SnapshotFile, span_of
from causal.task import checkpointing, merging
from operators.testing import run
from operators.testing.world import World
from tests.members import members
from tests.oracles.all import ORACLES
from tests.oracles.frame import Draw

NAMES = (
    "windows", "sessions", "count-windows", "triggers", "join", "window-join", "state", "ttl", "order", "window-table",
    "groups", "ordered-windows", "ordered-timers", "chains",
)  # fmt: skip
"""Oracles whose rows are the same wherever a task dies."""

MERGED = [("state", 0), ("ttl", 50), ("windows", 25)]

seen: Counter[str] = Counter()


def restored(world: World, index: int, files: Sequence[SnapshotFile]) -> tuple[Chain, Cut, int]:
    """Restore as a standby that had loaded the state at an earlier barrier and then loads only what came after it."""
    chain, cut, received = world.plan.chain(index), Cut(), 0
    spans = [span_of(name) for name, _, _ in files]
    seen.update("merged" for span in spans if span is not None and span.merged)
    later = [
        (span.last, name)
        for task, name in world.snapshots
        if task == index and (span := span_of(name)) is not None and not span.merged
    ]
    last = spans[-1].last if spans and spans[-1] is not None else 0
    written = [name for epoch, name in sorted(dict(later).items()) if epoch <= last]
    until = len(written) // 2 if world.chance.random() < 0.5 else 0
    if spans and spans[0] is not None and until and (span_of(written[until - 1]) or spans[0]).last < spans[0].last:
        until = 0
    for name in written[:until]:
        parts, _, received = world.snapshots[index, name]
        cut = Cut.unpack(parts[0])
        chain.restore(parts[1:])
    for (name, _, _), span in zip(files, spans, strict=True):
        if span is not None and span.last > cut.epoch:
            parts, _, received = world.snapshots[index, name]
            seen["inside"] += span.merged and 0 < span.first <= cut.epoch
            cut = Cut.unpack(parts[0])
            chain.restore(parts[1:])
    return chain, cut, received


@pytest.mark.parametrize(("name", "first"), members(product(NAMES, range(0, 200, 5)), *MERGED))
def test_rows_are_the_same_where_snapshots_are_merged(name: str, first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "MERGED_FROM_BYTES", 0)
    monkeypatch.setattr(merging, "RUN_BYTES_MIN", 0)
    monkeypatch.setattr(checkpointing, "FILES_MAX", 12)
    monkeypatch.setattr(World, "_restored", restored)
    seen.clear()
    for seed in range(first, first + 5):
        monkeypatch.setattr(merging, "WRITTEN_MAX", 2 + seed % 3)
        monkeypatch.setattr(merging, "FACTOR", (1, 2, 100)[seed % 3])
        scenario = ORACLES[name](Draw(f"{name}/{seed}"))
        batch = 2 if 2 in scenario.batches else 1
        options: dict[str, Any] = {"seed": seed, "batch": batch, "checkpoint_every": 1, **scenario.config}
        elements = run(scenario.pipeline, scenario.inputs, **options).elements
        for task in filter(elements.get, elements):
            scenario.check(run(scenario.pipeline, scenario.inputs, crash={task: elements[task]}, **options))
    assert seen["merged"] > 0 or (name, first) not in MERGED, seen
