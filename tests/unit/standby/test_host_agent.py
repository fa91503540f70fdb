"""The agent of one of several hosts, as its supervisor sees it: clocks, and starts that wait for them."""

from __future__ import annotations

import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zmq

from benchmarks.harness.graphs import chain_of
from causal.config import JobConfig
from causal.network.host_file import HostFile
from causal.process.clock import OFFSET
from causal.records.values import encode
from standby.agent import STATUS_LEFT
from standby.blueprint import FILE as GRAPH
from standby.blueprint import Blueprint
from standby.host.leaving import UNHEARD_S
from standby.host.processes import kill_marked
from standby.network.control import unpack
from standby.storage.change_files import NEXT
from standby.supervision import orders
from standby.supervision.orders import NEXT_WORKER
from tests.unit.standby.stage import ROOT, WAIT_S

AHEAD_NS = 1_000_000_000_000


class Upstream:
    """A supervisor at which one real agent joins; its clock is ahead of the host's."""

    def __init__(self, socket: zmq.Socket[bytes], agent: subprocess.Popen[bytes]) -> None:
        self.agent = agent
        self._socket = socket

    def order(self, order: orders.Order) -> None:
        self._socket.send_multipart([b"b", b"", encode(order.message())])

    def hear(self, *kinds: str) -> dict[str, Any]:
        """Return the next message of one of these kinds."""
        while self._socket.poll(int(WAIT_S * 1000)):
            message = unpack(self._socket.recv_multipart()[-1])
            if message["kind"] in kinds:
                return message
        raise AssertionError(f"no {kinds} within {WAIT_S} s")

    def join(self) -> None:
        self.hear("host_hello")
        self.order(orders.Welcome(1))
        self.hear("agent_beat")

    def answer(self) -> None:
        """Answer the next beat, so that the agent knows this clock."""
        sent_ns = self.hear("agent_beat")["clock_ns"]
        self.order(orders.Heard(sent_ns, time.monotonic_ns() + AHEAD_NS))


@pytest.fixture
def upstream(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Upstream]:
    """A parameter says whether the agent may be killed on request; without one it may."""
    with ExitStack() as stack:
        runtime = Path(tempfile.mkdtemp(prefix="causal-"))  # a socket's path is short
        stack.callback(shutil.rmtree, runtime)
        context = stack.enter_context(zmq.Context())
        socket = stack.enter_context(context.socket(zmq.ROUTER))
        socket.linger = 0
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        JobConfig(run="r", name="job", pipeline="/p.py", verify_replay=True).save(tmp_path)  # without a fork server
        Blueprint(chain_of("read/0"), worker="tests.unit.standby.sleeper").save(tmp_path)
        supervisor, permits = f"tcp://127.0.0.1:{port}", getattr(request, "param", True)
        HostFile("b", supervisor, "127.0.0.1", "s", 4, "", "", {}, drain_s=600, breakable=permits).save(tmp_path)
        (tmp_path / "runtime").write_text(str(runtime))
        agent = subprocess.Popen([sys.executable, "-m", "standby.agent", str(tmp_path)], cwd=ROOT)
        stack.callback(kill_marked, tmp_path, WAIT_S)  # an agent that is killed leaves its processes to the next one
        stack.callback(agent.wait, WAIT_S)
        stack.callback(agent.kill)
        yield Upstream(socket, agent)


def test_no_process_starts_before_the_clock_is_known_not_even_to_be_killed(upstream: Upstream) -> None:
    upstream.join()
    for slot in ("w1", "w2"):
        upstream.order(orders.Start(slot, "worker"))
    upstream.order(orders.Kill("w1"))
    ended = upstream.hear("started", "exited")
    assert (ended["kind"], ended["slot"], ended["pid"]) == ("exited", "w1", 0)
    upstream.answer()
    started = upstream.hear("started", "exited")
    assert (started["kind"], started["slot"]) == ("started", "w2")
    # The agent's clock is right to half the round trip of its measurement, which takes long on a busy machine.
    assert abs(time.monotonic_ns() + AHEAD_NS - started["at_ns"]) < WAIT_S * 1e9 < AHEAD_NS / 2


