"""The standard streams of `causal`: a job does not end because its output is gone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.job import WAIT_S, environment
from tests.members import members

PIPELINE = """
from operators import Operator, Pipeline
from operators.sinks import JsonLinesSink
from operators.sources import GeneratedSource

class Count(Operator):
    def process(self, record, ctx):
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        return [record]

pipeline = Pipeline("tiny")
numbers = pipeline.source("numbers", GeneratedSource(lambda p, i: {"v": i}, count=100))
numbers.process("count", Count(), 2).sink("out", JsonLinesSink("rows"))
"""
"""A job with a warning, so that standard error is written before it runs."""
full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")


def shell(home: Path, command: str) -> subprocess.CompletedProcess[str]:
    """Run a line of a shell in which `causal` is the command, with buffers as its users have them."""
    (home / "p.py").write_text(PIPELINE)
    buffered = {name: value for name, value in environment().items() if name != "PYTHONUNBUFFERED"}
    line = f'causal() {{ {sys.executable} -P -m deploy "$@"; }}; {command}'
    return subprocess.run(["bash", "-c", line], cwd=home, env=buffered, capture_output=True, text=True, timeout=WAIT_S)


def rows(home: Path) -> int:
    return sum(len(path.read_text().splitlines()) for path in (home / "rows").glob("*.jsonl"))


@pytest.mark.campaign
@full
def test_a_job_whose_messages_and_summary_cannot_be_written_ends_as_it_does_otherwise(tmp_path: Path) -> None:
    ended = shell(tmp_path, "causal run p.py --standbys 0 2>/dev/full; echo $?; causal status >/dev/full; echo $?")
    *summary, run, status = ended.stdout.splitlines()
    assert summary and (run, status) == ("0", "1") and rows(tmp_path) == 100
    assert ended.stderr == "causal: the system: No space left on device\n"


@full
def test_a_summary_that_cannot_be_written_is_named_and_fails_no_job(tmp_path: Path) -> None:
    ended = shell(tmp_path, "causal run p.py --standbys 0 >/dev/full; echo $?")
    assert ended.stdout == "0\n" and rows(tmp_path) == 100
    assert "causal: the summary of the job cannot be written: No space left" in ended.stderr.splitlines()[-1]


@full
@pytest.mark.parametrize("asked", members(["--version", "--help", "run --help", "status --help"], "--version"))
def test_what_a_command_prints_and_cannot_write_is_one_line_and_fails_it(tmp_path: Path, asked: str) -> None:
    ended = shell(tmp_path, f"causal {asked} >/dev/full; echo $?")
    assert (ended.stdout, ended.stderr) == ("1\n", "causal: the system: No space left on device\n")
    gone = shell(tmp_path, f"(sleep 0.2; causal {asked}) | true")
    assert (gone.stdout, gone.stderr) == ("", "")


def test_a_reader_that_has_gone_ends_no_job(tmp_path: Path) -> None:
    ended = shell(tmp_path, "(sleep 0.2; causal run p.py --standbys 0; echo $? >status) 2>&1 | true; cat status")
    assert (ended.stdout, ended.stderr) == ("0\n", "") and rows(tmp_path) == 100


@pytest.mark.campaign
def test_closed_streams_are_no_error(tmp_path: Path) -> None:
    ended = shell(tmp_path, "causal run p.py --standbys 0 <&- >&- 2>&-; echo $?; causal status --job nix 2>&-; echo $?")
    assert (ended.stdout, ended.stderr) == ("0\n2\n", "") and rows(tmp_path) == 100


@pytest.mark.parametrize("command", members(["run p.py", "plan {home}/p.py", "init x", "status"], "status"))
def test_a_current_directory_that_is_gone_is_named(tmp_path: Path, command: str) -> None:
    gone = "mkdir gone && cd gone && rmdir ../gone"
    ended = shell(tmp_path, f"{gone} && causal {command.format(home=tmp_path)}; echo $?")
    assert ended.stderr == "causal: the current directory was removed; change to another one\n"
    assert ended.stdout in ("1\n", "2\n")
