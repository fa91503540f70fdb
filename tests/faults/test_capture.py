"""Hidden nondeterminism in jobs whose processes are killed: captured it replays, refused it is named."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.runs import sets
from benchmarks.harness.written import records_in
from tests.faults.conftest import Start
from tests.faults.job import PIPELINES, Job
from tests.faults.test_bad_input import one_line
from tests.members import members
from tests.unit.operators import ticket


def hidden(start: Start, directory: Path, *arguments: str, **settings: object) -> Job:
    ticket.install(directory / "site")
    values = sets(out=directory / "rows.db", site=directory / "site", **settings)
    return start(PIPELINES / "hidden.py", *values, *arguments)


def rows(directory: Path) -> list[dict[str, Any]]:
    return list(records_in(directory / "rows.db"))


def test_killed_tasks_replay_what_was_captured(start: Start, tmp_path: Path) -> None:
    began_s = time.time()
    gate = tmp_path / "gate"
    job = hidden(start, tmp_path, "--checkpoint-interval", "0.7", count=1000, rate=300, gate=gate)
    job.until_warm(records=300)
    for task in ("last/0", "lucky/0", "last/1"):
        job.replace(task)
    gate.touch()
    report = job.finish_well()
    assert len(report["recoveries"]) >= 3
    assert all(recovery["mode"] != "rollback" for recovery in report["recoveries"])
    assert report["determinant_bytes"]["clock"] > 0
    records = rows(tmp_path)
    assert 2000 * 0.7 < len(records) < 2000
    assert len({record["uuid"] for record in records}) == len(records)
    assert len({record["ticket"][0] for record in records}) == len(records)
    assert all(began_s - 1 < record["at"] <= record["last"] + 0.5 for record in records), "the clock is the real one"


@pytest.mark.campaign
def test_the_check_is_content(start: Start, tmp_path: Path) -> None:
    job = hidden(start, tmp_path, "--verify-replay", "--checkpoint-interval", "0.5", count=800, rate=800, parallelism=1)
    report = job.finish_well()
    assert report["checked_epochs"] and all(report["checked_epochs"].values())


def test_refused_it_stops_the_job_and_is_named(start: Start, tmp_path: Path) -> None:
    job = hidden(start, tmp_path, "--hidden-nondeterminism", "refuse")
    status, said = job.finish()
    assert status == 1 and "operator 'stamp' calls time.time(): use ctx.now()" in one_line(said)


@pytest.mark.parametrize("how", members(["capture", "refuse"]))
def test_a_key_that_depends_on_the_clock_is_refused(start: Start, tmp_path: Path, how: str) -> None:
    job = hidden(start, tmp_path, "--hidden-nondeterminism", how, spell="key")
    status, said = job.finish()
    assert status == 1 and "calls time.time" in one_line(said)
