"""A standby that loads no complete snapshot but the first, and otherwise increments, takes over as any other.

Pipelines, inputs and rows are those of the oracles; all or half of the snapshots are complete, and each task dies at
its last record.
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
from causal.task import checkpointing
from operators.state.snapshot_parts import increment_of, read_part
from operators.testing import run
from operators.testing.world import World
from tests.members import members
from tests.oracles.all import ORACLES
from tests.oracles.frame import Draw

NAMES = (
    "windows", "sessions", "count-windows", "triggers", "join", "window-join", "join-as-of", "state", "ttl", "order",
    "window-table", "groups", "ordered-windows", "ordered-timers", "chains",
)  # fmt: skip
"""Oracles whose rows are the same wherever a task dies."""

LINKED = [("state", 0), ("chains", 0), ("ordered-timers", 0)]

loaded: Counter[str] = Counter()


def followed(world: World, index: int, files: Sequence[SnapshotFile]) -> tuple[Chain, Cut, int]:
    """Restore as a standby that has followed since the first checkpoint."""
    chain, cut, received, last = world.plan.chain(index), Cut(), 0, ""
    names = {span.last: name for task, name in world.snapshots if task == index and (span := span_of(name))}
    until = span_of(files[-1][0]) if files else None
    for epoch in sorted(epoch for epoch in names if until is not None and epoch <= until.last):
        parts, digest, received = world.snapshots[index, names[epoch]]
        cut = Cut.unpack(parts[0])
        changed = increment_of(parts[1], last) if last else None
        header, _ = read_part(parts[1])
        kind = "link" if changed is not None else "increment" if header and not header["full"] else "complete"
        loaded[kind] += 1
        if kind == "complete":
            chain = world.plan.chain(index)
        chain.restore(parts[1:] if changed is None else changed)
        last = digest
    return chain, cut, received


ALWAYS = [(name, 0) for name in ("state", "windows", "join")]


@pytest.mark.parametrize(("name", "first"), members(product(NAMES, range(0, 200, 10)), *ALWAYS))
def test_a_standby_needs_no_complete_snapshot_but_the_first(
    name: str, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpointing, "LINKED_FROM_BYTES", 0)
    monkeypatch.setattr(World, "_restored", followed)
    loaded.clear()
    for seed in range(first, first + 10):
        monkeypatch.setattr(checkpointing, "files_max", lambda base_bytes, seed=seed: 1 + seed % 2)
        scenario = ORACLES[name](Draw(f"{name}/{seed}"))
        batch = 2 if 2 in scenario.batches else 1
        options: dict[str, Any] = {"seed": seed, "batch": batch, "checkpoint_every": 1, **scenario.config}
        elements = run(scenario.pipeline, scenario.inputs, **options).elements
        for task in filter(elements.get, elements):
            scenario.check(run(scenario.pipeline, scenario.inputs, crash={task: elements[task]}, **options))
    assert loaded["link"] > 0 or (name, first) not in LINKED, loaded
