"""`causal ui` and `causal top` before they show anything: which job is meant, and where they listen."""

from __future__ import annotations

import argparse
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from causal.config import JobConfig
from causal.errors import PipelineError
from deploy import entry as command
from deploy import looking
from deploy.cli import main, parser
from deploy.jobs.chosen import chosen_job
from deploy.monitoring.querying import _without_job
from deploy.serving.listening import ADDRESS, listen
from tests.architecture.source import ROOT


def asked(*arguments: str) -> argparse.Namespace:
    return parser().parse_args(arguments)


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes jobs of these names under `.causal` of the current directory."""
    monkeypatch.chdir(tmp_path)

    def make(*names: str) -> None:
        for name in names:
            directory = tmp_path / ".causal" / name
            directory.mkdir(parents=True)
            JobConfig("r", name, "j.py").save(directory)

    return make


@pytest.mark.parametrize("command", ["ui", "top"])
def test_a_job_is_named_in_one_of_three_ways_or_is_the_only_one(jobs: Callable[..., None], command: str) -> None:
    jobs("a")
    assert chosen_job(asked(command)).name == "a"
    jobs("b")
    for arguments in (("b",), ("--job", "b"), ("--state-dir", ".causal/b"), (".causal/b",)):
        assert chosen_job(asked(command, *arguments)).name == "b", arguments
    with pytest.raises(PipelineError, match="choose one with --job a, --job b"):
        chosen_job(asked(command))
    for twice in (("a", "--job", "b"), ("a", "--state-dir", ".causal/b"), ("--job", "b", "--state-dir", ".causal/b")):
        with pytest.raises(PipelineError, match="use only one of JOB, --job and --state-dir"):
            chosen_job(asked(command, *twice))


def test_an_answer_is_sent_without_waiting_for_an_acknowledgement() -> None:
    with listen(ADDRESS, None, 0) as listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize("module", ["deploy.ui.pages", "deploy.ui.dashboard"])
def test_the_page_does_not_wait_for_modules_that_it_does_not_need(module: str) -> None:
    listed = f"import sys, {module}; print(*sys.modules)"
    ended = subprocess.run([sys.executable, "-c", listed], capture_output=True, text=True, check=True, cwd=ROOT)
    assert not {"operators", "zmq", "msgpack", "deploy.cli", "deploy.jobs.jobdirectory"} & set(ended.stdout.split())


def test_the_commands_that_look_are_the_same_by_themselves(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.LOOKING == tuple([name] for name in looking.NAMES)
    for name in looking.NAMES:
        for arguments in (["--help"], ["--nothing"], ["a", "--state-dir", "b"], ["--state-dir", "/nowhere"]):
            seen = []
            for entry in (main, looking.main):
                try:
                    status: object = entry([name, *arguments])
                except SystemExit as ending:
                    status = ending.code
                seen.append((status, *capsys.readouterr()))
            assert seen[0] == seen[1], (name, arguments)


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (("a", "count", "7"), ("a", "count", "7")),
        (("a", "count"), ("a", "count", None)),
        (("count", "7"), (None, "count", "7")),
        (("count",), (None, "count", None)),
        (("a", "7", "--job", "a"), (None, "a", "7")),
    ],
)
def test_two_names_for_state_are_a_job_and_an_operator_or_an_operator_and_a_key(
    jobs: Callable[..., None], arguments: tuple[str, ...], meant: tuple[str | None, ...]
) -> None:
    jobs("a")
    parsed = asked("state", *arguments)
    _without_job(parsed)
    assert (parsed.job, parsed.operator, parsed.key) == meant
