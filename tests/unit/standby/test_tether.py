"""The supervisor's ends of tethers: one descriptor to wait for, which host's tether has ended, and strangers."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Iterator

import pytest

from standby.network.tether import LINE_BYTES_MAX, STRANGERS_MAX, Tethers, introduction, tether

WITHIN_S = 10.0


@pytest.fixture
def tethers() -> Iterator[Tethers]:
    """Tethers over loopback, which listen."""
    listening = Tethers("127.0.0.1")
    yield listening
    listening.close()


def next_closed(tethers: Tethers) -> list[tuple[str, str]]:
    """Wait until something happens; returns what has ended."""
    assert select.select([tethers.wake.fileno()], [], [], WITHIN_S)[0], "nothing happens"
    return list(tethers.closed())


def connected(tethers: Tethers, host: str, secret: str = "") -> socket.socket:
    """Return a tether of a host, by default with its own secret, whose introduction has arrived."""
    ends: list[socket.socket] = []

    def connect() -> None:
        ends.append(
            tether("127.0.0.1", tethers.port, secret or tethers.secret_of(host), host, f"session-{host}", WITHIN_S)
        )

    connecting = threading.Thread(target=connect)
    connecting.start()
    assert next_closed(tethers) == []  # the connection
    assert next_closed(tethers) == []  # its introduction
    connecting.join()
    return ends[0]


def said_by(tethers: Tethers, line: bytes) -> socket.socket:
    """Return a connection that has said that line, whatever the challenge."""
    end = socket.create_connection(("127.0.0.1", tethers.port), WITHIN_S)
    end.sendall(line)
    assert next_closed(tethers) == []  # the connection
    assert next_closed(tethers) == []  # the line
    return end


def is_dropped(end: socket.socket) -> bool:
    """Return whether the supervisor has closed this connection."""
    end.settimeout(0.5)
    try:
        while end.recv(LINE_BYTES_MAX):
            continue
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


def test_the_end_of_one_of_many_tethers_is_seen_at_the_one_descriptor(tethers: Tethers) -> None:
    ends = {host: connected(tethers, host) for host in "abcd"}
    assert not select.select([tethers.wake.fileno()], [], [], 0)[0]
    ends.pop("c").close()
    assert next_closed(tethers) == [("c", "session-c")]
    assert list(tethers.closed()) == []
    for end in ends.values():
        end.close()


def test_a_stranger_is_dropped_and_ends_no_host(tethers: Tethers) -> None:
    with connected(tethers, "a", "wrong") as stranger:
        assert is_dropped(stranger)
    with connected(tethers, "a", tethers.secret_of("b")) as other:
        assert is_dropped(other)
    with connected(tethers, "a") as end:
        assert not is_dropped(end)


def test_a_line_that_was_read_on_the_path_is_of_no_use_for_another_connection(tethers: Tethers) -> None:
    with socket.create_connection(("127.0.0.1", tethers.port), WITHIN_S) as end:
        assert next_closed(tethers) == []
        challenge = end.recv(LINE_BYTES_MAX).decode().strip()
        line = introduction(challenge, tethers.secret_of("a"), "a", "session-a")
        end.sendall(line)
        assert next_closed(tethers) == []
        assert not is_dropped(end)
        assert tethers.secret_of("a").encode() not in line
        with said_by(tethers, line) as replayed:
            assert is_dropped(replayed)
        assert list(tethers.closed()) == []
    assert next_closed(tethers) == [("a", "session-a")]


@pytest.mark.parametrize("secret", ["", "secret of a"])
def test_an_introduction_of_the_version_before_is_refused(tethers: Tethers, secret: str) -> None:
    shown = tethers.secret_of("a") if secret else ""
    with said_by(tethers, f"{shown} a session-a\n".encode()) as end:
        assert is_dropped(end)
    assert list(tethers.closed()) == []


def test_more_strangers_than_there_may_be_are_refused(tethers: Tethers) -> None:
    strangers = [socket.create_connection(("127.0.0.1", tethers.port), WITHIN_S) for _ in range(STRANGERS_MAX)]
    while select.select([tethers.wake.fileno()], [], [], 0.2)[0]:
        assert list(tethers.closed()) == []
    with socket.create_connection(("127.0.0.1", tethers.port), WITHIN_S) as late:
        assert next_closed(tethers) == []
        assert is_dropped(late)
    for stranger in strangers:
        stranger.close()
