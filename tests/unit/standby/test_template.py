"""Supervisor, agent and workers that come from the template do not differ from interpreters of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from standby.host.room import JOB_MARK, make_room

PROGRAM = """
import os, signal, sys, time
from pathlib import Path
from standby.host.room import make_room

assert make_room()
assert sys.argv[1:] == sys.orig_argv[-3:], "what made the room is no argument"
from deploy.launching.local import LocalDeployment, Server
from standby.host import template
from standby.host.parentage import adopt_orphans

job, module, how = sys.argv[1:]
template.SUPERVISOR, template.AGENT, template.WORKER = (
    "tests.unit.standby.observer", "tests.unit.standby.observing_agent", "tests.unit.standby.probe"
)
divided = template.divide()
if isinstance(divided, int):
    sys.exit(divided)
assert "CAUSAL_JOB" not in os.environ and b"." * 99 not in Path("/proc/self/cmdline").read_bytes()
if how == "dead":
    os.kill(divided._process.pid, signal.SIGKILL)
adopt_orphans()
os.umask(0o037)
os.environ["SET_LATER"] = "by the file of the user"
os.chdir(job)
[server] = servers = [Server(module, "server", 1.0)]
used = None if how == "interpreter" else divided
deployment = LocalDeployment(Path(job), lambda view, elapsed_s: None, servers, used)
deployment._start(server)
kind = type(server.process).__name__
while server.process.returncode is None:
    deployment._reap()
    time.sleep(0.005)
divided.close()
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print(kind, server.process.returncode, "none left")
"""
HOME = Path(__file__).resolve().parents[3]


def run(directory: Path, module: str, how: str) -> tuple[str, Any, Any, str]:
    """Return what it printed, what the server and its worker observed, and the server's log."""
    job = directory / how
    (job / "logs").mkdir(parents=True)
    environment = {name: value for name, value in os.environ.items() if name != JOB_MARK}
    with open(os.devnull) as inherited:  # a descriptor that is no process's of the job
        ended = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(job), f"tests.unit.standby.{module}", how],
            cwd=HOME, env=environment, capture_output=True, text=True, pass_fds=(inherited.fileno(),), check=False,
        )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    worker = job / "worker.json"
    texts = [path.read_text().replace(f"/{how}", "/job") for path in (job / "observed.json", worker) if path.exists()]
    seen = [json.loads(text) for text in texts]
    for each in seen:
        each.pop("varying", None)
    return ended.stdout.strip(), seen[0], seen[1:], (job / "logs" / "server.log").read_text()


@pytest.mark.parametrize("module", ["observer", "observing_agent"])
def test_what_comes_from_the_template_is_like_an_interpreter(tmp_path: Path, module: str) -> None:
    status = 7 if module == "observer" else 6
    started = run(tmp_path, module, "interpreter")
    forked = run(tmp_path, module, "template")
    assert started[0] == f"Popen {status} none left" and forked[0] == f"Forked {status} none left"
    assert forked[1]["parent_is_root"] and started[3] == "said by a server\n"
    if module == "observing_agent":  # it has a connection to its server from the beginning
        assert forked[1]["descriptors"].pop("3").startswith("socket:")
    for ours, theirs in zip([forked[1], *forked[2]], [started[1], *started[2]], strict=True):
        assert {name: (ours[name], theirs[name]) for name in theirs if ours[name] != theirs[name]} == {}
        assert ours.keys() == theirs.keys()
    assert forked[3] == started[3]
    if module == "observing_agent":
        assert forked[2][0]["session_is_own"]
        assert [(tmp_path / how / "forked").read_text() for how in ("interpreter", "template")] == ["Popen", "Forked"]


def test_interpreters_take_the_place_of_a_template_that_died(tmp_path: Path) -> None:
    assert run(tmp_path, "observing_agent", "dead")[0] == "Popen 6 none left"


def test_a_process_of_a_job_keeps_its_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(JOB_MARK, "/a/job")
    assert not make_room()
    monkeypatch.delenv(JOB_MARK)
    monkeypatch.setattr(sys, "argv", ["causal", "run", "by another program"])
    assert not make_room()
