"""Tests of the agent with many orders together."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import zmq

from benchmarks.harness.graphs import chain_of
from causal.config import JobConfig
from causal.records.values import encode
from standby.blueprint import Blueprint
from standby.network.control import unpack
from standby.supervision.orders import Kill, Start
from tests.unit.standby.stage import ROOT, WAIT_S


class Orders:
    """The supervisor's end of the socket of a real agent."""

    def __init__(self, socket: zmq.Socket[bytes], agent: subprocess.Popen[bytes]) -> None:
        self.agent = agent
        self._socket = socket

    def give(self, kind: str, slot: str) -> None:
        order = Start(slot, "worker") if kind == "start" else Kill(slot)
        self._socket.send_multipart([b"agent", encode(order.message())])

    def hear(self, *kinds: str) -> dict[str, Any]:
        """Return the next message of one of these kinds."""
        while self._socket.poll(int(WAIT_S * 1000)):
            message = unpack(self._socket.recv_multipart()[-1])
            if message["kind"] in kinds:
                return message
        raise AssertionError(f"no {kinds} within {WAIT_S} s")


@pytest.fixture
def orders(tmp_path: Path) -> Iterator[Orders]:
    with ExitStack() as stack:
        runtime = Path(tempfile.mkdtemp(prefix="causal-"))  # a socket's path is short
        stack.callback(shutil.rmtree, runtime)
        context = stack.enter_context(zmq.Context())
        socket = stack.enter_context(context.socket(zmq.ROUTER))
        socket.linger = 0
        socket.router_mandatory = True
        socket.bind(f"ipc://{runtime}/supervisor")
        JobConfig(run="r", name="job", pipeline="/p.py", verify_replay=True).save(tmp_path)  # without a fork server
        Blueprint(chain_of("read/0"), worker="tests.unit.standby.sleeper").save(tmp_path)
        (tmp_path / "runtime").write_text(str(runtime))
        agent = subprocess.Popen([sys.executable, "-m", "standby.agent", str(tmp_path)], cwd=ROOT)
        stack.callback(agent.wait, WAIT_S)
        stack.callback(agent.send_signal, signal.SIGTERM)
        orders = Orders(socket, agent)
        orders.hear("agent_beat")
        yield orders


def test_a_kill_does_not_wait_until_all_that_was_ordered_before_it_is_started(orders: Orders) -> None:
    orders.give("start", "w1")
    assert orders.hear("started")["slot"] == "w1"
    os.kill(orders.agent.pid, signal.SIGSTOP)  # so that it finds them all together
    for number in range(2, 8):
        orders.give("start", f"w{number}")
    orders.give("kill", "w1")
    os.kill(orders.agent.pid, signal.SIGCONT)
    seen = [orders.hear("started", "exited") for _ in range(7)]
    (ended,) = (message for message in seen if message["kind"] == "exited")
    begun = {message["slot"]: message["at_ns"] for message in seen if message["kind"] == "started"}
    assert ended["slot"] == "w1" and ended["killed_ns"] < begun["w7"]
    assert list(begun) == [f"w{number}" for number in range(2, 8)]


def test_a_process_that_is_killed_before_it_was_started_never_starts_and_is_reported_as_ended(orders: Orders) -> None:
    os.kill(orders.agent.pid, signal.SIGSTOP)
    for slot in ("w1", "w2", "w2"):
        orders.give("start", slot)
    orders.give("kill", "w2")
    os.kill(orders.agent.pid, signal.SIGCONT)
    seen = [orders.hear("started", "exited") for _ in range(2)]
    assert sorted((message["slot"], message["kind"]) for message in seen) == [("w1", "started"), ("w2", "exited")]
    assert orders.hear("agent_beat")["dead"] == {"w2": None}
