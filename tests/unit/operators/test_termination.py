"""SIGTERM wakes the loop of a worker from its rest, and SIGINT does not."""

from __future__ import annotations

import signal
import subprocess
import sys

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
