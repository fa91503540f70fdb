"""A leader that hears no host leaves the job to a candidate that does, and an ear hears hosts of the roster alone."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import zmq

from causal.config import JobConfig
from causal.network.curve import connect_with, new_key
from causal.network.roster import ROSTER, KeyPair, save_key
from standby.leadership.candidacy import COUNTED_NS_MAX
from standby.leadership.hearing import DEAF_NS_MIN, HEARS_NS, Hearing
from standby.network.control import pack
from standby.network.ear import Ear
from tests.unit.standby.stage import WAIT_S

SECOND = 1_000_000_000
TIMEOUT_NS = 3 * SECOND


def looked(leads: bool, looks: list[tuple[int, float]]) -> Hearing:
    """Return a supervisor that has had so many messages of hosts at that time in seconds."""
    hearing = Hearing(leads)
    for messages, at_s in looks:
        hearing.look(messages, round(at_s * SECOND))
    return hearing


def test_a_candidate_hears_no_host_before_the_first_message_and_for_two_seconds_after_the_last() -> None:
    assert not looked(False, []).hears and not looked(False, [(0, 5)]).hears
    assert looked(False, [(0, 5), (1, 6)]).hears
    assert looked(False, [(1, 6), (1, 7.9)]).hears
    assert not looked(False, [(1, 6), (1, 7), (1, 8)]).hears
    assert HEARS_NS == 2 * SECOND


@pytest.mark.parametrize(("timeout_s", "deaf_s"), [(1, 5), (3, 5), (30, 30)])
def test_a_leader_leaves_after_the_silence_and_only_to_a_candidate_that_hears(timeout_s: int, deaf_s: int) -> None:
    looks = [(7, 100.0 + second / 2) for second in range(2 * deaf_s)]
    assert not looked(True, looks).leaves(timeout_s * SECOND, True)
    deaf = looked(True, [*looks, (7, 100.0 + deaf_s)])
    assert deaf.leaves(timeout_s * SECOND, True)
    assert not deaf.leaves(timeout_s * SECOND, False)
    assert not looked(True, [*looks, (8, 100.0 + deaf_s)]).leaves(timeout_s * SECOND, True)


def test_a_leader_that_was_suspended_is_not_deaf() -> None:
    assert not looked(True, [(7, 0), (7, 600)]).leaves(TIMEOUT_NS, True)
    assert DEAF_NS_MIN > 2 * COUNTED_NS_MAX


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Agent:
    """Speaks to one supervisor as the agent of a host does."""

    def __init__(self, port: int, host: str, key: KeyPair | None, public: str = "") -> None:
        self.context = zmq.Context[zmq.Socket[bytes]]()
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.linger = 0
        self.socket.setsockopt_string(zmq.IDENTITY, host)
        if key is not None:
            connect_with(self.socket, key, public)
        self.socket.connect(f"tcp://127.0.0.1:{port}")

    def beat(self) -> None:
        with suppress(zmq.Again):  # a connection that was refused takes nothing
            self.socket.send_multipart([b"", pack("agent_beat", slots={}, dead={})], zmq.NOBLOCK)

    def close(self) -> None:
        self.context.destroy(0)


@pytest.fixture
def closing() -> Iterator[list[Callable[[], None]]]:
    ends: list[Callable[[], None]] = []
    yield ends
    for end in ends:
        end()


def until(wanted: Callable[[], bool], act: Callable[[], None] = lambda: None) -> bool:
    deadline_s = time.monotonic() + WAIT_S
    while not wanted() and time.monotonic() < deadline_s:
        act()
        time.sleep(0.05)
    return wanted()


def ear_on(port: int, directory: Path, keys: Path | None = None) -> Ear:
    config = JobConfig(name="counts", pipeline="p.py", run="1", listen=f"tcp://127.0.0.1:{port}")
    if keys is not None:
        config = replace(config, key=str(keys / "supervisor.key"), hosts=str(keys / ROSTER))
    ear = Ear(config, directory)
    ear.start()
    return ear


def test_an_ear_hears_a_host_that_speaks_and_no_more_when_it_is_silent(
    tmp_path: Path, closing: list[Callable[[], None]]
) -> None:
    port = free_port()
    ear = ear_on(port, tmp_path)
    agent = Agent(port, "a", None)
    closing += [ear.close, agent.close]
    assert not ear.hears
    assert until(lambda: ear.hears, agent.beat)
    assert until(lambda: not ear.hears)
    assert agent.socket.poll(0) == 0, "it answers nothing"


def test_an_ear_hears_hosts_of_the_roster_alone(tmp_path: Path, closing: list[Callable[[], None]]) -> None:
    supervisor, host, stranger = new_key("supervisor"), new_key("a"), new_key("a")
    for key in (supervisor, host):
        save_key(tmp_path, key)
    port = free_port()
    ear = ear_on(port, tmp_path, tmp_path)
    wrong, right = (Agent(port, "a", key, supervisor.public) for key in (stranger, host))
    closing += [ear.close, wrong.close, right.close]
    for _ in range(20):
        wrong.beat()
        time.sleep(0.02)
    assert not ear.hears
    assert until(lambda: ear.hears, right.beat)


def test_the_address_is_free_once_an_ear_is_closed(tmp_path: Path, closing: list[Callable[[], None]]) -> None:
    port = free_port()
    ear = ear_on(port, tmp_path)
    agent = Agent(port, "a", None)
    closing.append(agent.close)
    assert until(lambda: ear.hears, agent.beat)
    ear.close()
    again = ear_on(port, tmp_path)
    closing.append(again.close)
    assert until(lambda: again.hears, agent.beat)


def test_an_address_that_is_taken_is_tried_again_and_named_once(
    tmp_path: Path, closing: list[Callable[[], None]], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("standby.network.ear.AGAIN_S", 0.1)
    port = free_port()
    other = Agent(port, "x", None)
    taken = other.context.socket(zmq.ROUTER)
    taken.bind(f"tcp://127.0.0.1:{port}")
    ear = ear_on(port, tmp_path)
    agent = Agent(port, "a", None)
    closing += [ear.close, agent.close, other.close]
    assert until(lambda: f"tcp://127.0.0.1:{port} cannot be bound" in caplog.text)
    time.sleep(0.4)
    assert caplog.text.count("this candidate hears no host") == 1
    taken.close()
    assert until(lambda: ear.hears, agent.beat)
