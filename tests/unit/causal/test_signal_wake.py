"""A signal wakes the wait of a process, and one that comes as the process ends writes nothing into its log."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path

from causal.process.signal_wake import woken_by_signals

ENDS = """
import os, signal, sys
from {module} import main
status = main([sys.argv[1]])
os.kill(os.getpid(), signal.SIGTERM)
os._exit(status)
"""
LATE = """
import os, signal
from causal.process.signal_wake import woken_by_signals
signal.signal(signal.SIGTERM, lambda number, frame: None)
try:
    with woken_by_signals() as wake:
        raise OSError("the loop fails")
except OSError:
    del wake
os.kill(os.getpid(), signal.SIGTERM)
print("ended")
"""


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60)


def test_a_signal_after_the_end_of_a_supervisor_leaves_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    ended = run(ENDS.format(module="standby.daemon"), str(tmp_path))
    assert (
        "does not contain a job" in ended.stderr and "Traceback" not in ended.stderr and "ignored" not in ended.stderr
    )
    assert ended.returncode == 2


def test_a_signal_after_a_loop_that_failed_leaves_no_traceback() -> None:
    ended = run(LATE)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "ended\n", "")


def test_a_signal_wakes_the_main_thread() -> None:
    before = signal.signal(signal.SIGUSR1, lambda number, frame: None)
    try:
        with woken_by_signals() as wake:
            os.kill(os.getpid(), signal.SIGUSR1)
            assert select.select([wake], [], [], 30)[0] and wake.recv(16) == bytes([signal.SIGUSR1])
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_another_thread_has_a_socket_that_stays_silent() -> None:
    read: list[bool] = []

    def look() -> None:
        with woken_by_signals() as wake:
            read.append(bool(select.select([wake], [], [], 0)[0]))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert read == [False]


def test_only_this_says_where_signals_write() -> None:
    root = Path(__file__).parents[3]
    folders = ("causal", "operators", "standby", "deploy", "pyspark_causal")
    files = [path for folder in folders for path in (root / folder).rglob("*.py")]
    saying = [str(path.relative_to(root)) for path in files if "set_wakeup_fd(" in path.read_text()]
    assert saying == ["causal/process/signal_wake.py"]
