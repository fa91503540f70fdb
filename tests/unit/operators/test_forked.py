"""A function in a fork ends, whatever becomes of it; SIGTERM wakes a worker from its rest, and SIGINT does not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from causal.errors import Unavailable
from operators.runtime.forked import in_fork
from tests.offspring import children

KEPT: list[int] = []


def test_its_answer_comes_back_and_what_it_changes_does_not() -> None:
    def act() -> bytes:
        KEPT.append(1)
        return b"x" * 1_000_000 + str(len(KEPT)).encode()

    assert in_fork(act, 60.0) == in_fork(act, 60.0) == b"x" * 1_000_000 + b"1"
    assert KEPT == []


def test_an_empty_answer_is_an_answer() -> None:
    assert in_fork(lambda: b"", 60.0) == b""


def test_one_that_dies_has_no_answer() -> None:
    def die() -> bytes:
        os._exit(3)

    def fail() -> bytes:
        raise KeyError("x")

    for act, line in ((die, "died"), (fail, "KeyError: 'x'")):
        with pytest.raises(Unavailable, match=line):
            in_fork(act, 60.0)


def test_one_that_does_not_end_is_ended() -> None:
    def hang() -> bytes:
        time.sleep(600)
        return b""

    before = children()
    with pytest.raises(Unavailable, match="more than 0.05 s"):
        in_fork(hang, 0.05)
    assert children() <= before


# SIGTERM wakes the loop of a worker from its rest, and SIGINT does not.


PROGRAM = """
import zmq
from operators.runtime.termination import Termination

poller, stopped = zmq.Poller(), []
socket = zmq.Context().socket(zmq.PULL)
poller.register(socket, zmq.POLLIN)
termination = Termination(lambda: stopped.append(True))
poller.register(termination.wake, zmq.POLLIN)
print("rests", flush=True)
assert poller.poll(3_600_000) and stopped == [True]
termination.drain()
assert not poller.poll(0)
termination.close()
print("ends", flush=True)
socket.close(0)
input()
"""


def test_a_worker_that_rests_ends_at_once_and_is_disturbed_by_no_signal_then() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as worker:
        assert worker.stdin is not None and worker.stdout is not None
        assert worker.stdout.readline() == "rests\n"
        worker.send_signal(signal.SIGINT)
        worker.send_signal(signal.SIGTERM)
        assert worker.stdout.readline() == "ends\n"
        worker.send_signal(signal.SIGTERM)
        worker.communicate("\n", timeout=60)
        assert worker.returncode == 0


WITHOUT_HANDLER = """
import os, signal, zmq
from operators.runtime.termination import Termination

poller = zmq.Poller()
termination = Termination(lambda: None)
poller.register(termination.wake, zmq.POLLIN)
for number in (signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, lambda *_: None)
    os.kill(os.getpid(), number)
    assert dict(poller.poll(60_000)) == {termination.wake: zmq.POLLIN}
    termination.drain()
    assert not poller.poll(0)
termination.close()
"""


def test_a_signal_wakes_the_loop_whether_or_not_its_handler_has_run() -> None:
    """A handler runs only when the main thread is in Python again, so the interpreter itself makes `wake` readable."""
    subprocess.run([sys.executable, "-c", WITHOUT_HANDLER], check=True, timeout=60)
