"""A job at full throttle whose checkpoints begin early, because a failure may make no task repeat more than a bound."""

from __future__ import annotations

from pathlib import Path

from benchmarks.harness.runs import KEYED_LEDGER
from benchmarks.jobs import keyed_ledger
from tests.faults.conftest import Start

RECORDS = 1_500_000
RARE_S = "600"
"""No checkpoint begins because of the time."""


def test_checkpoints_follow_the_work_of_the_tasks(start: Start, tmp_path: Path) -> None:
    out = tmp_path / "ledger.db"
    job = start(
        KEYED_LEDGER, "--set", f"count={RECORDS}", "--set", "rate=0", "--set", f"out={out}",
        "--checkpoint-interval", RARE_S, config={"replay_target_ms": 200},
    )  # fmt: skip
    job.until("two checkpoints", lambda view: view["checkpoint"]["count"] >= 2)
    job.replace("count/0")
    report = job.finish_well()
    assert report["checkpoints"] >= 2
    counted = keyed_ledger.check(out, RECORDS)
    assert counted == {"rows": RECORDS, "lost": 0, "doubled": 0, "contradicted": 0}
