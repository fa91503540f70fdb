"""A process that is ended by the death of its parent knows that from being asked to end by it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

PARENT = """
import ctypes, os, platform, signal, subprocess, sys, threading, time
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], env={**os.environ, "CAUSAL_PARENT": str(os.getpid())})
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
sys.stdin.readline()
if sys.argv[2] == "thread":  # the thread that has started the child ends, and the other one lives
    ctypes.CDLL(None).syscall({"x86_64": 60}.get(platform.machine(), 93), 0)
elif sys.argv[2] == "asks":
    child.terminate()
    child.wait()
else:
    os.kill(os.getpid(), signal.SIGKILL)
"""
CHILD = """
import os, signal
from standby.host.parentage import die_with_parent, parent_ended
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
die_with_parent()
parent = os.getppid()
print("ready", flush=True)
signal.sigwait([signal.SIGTERM])
print(parent_ended(parent), flush=True)
"""


@contextmanager
def started(how: str) -> Iterator[subprocess.Popen[str]]:
    """Yield a parent whose child waits for SIGTERM; it gets it in that way once the parent has read a line."""
    command = [sys.executable, "-c", PARENT, CHILD, how]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        try:
            yield parent
        finally:
            parent.send_signal(signal.SIGKILL)


@pytest.mark.parametrize(("how", "ended"), [("dies", "True"), ("thread", "True"), ("asks", "False")])
def test_it_knows_whether_its_parent_has_ended(how: str, ended: str) -> None:
    with started(how) as parent:
        assert parent.stdin is not None and parent.stdout is not None
        assert parent.stdout.readline() == "ready\n"
        parent.stdin.write("\n")
        parent.stdin.flush()
        assert parent.stdout.readline() == f"{ended}\n"
