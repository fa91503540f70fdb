"""Frames between hosts: which addresses a task listens at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import zmq

from causal.errors import PipelineError
from causal.shell.curve import new_key
from causal.shell.roster import KeyPair, Roster
from causal.shell.transport import Network, Transport


@pytest.fixture
def context() -> Iterator[zmq.Context[Any]]:
    context: zmq.Context[Any] = zmq.Context()
    yield context
    context.destroy(linger=0)


def network(address: str, key: KeyPair | None) -> Network:
    return Network(address, key, lambda: Roster({}), lambda channel: None)


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_without_a_key_nothing_but_loopback_is_bound(context: zmq.Context[Any], address: str) -> None:
    with pytest.raises(PipelineError, match="is open to the network; give keys"):
        Transport(context, "inproc://local", zmq.Poller(), network(address, None))
    with pytest.raises(PipelineError, match="is open to the network; give keys"):
        Transport(context, "tcp://0.0.0.0:*", zmq.Poller())


@pytest.mark.parametrize("key", [None, new_key("a")], ids=["no key", "a key"])
def test_loopback_is_bound_with_and_without_a_key(context: zmq.Context[Any], key: KeyPair | None) -> None:
    transport = Transport(context, "tcp://127.0.0.1:*", zmq.Poller(), network("127.0.0.1", key))
    assert transport.remote.startswith("tcp://127.0.0.1:")
    transport.close()
