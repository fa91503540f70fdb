"""A job that a record has stopped is resumed with dead letters: the record is put aside, nothing else changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.written import rows_in
from tests.faults.conftest import Start
from tests.faults.job import PIPELINES, Job
from tests.members import campaign

LOOKED_UP = PIPELINES / "looked_up.py"
COUNT, RAISES = 2000, 500
BAD = [i for i in range(COUNT) if i % RAISES == RAISES - 1]


def rows(directory: Path) -> list[tuple[str, int, dict[str, Any]]]:
    stored = rows_in(directory / "out.db", "SELECT task, position, record FROM output ORDER BY task, position")
    return [(task, position, json.loads(record)) for task, position, record in stored]


def assert_exact(job: Job, before: list[tuple[str, int, dict[str, Any]]]) -> None:
    """Each record has a row or a letter, once, and what had been visible before is so still."""
    after = rows(job.directory)
    assert set(map(repr, before)) <= set(map(repr, after))
    assert sorted(record["i"] for _, _, record in after) == [i for i in range(COUNT) if i not in BAD]
    for key in (0, 1):
        ordered = sorted(record["n"] for _, _, record in after if record["i"] % 2 == key)
        assert ordered == list(range(1, len(ordered) + 1))
    assert sorted(letter["record"]["i"] for letter in job.letters()) == BAD


@pytest.mark.parametrize(
    "settings",
    [
        campaign((), id="causal"),
        campaign(("--checkpoint-interval", "30"), id="no checkpoint"),
        campaign(("--sharing-depth", "1", "--determinant-flush", "background"), id="flushed"),
        pytest.param(("--guarantee", "epoch", "--checkpoint-interval", "0.2"), id="epoch"),
    ],
)
def test_a_record_that_stopped_the_job_is_put_aside_when_it_is_resumed(
    start: Start, tmp_path: Path, settings: tuple[str, ...]
) -> None:
    gate = tmp_path / "gate"
    job = start(LOOKED_UP, "--set", f"gate={gate}", *(settings or ("--checkpoint-interval", "0.2")))
    status, line = job.finish()
    assert status == 1 and line.rstrip().endswith("or resume with --on-error dead-letter to set such records aside")
    before = rows(tmp_path)
    assert before or "epoch" in settings
    job.start("--resume", "--on-error", "dead-letter")
    for task in ("draw/0", "dead-letters/0"):
        job.until_warm(checkpoints=0)
        job.replace(task)
    job.until_warm(checkpoints=0)
    job.kill_everything()
    gate.touch()
    job.start("--resume")  # it keeps what it was resumed with
    job.finish_well()
    assert_exact(job, before)


@pytest.mark.parametrize("processes", ["one", "stages"])
def test_a_cell_begins_to_write_dead_letters_when_it_is_resumed(start: Start, tmp_path: Path, processes: str) -> None:
    gate = tmp_path / "gate"
    job = start(LOOKED_UP, "--set", f"gate={gate}", "--processes", processes, "--checkpoint-interval", "0.2")
    assert job.finish()[0] == 1
    before = rows(tmp_path)
    gate.touch()
    job.start("--resume", "--on-error", "dead-letter")
    job.finish_well()
    assert_exact(job, before)
