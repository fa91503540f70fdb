"""CURVE on real sockets: only hosts of the roster are heard, and each under its own name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import zmq

from causal.network.curve import Authenticator, connect_with, new_key, serve_with, user_of
from causal.network.roster import KeyPair, Member, Roster

WAIT_MS = 5000
A, B, SERVER, STRANGER = new_key("a"), new_key("b"), new_key("supervisor"), new_key("a")


def roster_of(*keys: KeyPair) -> Roster:
    return Roster({key.name: Member(key.name, key.public) for key in keys})


class Server:
    """A ROUTER that accepts the roster's hosts."""

    def __init__(self, roster: Roster) -> None:
        self.context: zmq.Context[Any] = zmq.Context()
        self.authenticator = Authenticator(self.context, roster)
        self.socket = self.context.socket(zmq.ROUTER)
        self.socket.linger = 0
        serve_with(self.socket, SERVER)
        self.socket.bind("tcp://127.0.0.1:*")
        self.endpoint = self.socket.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")
        self.poller = zmq.Poller()
        self.poller.register(self.socket, zmq.POLLIN)
        self.poller.register(self.authenticator.socket, zmq.POLLIN)

    def receive(self, wait_ms: int = WAIT_MS) -> tuple[str, bytes] | None:
        """(host, message) of the next message, or None if none comes."""
        for _ in range(20):
            ready = dict(self.poller.poll(wait_ms))
            if not ready:
                return None
            self.authenticator.serve()
            if self.socket in ready:
                frames = self.socket.recv_multipart(copy=False)
                return user_of(frames[0]), frames[-1].bytes
        return None

    def close(self) -> None:
        self.socket.close(0)
        self.authenticator.close()
        self.context.term()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server(roster_of(A, B))
    yield server
    server.close()


@contextmanager
def client(server: Server, key: KeyPair | None, server_public: str = SERVER.public) -> Iterator[zmq.Socket[Any]]:
    context: zmq.Context[Any] = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.linger = 0
    if key is not None:
        connect_with(socket, key, server_public)
    socket.connect(server.endpoint)
    try:
        yield socket
    finally:
        socket.close(0)
        context.term()


@pytest.mark.parametrize("key", [A, B], ids=["a", "b"])
def test_a_host_of_the_roster_is_heard_under_its_name_whatever_it_calls_itself(server: Server, key: KeyPair) -> None:
    with client(server, key) as socket:
        socket.setsockopt(zmq.IDENTITY, b"someone-else")
        socket.send(b"hello")
        assert server.receive() == (key.name, b"hello")


@pytest.mark.parametrize("key", [STRANGER, None], ids=["a name of the roster with another key", "no key"])
def test_a_stranger_is_not_heard(server: Server, key: KeyPair | None) -> None:
    with client(server, key) as stranger, client(server, B) as host:
        with suppress(zmq.Again):  # the server may have refused the connection already
            stranger.send(b"let me in", zmq.NOBLOCK)
        host.send(b"hello")
        assert server.receive() == ("b", b"hello")
        assert server.receive(300) is None
    assert server.authenticator.refused >= (1 if key is not None else 0)


def test_a_client_does_not_speak_to_a_server_with_another_key(server: Server) -> None:
    with client(server, A, STRANGER.public) as socket:
        socket.send(b"secret")
        assert server.receive(500) is None


def test_a_revoked_host_is_refused_from_its_next_connection_on(server: Server) -> None:
    with client(server, A) as socket:
        socket.send(b"hello")
        assert server.receive() == ("a", b"hello")
    server.authenticator.roster = roster_of(B)
    with client(server, A) as socket:
        socket.send(b"again")
        assert server.receive(500) is None


def test_a_socket_of_the_same_context_without_curve_is_served_as_before(server: Server) -> None:
    local, dealer = server.context.socket(zmq.ROUTER), server.context.socket(zmq.DEALER)
    local.linger = dealer.linger = 0
    local.bind("inproc://local")
    dealer.connect("inproc://local")
    dealer.send(b"hello")
    assert local.poll(WAIT_MS)
    frames = local.recv_multipart(copy=False)
    assert (user_of(frames[0]), frames[-1].bytes) == ("", b"hello")
    local.close(0)
    dealer.close(0)
