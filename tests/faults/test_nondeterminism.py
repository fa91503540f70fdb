"""A misbehaving operator is named: at its first recovery, and by `causal run --verify-replay` without any failure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.harness.processes import kill
from benchmarks.harness.runs import sets
from tests.faults.conftest import HeldChain, Start
from tests.faults.job import FRAUD_CHAIN, PIPELINES, Job, causal
from tests.faults.test_bad_input import one_line
from tests.members import members

ENDLESS = 100_000_000
"""Records that no test waits for."""

VISIBLE = ("urandom", "address", "thread")


def misbehaving(start: Start, directory: Path, how: str, count: int, *arguments: str) -> Job:
    settings = sets(how=how, count=count, out=directory / "rows")
    return start(PIPELINES / "misbehaving.py", *settings, "--hidden-nondeterminism", "allow", *arguments)


def last_line(said: str) -> str:
    """Return the line after the warnings, which the pipelines here deserve."""
    *warnings, line = said.splitlines()
    assert all(each.startswith("causal: warning: ") for each in warnings), said
    return one_line(line)


@pytest.mark.parametrize("how", members(VISIBLE))
def test_at_its_first_recovery(start: Start, tmp_path: Path, how: str) -> None:
    job = misbehaving(start, tmp_path, how, ENDLESS, "--checkpoint-interval", "600")
    job.until_warm(records=300, checkpoints=0)
    kill(job.pid_of("misbehaving/0"))
    status, said = job.finish()
    line = last_line(said)
    assert status == 1 and "misbehaving/0" in line and "nondeterministic" in line, line
    assert line.index("is nondeterministic: ") < line.index(" (ReplayDivergence: "), line


@pytest.mark.parametrize("how", members([*VISIBLE, "state"], "state"))
def test_by_the_check_without_any_failure(start: Start, tmp_path: Path, how: str) -> None:
    job = misbehaving(start, tmp_path, how, ENDLESS, "--verify-replay", "--checkpoint-interval", "0.3")
    status, said = job.finish()
    line = said.splitlines()[-1]
    assert status == 1 and line.startswith("causal: ") and "misbehaving/0" in line, said
    assert "performed again from its own log" in line or "the rehearsal asks for" in line or "the replay" in line, line
    assert job.view()["recoveries"] == []  # type: ignore[index]


@pytest.mark.campaign
def test_the_check_finds_nothing_where_nothing_is(start_chain: Callable[..., HeldChain]) -> None:
    """Clock, random numbers, calls, timers, windows and state, all by the book; and a failure on the way."""
    chain = start_chain("--verify-replay", "--checkpoint-interval", "0.4", "--set", "parallelism=1")
    chain.job.until_warm(records=150, checkpoints=2)
    chain.job.replace("score/0")
    report = chain.finish_exactly()
    assert report["checked_epochs"] and all(report["checked_epochs"].values())
    assert [recovery["task"] for recovery in report["recoveries"]] == ["score/0"]


@pytest.mark.campaign
def test_a_bounded_job_waits_for_the_check_of_every_task(start: Start, tmp_path: Path) -> None:
    """All records are through before the first checkpoint."""
    settings = sets(out=tmp_path / "fraud.db", count=100)
    report = start(FRAUD_CHAIN, *settings, "--verify-replay", "--checkpoint-interval", "1").finish_well()
    assert all(report["checked_epochs"].values())


def test_a_check_without_standbys_is_refused(tmp_path: Path) -> None:
    status, said = causal(tmp_path, "run", str(FRAUD_CHAIN), "--verify-replay", "--standbys", "0")
    assert status == 2 and "per-task" in one_line(said)
    status, said = causal(tmp_path, "run", str(FRAUD_CHAIN), "--verify-replay", "--guarantee", "none")
    assert status == 2 and "causal" in one_line(said)


CULPRITS = {
    "attribute": "attribute `counts` of Count changed in process(); declare it as state",
    "scalar": "attribute `last` of Count changed in process(); declare it as state",
    "class": "attribute `everything` of class Count changed while operators ran",
    "global": "global `seen` of forgetful.py changed while operators ran; keep it in ctx.state",
    "closure": "variable `n` that numbering.<locals>.number closes over changed while operators ran",
    "default": "variable `kept` that defaulting closes over changed while operators ran",
}
"""The culprit that is named, by where an operator keeps its count."""


SINGLE_EPOCH = 300
"""Records that are through before the second checkpoint."""
CASES = [(how, count) for how in CULPRITS for count in (ENDLESS, SINGLE_EPOCH)]


def forgetful(start: Start, directory: Path, how: str, count: int, *arguments: str) -> Job:
    return start(PIPELINES / "forgetful.py", *sets(how=how, count=count, out=directory / "rows"), *arguments)


@pytest.mark.parametrize(("how", "count"), members(CASES, ("closure", SINGLE_EPOCH)))
def test_the_check_names_what_is_kept_outside_of_state(start: Start, tmp_path: Path, how: str, count: int) -> None:
    job = forgetful(start, tmp_path, how, count, "--verify-replay", "--checkpoint-interval", "0.6")
    status, said = job.finish()
    line = said.splitlines()[-1]
    assert status == 1 and line.startswith("causal: ") and "count" in line, said
    assert "performed again from its own log" in line and CULPRITS[how] in line, line


@pytest.mark.campaign
def test_caches_loggers_and_clients_are_no_mistake(start: Start, tmp_path: Path) -> None:
    report = forgetful(start, tmp_path, "cache", 1500, "--verify-replay", "--checkpoint-interval", "0.4").finish_well()
    assert all(report["checked_epochs"].values())


@pytest.mark.parametrize("how", members(["attribute", "global"], "global"))
def test_the_first_recovery_names_it_too(start: Start, tmp_path: Path, how: str) -> None:
    job = forgetful(start, tmp_path, how, ENDLESS, "--checkpoint-interval", "2")
    view = job.until_warm(records=300)
    written = sum(task["figures"]["records_out"] for task in view["tasks"] if task["sink"])
    job.until_written(written + 1000)  # there is something to perform again
    kill(job.pid_of("count/0"))
    status, said = job.finish()
    line = last_line(said)
    assert status == 1 and "count/0" in line and CULPRITS[how] in line, line
