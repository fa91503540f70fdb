"""CPU time that the supervisor spends on idle hosts: agents that have joined and have no process.

    python -m benchmarks.hosts.idle_agents ENDPOINT KEYS COUNT    that many of them, until standard input ends

An agent here is the connection of one (`standby.network.uplink`), with a key and a tether of its own, that answers and
beats as an agent does, at the interval of an agent; a hundred fit into one process.  The job runs on one real host.
`cores` is what the supervisor takes more than with that host alone.
"""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import zmq

from benchmarks.harness import children
from benchmarks.harness.declared import Measurement
from benchmarks.harness.runs import RunFailed, last_line
from benchmarks.hosts.sites import until
from benchmarks.jobs import placed
from causal.config import JobConfig
from causal.network.curve import new_key
from causal.network.roster import ROSTER, SUPERVISOR, KeyPair, Roster, load_key, mark_of, save_key
from causal.network.seats import seats_of
from deploy.jobs.latest_view import latest
from standby.agent import HELLO_AGAIN_S, host_beat_s
from standby.network.description import Description, Inquiry
from standby.network.tether import tether
from standby.network.uplink import HostUplink
from standby.supervision import orders

WORKER, IDLE = "real", "idle-{}"
"""The real host, and the idle ones by number."""
PLACES = " ".join(f"{operator}={WORKER}" for operator in ("rows", "work", "out"))
JOIN_WITHIN_S = 120.0
WITHIN_S = 5.0
PACE_S = 3600.0


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
    with _job(count) as (view, endpoint, keys):
        alone = _cores(_supervisor(view()), seconds)
        command = [sys.executable, "-m", "benchmarks.hosts.idle_agents", endpoint, str(keys), str(count)]
        with children.started(command, stdin=subprocess.PIPE) as agents:
            until(f"{count} agents have joined", lambda: _joined(view()) == count + 1, JOIN_WITHIN_S)
            time.sleep(2.0)  # what joining has set going comes to rest
            for _ in range(3):
                cores = _cores(_supervisor(view()), seconds)
                run.add("agents.cores", cores - alone)
                if _joined(view()) != count + 1 or agents.poll() is not None:
                    raise RunFailed("idle agents were lost meanwhile")
            assert agents.stdin is not None
            agents.stdin.close()
            agents.wait(WITHIN_S)
    run.add("agents.alone_cores", alone)
    run.report(f"{count} idle agents: {run.last('agents.cores'):.3f} cores of the supervisor, {alone:.3f} without them")


@contextmanager
def _job(count: int) -> Iterator[tuple[Any, str, Path]]:
    """Yield a job on one host, whose roster has that many more: (its view, where agents join, keys)."""
    with tempfile.TemporaryDirectory(prefix="causal-agents-") as name, ExitStack() as stack:
        place = Path(name)
        keys, store = place / "keys", place / "store"
        store.mkdir()
        for host in (SUPERVISOR, WORKER, *(IDLE.format(number) for number in range(count))):
            save_key(keys, new_key(host))
        endpoint = f"tcp://127.0.0.1:{_free_port()}"
        config = place / "job.toml"
        config.write_text("hosts_expected = 1\n")
        run = [
            "run", placed.__file__, f"--set=place={PLACES}", "--set=work=records", "--set=count=1000",
            f"--set=pace_s={PACE_S}",
            f"--set=out={place / 'out.db'}", f"--listen={endpoint}", f"--store=file://{store}",
            f"--hosts={keys / ROSTER}", f"--key={keys / SUPERVISOR}.key", f"--state-dir={place / 'job'}",
            f"--config={config}",
        ]  # fmt: skip
        agent = [
            "agent", f"--join={endpoint}", f"--key={keys / WORKER}.key", f"--state-dir={place / 'host'}", "--slots=20"
        ]  # fmt: skip
        for words in (run, agent):
            process = stack.enter_context(
                children.started([sys.executable, "-m", "deploy", *words], stdout=subprocess.DEVNULL,
                                 stderr=subprocess.PIPE, text=True)
            )  # fmt: skip

        def view() -> dict[str, Any]:
            if process.poll() is not None:
                raise RunFailed(f"the agent ended: {last_line(process.communicate()[1])}")
            seen = latest(place / "job")
            return {} if seen is None else seen.content()

        def up() -> bool:
            seen = view()
            return seen.get("state") == "running" and not seen["without_standby"]

        until("the job runs", up, JOIN_WITHIN_S)
        yield view, endpoint, keys


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _joined(view: dict[str, Any]) -> int:
    return sum(host["state"] == "joined" for host in view.get("hosts", ()))


def _supervisor(view: dict[str, Any]) -> int:
    return int(view["supervisor_pid"])


def _cores(pid: int, seconds: float) -> float:
    """CPU seconds of a process per second, all of its threads."""
    began_s, before_s = time.monotonic(), _cpu_s(pid)
    time.sleep(seconds)
    return (_cpu_s(pid) - before_s) / (time.monotonic() - began_s)


def _cpu_s(pid: int) -> float:
    fields = children.stat_fields(pid)
    if not fields:
        raise RunFailed("the supervisor has ended")
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
