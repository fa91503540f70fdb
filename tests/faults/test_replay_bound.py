"""A job at full throttle whose checkpoints begin early, because a failure may make no task repeat more than a bound."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.harness.runs import sets
from benchmarks.jobs import keyed_ledger
from tests.faults.conftest import Start
from tests.faults.job import PIPELINES

RECORDS = 200_000
RARE_S = "600"
"""No checkpoint begins because of the time."""


@pytest.mark.campaign
def test_checkpoints_follow_the_work_of_the_tasks(start: Start, tmp_path: Path) -> None:
    out, gate = tmp_path / "ledger.db", tmp_path / "gate"
    settings = sets(count=RECORDS, out=out, gate=gate)
    config = {"heartbeat_ms": 50, "replay_target_ms": 100}
    job = start(PIPELINES / "held_ledger.py", *settings, "--checkpoint-interval", RARE_S, config=config)
    job.until("two checkpoints", lambda view: view["checkpoint"]["count"] >= 2)
    job.replace("count/0")
    gate.touch()
    report = job.finish_well()
    assert report["checkpoints"] >= 2
    counted = keyed_ledger.check(out, RECORDS)
    assert counted == {"rows": RECORDS, "lost": 0, "doubled": 0, "contradicted": 0}
