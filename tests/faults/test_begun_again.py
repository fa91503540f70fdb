"""A second `causal run` where `--resume` was meant: nothing of the interrupted job is lost by it."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.harness.written import records_in
from tests.faults.conftest import Start
from tests.faults.job import Job, ended_of
from tests.faults.test_bad_input import one_line
from tests.members import members

PIPELINE = """
from operators import Pipeline
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource
from tests.faults.pipelines.held_source import hold_end

pipeline = Pipeline("counts")
existing = pipeline.settings.get("existing", "refuse")
source = GeneratedSource(lambda p, i: i % 7, count=3000, rate=500)
numbers = pipeline.source("numbers", hold_end(source, pipeline.settings["gate"]))
numbers.key_by(lambda r: r).count("count").sink("out", SqliteSink("out.db", existing=existing))
"""


def begun(start: Start, tmp_path: Path, *arguments: str) -> Job:
    """It does not end before `let_end`."""
    (tmp_path / "counts.py").write_text(PIPELINE)
    return start(tmp_path / "counts.py", "--set", f"gate={tmp_path / 'gate'}", *arguments)


def let_end(tmp_path: Path) -> None:
    (tmp_path / "gate").touch()


def interrupted(start: Start, tmp_path: Path, *arguments: str) -> Job:
    job = begun(start, tmp_path, "--checkpoint-interval", "0.3", *arguments)
    job.until_warm(records=500)
    job.interrupt()
    status, said = job.finish()
    assert status == 130 and "--resume" in one_line(said)
    return job


def counts(tmp_path: Path) -> list[list[int]]:
    return sorted(records_in(tmp_path / "out.db"))


def test_the_interrupted_job_can_still_be_resumed(start: Start, tmp_path: Path) -> None:
    job = interrupted(start, tmp_path)
    before = len(counts(tmp_path))
    status_text = ended_of(tmp_path, "status", "--state-dir", str(job.state)).stdout
    assert "not running: it was interrupted" in status_text and " pid " not in status_text
    status, said = job.start().finish()
    assert status == 1 and "holds rows of another run" in one_line(said)
    assert len(counts(tmp_path)) == before
    let_end(tmp_path)
    figures = job.start("--resume").finish_well()
    assert 0 < figures["active_s"] < figures["wall_s"]  # the time that the job was down is no part of this run
    assert counts(tmp_path) == sorted([key, n + 1] for key in range(7) for n in range(len(range(key, 3000, 7))))


@pytest.mark.parametrize("guarantee", members(["causal", "epoch"], "causal"))
def test_a_store_that_is_gone_is_named_and_no_other_is_made(start: Start, tmp_path: Path, guarantee: str) -> None:
    job = interrupted(start, tmp_path, "--guarantee", guarantee)
    let_end(tmp_path)
    store, aside = tmp_path / "out.db", tmp_path / "aside.db"
    store.rename(aside)
    status, said = job.start("--resume").finish()
    assert status == 2 and f"the store of out/0, {store}, is not there" in one_line(said)
    assert "a relative path counts from the current directory" in said and not store.exists()
    store.touch()
    status, said = job.start("--resume").finish()
    assert status == 1 and str(store) in one_line(said) and "the checkpoint was taken at" in said
    aside.rename(store)
    job.start("--resume").finish_well()
    assert counts(tmp_path) == sorted([key, n + 1] for key in range(7) for n in range(len(range(key, 3000, 7))))


@pytest.mark.campaign
def test_a_sink_that_says_replace_starts_over(start: Start, tmp_path: Path) -> None:
    job = interrupted(start, tmp_path)
    let_end(tmp_path)
    job.start("--set", "existing=replace").finish_well()
    assert counts(tmp_path) == sorted([key, n + 1] for key in range(7) for n in range(len(range(key, 3000, 7))))


def test_what_a_finished_job_left_is_neither_overwritten_nor_forgotten(start: Start, tmp_path: Path) -> None:
    job = begun(start, tmp_path)
    let_end(tmp_path)
    job.finish_well()
    before = counts(tmp_path)
    status, said = job.start().finish()
    assert status == 1 and "if it has not ended" in one_line(said)
    status, said = job.start("--resume").finish()
    assert status == 0 and "has finished already" in said
    status, said = job.start("--resume", "--rollback").finish()
    assert status == 2 and "there is nothing to roll back" in one_line(said)
    status, said = job.start("--resume", "--set", "existing=replace").finish()
    assert status == 2 and "has finished, and setting existing changed since" in one_line(said)
    assert counts(tmp_path) == before
