"""Clock and chance as others spell them: the causal services' inside an operator, the process's everywhere else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.unit.operators import ticket

HOME = Path(__file__).resolve().parents[3]

Told = Callable[[str], dict[str, Any]]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """What a process tells that was patched in that way."""
    site = tmp_path_factory.mktemp("site")
    ticket.install(site, "early")
    ticket.install(site, "late")

    @cache
    def ask(how: str) -> dict[str, Any]:
        ended = subprocess.run(
            [sys.executable, "-W", "ignore::DeprecationWarning", "-m", "tests.unit.operators.spellings", how],
            cwd=HOME,
            env={**os.environ, "PYTHONPATH": f"{HOME}:{site}"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        answer: dict[str, Any] = json.loads(ended.stdout)
        return answer

    return ask


@pytest.mark.parametrize("how", ["capture", "fallback"])
def test_every_spelling_gives_the_same_to_the_same_event_and_the_real_outside(told: Told, how: str) -> None:
    asking = told(how)["asking"]
    assert len(asking) > 30
    for name, (first, second, outside) in asking.items():
        assert first == second, f"{name} differs between two executions"
        assert first != outside, f"{name} is the process's own"


@pytest.mark.parametrize("how", ["capture", "fallback"])
def test_a_library_is_reached_however_it_took_the_names(told: Told, how: str) -> None:
    first, second, outside = told(how)["late"]
    assert first == second
    assert all(ours != real for ours, real in zip(first[:18], outside[:18], strict=True)), outside


@pytest.mark.parametrize("how", ["capture", "fallback"])
def test_so_is_one_that_was_loaded_before(told: Told, how: str) -> None:
    first, second, outside = (values[:18] for values in told(how)["early"])
    assert first == second
    assert all(ours != real for ours, real in zip(first, outside, strict=True)), outside


def test_the_body_of_a_module_imported_by_an_operator_is_not_the_operators(told: Told) -> None:
    """It runs in whichever process comes first: the clock that it reads is not logged."""
    assert told("capture")["late"][0][18] == "True"


def test_a_bound_method_that_no_module_holds_draws_from_the_operator(told: Told) -> None:
    first, second = told("capture")["taken before"]
    assert first == second


@pytest.mark.parametrize("how", ["capture", "refuse", "fallback"])
def test_who_gives_a_time_or_a_seed_asks_nobody(told: Told, how: str) -> None:
    assert told(how)["given"] == []


@pytest.mark.parametrize("how", ["capture", "refuse"])
def test_other_threads_and_the_runtime_get_the_real_values(told: Told, how: str) -> None:
    assert told(how)["elsewhere"] is True and told(how)["live"] is True


@pytest.mark.parametrize("how", ["capture", "refuse"])
def test_what_is_given_to_ctx_call_gets_the_real_values(told: Told, how: str) -> None:
    assert told(how)["suspended"] is True


def test_the_type_of_a_datetime_stays(told: Told) -> None:
    assert told("capture")["same type"] is True


def test_log_lines_and_temporary_files_cost_nothing(told: Told) -> None:
    assert told("capture")["logged"] is True


def test_a_generator_made_outside_of_operators_draws_from_the_operator(told: Told) -> None:
    """Its own state is in no checkpoint, so after a recovery it would begin again."""
    for name, (first, second, outside) in told("capture")["made outside"].items():
        assert first == second, f"{name} differs between two executions"
        assert all(ours != real for ours, real in zip(first, outside, strict=True)), name
    assert len(told("capture")["made outside"]) == 14


def test_a_generator_made_inside_is_the_same_in_a_replay_and_a_seed_counts(told: Told) -> None:
    for name, (first, second) in told("capture")["made inside"].items():
        assert first == second, name
    outside, inside = told("capture")["seeded inside"]
    assert outside == inside


def test_a_generator_made_outside_is_refused_by_name(told: Told) -> None:
    lines = told("refuse")["made outside"]
    assert lines.pop("of the system").startswith("operator 'count' calls os.urandom()")
    assert len(lines) == 6
    for name, line in lines.items():
        assert line == "operator 'count' calls a Random() made outside of the operator: use ctx.random", name


def test_finalisers_that_the_collector_runs_are_outside_of_operators(told: Told) -> None:
    facts = told("capture")["finalised"]
    assert facts["real"] == [True] * 6, "two callbacks at the start and at the stop, __del__ and a weak reference's"
    assert facts["inside"] < 1_600_000_000, "the operator is active again behind the collection"
    assert facts["keyed"] == "was not refused"
    assert all(at < 1_600_000_000 for at in facts["released"]), "what the operator releases is its own code"


def test_uuids_differ_even_if_the_operator_seeds_the_module(told: Told) -> None:
    (_, chance, one), (_, again, other) = told("capture")["seeded by the operator"]
    assert chance == again and one == other and one[12] == "4"


def test_a_refusal_names_operator_spelling_and_mend(told: Told) -> None:
    for name, line in told("refuse")["asking"].items():
        assert line.startswith(f"operator 'count' calls {name}: use ctx."), line


def test_a_refusal_cannot_be_caught(told: Told) -> None:
    assert told("refuse")["caught"] == "operator 'count' calls time.time(): use ctx.now()"


@pytest.mark.parametrize("how", ["capture", "refuse"])
def test_a_key_may_not_depend_on_the_clock(told: Told, how: str) -> None:
    assert "a key depends on its record alone" in told(how)["keying"]
