"""A gate with keys: each host is heard under the name of its key alone, and not once that was revoked."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from causal.network.curve import connect_with, new_key
from causal.network.roster import ROSTER, KeyPair, save_key
from standby.network.control import pack
from standby.network.gate import Gate
from tests.unit.standby.stage import WAIT_S

KEYS = {name: new_key(name) for name in ("supervisor", "a", "b")}
STRANGER = new_key("a")


class Scene:
    """A gate, and hosts that connect to it."""

    def __init__(self, folder: Path) -> None:
        for key in KEYS.values():
            save_key(folder, key)
        self.roster = folder / ROSTER
        self.context: zmq.Context[Any] = zmq.Context()
        self.gate = Gate(self.context, "tcp://127.0.0.1:0", KEYS["supervisor"], [self.roster], {}, 1)
        self._clients: list[zmq.Socket[Any]] = []

    def client(self, key: KeyPair, identity: str) -> zmq.Socket[Any]:
        client: zmq.Socket[Any] = self.context.socket(zmq.DEALER)
        self._clients.append(client)
        client.linger = 0
        if identity:
            client.setsockopt_string(zmq.IDENTITY, identity)
        connect_with(client, key, KEYS["supervisor"].public)
        client.connect(self.gate.socket.last_endpoint.decode())
        return client

    def heard(self, done: Callable[[list[Any]], bool]) -> list[tuple[str, str, bytes]]:
        """Everything that the gate yields until that holds."""
        heard: list[tuple[str, str, bytes]] = []
        deadline_s = time.monotonic() + WAIT_S
        while not done(heard):
            assert time.monotonic() < deadline_s, f"heard {heard}, dropped {self.gate.dropped}"
            self.gate.socket.poll(10)
            self.gate.authenticator.serve()
            heard += self.gate.receive(10)
        return heard

    def close(self) -> None:
        for client in self._clients:
            client.close(0)
        self.gate.close()
        self.context.term()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    scene.close()


def test_a_host_is_heard_under_the_name_of_its_key(scene: Scene) -> None:
    client = scene.client(KEYS["a"], "a")
    client.send_multipart([b"w1", b"hello"])
    assert scene.heard(bool) == [("a", "w1", b"hello")]
    asking = scene.client(KEYS["a"], "join-a/1")
    asking.send_multipart([b"", pack("describe", protocol=0)])
    assert scene.heard(lambda heard: bool(heard or asking.poll(0))) == []
    assert scene.gate.dropped == 0


@pytest.mark.parametrize(
    ("key", "identity"),
    [
        *(("a", identity) for identity in ("b", "join-b/1", "supervisor", "join-supervisor/1", "")),
        pytest.param("supervisor", "supervisor", id="the key of a supervisor is that of no host"),
    ],
)
def test_a_host_under_another_name_is_dropped(scene: Scene, key: str, identity: str) -> None:
    client = scene.client(KEYS[key], identity)
    client.send_multipart([b"", pack("describe", protocol=0)])
    assert scene.heard(lambda heard: bool(heard) or scene.gate.dropped == 1) == []
    assert not client.poll(100)


def test_an_unknown_key_is_never_heard_under_any_name(scene: Scene) -> None:
    for identity in ("a", "join-a/1"):
        scene.client(STRANGER, identity).send_multipart([b"", pack("describe", protocol=0)])
    assert scene.heard(lambda heard: bool(heard) or scene.gate.authenticator.refused >= 2) == []
    scene.client(KEYS["a"], "a").send_multipart([b"", b"hello"])
    assert scene.heard(bool) == [("a", "", b"hello")]
    assert (scene.gate.dropped, scene.gate.refused_connections) == (0, scene.gate.authenticator.refused)


def test_a_host_that_is_revoked_is_dropped_although_it_is_still_connected(scene: Scene) -> None:
    client = scene.client(KEYS["a"], "a")
    client.send_multipart([b"", b"hello"])
    assert scene.heard(bool) == [("a", "", b"hello")]
    scene.roster.write_text(scene.roster.read_text().replace("[a]\n", "[a]\nrevoked = true\n"))
    assert scene.gate.revoked() == ["a"]
    client.send_multipart([b"", b"again"])
    assert scene.heard(lambda heard: bool(heard) or scene.gate.dropped == 1) == []
    other = scene.client(KEYS["b"], "b")
    other.send_multipart([b"", b"hello"])
    assert scene.heard(bool) == [("b", "", b"hello")]
