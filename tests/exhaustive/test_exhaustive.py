"""Tiny jobs explored whole, in bounds that fit a test run; `python -m tests.exhaustive` takes the larger ones."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.exhaustive import frozen
from tests.exhaustive.explore import Exploration, Outcome
from tests.exhaustive.story import breach_lines
from tests.exhaustive.world import Job
from tests.exhaustive.worlds import CHAIN, DIAMOND, JOBS, MERGE, PAIR
from tests.members import campaign, sample

STATES_MAX = 20_000

SMALL = [
    Job("pair, checkpoint without failures", PAIR, records=1, crashes=0, asks=1),
    Job("pair, zombie", PAIR, records=1, zombies=True),
    Job("pair, timer", PAIR, records=1, timers=True),
    Job("pair, loss", PAIR, records=1, losses=1),
    Job("pair, orders travel", PAIR, records=1, travelling=True),
    Job("chain, depth 1", CHAIN, records=1, depth=1),
    Job("merge without failures", MERGE, records=1, crashes=0),
    Job("pair, one host", PAIR, records=1, hosts=((0, 1),), zombies=True),
]
LARGE = [
    Job("chain", CHAIN, records=1),
    Job("chain, depth 1, two tasks on a host", CHAIN, records=1, depth=1, hosts=((0, 1),)),
    Job("pair, checkpoint", PAIR, records=1, asks=1),
    Job("pair, two crashes", PAIR, records=1, crashes=2),
    Job("pair, flush", PAIR, records=1, crashes=2, flush=True),
]


def explored(job: Job, audit: bool = False) -> Outcome:
    outcome = Exploration(job, STATES_MAX, audit).run()
    assert outcome.breach is None, "\n".join(breach_lines(outcome, outcome.breach))
    return outcome


@pytest.mark.parametrize("job", [*SMALL, *map(campaign, LARGE)], ids=lambda job: job.name)
def test_every_invariant_holds_in_every_state(job: Job) -> None:
    outcome = explored(job)
    assert outcome.whole and outcome.ended and outcome.states > outcome.depth
    wanted = {"deliver", "turn"}
    wanted |= {"host" if job.hosts else "crash", "promote"} if job.crashes else set()
    wanted |= {"cut-off" if job.hosts else "usurp"} if job.zombies else set()
    wanted |= {"inquire", "decide"} if job.hosts and job.depth == 1 else set()
    wanted |= {"ask", "disk", "complete"} if job.asks else set()
    wanted |= {"lose", "wait"} if job.losses else set()
    wanted |= {"read"} if job.travelling else set()
    wanted |= {"flush"} if job.flush else set()
    assert set(outcome.kinds) == wanted, "a world in which nothing of that happens shows nothing"


@pytest.mark.parametrize(
    ("job", "forms"),
    sample([(Job("pair", PAIR, records=1), 30), *((job, 10) for job in LARGE if job.name.startswith("pair"))], 1),
)
def test_states_that_are_taken_for_one_behave_alike(job: Job, forms: int) -> None:
    """Each form in which a state of a task was met is stepped next to the one that stands for all."""
    assert explored(job, audit=True).audited > forms


def test_merging_that_leaves_out_what_matters_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(frozen.WRITE_ONLY, "Receiver", frozenset(("peer_incarnation", "next_frame")))
    frozen.forget_fields()
    try:
        with pytest.raises(AssertionError, match="two forms of one state differ"):
            Exploration(Job("pair", PAIR, records=1), STATES_MAX, audit=True).run()
    finally:
        frozen.forget_fields()


@pytest.mark.campaign
def test_nondeterminism_behind_our_back_stops_the_job_before_it_shows() -> None:
    outcome = explored(Job("betrayed chain", CHAIN, records=1, betrays=1))
    assert outcome.whole and 0 < outcome.stopped < outcome.ended


@pytest.mark.campaign
def test_what_only_the_dead_knew_is_rolled_back_and_its_rows_withdrawn() -> None:
    outcome = Exploration(Job("rollback", CHAIN, records=1, depth=1, crashes=2, mortal=(0, 1)), 3 * STATES_MAX).run()
    assert outcome.breach is None, "\n".join(breach_lines(outcome, outcome.breach))
    assert outcome.whole and outcome.kinds["decide"] and outcome.withdrawn == 1


@pytest.mark.parametrize("job", [SMALL[0], campaign(SMALL[2])], ids=lambda job: job.name)
def test_two_runs_find_the_same_states(job: Job) -> None:
    one, other = explored(job), explored(job)
    assert (one.states, one.transitions, one.depth, one.kinds) == (
        other.states, other.transitions, other.depth, other.kinds,
    )  # fmt: skip


def test_a_bound_that_is_reached_is_not_called_whole() -> None:
    outcome = Exploration(Job("diamond", DIAMOND), 500).run()
    assert not outcome.whole and outcome.breach is None and outcome.states > 500


def test_the_command_prints_the_figures_of_a_world() -> None:
    command = [sys.executable, "-m", "tests.exhaustive", "--world", "pair-timer"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "pair-timer" in done.stdout and "every invariant holds in each" in done.stdout
    assert "pair-timer" in JOBS
