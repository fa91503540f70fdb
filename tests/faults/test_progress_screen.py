"""`causal run` on a real terminal: the screen while the job runs and recovers, the table at its end."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import sys
import termios
import time
from pathlib import Path

import pyte

from tests.faults.job import FRAUD_CHAIN, WAIT_S

COLUMNS, LINES = 110, 40


def test_the_screen_shows_tasks_input_and_a_recovery_and_leaves_the_table(tmp_path: Path) -> None:
    settings = ["--set", f"out={tmp_path / 'rows.db'}", "--set", "count=200", "--set", "rate=50"]
    command = [sys.executable, "-m", "deploy", "run", str(FRAUD_CHAIN), "--state-dir", str(tmp_path / "job"), *settings]
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(
            sys.executable,
            [*command, "--kill", "score/0@2", "--standbys", "2"],
            {**os.environ, "TERM": "xterm-256color"},
        )
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    screen = pyte.Screen(COLUMNS, LINES)
    stream = pyte.ByteStream(screen)
    seen: set[str] = set()
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        if not select.select([terminal], [], [], 1.0)[0]:
            continue
        try:
            written = os.read(terminal, 1 << 16)
        except OSError:  # the other end is closed
            break
        if not written:
            break
        stream.feed(written)
        seen |= {line.strip() for line in screen.display}
    _, status = os.waitpid(pid, 0)
    left = [line.rstrip() for line in screen.display if line.strip()]
    assert os.waitstatus_to_exitcode(status) == 0, "\n".join(left)
    assert any(line.split()[:2] == ["score/0", "running"] for line in seen)
    assert any("% read" in line for line in seen)
    assert any(line.startswith("✓ recovered score/0 (standby): live after") for line in seen)
    assert not any("✓" in line or "% read" in line for line in left), "the screen is removed at the end"
    assert any(line.split()[:2] == ["score", "operator"] for line in left)
    assert any(line.startswith("records in 400, out") for line in left)
