"""A job in the executors of a Spark cluster, with one more host next to its supervisor for tasks that must not move."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from causal.network.curve import new_key
from causal.network.roster import ROSTER, SUPERVISOR, save_key
from deploy.jobs.latest_view import latest
from examples.hosts.cluster import SparkCluster
from examples.hosts.network import Network
from standby.host.processes import kill_marked

ROOT = Path(__file__).resolve().parents[2]
HOME = "home"
"""The host of the master, the supervisor and the sink."""

PORT = 7700
END_S = 30.0
SLOTS = 4
"""The processes that have room at home: the sink, its standby, and one more of each."""


class ClusterJob:
    """One job: `causal run --on` and a `causal agent`, both at home.

    Args:
        directory: everything goes in there.
        agents: the number of executors.
        slots: the processes that have room at home.
    """

    def __init__(
        self, directory: Path, network: Network, cluster: SparkCluster, agents: int, slots: int = SLOTS
    ) -> None:
        self.directory = directory
        self.state = directory / "job"
        self._network = network
        self._cluster = cluster
        self._agents = agents
        self._slots = slots
        self._listen = f"tcp://{network.address(HOME)}:{PORT}"
        self._keys = directory / "keys"
        self._processes: list[subprocess.Popen[bytes]] = []
        for name in (SUPERVISOR, HOME):
            save_key(self._keys, new_key(name))

    def run(self, pipeline: Path, *arguments: str) -> subprocess.Popen[bytes]:
        """Start the job and the agent at home; returns `causal run`."""
        own = self._keys / f"{HOME}.key"
        self._begin(
            "agent", "--join", self._listen, "--key", str(own), "--state-dir", str(self.directory / HOME),
            "--slots", str(self._slots),
        )  # fmt: skip
        return self._begin(
            "run", str(pipeline), "--on", self._cluster.url, "--agents", str(self._agents), "--listen", self._listen,
            "--key", str(self._keys / f"{SUPERVISOR}.key"), "--hosts", str(self._keys / ROSTER),
            "--store", f"file://{self.directory / 'store'}", "--state-dir", str(self.state),
            "--report", str(self.directory / "report.json"), *arguments,
        )  # fmt: skip

    def _begin(self, *arguments: str) -> subprocess.Popen[bytes]:
        argv = self._network.command(HOME, [sys.executable, "-m", "deploy", *arguments])
        with open(self.directory / f"{arguments[0]}.txt", "ab") as log:
            process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd=self.directory,
                env={**os.environ, "PYTHONPATH": str(ROOT)}, start_new_session=True,
            )  # fmt: skip
        self._processes.append(process)
        return process

    def said(self, command: str = "run") -> str:
        """Return what `causal run` or `causal agent` has printed."""
        return (self.directory / f"{command}.txt").read_text(errors="replace")

    def view(self) -> dict[str, Any]:
        """Return the supervisor's view; empty lists before there is one."""
        try:
            view = latest(self.state)
        except ValueError:  # it is replaced atomically; a disk that is full truncates it all the same
            view = None
        return {"hosts": [], "host_losses": [], "tasks": [], "state": "starting"} if view is None else view.content()

    def host(self, name: str) -> dict[str, Any]:
        """Return a host in the supervisor's view; empty if it has not joined yet."""
        return next((host for host in self.view()["hosts"] if host["host"] == name), {})

    def complete(self) -> bool:
        """Return whether every agent is a host, and every task has a standby that waits."""
        view = self.view()
        joined = sum(1 for host in view["hosts"] if host["state"] == "joined")
        waiting = {each["standby_of"] for each in view.get("processes", ()) if each["state"] == "idle"}
        tasks = {task["task"] for task in view["tasks"]}
        return joined > self._agents and view["state"] == "running" and bool(tasks) and waiting >= tasks

    def lost(self) -> int:
        """Return how often a host was lost."""
        return len(self.view()["host_losses"])

    def recovered(self, losses: int) -> bool:
        """Return whether that many hosts have been lost, and all their tasks are live again."""
        return self.lost() >= losses and all(loss["recovered_ms"] is not None for loss in self.view()["host_losses"])

    def await_(self, what: str, holds: Callable[[], bool], within_s: float) -> None:
        """Wait until something holds.

        Raises:
            TimeoutError: it does not hold in that time, or the job has ended before.
        """
        deadline = time.monotonic() + within_s
        while not holds():
            if self._processes[-1].poll() is not None:
                raise TimeoutError(f"the job ended before: {what}\n{self.said()}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {within_s:.0f} s for: {what}\n{self.said()}")
            time.sleep(0.05)

    def close(self) -> None:
        """End both commands and their remaining processes."""
        for process in reversed(self._processes):
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(END_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait(END_S)
        for place in (self.state, self.directory / HOME):
            kill_marked(place, END_S)
