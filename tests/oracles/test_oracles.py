"""A sample of each oracle's examples; `make soak` runs them without end."""

from __future__ import annotations

import signal
from itertools import product

import pytest

from operators import Pipeline
from tests.members import sample
from tests.oracles.__main__ import main
from tests.oracles.all import ORACLES
from tests.oracles.frame import Draw, Mismatch, Scenario, exact, examine, oracle, sink, source

ALONE = (
    "windows",
    "sessions",
    "session-table",
    "count-windows",
    "triggers",
    "ttl",
    "join-as-of",
    "timers-event",
    "ordered-timers",
)
"""Oracles that are the only tests of boundaries."""
CASES = [case for name in ORACLES for case in sample(product([name], range(48)), 20 if name in ALONE else 4)]


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


def test_the_command_says_how_to_repeat_what_failed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(ORACLES, "wrong", wrong)
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # the handlers are those of the test run
    assert main(["--only", "wrong", "--failures", "1"]) == 1
    said = capsys.readouterr().out
    assert "repeat: python -m tests.oracles --only wrong --first 0 --examples 1" in said
    assert said.splitlines()[-1] == "0 passed, 1 failed"
    assert main(["--only", "map", "--examples", "2"]) == 0
    assert capsys.readouterr().out == "2 passed, 0 failed\n"
