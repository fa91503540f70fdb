"""CPU time that the supervisor spends on idle hosts: agents that have joined and have no process.

    python -m benchmarks.hosts.idle_agents ENDPOINT KEYS COUNT    that many of them, until standard input ends

An agent here is the connection of one (`standby.network.uplink`), with a key and a tether of its own, that answers and
beats as an agent does, at the interval of an agent; a hundred fit into one process, in the network of the one real host
of the job.  `cores` is what the supervisor takes more than with that host alone.
"""

from __future__ import annotations

import secrets
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import zmq

from benchmarks.harness import children
from benchmarks.harness.declared import Measurement
from benchmarks.harness.processes import wait_for
from benchmarks.harness.runs import RunFailed
from benchmarks.harness.usage import cores
from benchmarks.hosts.site import Site
from benchmarks.hosts.sites import begin, site_of
from benchmarks.jobs import placed
from causal.config import JobConfig
from causal.network.curve import new_key
from causal.network.roster import ROSTER, KeyPair, Roster, load_key, mark_of, save_key
from causal.network.seats import seats_of
from standby.agent import HELLO_AGAIN_S, host_beat_s
from standby.network.description import Description, Inquiry
from standby.network.tether import tether
from standby.network.uplink import HostUplink
from standby.supervision import orders

WORKER, IDLE = "real", "idle-{}"
"""The real host, and the idle ones by number."""
PIPELINE = Path(placed.__file__)
PLACES = " ".join(f"{operator}={WORKER}" for operator in ("rows", "work", "out"))
"""Pinned tasks may have their standbys on the same host."""
WITHIN_S = 5.0
PACE_S = 3600.0
"""The time between two records."""


class IdleAgent:
    """One host without processes."""

    def __init__(self, context: zmq.Context[Any], endpoint: str, key: KeyPair, roster: Roster, runtime: Path) -> None:
        seats = seats_of(endpoint, roster)
        description: Description = Inquiry(seats, key.name, key).answer(lambda line: None)
        (runtime / "job.json").write_text(description.job)
        (runtime / "runtime").write_text(str(runtime))
        config = JobConfig.load(runtime)
        self.beat_s = host_beat_s(config)
        self._session = secrets.token_hex(8)
        self._incarnation, self._due_s, self._roster_mark = 0, 0.0, ""
        address = endpoint.removeprefix("tcp://").rpartition(":")[0]
        self._tether = tether(
            address, description.tether_port, description.tether_secret, key.name, self._session, WITHIN_S
        )
        self._uplink = HostUplink(context, key.name, seats, runtime, key)
        self.sockets = self._uplink.sockets

    def turn(self) -> float:
        """Answer orders, and send due messages; returns the time of the next one."""
        for order in self._uplink.orders():
            if isinstance(order, orders.Welcome):
                self._incarnation, self._due_s = order.incarnation, 0.0
            elif isinstance(order, orders.Roster):
                self._roster_mark = mark_of(order.text)
        now_s = time.monotonic()
        if now_s >= self._due_s:
            clock_ns = time.monotonic_ns()
            if self._incarnation:
                facts: dict[str, Any] = {"slots": {}, "dead": {}, "killed": {}, "computing": []}
                facts |= {"incarnation": self._incarnation, "clock_ns": clock_ns, "roster": self._roster_mark}
                self._uplink.send("agent_beat", **facts)
            else:
                self._uplink.send("host_hello", session=self._session, clock_ns=clock_ns, slots=1)
            self._due_s = now_s + (self.beat_s if self._incarnation else HELLO_AGAIN_S)
        return self._due_s

    def close(self) -> None:
        """Close its connections."""
        self._uplink.close()
        self._tether.close()


def serve(endpoint: str, keys: Path, count: int) -> None:
    """Run so many agents until standard input ends."""
    context: zmq.Context[Any] = zmq.Context()
    context.set(zmq.MAX_SOCKETS, 8 * count + 64)
    roster = Roster.load(keys / ROSTER)
    poller = zmq.Poller()
    poller.register(sys.stdin.fileno(), zmq.POLLIN)
    with tempfile.TemporaryDirectory(prefix="causal-idle-") as name:
        agents = []
        for number in range(count):
            runtime = Path(name) / str(number)
            runtime.mkdir()
            key = load_key(keys / f"{IDLE.format(number)}.key")
            agents.append(IdleAgent(context, endpoint, key, roster, runtime))
            for each in agents[-1].sockets:
                poller.register(each, zmq.POLLIN)
        try:
            while True:
                due_s = min(agent.turn() for agent in agents)
                ready = dict(poller.poll(max(0, int((due_s - time.monotonic()) * 1e3) + 1)))
                if sys.stdin.fileno() in ready:
                    return
        finally:
            for agent in agents:
                agent.close()
            context.term()


def measure(run: Measurement) -> None:
    """Measure the CPU time of one supervisor without the idle hosts, and then with them."""
    count, seconds = run.options.agents, run.options.seconds
    with site_of((WORKER,)) as site:
        for number in range(count):
            save_key(site.keys, new_key(IDLE.format(number)))
        settings = {"work": "records", "count": 1000, "pace_s": PACE_S, "place": PLACES}
        begin(site, PIPELINE, settings, {"hosts_expected": 1})
        site.await_running(0)
        alone = _supervisor_cores(site, seconds)
        agents = [sys.executable, "-m", "benchmarks.hosts.idle_agents", site.listen, str(site.keys), str(count)]
        with children.started(site.network.command(WORKER, agents), stdin=subprocess.PIPE) as process:
            wait_for(f"{count} agents have joined", lambda: _joined(site) == count + 1)
            time.sleep(2.0)  # what joining has set going comes to rest
            for _ in range(3):
                run.add("agents.cores", _supervisor_cores(site, seconds) - alone)
                if _joined(site) != count + 1 or process.poll() is not None:
                    raise RunFailed("idle agents were lost meanwhile")
            assert process.stdin is not None
            process.stdin.close()
            process.wait(WITHIN_S)
    run.add("agents.alone_cores", alone)
    run.report(f"{count} idle agents: {run.last('agents.cores'):.3f} cores of the supervisor, {alone:.3f} without them")


def _supervisor_cores(site: Site, seconds: float) -> float:
    return cores(lambda: [(site.view() or {})["supervisor_pid"]], seconds)


def _joined(site: Site) -> int:
    return sum(host["state"] == "joined" for host in (site.view() or {}).get("hosts", ()))


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
