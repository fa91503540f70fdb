"""Silent connections at the ports of a supervisor and of a task: neither loses its hosts or its descriptors."""

from __future__ import annotations

import json
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import zmq

from causal.channels.wire import HELLO, Header
from causal.network.curve import connect_with, new_key
from causal.network.roster import load_key, save_key
from causal.process.open_files import DESCRIPTORS_MAX, raise_limit
from causal.records.values import decode
from tests.unit.standby.stage import ROOT, WAIT_S

SILENT, AT_ONCE = 600, 30
MESSAGES = {"gate": [b"", b"hello"], "transport": [Header(HELLO, 1, 0, 1).pack(), b""]}


class Peer:
    """The host `b`, with its key, as it speaks to one port."""

    def __init__(self, context: zmq.Context[Any], folder: Path, endpoint: str, kind: str) -> None:
        self._kind = kind
        self.socket = context.socket(zmq.DEALER)
        self.socket.linger = 0
        if kind == "gate":
            self.socket.setsockopt_string(zmq.IDENTITY, "b")
        connect_with(self.socket, load_key(folder / "b.key"), load_key(folder / "supervisor.key").public)
        self.monitor = self.socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        self.socket.connect(endpoint)

    def ask(self) -> dict[str, Any]:
        self.socket.send_multipart(MESSAGES[self._kind])
        assert self.socket.poll(WAIT_S * 1000), "no answer"
        answer = self.socket.recv_multipart()[-1]
        body: dict[str, Any] = json.loads(decode(answer)["text"] if self._kind == "gate" else answer)
        return body

    def close(self) -> None:
        self.socket.disable_monitor()
        self.monitor.close(0)
        self.socket.close(0)


@pytest.fixture(params=["gate", "transport"])
def port(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The kind and the endpoint of a process that listens."""
    for name in ("supervisor", "b"):
        save_key(tmp_path, new_key(name))
    command = [sys.executable, "-m", "tests.unit.standby.flooded", request.param, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield request.param, process.stdout.readline().strip()
        finally:
            process.kill()


def test_silent_connections_take_neither_hosts_nor_descriptors(port: tuple[str, str], tmp_path: Path) -> None:
    kind, endpoint = port
    address = ("127.0.0.1", int(endpoint.rpartition(":")[2]))
    context: zmq.Context[Any] = zmq.Context()
    with ExitStack() as stack:
        stack.callback(context.term)
        peer = Peer(context, tmp_path, endpoint, kind)
        stack.callback(peer.close)
        assert peer.ask() == {"opened": True, "refused": 0}
        for _ in range(0, SILENT, AT_ONCE):
            for _ in range(AT_ONCE):
                stack.enter_context(socket.create_connection(address, WAIT_S))
            answer = peer.ask()
            assert answer["opened"], answer
        assert answer["refused"] > SILENT // 2
        assert not peer.monitor.poll(0), "the connection of a host was closed"
        other = Peer(context, tmp_path, endpoint, kind)
        stack.callback(other.close)
        assert other.ask()["opened"]


def test_the_limit_on_descriptors_is_raised_and_never_lowered() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(before[0], 1000), before[1]))
        raise_limit()
        reached, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert hard == before[1]
        assert reached == (DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX))
        raise_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (reached, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
