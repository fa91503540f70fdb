"""`causal run` as the root: servers that never come up end the job with what they said, however slowly they die."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from causal.errors import PipelineError
from deploy.jobs import jobdirectory
from deploy.launching import local
from deploy.launching.local import LocalDeployment
from standby.supervision.job_view import JobView
from tests.members import members

PROGRAM = """
import sys
import threading
from pathlib import Path
from deploy.launching import local

local.DEATHS_WITHIN_S = 2.0  # a server that lives for 0.2 s does not die twenty times in that
deployment = local.LocalDeployment(Path(sys.argv[1]), lambda view, elapsed_s: None)
deployment._servers = [local.Server("tests.unit.deploy.short_lived", name, 1.0) for name in ("supervisor", "agent")]


def run():
    outcome = deployment.run()
    print(outcome.status, outcome.reason)


if sys.argv[2] == "main":
    run()
else:
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
"""


def test_the_command_loads_nothing_of_the_product_before_it_handles_signals() -> None:
    """A signal that comes while modules are imported is a traceback without a handler."""
    program = """
import signal, sys
from deploy import entry as command
def first(number, handler):
    packages = ("causal", "deploy", "operators", "standby")
    print(*sorted(name for name in sys.modules if name.partition(".")[0] in packages))
    raise SystemExit(0)
signal.signal = first
command.main()
"""
    home = Path(__file__).resolve().parents[3]
    process = subprocess.run([sys.executable, "-c", program], cwd=home, capture_output=True, text=True, check=True)
    assert process.stdout == "deploy deploy.entry\n"


@pytest.mark.parametrize("thread", members(["main", "another"], "another"))
def test_servers_that_die_slowly_end_the_job_too(tmp_path: Path, thread: str) -> None:
    (tmp_path / "logs").mkdir()
    home = Path(__file__).resolve().parents[3]
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), thread],
        cwd=home,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert process.stdout.strip() == "1 no luck today"


@pytest.mark.parametrize("journaled", [False, True])
def test_an_interrupted_job_says_to_resume_only_what_can_be_resumed(tmp_path: Path, journaled: bool) -> None:
    if journaled:
        (tmp_path / "journal.sqlite").touch()
    deployment = LocalDeployment(tmp_path, lambda view, elapsed_s: None)
    deployment._on_signal(signal.SIGINT, None)
    outcome = deployment._outcome(None, 1.0)
    expected = "SIGINT; resume it with: causal run" if journaled else "SIGINT before it started; start it again without"
    assert outcome.status == 128 + signal.SIGINT and outcome.reason.startswith(f"interrupted by {expected}")


def test_a_machine_that_shows_no_processes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobdirectory.check_processes_are_shown()
    monkeypatch.setattr(jobdirectory, "PROCESSES", tmp_path / "stat")
    with pytest.raises(PipelineError, match="has no /proc, which a job needs to find its processes; mount it"):
        jobdirectory.check_processes_are_shown()


def test_a_server_that_c_code_aborts_has_the_reason_that_it_wrote(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    text = "Too many open files (src/epoll.cpp:38)\nFatal Python error: Aborted\n\nExtension modules: a (total: 1)\n"
    (tmp_path / "logs" / "supervisor.log").write_text(text)
    deployment = LocalDeployment(tmp_path, lambda view, elapsed_s: None)
    assert deployment._cause("supervisor").startswith("Too many open files (src/epoll.cpp:38); raise the limit")


@pytest.mark.parametrize("load_s", [18.0, 1000.0])
def test_an_agent_that_hangs_is_killed_once_and_the_next_one_has_time_to_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, load_s: float
) -> None:
    said: list[str] = []
    killed: list[int] = []
    now_s = 1000.0
    monkeypatch.setattr(local, "time", SimpleNamespace(monotonic=lambda: now_s))
    monkeypatch.setattr(local, "os", SimpleNamespace(kill=lambda pid, number: killed.append(pid)))
    agent: Any = local.agent()
    deployment = LocalDeployment(tmp_path, lambda view, elapsed_s: None, [agent], say=said.append)
    agent.process, agent.started_s, deployment._turned_s = SimpleNamespace(pid=1, returncode=None), 900.0, now_s

    def pass_time(until_s: float, heard_s: float) -> None:
        nonlocal now_s
        while now_s < until_s:
            now_s += 0.25
            deployment._news_s = now_s
            deployment._kill_silent(JobView("job", agent_silent_s=now_s - heard_s))

    pass_time(1020.0, 1000.0)
    assert killed == [1] and len(said) == 1, "a process that a disk holds is killed once, and named once"
    agent.process, agent.started_s = SimpleNamespace(pid=2, returncode=None), now_s
    pass_time(now_s + min(load_s, 70.0), 1000.0)
    assert killed == ([1] if load_s < 60 else [1, 2])
