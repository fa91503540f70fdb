"""The line that is shown of a process that ended is the one that says why."""

from __future__ import annotations

from pathlib import Path

import pytest

from standby.host.last_line import REMEDY, last_line

INFO = "2026-11-26T09:57:00.524Z supervisor INFO standby.daemon: supervises"
BEGINS = "2026-11-26T09:57:00.524Z out/0 INFO causal.worker: begins as incarnation 1"
STACK = """
Current thread 0x00007f7999e83b80 (most recent call first):
  File "socket.py", line 164 in __init__

Extension modules: msgspec._core, zmq.backend.cython._zmq (total: 6)"""
FILES = "Too many open files (src/epoll.cpp:38)"

CASES = {
    "": "",
    INFO: "supervises",
    f"{INFO}\n{BEGINS}\n\n": "supervises",
    f"{INFO}\nFatal Python error: Segmentation fault\n{STACK}": "Fatal Python error: Segmentation fault",
    f"{INFO}\n{FILES}\nFatal Python error: Aborted\n{STACK}": f"{FILES}; {REMEDY}",
    f"{BEGINS}\nFatal Python error: Aborted\n{STACK}": "Fatal Python error: Aborted",
    f"Fatal Python error: Aborted\n{STACK}": "Fatal Python error: Aborted",
    f"{FILES}\nFatal Python error: Aborted\n{STACK}\n{INFO}": "supervises",
    "2026-11-26T09:57:00.524Z agent stderr: zmq.error.ZMQError: Too many open files": (
        f"zmq.error.ZMQError: Too many open files; {REMEDY}"
    ),
}


@pytest.mark.parametrize("text", CASES)
def test_it_says_why_the_process_ended(text: str, tmp_path: Path) -> None:
    (tmp_path / "w1.log").write_text(text)
    assert last_line(tmp_path / "w1.log") == CASES[text]


def test_a_log_that_cannot_be_read_has_none(tmp_path: Path) -> None:
    assert last_line(tmp_path / "w1.log") == ""
