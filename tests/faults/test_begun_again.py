"""A second `causal run` where `--resume` was meant: nothing of the interrupted job is lost by it."""

from __future__ import annotations

from collections.abc import Sequence
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


def let_end(tmp_path: Path) -> None:
    (tmp_path / "gate").touch()


def interrupted(start: Start, tmp_path: Path, *arguments: str) -> Job:
    (tmp_path / "counts.py").write_text(PIPELINE)
    gate = f"gate={tmp_path / 'gate'}"
    job = start(tmp_path / "counts.py", "--set", gate, "--checkpoint-interval", "0.3", *arguments)
    job.until_warm(records=500)
    job.interrupt()
    status, said = job.finish()
    assert status == 130 and "--resume" in one_line(said)
    return job


def counts(tmp_path: Path) -> list[list[int]]:
    return sorted(records_in(tmp_path / "out.db"))


def assert_exact(tmp_path: Path) -> None:
    assert counts(tmp_path) == sorted([key, n + 1] for key in range(7) for n in range(len(range(key, 3000, 7))))


@pytest.mark.parametrize("guarantee", members(["causal", "epoch"], "causal"))
def test_what_an_interrupted_and_a_finished_job_left_is_neither_overwritten_nor_forgotten(
    start: Start, tmp_path: Path, guarantee: str
) -> None:
    """A store that is gone is named as well, and no other is made."""
    job = interrupted(start, tmp_path, "--guarantee", guarantee)
    before = len(counts(tmp_path))
    status_text = ended_of(tmp_path, "status", "--state-dir", str(job.state)).stdout
    assert "not running: it was interrupted" in status_text and " pid " not in status_text
    assert_refused(job, (), 1, "holds rows of another run")
    assert len(counts(tmp_path)) == before
    let_end(tmp_path)
    store, aside = tmp_path / "out.db", tmp_path / "aside.db"
    store.rename(aside)
    said = assert_refused(job, ("--resume",), 2, f"the store of out/0, {store}, is missing")
    assert "a relative path is resolved from the current directory" in said and not store.exists()
    store.touch()
    said = assert_refused(job, ("--resume",), 1, "the checkpoint was taken at")
    assert str(store) in said
    aside.rename(store)
    figures = job.start("--resume").finish_well()
    assert 0 < figures["active_s"] < figures["wall_s"]  # the time that the job was down is no part of this run
    assert_exact(tmp_path)
    status, said = job.start("--resume").finish()
    assert status == 0 and "has finished already" in said
    assert_refused(job, (), 1, "if it has not ended")
    assert_refused(job, ("--resume", "--rollback"), 2, "so --rollback needs the name of a savepoint")
    changed = ("--resume", "--set", "existing=replace")
    assert_refused(job, changed, 2, "has finished, and setting existing changed since")
    (tmp_path / "counts.py").write_text(PIPELINE.replace("i % 7", "i % 8"))
    assert_refused(job, ("--resume",), 2, "has finished, and counts.py changed since")
    status, said = job.start("--resume", "--code", "kept").finish()
    assert status == 0 and "has finished already" in said
    assert_exact(tmp_path)


def assert_refused(job: Job, arguments: Sequence[str], status: int, words: str) -> str:
    """Assert that a `causal run` ends with one line that has these words; returns it."""
    ended, said = job.start(*arguments).finish()
    assert ended == status and words in one_line(said), said
    return said


@pytest.mark.campaign
def test_a_sink_that_says_replace_starts_over(start: Start, tmp_path: Path) -> None:
    job = interrupted(start, tmp_path)
    let_end(tmp_path)
    job.start("--set", "existing=replace").finish_well()
    assert_exact(tmp_path)
