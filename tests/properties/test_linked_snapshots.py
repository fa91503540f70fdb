"""A standby that loads no complete snapshot but the first, and otherwise increments, takes over as any other.

Pipelines and inputs are those of `batching`; all or half of the snapshots are complete, and each task dies at its last
record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import product
from random import Random
from typing import Any

import pytest

from causal.cut import Cut
from causal.ports import Chain
from causal.task import checkpointing
from causal.task.checkpointing import SnapshotFile
from operators.state.snapshot_parts import increment_of, read_part
from operators.testing import run
from operators.testing.world import World
from tests.members import sample
from tests.properties import batching

loaded: Counter[str] = Counter()


def followed(world: World, index: int, files: Sequence[SnapshotFile]) -> tuple[Chain, Cut, int]:
    """Restore as a standby that has followed since the first checkpoint."""
    chain, cut, received, last = world.plan.chain(index), Cut(), 0, ""
    until = int(files[-1][0]) if files else 0
    for epoch in sorted(epoch for task, epoch in world.snapshots if task == index and epoch <= until):
        parts, digest, received = world.snapshots[index, epoch]
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


@pytest.mark.parametrize(("name", "first"), sample(product(batching.DRAWS, range(0, 200, 10)), 6))
def test_a_standby_needs_no_complete_snapshot_but_the_first(
    name: str, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpointing, "LINKED_FROM_BYTES", 0)
    monkeypatch.setattr(World, "_restored", followed)
    loaded.clear()
    for seed in range(first, first + 10):
        monkeypatch.setattr(checkpointing, "files_max", lambda base_bytes, seed=seed: 1 + seed % 2)
        case = batching.DRAWS[name](Random(f"{name} {seed}"))
        options: dict[str, Any] = {"seed": seed, "batch": 2, "checkpoint_every": 1}
        undisturbed = run(case.build(), case.inputs, **options)
        for task in filter(undisturbed.elements.get, undisturbed.elements):
            crash = {task: undisturbed.elements[task]}
            assert case.rows(run(case.build(), case.inputs, crash=crash, **options)) == case.rows(undisturbed), seed
    assert first or loaded["link"] > 0, loaded
