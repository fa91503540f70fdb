"""A supervisor of several hosts that ends before its first decision is resumed, and is never begun a second time."""

from __future__ import annotations

from pathlib import Path

import pytest

from causal.config import JobConfig
from causal.storage.shared import Depot
from standby.candidate.election import FILE as IDENTITY
from standby.leadership.term_journal import brought
from standby.leadership.terms import ENDED, RESIGNED, STOPPED, TERMS
from standby.storage.journal import FILE as JOURNAL
from standby.storage.store_journal import perform
from tests.unit.deploy.manifests import resumption
from tests.unit.deploy.several_hosts import Job

pytest.importorskip("obstore", reason="obstore is not installed (extra hosts)")


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    described = Job(tmp_path, monkeypatch)
    assert resumption(described.state) == ""
    assert described.run() == 0
    return described


def test_a_supervisor_that_ended_before_it_was_elected_is_resumed(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    assert (job.state / IDENTITY).exists() and not (job.state / JOURNAL).exists()
    assert job.depot.names(TERMS) == []
    assert resumption(job.state) == "--resume"
    run = JobConfig.load(job.state).run
    assert job.run("--resume") == 0, capsys.readouterr().err
    assert JobConfig.load(job.state).run == run
    job.led()
    assert not (job.state / JOURNAL).exists() and len(job.depot.names(TERMS)) == 1


def test_a_supervisor_that_ended_between_its_election_and_its_first_entry_is_resumed(
    job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    job.won()
    assert resumption(job.state) == "--resume"
    assert job.run("--resume") == 0, capsys.readouterr().err
    job.led()
    assert len(job.depot.names(TERMS)) == 2


def test_a_supervisor_whose_term_began_is_resumed(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    job.led()
    assert not (job.state / JOURNAL).exists()
    assert resumption(job.state) == "--resume"
    assert job.run("--resume") == 0, capsys.readouterr().err


@pytest.mark.parametrize("closing", ["", RESIGNED])
def test_a_new_run_over_an_interrupted_one_is_refused(
    job: Job, closing: str, capsys: pytest.CaptureFixture[str]
) -> None:
    job.led(closing)
    run = JobConfig.load(job.state).run
    assert job.run() == 2
    said = capsys.readouterr().err
    assert "job tiny was interrupted, and its tasks may still be running: resume it with --resume" in said
    assert JobConfig.load(job.state).run == run, "and nothing was discarded"


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("closing", [ENDED, STOPPED])
def test_a_new_run_may_begin_where_the_one_before_has_ended(
    job: Job, closing: str, sealed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    job.led(closing)
    if sealed:  # a resumption has looked at it, and was refused
        perform(brought(), job.depot)
    run = JobConfig.load(job.state).run
    assert job.run() == 0, capsys.readouterr().err
    assert JobConfig.load(job.state).run > run


def test_a_begin_that_left_nothing_but_code_does_not_hide_the_interrupted_run(
    job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    job.led()
    config = JobConfig.load(job.state)
    Depot(config.store, f"tiny/{config.run}x").create_own("code/x.zip", b"")
    assert job.run() == 2
    assert "resume it with --resume" in capsys.readouterr().err
