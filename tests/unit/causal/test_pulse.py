"""The thread that speaks for a process whose loop is busy."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from causal.process.pulse import Message, Pulse, look_ns
from causal.records.values import decode

WAIT_MS = 30_000


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[tuple[zmq.Context[Any], str, zmq.Socket[bytes]]]:
    context: zmq.Context[Any] = zmq.Context()
    endpoint = f"ipc://{tmp_path}/s"
    socket = context.socket(zmq.ROUTER)
    socket.bind(endpoint)
    yield context, endpoint, socket
    socket.close()
    context.term()


def test_it_speaks_when_there_is_something_to_say_under_a_name_of_its_own(
    supervisor: tuple[zmq.Context[Any], str, zmq.Socket[bytes]],
) -> None:
    context, endpoint, socket = supervisor
    looked_on: list[str] = []

    def look() -> Message | None:
        looked_on.append(threading.current_thread().name)
        return ("pulse", {"pid": len(looked_on)}) if len(looked_on) > 3 else None

    pulse = Pulse(context, endpoint, "w7", 1_000_000, look)
    pulse.start()
    assert socket.poll(WAIT_MS)
    sender, body = socket.recv_multipart()
    pulse.close()
    pulse.close()
    assert (sender, decode(body)) == (b"w7.pulse", {"kind": "pulse", "slot": "w7", "pid": 4})
    assert set(looked_on) == {"pulse"}


LAST_WORD = """
import sys, time, zmq
from causal.process.pulse import Pulse
pulse = Pulse(zmq.Context(), sys.argv[1], "w7", 1_000_000, lambda: ("failed", {"message": "too long"}))
pulse.start()
time.sleep(60)
"""


def test_a_last_word_is_delivered_and_ends_the_process_whatever_its_loop_does(
    supervisor: tuple[zmq.Context[Any], str, zmq.Socket[bytes]],
) -> None:
    _, endpoint, socket = supervisor
    ended = subprocess.run([sys.executable, "-c", LAST_WORD, endpoint], timeout=50, check=False)
    assert ended.returncode == 1
    assert socket.poll(WAIT_MS)
    assert decode(socket.recv_multipart()[1]) == {"kind": "failed", "slot": "w7", "message": "too long"}
    assert not socket.poll(0), "said once"


def test_it_looks_several_times_within_the_silence_that_counts_as_death() -> None:
    for limit_ms in (30, 300, 600, 5000, 10**9):
        assert 0 < 4 * look_ns(limit_ms) <= limit_ms * 1_000_000
