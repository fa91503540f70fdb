"""Frames between hosts: a task is heard from the host on which it is placed, and only with keys off this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import zmq

from causal.channels.wire import HELLO, Header
from causal.errors import PipelineError
from causal.network.curve import new_key
from causal.network.roster import KeyPair, Member, Roster
from causal.network.transport import REMOTE, Network, Transport

WAIT_S = 60.0
"""The bound for a hang."""

KEYS = {name: new_key(name) for name in "abc"}
ROSTER = Roster({name: Member(name, key.public) for name, key in KEYS.items()})
SENDER, RECEIVER, CHANNEL, ELSEWHERE = 3, 4, 1, 2
"""Two tasks; the channel from one to the other, and one that the graph does not have."""


@pytest.fixture
def context() -> Iterator[zmq.Context[Any]]:
    context: zmq.Context[Any] = zmq.Context()
    yield context
    context.destroy(linger=0)


def network(address: str, key: KeyPair | None) -> Network:
    return Network(address, key, lambda: Roster({}), lambda channel: None)


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_without_a_key_nothing_but_loopback_is_bound(context: zmq.Context[Any], address: str) -> None:
    with pytest.raises(PipelineError, match="can be reached from the network; use keys"):
        Transport(context, "inproc://local", zmq.Poller(), network(address, None))
    with pytest.raises(PipelineError, match="can be reached from the network; use keys"):
        Transport(context, "tcp://0.0.0.0:*", zmq.Poller())


@pytest.mark.parametrize("key", [None, new_key("a")], ids=["no key", "a key"])
def test_loopback_is_bound_with_and_without_a_key(context: zmq.Context[Any], key: KeyPair | None) -> None:
    transport = Transport(context, "tcp://127.0.0.1:*", zmq.Poller(), network("127.0.0.1", key))
    assert transport.remote.startswith("tcp://127.0.0.1:")
    transport.close()


class Host:
    """The transport of one host, with its key."""

    def __init__(self, context: zmq.Context[Any], name: str) -> None:
        self.poller = zmq.Poller()
        self.roster = ROSTER
        network = Network("127.0.0.1", KEYS[name], lambda: self.roster, {CHANNEL: SENDER}.get)
        self.transport = Transport(context, f"inproc://{name}", self.poller, network)
        self.at = f"tcp://{name}@{self.transport.remote.removeprefix('tcp://')}"

    def heard(self, done: Callable[[list[Any]], bool]) -> list[tuple[bytes, list[bytes]]]:
        """Everything that has arrived until that holds."""
        heard: list[tuple[bytes, list[bytes]]] = []
        deadline_s = time.monotonic() + WAIT_S
        while not done(heard):
            assert time.monotonic() < deadline_s, f"heard {heard}, refused {self.transport.refused}"
            heard += self.transport.receive(dict(self.poller.poll(10)))
        return heard


@pytest.fixture
def hosts() -> Iterator[dict[str, Host]]:
    """Three hosts in a context each, as an authenticator is the only one of its context; the task listens on `c`."""
    contexts: list[zmq.Context[Any]] = [zmq.Context() for _ in KEYS]
    hosts = {name: Host(context, name) for name, context in zip(KEYS, contexts, strict=True)}
    yield hosts
    for host, context in zip(hosts.values(), contexts, strict=True):
        host.transport.close()
        context.destroy(linger=0)


def hello(channel: int = CHANNEL) -> list[bytes]:
    return [Header(HELLO, 1, channel, 1).pack(), b""]


def test_a_task_is_heard_from_the_host_on_which_it_is_placed(hosts: dict[str, Host]) -> None:
    receiver = hosts["c"]
    receiver.transport.place(SENDER, hosts["a"].at)
    for name in "ba":
        hosts[name].transport.dial(RECEIVER, receiver.at)
    hosts["b"].transport.send(RECEIVER, hello())
    assert receiver.heard(lambda heard: bool(heard) or receiver.transport.refused == 1) == []
    hosts["a"].transport.send(RECEIVER, hello())
    [(link, parts)] = receiver.heard(bool)
    assert link.startswith(REMOTE) and parts == hello()
    receiver.transport.reply(link, [b"answer"])
    assert hosts["a"].heard(bool) == [(b"", [b"answer"])]
    receiver.transport.place(SENDER, hosts["b"].at)
    hosts["a"].transport.send(RECEIVER, hello())
    assert receiver.heard(lambda heard: bool(heard) or receiver.transport.refused == 2) == []
    hosts["b"].transport.send(RECEIVER, hello())
    assert [parts for _, parts in receiver.heard(bool)] == [hello()]


@pytest.mark.parametrize("revoked", "ac", ids=["the sender's key", "the receiver's key"])
def test_a_key_that_is_revoked_and_comes_back_connects_again(hosts: dict[str, Host], revoked: str) -> None:
    """The protocol repeats its hello, whether or not a supervisor has noticed."""
    sender, receiver = hosts["a"], hosts["c"]
    without = Roster({name: member for name, member in ROSTER.members.items() if name != revoked})
    for host in (sender, receiver):
        host.roster = without
    receiver.transport.place(SENDER, sender.at)
    sender.transport.dial(RECEIVER, receiver.at)
    sender.transport.send(RECEIVER, hello())
    deadline_s = time.monotonic() + 0.3
    while time.monotonic() < deadline_s:  # the receiver refuses the handshake of the sender
        assert not list(receiver.transport.receive(dict(receiver.poller.poll(10))))
    assert sender.transport.undeliverable == (revoked == "c")
    for host in (sender, receiver):
        host.roster = ROSTER

    def again(heard: list[object]) -> bool:
        assert not list(sender.transport.receive(dict(sender.poller.poll(1))))
        sender.transport.send(RECEIVER, hello())
        return bool(heard)

    assert receiver.heard(again)[0][1] == hello()


@pytest.mark.parametrize("moved", [False, True], ids=["not placed yet", "placed on this host"])
def test_a_task_that_is_on_no_other_host_is_heard_from_none(hosts: dict[str, Host], moved: bool) -> None:
    receiver = hosts["c"]
    if moved:
        receiver.transport.place(SENDER, hosts["a"].at)
        receiver.transport.place(SENDER, "ipc:///run/w1")
    hosts["a"].transport.dial(RECEIVER, receiver.at)
    hosts["a"].transport.send(RECEIVER, hello())
    assert receiver.heard(lambda heard: bool(heard) or receiver.transport.refused == 1) == []


@pytest.mark.parametrize(
    "parts",
    [hello(ELSEWHERE), [b"", b""], [b"\0" * len(hello()[0]), b""], [hello()[0][:-1], b""], [hello()[0] + b"\0"]],
    ids=["a channel that does not exist", "empty", "not a valid ECHO", "too short", "too long"],
)
def test_a_frame_without_the_header_of_a_known_channel_is_refused(hosts: dict[str, Host], parts: list[bytes]) -> None:
    receiver = hosts["c"]
    receiver.transport.place(SENDER, hosts["a"].at)
    hosts["a"].transport.dial(RECEIVER, receiver.at)
    hosts["a"].transport.send(RECEIVER, parts)
    assert receiver.heard(lambda heard: bool(heard) or receiver.transport.refused == 1) == []
    hosts["a"].transport.send(RECEIVER, hello())
    assert [parts for _, parts in receiver.heard(bool)] == [hello()]
