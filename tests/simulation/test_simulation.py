"""The simulator in the test suite: a few hundred seeds, its own teeth, and what a sharing depth promises."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from causal.topology import FULL_DEPTH
from tests.members import campaign, members, sample
from tests.simulation.__main__ import main
from tests.simulation.clockwork import MS
from tests.simulation.diagram import drawn
from tests.simulation.finding import FOUND_WITHIN_SEEDS, SOON, finding
from tests.simulation.sabotage import SABOTAGES
from tests.simulation.sabotage_shell import LAST_ROWS_REFUSED
from tests.simulation.scenario import FAULTS, Fault, draw, from_json, plain
from tests.simulation.shrink import shrink
from tests.simulation.trial import Outcome, run

SEEDS = 300
GROUP = 5
SAMPLED = (5, 200, 205)
"""The groups of seeds that every run takes; they have each fault at least once."""
PROGRAMMING_ERRORS = ("TypeError", "AttributeError", "NameError")
"""The errors of a sabotage whose signature is no longer that of what it replaces."""
ROOT = Path(__file__).parents[2]
SEEDS_TWICE = [(2, 13), campaign((5, 7))]
"""The seeds that are run in two processes, whose sets have other orders."""
FIRST_SEEDS = members(range(0, SEEDS, GROUP), *SAMPLED)


def failing(outcomes: list[Outcome]) -> str:
    return "\n".join(
        f"{o.problem}\n  again: python -m tests.simulation{' --hosts' if o.scenario.layout is not None else ''}"
        f" --first {o.scenario.seed} --seeds 1"
        for o in outcomes
        if o.problem
    )


@pytest.mark.parametrize("first", FIRST_SEEDS)
def test_every_promise_is_kept_whatever_fails(first: int) -> None:
    outcomes = [run(draw(seed)) for seed in range(first, first + GROUP)]
    assert not failing(outcomes), failing(outcomes)
    assert sum(outcome.figures["checks"] for outcome in outcomes) > 100 * GROUP


def test_the_sampled_seeds_meet_every_fault() -> None:
    seeds = (first + at for first in SAMPLED for at in range(GROUP))
    assert {fault.kind for seed in seeds for fault in draw(seed).faults} == set(FAULTS)


REGRESSIONS = sorted((Path(__file__).parent / "regressions").glob("*.json"))
"""Scenarios that once broke a promise, kept because a change of what seeds mean changes them."""


@pytest.mark.parametrize("path", REGRESSIONS, ids=lambda path: path.stem)
def test_what_once_broke_a_promise_keeps_it(path: Path) -> None:
    outcome = run(from_json(path.read_text()))
    assert not outcome.problem, outcome.problem


@pytest.mark.parametrize("name", members(SABOTAGES, *SOON))
def test_a_broken_rule_is_found(name: str) -> None:
    """A seed that no longer finds it makes the search longer, and does not fail it."""
    assert_found(name, (run(scenario, name).problem for scenario in finding(name)))


@pytest.mark.campaign
@pytest.mark.parametrize("name", [name for name, sabotage in SABOTAGES.items() if sabotage.seed is not None])
def test_a_broken_rule_is_found_from_any_seed_on(name: str) -> None:
    sabotage = SABOTAGES[name]
    first = (sabotage.seed or 0) + 1
    seeds = range(first, first + FOUND_WITHIN_SEEDS)
    assert_found(name, (run(sabotage.drawn_by(seed), name).problem for seed in seeds))


def assert_found(name: str, problems: Iterator[str]) -> None:
    detected = next((problem for problem in problems if problem), "")
    assert detected, f"{name} is not found: a hole in the checkers"
    assert not detected.startswith(PROGRAMMING_ERRORS), f"{name} does not break a rule, it is broken itself: {detected}"


def test_rows_refused_at_the_end_are_written_when_the_store_is_back() -> None:
    outcomes = [run(scenario) for scenario in LAST_ROWS_REFUSED]
    assert not failing(outcomes), failing(outcomes)


def test_a_sabotage_ends_with_its_run() -> None:
    scenario = next(each for each in finding("skip-a-delta") if run(each, "skip-a-delta").problem)
    assert not run(scenario).problem


@pytest.mark.parametrize("seed", members((3, 7, 11), 3))
def test_the_same_seed_is_the_same_run(seed: int) -> None:
    assert run(draw(seed)).digest == run(draw(seed)).digest != run(draw(seed + 1)).digest


@pytest.mark.parametrize("seeds", SEEDS_TWICE, ids=str)
def test_the_same_seed_is_the_same_run_in_another_process(seeds: tuple[int, ...]) -> None:
    code = "from tests.simulation.trial import run; from tests.simulation.scenario import draw; "
    code += f"print([run(draw(seed)).digest for seed in {seeds}])"
    other = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout
    assert other == f"{[run(draw(seed)).digest for seed in seeds]}\n"


def test_a_failure_is_made_smaller_and_can_be_drawn() -> None:
    name = "write-rows-again"
    failure = next(outcome for outcome in (run(each, name) for each in finding(name)) if outcome.problem)
    smaller, tries = shrink(failure, name)
    assert smaller.problem and smaller.sort == failure.sort and tries > 0
    was, now = failure.scenario, smaller.scenario
    assert (len(now.faults), sum(now.layers), now.records) < (len(was.faults), sum(was.layers), was.records)
    picture = ElementTree.fromstring(drawn(now, name))
    words = " ".join(text for text in picture.itertext())
    assert (
        failure.sort.split(": ")[1] in words
        and "✕" in words
        and len(list(picture.iter("{http://www.w3.org/2000/svg}line"))) > 20
    )


def test_the_command_line_says_how_to_repeat_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--sabotage", "skip-a-delta", "--first", "0", "--jobs", "1"]) == 0
    assert "skip-a-delta: found by seed" in capsys.readouterr().out
    assert main(["--seeds", "1", "--jobs", "1"]) == 0
    assert "1 passed, 0 failed" in capsys.readouterr().out


# -- what a sharing depth promises (item 2 of the masking rule, D3) ----------------------------------------


ROWS = sample([range(2), range(2, 25)], 1)
"""Seeds of rows of tasks."""


def _neighbours_die(seed: int, depth: int, dead: int) -> Outcome:
    """Six tasks in a row; `dead` neighbours are killed in the same instant, well into the job."""
    like, kinds = draw(seed), ("clock", "random", "call", "user")
    row = plain(
        seed, (1,) * 6, depth=depth, kinds=kinds, batch_elements=like.batch_elements, latency_us=like.latency_us
    )
    # Not the sink: its store outlives it, and so would mask more than the depth says.
    first = seed % (len(row.layers) - 1 - dead) if dead < len(row.layers) - 1 else 0
    return run(replace(row, faults=(Fault("several", (400 + seed) * MS, first, dead - 1),)))


@pytest.mark.parametrize("seeds", ROWS, ids=str)
@pytest.mark.parametrize(("depth", "dead"), members([(1, 1), (2, 2), (3, 3), (FULL_DEPTH, 5)], (2, 2), (FULL_DEPTH, 5)))
def test_a_depth_of_f_masks_f_neighbours_that_die_together(depth: int, dead: int, seeds: range) -> None:
    outcomes = [_neighbours_die(seed, depth, dead) for seed in seeds]
    assert not failing(outcomes), failing(outcomes)
    assert sum(outcome.figures["rollbacks"] for outcome in outcomes) == 0
    assert sum(outcome.figures["withdrawn rows"] for outcome in outcomes) == 0
    standby, cold = (sum(outcome.figures[f"recovered: {mode}"] for outcome in outcomes) for mode in ("standby", "cold"))
    # The standby of a task that dies early may still be starting.
    assert standby + cold == len(seeds) * dead and standby >= (len(seeds) - 1) * dead


@pytest.mark.parametrize("seeds", ROWS, ids=str)
@pytest.mark.parametrize("depth", members([1, 2, 3], 2))
def test_one_more_than_the_depth_rolls_back_what_depends_on_what_is_lost(depth: int, seeds: range) -> None:
    outcomes = [_neighbours_die(seed, depth, depth + 1) for seed in seeds]
    assert not failing(outcomes), failing(outcomes)
    assert sum(outcome.figures["rollbacks"] for outcome in outcomes) > 0
