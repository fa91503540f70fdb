"""Failures on request: kills a task, a standby, an agent or the supervisor of a job, as `kill -9` would.

The supervisor kills tasks and standbys wherever they run, and orders the agents of other hosts to die.  This module
itself kills the supervisor and, in a job on one machine, the agent, after checking by their command lines that they
belong to this job.
"""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

from causal.errors import PipelineError, Unavailable
from deploy.jobs.hints import check_led_here, not_running
from deploy.jobs.lookup import ended, running
from standby.host.processes import open_process, send_signal, start_time
from standby.network.control import ask

ANSWER_S = 5.0
SERVERS = {"supervisor": "standby.daemon", "agent": "standby.agent"}
_one_at_a_time = threading.Lock()
"""All clients of the supervisor in this process have the same identity, so only one may be active at a time."""


def broken(job: Path, kind: str, name: str) -> str:
    """Kill one process of the job, and return a sentence about it.

    Args:
        kind: `task`, `standby`, `agent` or `supervisor`.
        name: the name of the task, the slot of the standby, or the host of the agent; empty for the agent on this
            machine.

    Raises:
        PipelineError: the job is not running, has no such process, or the process's host does not permit the kill.
        Unavailable: the supervisor does not answer.
    """
    check_runs(job)
    if kind in SERVERS and not (kind == "agent" and name):
        return _server_killed(job, kind)
    if kind not in ("task", "standby", "agent"):
        raise PipelineError(f"{kind!r:.40} cannot be killed; use task, standby, agent or supervisor")
    check_led_here(job)
    with _one_at_a_time:
        answer = ask((job / "runtime").read_text().strip(), "kill", {kind: name}, ANSWER_S)
    if answer is None:
        raise Unavailable("the supervisor does not answer; it may have been killed, try again in a moment")
    if not answer.get("ok"):
        raise PipelineError(str(answer.get("error")))
    if kind == "agent":
        return f"ordered the agent of {name} to die"
    done = "killed" if ended(job, answer["slot"], ANSWER_S) else "asked the silent agent to kill"
    return f"{done} {kind} {name} (process {answer['pid']})"


def check_runs(job: Path) -> None:
    """Refuse to kill processes of a job that is not running.

    Raises:
        PipelineError: the job is not running.
    """
    if not running(job) or not (job / "runtime").exists():
        raise PipelineError(not_running(job))


def _server_killed(job: Path, kind: str) -> str:
    for entry in os.listdir("/proc"):
        if entry.isdecimal() and _is_server(int(entry), job, kind):
            pid = int(entry)
            started = start_time(pid)
            pidfd = open_process(pid, started) if started is not None else None
            if pidfd is None:
                continue
            try:
                if _is_server(pid, job, kind):  # the pid still belongs to the process of the open pidfd
                    send_signal(pidfd, signal.SIGKILL)
                    return f"killed the {kind} (process {pid})"
            finally:
                os.close(pidfd)
    raise PipelineError(f"this machine has no {kind} of this job at the moment")


def _is_server(pid: int, job: Path, kind: str) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:  # the process has ended or belongs to another user
        return False
    return SERVERS[kind] in command and str(job) in command
