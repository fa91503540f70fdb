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

Report = Callable[[str], dict[str, Any]]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Returns the report of a process that was patched in that way."""
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
@pytest.mark.parametrize(("library", "least"), [("asking", 30), ("late", 18), ("early", 18), ("created outside", 14)])
def test_every_spelling_gives_the_same_to_the_same_event_and_the_real_outside(
    report: Report, how: str, library: str, least: int
) -> None:
    """This holds for a library however it took the names, and for generators that are in no checkpoint."""
    values = report(how)[library]
    triples = list(values.values()) if isinstance(values, dict) else list(zip(*(each[:18] for each in values)))
    assert len(triples) >= least
    for first, second, outside in triples:
        assert first == second != outside, f"{first!r} and {second!r} in an operator, {outside!r} outside"
        if library == "created outside":
            assert all(ours != real for ours, real in zip(first, outside, strict=True))


@pytest.mark.parametrize("what", ["made inside", "seeded by nothing", "taken before", "seeded inside"])
def test_what_a_generator_draws_inside_of_an_operator_is_the_same_in_a_replay(report: Report, what: str) -> None:
    """Everything that its operator draws later follows from a seed, so it must not be the kernel's."""
    values = report("capture")[what]
    for first, second in values.values() if isinstance(values, dict) else [values]:
        assert first == second


@pytest.mark.parametrize(
    ("how", "fact", "value"),
    [
        *((how, "given", []) for how in ("capture", "refuse", "fallback")),
        *((how, fact, True) for how in ("capture", "refuse") for fact in ("elsewhere", "live", "suspended")),
        ("capture", "same type", True),
        ("capture", "logged", True),
        ("refuse", "caught", "operator 'count' calls time.time(): use ctx.now()"),
    ],
)
def test_what_is_not_captured_and_what_cannot_be_caught(report: Report, how: str, fact: str, value: Any) -> None:
    """Calls with an explicit time or seed, other threads, the runtime, functions of ctx.call, the type, log lines."""
    assert report(how)[fact] == value


def test_the_body_of_a_module_imported_by_an_operator_is_not_the_operators(report: Report) -> None:
    """It runs in whichever process comes first: the clock that it reads is not logged."""
    assert report("capture")["late"][0][18] == "True"


def test_a_generator_made_outside_is_refused_by_name(report: Report) -> None:
    lines = report("refuse")["created outside"]
    assert lines.pop("of the system").startswith("operator 'count' calls os.urandom()")
    assert len(lines) == 6
    for name, line in lines.items():
        assert line == "operator 'count' calls a Random() created outside the operator: use ctx.random", name


def test_finalisers_that_the_collector_runs_are_outside_of_operators(report: Report) -> None:
    facts = report("capture")["finalised"]
    assert facts["real"] == [True] * 6, "two callbacks at the start and at the stop, __del__ and a weak reference's"
    assert facts["inside"] < 1_600_000_000, "the operator is active again behind the collection"
    assert facts["keyed"] == "was not refused"
    assert all(at < 1_600_000_000 for at in facts["released"]), "what the operator releases is its own code"


def test_uuids_differ_even_if_the_operator_seeds_the_module(report: Report) -> None:
    (_, chance, one), (_, again, other) = report("capture")["seeded by the operator"]
    assert chance == again and one == other and one[12] == "4"


def test_a_refusal_names_operator_spelling_and_correction(report: Report) -> None:
    for name, line in report("refuse")["asking"].items():
        assert line.startswith(f"operator 'count' calls {name}: use ctx."), line


@pytest.mark.parametrize("how", ["capture", "refuse"])
def test_a_key_may_not_depend_on_the_clock(report: Report, how: str) -> None:
    assert "a key must depend only on its record" in report(how)["keying"]


FORKED = """
import importlib, os, sys, types
import operators.capture.replacing as replacing
from operators.capture import install

def module(name, **names):
    made_of = types.ModuleType(name)
    vars(made_of).update(names)
    sys.modules[name] = made_of
    return made_of

import time, random, causal.records.values as own
kept = types.SimpleNamespace(real=time.time, drawn=random.random)  # what is in no module is not replaced
own.now = kept.real
before = module("before", now=kept.real, drawn=kept.drawn, other=len)
if sys.argv[1] == "prepared":
    install.look()
behind = module("behind", now=kept.real)
before.drawn = kept.drawn if sys.argv[2] == "same" else len
swept = []
sweep = replacing._sweep
replacing._sweep = lambda names, functions: (swept.append(names["__name__"]), sweep(names, functions))
if sys.argv[2] == "gone":
    del sys.modules["before"]
install.install("capture")
assert behind.now is time.time is not kept.real and own.now is kept.real
assert before.other is len and (sys.argv[2] == "gone" or before.now is time.time)
assert before.drawn is (random.random if sys.argv[2] == "same" else len)
assert random.random is not kept.drawn and "behind" in swept
assert ("json" in swept) == (sys.argv[1] != "prepared" or sys.argv[2] == "gone"), swept
"""


@pytest.mark.parametrize("first", ["prepared", "not prepared"])
@pytest.mark.parametrize("meanwhile", ["same", "changed", "gone"])
def test_what_was_seen_before_a_fork_is_replaced_without_another_look(first: str, meanwhile: str) -> None:
    subprocess.run([sys.executable, "-c", "import json\n" + FORKED, first, meanwhile], check=True, cwd=HOME)


PREPARED = """
import os, sys, time
from pathlib import Path

from causal.config import JobConfig
from causal.errors import PipelineError
from operators.capture.active import RUNNING
from operators.capture.install import install
from operators.runtime.preparing import prepare

place, how = Path(sys.argv[1]), sys.argv[2]
if how != "unknown":
    JobConfig(run="r", name="n", pipeline="/p.py", hidden_nondeterminism=how).save(place)
seen = [time.time]  # what is in no module is not replaced
prepare(place)
seen.append(time.time)
assert (seen[1] is not seen[0]) == (how in ("capture", "refuse"))
for again in ("refuse", "capture"):
    install(again)
    assert RUNNING.refuses is (again == "refuse")
    assert seen[1] in (seen[0], time.time) and time.time is not seen[0], "patched once"
try:
    install("allow")
except PipelineError as problem:
    print(problem)
"""


@pytest.mark.parametrize("how", ["capture", "refuse", "allow", "unknown"])
def test_all_workers_of_a_job_are_prepared_once_as_its_setting_says(tmp_path: Path, how: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PREPARED, str(tmp_path), how], check=True, cwd=HOME, capture_output=True, text=True
    )
    assert 'hidden_nondeterminism="allow" is too late' in ended.stdout
