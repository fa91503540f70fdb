"""The end of a process has words, also while the kernel still frees its memory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from causal.process.processlog import BEGINS
from standby.exit_status import ending
from standby.host.children import Child, Children
from standby.host.last_line import CRASH
from standby.host.processes import dying_status, has_ended
from standby.supervision.failures import End

LINE = "2026-11-22T09:41:53.123Z m/0 INFO causal.worker: "


@pytest.mark.parametrize(
    "status, words",
    [
        (0, "exited with status 0"),
        (3, "exited with status 3"),
        (-11, "killed by signal 11 (SIGSEGV)"),
        (-9, "killed by signal 9 (SIGKILL), as the kernel does when memory is exhausted"),
        (-33, "killed by signal 33"),
    ],
)
def test_an_exit_status_has_words(status: int, words: str) -> None:
    assert ending(status) == words
    assert ending(status, asked=True) == words.partition(",")[0]


@pytest.mark.parametrize(
    "end, words",
    [
        (
            End(None, -11, "Fatal Python error: x"),
            "; its process was killed by signal 11 (SIGSEGV): Fatal Python error: x",
        ),
        (End(None, 3, ""), "; its process exited with status 3"),
        (End(None, 0, ""), "; its process exited with status 0: user code ended it"),
        (End(None, None, "ValueError: no"), "; it ended with: ValueError: no"),
        (End(7, -9, ""), ""),
        (End(None, None, ""), ""),
    ],
)
def test_an_end_says_what_explains_it(end: End, words: str) -> None:
    assert str(end) == words


@pytest.mark.parametrize("code, status", [("os.abort()", -signal.SIGABRT), ("os._exit(3)", 3), ("os._exit(0)", 0)])
def test_the_status_is_known_before_the_parent_waits(code: str, status: int) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", f"import os, sys; sys.stdin.read(); {code}"], stdin=subprocess.PIPE
    )
    assert process.stdin is not None and dying_status(process.pid) is None
    process.stdin.close()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert dying_status(process.pid) == status
    process.wait()
    assert dying_status(process.pid) is None


def children_of(job: Path, log: str) -> Children:
    (job / "logs").mkdir()
    (job / "logs" / "w1.log").write_text(log)
    return Children(job)


@pytest.mark.parametrize(
    "log, line",
    [
        (f"{LINE}{BEGINS}1\n", ""),
        (f"{LINE}{BEGINS}1\n{LINE}half way\n\n", "half way"),
        (f"{CRASH}Aborted\n\n  File x, line 3\n\nExtension modules: {'a.b, ' * 900}\n", f"{CRASH}Aborted"),
    ],
)
def test_a_process_that_is_lost_reports_its_status_and_the_line_that_explains_it(
    tmp_path: Path, log: str, line: str
) -> None:
    process = subprocess.Popen([sys.executable, "-c", "import os; os.abort()"], stderr=subprocess.DEVNULL)
    child = Child("w1", "worker", (), {}, process.pid, pidfd=os.pidfd_open(process.pid), process=process)
    children = children_of(tmp_path, log)
    children.living["w1"] = child
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    end = children.lose(child)
    assert (end.status, end.last_line) == (-signal.SIGABRT, line)
    assert has_ended(child.pidfd) and children.reap_dying() and children.dead == {"w1": -signal.SIGABRT}
