"""A job of several hosts as its users meet it: `causal run` on one host, `causal agent` on others, all of it ended.

Each host has a network namespace, a clock and a job directory of its own; only the store is shared.  Every wait has an
end, and `close` leaves no process and no namespace behind.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from causal.shell.curve import new_key
from causal.shell.roster import ROSTER, save_key
from standby.host.processes import kill_marked, marked
from tests.faults.job import wait_for
from tests.hosts.network import Network

HOME = Path(__file__).resolve().parents[2]
PORT = 7700
SUPERVISOR = "supervisor"
WAIT_S = 120.0
END_S = 20.0


class Site:
    """Hosts, their keys, a shared store, and the processes that run on them.

    Args:
        directory: everything goes in there.
        names: the hosts, besides the supervisor's.
    """

    def __init__(self, directory: Path, names: Sequence[str]) -> None:
        self.directory = directory
        self.names = list(names)
        self.network = Network([SUPERVISOR, *names])
        self.keys = directory / "keys"
        for name in (SUPERVISOR, *names):
            save_key(self.keys, new_key(name))
        self.store = directory / "store"
        self.store.mkdir()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def listen(self) -> str:
        return f"tcp://{self.network.address(SUPERVISOR)}:{PORT}"

    def state(self, name: str) -> Path:
        """The job directory of a host."""
        return self.directory / f"job-{name}"

    def log(self, name: str) -> str:
        """Returns what the root process of a host has printed."""
        path = self.directory / f"{name}.txt"
        return path.read_text() if path.exists() else ""

    def _begin(self, name: str, *arguments: str) -> None:
        command = self.network.command(name, [sys.executable, "-m", "deploy", *arguments])
        environment = {**os.environ, "PYTHONPATH": str(HOME)}
        with open(self.directory / f"{name}.txt", "ab") as output:
            self._processes[name] = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, env=environment, start_new_session=True,
                cwd=self.directory,
            )  # fmt: skip

    def run(self, pipeline: Path, *arguments: str) -> None:
        """Starts `causal run` on the supervisor's host."""
        self._begin(
            SUPERVISOR, "run", str(pipeline), "--listen", self.listen, "--store", f"file://{self.store}",
            "--hosts", str(self.keys / ROSTER), "--key", str(self.keys / f"{SUPERVISOR}.key"),
            "--state-dir", str(self.state(SUPERVISOR)), "--report", str(self.directory / "report.json"), *arguments,
        )  # fmt: skip

    def join(self, name: str, *arguments: str) -> None:
        """Starts `causal agent` on a host."""
        key = str(self.keys / f"{name}.key")
        self._begin(
            name, "agent", "--join", self.listen, "--key", key, "--state-dir", str(self.state(name)), *arguments
        )

    def view(self) -> dict[str, Any] | None:
        """The supervisor's view; None before there is one."""
        try:
            view: dict[str, Any] = json.loads((self.state(SUPERVISOR) / "status.json").read_text())
        except (FileNotFoundError, ValueError):
            return None
        return view

    def host(self, name: str) -> dict[str, Any]:
        """A host in the supervisor's view; empty if it is not there."""
        view = self.view()
        return next((host for host in view["hosts"] if host["host"] == name), {}) if view is not None else {}

    def host_of(self, task: str) -> str | None:
        """The host of a task, as the supervisor sees it."""
        view = self.view() or {"hosts": []}
        return next((host["host"] for host in view["hosts"] if task in host["tasks"]), None)

    def await_running(self, records: int = 1) -> None:
        """Waits until all tasks and standbys are up, and that many rows are out."""

        def up() -> bool:
            view = self.view()
            if view is None or view["state"] != "running" or view["without_standby"]:
                return False
            out = sum(task["figures"].get("records_out", 0) for task in view["tasks"] if task["sink"])
            return bool(out >= records)

        wait_for("all tasks and standbys run", up)

    def kill_host(self, name: str) -> None:
        """SIGKILL of every process of a host at the same time; its kernel and its network live."""
        root = self._processes.pop(name)
        for _ in range(2):  # the second time, what was started while the first was on its way
            for process in (*self._children(root.pid), *(each.pid for each in marked(self.state(name)))):
                try:
                    os.kill(process, signal.SIGKILL)
                except ProcessLookupError:
                    continue
        root.kill()
        root.wait(END_S)

    def _children(self, pid: int) -> list[int]:
        """A process and all below it."""
        below = [pid]
        for parent in below:
            try:
                for thread in Path(f"/proc/{parent}/task").iterdir():
                    below += [int(each) for each in (thread / "children").read_text().split()]
            except (FileNotFoundError, ProcessLookupError):
                continue
        return below

    def await_end(self, within_s: float = WAIT_S) -> int:
        """Waits for `causal run`; returns its exit status."""
        return self._processes[SUPERVISOR].wait(within_s)

    def status_of(self, name: str) -> int:
        """Waits for a host's `causal agent` and returns its exit status."""
        return self._processes[name].wait(END_S)

    def report(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.directory / "report.json").read_text())
        return content

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs a command of `causal` on the supervisor's host to its end."""
        argv = [sys.executable, "-m", "deploy", *arguments, "--state-dir", str(self.state(SUPERVISOR))]
        environment = {**os.environ, "PYTHONPATH": str(HOME)}
        return subprocess.run(
            self.network.command(SUPERVISOR, argv), capture_output=True, text=True, env=environment, timeout=WAIT_S
        )

    def close(self) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                process.terminate()
        for name, process in self._processes.items():
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                for each in self._children(process.pid):
                    os.kill(each, signal.SIGKILL)
                process.wait(END_S)
            kill_marked(self.state(name), END_S)
        self.network.close()
