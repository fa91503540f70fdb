"""Tests of how processes that use the processor are found from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from standby.host.computing import Computing

WITHIN_S = 60.0


@contextmanager
def running(code: str) -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", f"print(1, flush=True)\n{code}"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def until_quiet(computing: Computing, pids: dict[str, int]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while computing.look(pids):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_process_that_computes_is_told_from_one_that_waits() -> None:
    computing = Computing()
    with running("while True: sum(range(10**6))") as busy, running("import time; time.sleep(600)") as waits:
        pids = {"busy": busy, "waits": waits}
        until_quiet(computing, {"waits": waits})
        for _ in range(5):
            assert computing.look(pids) == ["busy"]
            time.sleep(0.05)


def test_a_process_that_is_stopped_in_the_middle_computes_no_more() -> None:
    computing = Computing()
    with running("while True: sum(range(10**6))") as busy:
        assert computing.look({"w1": busy}) == ["w1"]
        os.kill(busy, signal.SIGSTOP)
        until_quiet(computing, {"w1": busy})
        assert computing.look({"w1": busy}) == []


def test_what_is_gone_computes_nothing() -> None:
    computing = Computing()
    with running("pass") as pid:
        pass
    assert computing.look({"w1": pid}) == []
