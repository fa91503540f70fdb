"""A sample of each oracle's examples; `make soak` runs them without end."""

from __future__ import annotations

import subprocess
import sys
from itertools import product

import pytest

from operators import Pipeline
from tests.members import sample
from tests.oracles.all import ORACLES
from tests.oracles.frame import Draw, Mismatch, Scenario, exact, examine, oracle, sink, source

ALONE = ("windows", "sessions", "count-windows", "triggers", "ttl", "join-as-of", "timers-event", "ordered-timers")
"""Oracles that are the only tests of boundaries."""
CASES = [case for name in ORACLES for case in sample(product([name], range(48)), 30 if name in ALONE else 5)]


@pytest.mark.parametrize(("name", "seed"), CASES)
def test_operators_agree_with_their_oracles(name: str, seed: int) -> None:
    try:
        examine(name, seed)
    except Exception as problem:
        problem.add_note(f"repeat: python -m tests.oracles --only {name} --first {seed} --examples 1")
        raise


def wrong(draw: Draw) -> Scenario:
    """An oracle that is mistaken."""
    pipeline = Pipeline("wrong")
    sink(source(pipeline).map("x", lambda record: record + 1))
    return Scenario(pipeline, {"in": [1, 2]}, exact("out", [2, 4]))


def test_a_wrong_row_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ORACLES, "wrong", wrong)
    with pytest.raises(Mismatch, match="row 1 is 3, expected 4"):
        examine("wrong", 0)
    with pytest.raises(ValueError, match="two oracles are called 'wrong'"):
        oracle("wrong")(wrong)


def test_the_command_says_how_to_repeat_what_failed() -> None:
    run = [sys.executable, "-c", "import sys; from tests.oracles import __main__ as m, test_oracles as t\n"
           "m.ORACLES['wrong'] = t.wrong; sys.exit(m.main(sys.argv[1:]))"]  # fmt: skip
    done = subprocess.run([*run, "--only", "wrong", "--failures", "1"], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "repeat: python -m tests.oracles --only wrong --first 0 --examples 1" in done.stdout
    assert done.stdout.splitlines()[-1] == "0 passed, 1 failed"
    done = subprocess.run([*run, "--only", "map", "--examples", "2"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "2 passed, 0 failed\n"), done.stderr
