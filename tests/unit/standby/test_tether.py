"""The supervisor's ends of tethers: one descriptor to wait for, which host's tether has ended, and strangers."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator

import pytest

from standby.tether import STRANGERS_MAX, Tethers, tether

WITHIN_S = 10.0


@pytest.fixture
def tethers() -> Iterator[Tethers]:
    """Tethers over loopback, which listen."""
    listening = Tethers("127.0.0.1")
    yield listening
    listening.close()


def next_closed(tethers: Tethers) -> list[tuple[str, str]]:
    """Waits until something happens; returns what has ended."""
    assert select.select([tethers.wake.fileno()], [], [], WITHIN_S)[0], "nothing happens"
    return list(tethers.closed())


def connected(tethers: Tethers, host: str) -> socket.socket:
    """A tether of a host that the supervisor has accepted."""
    end = tether("127.0.0.1", tethers.port, tethers.secret, host, f"session-{host}", WITHIN_S)
    assert next_closed(tethers) == []  # the connection
    assert next_closed(tethers) == []  # its introduction
    return end


def test_the_end_of_one_of_many_tethers_is_seen_at_the_one_descriptor(tethers: Tethers) -> None:
    ends = {host: connected(tethers, host) for host in "abcd"}
    assert not select.select([tethers.wake.fileno()], [], [], 0)[0]
    ends.pop("c").close()
    assert next_closed(tethers) == [("c", "session-c")]
    assert list(tethers.closed()) == []
    for end in ends.values():
        end.close()


def test_a_stranger_is_dropped_and_ends_no_host(tethers: Tethers) -> None:
    with tether("127.0.0.1", tethers.port, "wrong", "a", "s", WITHIN_S) as stranger:
        assert next_closed(tethers) == []
        assert next_closed(tethers) == []
        stranger.settimeout(WITHIN_S)
        assert stranger.recv(1) == b""


def test_more_strangers_than_there_may_be_are_refused(tethers: Tethers) -> None:
    strangers = [socket.create_connection(("127.0.0.1", tethers.port), WITHIN_S) for _ in range(STRANGERS_MAX)]
    while select.select([tethers.wake.fileno()], [], [], 0.2)[0]:
        assert list(tethers.closed()) == []
    with socket.create_connection(("127.0.0.1", tethers.port), WITHIN_S) as late:
        assert next_closed(tethers) == []
        late.settimeout(WITHIN_S)
        assert late.recv(1) == b""
    for stranger in strangers:
        stranger.close()