def test_an_agent_becomes_another_version_and_obeys_only_its_orders(upstream: Upstream, tmp_path: Path) -> None:
    upstream.join()
    upstream.answer()
    before = upstream.hear("agent_beat")["mark"]
    next_config = JobConfig(run="r", name="job", pipeline="/p.py", verify_replay=True, first_incarnation=1001)
    (tmp_path / "other").mkdir()
    Blueprint(chain_of("read/0", "out/0"), worker="tests.unit.standby.sleeper").save(tmp_path / "other")
    mark = Blueprint.load(tmp_path / "other").mark(next_config)
    upstream.order(orders.Start("w1", "worker", mark))  # it has yet to learn of that version
    upstream.order(orders.Start("w2", NEXT_WORKER, before, next_config.for_hosts()))
    assert upstream.hear("started")["slot"] == "w2"
    assert JobConfig.load(tmp_path / NEXT) == next_config and JobConfig.load(tmp_path) != next_config
    upstream.order(orders.Version(next_config.for_hosts(), (tmp_path / "other" / GRAPH).read_text()))
    upstream.order(orders.Start("w3", "worker", before))
    upstream.order(orders.Start("w4", "worker", mark))
    assert upstream.hear("started")["slot"] == "w4"
    assert JobConfig.load(tmp_path) == next_config
    while upstream.hear("agent_beat")["mark"] != mark:
        continue


@pytest.mark.campaign
def test_an_agent_that_is_started_again_knows_the_clock_that_the_one_before_has_measured(
    upstream: Upstream, tmp_path: Path
) -> None:
    upstream.join()
    upstream.answer()
    upstream.order(orders.Start("w1", "worker"))
    upstream.hear("started")
    assert abs(int((tmp_path / OFFSET).read_text()) - AHEAD_NS) < WAIT_S * 1e9
    upstream.agent.kill()
    upstream.agent.wait(WAIT_S)
    again = subprocess.Popen([sys.executable, "-m", "standby.agent", str(tmp_path)], cwd=ROOT)
    try:
        upstream.join()
        upstream.order(orders.Start("w2", "worker"))
        assert upstream.hear("started")["at_ns"] > AHEAD_NS
    finally:
        again.kill()
        again.wait(WAIT_S)


def test_a_start_that_was_ordered_before_the_host_joined_is_not_obeyed(upstream: Upstream) -> None:
    upstream.hear("host_hello")
    upstream.order(orders.Start("w1", "worker"))
    upstream.order(orders.Welcome(2))
    upstream.answer()
    upstream.order(orders.Start("w2", "worker"))
    assert upstream.hear("started", "exited")["slot"] == "w2"
    assert list(upstream.hear("agent_beat")["slots"]) == ["w2"]


def test_a_process_of_an_earlier_life_of_the_host_ends_before_the_host_beats_again(
    upstream: Upstream, tmp_path: Path
) -> None:
    with_a_process(upstream)
    upstream.agent.kill()
    upstream.agent.wait(WAIT_S)
    host = HostFile.load(tmp_path)
    assert host is not None
    replace(host, session="another").save(tmp_path)
    again = subprocess.Popen([sys.executable, "-m", "standby.agent", str(tmp_path)], cwd=ROOT)
    try:
        upstream.hear("host_hello")
        upstream.order(orders.Welcome(2))
        beat = upstream.hear("agent_beat")
        assert (beat["incarnation"], beat["slots"]) == (2, {})
    finally:
        again.kill()
        again.wait(WAIT_S)


def with_a_process(upstream: Upstream) -> None:
    upstream.join()
    upstream.answer()
    upstream.order(orders.Start("w1", "worker"))
    upstream.hear("started")


def test_an_agent_that_is_asked_to_end_says_so_and_waits_until_its_processes_are_elsewhere(upstream: Upstream) -> None:
    with_a_process(upstream)
    assert "leaving" not in upstream.hear("agent_beat")
    upstream.agent.terminate()
    while "leaving" not in (beat := upstream.hear("agent_beat")):
        pass
    assert beat["slots"] == {"w1": beat["slots"]["w1"]} and upstream.agent.poll() is None
    upstream.order(orders.Heard(beat["clock_ns"], time.monotonic_ns()))
    upstream.order(orders.Kill("w1"))
    assert upstream.hear("exited")["slot"] == "w1"
    assert upstream.agent.wait(WAIT_S) == STATUS_LEFT


def test_an_agent_that_is_asked_twice_ends_at_once(upstream: Upstream) -> None:
    with_a_process(upstream)
    upstream.agent.terminate()
    while "leaving" not in upstream.hear("agent_beat"):
        pass
    upstream.agent.terminate()
    assert upstream.agent.wait(WAIT_S) == 128 + signal.SIGTERM


def test_an_agent_does_not_wait_for_a_supervisor_that_is_silent(upstream: Upstream) -> None:
    with_a_process(upstream)
    before_s = cpu_of_children_s()
    upstream.agent.terminate()
    assert upstream.agent.wait(WAIT_S) == 128 + signal.SIGTERM
    assert cpu_of_children_s() - before_s < UNHEARD_S / 2, "until then it rests"


def cpu_of_children_s() -> float:
    """Return the processor time of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
