"""Every command of the repository can be asked for its help, whatever signs its descriptions hold."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.__main__ import BENCHMARKS
from benchmarks.__main__ import main as benchmarks
from benchmarks.harness.sink_reader import main as sink_reader
from deploy.cli import main as causal
from deploy.cli import parser
from examples.read_back import main as read_back
from examples.survive import main as survive
from tests.exhaustive.__main__ import main as exhaustive
from tests.fuzz.__main__ import main as fuzz
from tests.oracles.__main__ import main as oracles
from tests.simulation.__main__ import main as simulation
from tests.transcripts.__main__ import main as transcripts

[COMMANDS] = [action.choices for action in parser()._actions if isinstance(action, argparse._SubParsersAction)]
ENTRIES: dict[str, Callable[[list[str]], Any]] = {
    "causal": causal,
    **{f"causal {name}": causal for name in COMMANDS},
    "benchmarks": benchmarks,
    **{f"benchmarks {name}": benchmarks for name in BENCHMARKS},
    "benchmarks.harness.sink_reader": lambda arguments: sink_reader(),
    "examples.read_back": read_back,
    "examples.survive": lambda arguments: survive(),
    "tests.exhaustive": lambda arguments: exhaustive(),
    "tests.fuzz": lambda arguments: fuzz(),
    "tests.oracles": oracles,
    "tests.simulation": simulation,
    "tests.transcripts": transcripts,
}


@pytest.mark.parametrize("command", ENTRIES)
def test_the_help_of_a_command_is_shown(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = [*command.split()[1:], "--help"]
    monkeypatch.setattr(sys, "argv", [command, *arguments])
    with pytest.raises(SystemExit) as ended:
        ENTRIES[command](arguments)
    assert ended.value.code == 0 and capsys.readouterr().out.startswith("usage: ")


@pytest.mark.parametrize("command", ["run", "plan", "state", "savepoint"])
def test_an_unknown_option_refers_to_the_help_of_its_command(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    operands = {"state": ["job", "operator", "1"], "savepoint": []}.get(command, ["p.py"])
    with pytest.raises(SystemExit) as ended:
        causal([command, *operands, "--zzz"])
    assert ended.value.code == 2
    assert capsys.readouterr().err == (f"causal: unrecognized arguments: --zzz; see `causal {command} --help`\n")


@pytest.mark.parametrize(("option", "meant"), [("--kil", "--kill"), ("--guarante=epoch", "--guarantee")])
def test_a_shortened_or_misspelled_option_is_refused_with_the_one_that_is_meant(
    option: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        causal(["run", "p.py", option])
    assert ended.value.code == 2
    assert f"{option}; did you mean {meant}?; see" in capsys.readouterr().err
