"""A job of several hosts as its users meet it: `causal run` on one host, `causal agent` on others, all of it ended.

Each host has a network namespace, a clock and a job directory of its own; only the store is shared.  Every wait has an
end, and `close` leaves no process and no namespace behind.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any, Protocol

from benchmarks.harness.processes import argv, children, wait_for
from causal.network.curve import new_key
from causal.network.roster import ROSTER, is_supervisor, save_key
from causal.storage.files import replace_text
from examples.hosts.network import Network
from standby.host.processes import kill_marked, marked

HOME = Path(__file__).resolve().parents[2]
PORT = 7700
SUPERVISOR = "supervisor"
WAIT_S = 120.0
END_S = 20.0


class RootProcess(Protocol):
    """The root process of a host, above the command with which a user starts it."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...


class Site:
    """Hosts, their keys, a shared store, and the processes that run on them.

    Args:
        directory: everything goes in there.
        names: the hosts, besides the supervisor's.
        others: the rest of the network: successors of the supervisor, and what has no part in the job.

    Attributes:
        store: the URL of the shared store, a directory unless it is changed before `run`.
        leader: the host whose supervisor is looked at.
        environment: of every process, in addition to that of this one.
    """

    def __init__(self, directory: Path, names: Sequence[str], others: Sequence[str] = ()) -> None:
        self.directory = directory
        self.names = list(names)
        self.network = Network([SUPERVISOR, *names, *others])
        self.keys = directory / "keys"
        successors = [name for name in others if is_supervisor(name)]
        for name in (SUPERVISOR, *successors, *names):
            save_key(self.keys, new_key(name))
            if successors and is_supervisor(name):
                roster = self.keys / ROSTER
                roster.write_text(f'{roster.read_text().rstrip()}\nlisten = "{self.listen_of(name)}"\n\n')
        self.leader = SUPERVISOR
        self.shared = directory / "store"
        self.shared.mkdir()
        self.store = f"file://{self.shared}"
        self.environment = {"PYTHONPATH": str(HOME)}
        self._run: tuple[Path | str, ...] = ()
        self._processes: dict[str, RootProcess] = {}

    @property
    def listen(self) -> str:
        return self.listen_of(SUPERVISOR)

    def listen_of(self, supervisor: str) -> str:
        """Return the address at which a supervisor listens."""
        return f"tcp://{self.network.address(supervisor)}:{PORT}"

    def state(self, name: str) -> Path:
        """Return the job directory of a host."""
        return self.directory / f"job-{name}"

    def log(self, name: str) -> str:
        """Return what the root process of a host has printed."""
        path = self.directory / f"{name}.txt"
        return path.read_text() if path.exists() else ""

    def _begin(self, name: str, *arguments: str) -> None:
        with open(self.directory / f"{name}.txt", "ab") as output:
            self._processes[name] = self._started(name, arguments, {**os.environ, **self.environment}, output)

    def _started(
        self, name: str, arguments: Sequence[str], environment: Mapping[str, str], output: IO[bytes]
    ) -> RootProcess:
        """Start `causal` with these arguments on a host, in a session of its own."""
        command = self.network.command(name, [sys.executable, "-m", "deploy", *arguments])
        return subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=environment, start_new_session=True,
            cwd=self.directory,
        )  # fmt: skip

    def run(self, pipeline: Path, *arguments: str) -> None:
        """Start `causal run` on the supervisor's host."""
        self._run = (pipeline, *arguments)
        self._begin(
            SUPERVISOR, "run", str(pipeline), "--listen", self.listen, "--store", self.store,
            "--hosts", str(self.keys / ROSTER), "--key", str(self.keys / f"{SUPERVISOR}.key"),
            "--state-dir", str(self.state(SUPERVISOR)), "--report", str(self.directory / "report.json"), *arguments,
        )  # fmt: skip

    def run_again(self, *others: str) -> None:
        """Start the same `causal run` with --resume, and with other arguments after those that it had."""
        pipeline, *arguments = self._run
        self.run(Path(pipeline), *map(str, arguments), "--resume", *others)

    def stand(self, name: str, job: str) -> None:
        """Start `causal supervisor` on the host of a successor."""
        self._begin(
            name, "supervisor", "--standby", "--job", job, "--listen", self.listen_of(name), "--store", self.store,
            "--hosts", str(self.keys / ROSTER), "--key", str(self.keys / f"{name}.key"),
            "--state-dir", str(self.state(name)),
        )  # fmt: skip

    def join(self, name: str, *arguments: str) -> None:
        """Start `causal agent` on a host."""
        key = str(self.keys / f"{name}.key")
        self._begin(
            name, "agent", "--join", self.listen, "--key", key, "--state-dir", str(self.state(name)), *arguments
        )

    def view(self) -> dict[str, Any] | None:
        """Return the leading supervisor's view; None before there is one."""
        return self._view_of(self.leader)

    def _view_of(self, supervisor: str) -> dict[str, Any] | None:
        try:
            view: dict[str, Any] = json.loads((self.state(supervisor) / "status.json").read_text())
        except (FileNotFoundError, ValueError):
            return None
        return view

    def host(self, name: str) -> dict[str, Any]:
        """Return a host in the supervisor's view; empty if it is not there."""
        view = self.view()
        return next((host for host in view["hosts"] if host["host"] == name), {}) if view is not None else {}

    def host_of(self, task: str) -> str | None:
        """Return the host of a task, as the supervisor sees it."""
        view = self.view() or {"hosts": []}
        return next((host["host"] for host in view["hosts"] if task in host["tasks"]), None)

    def await_running(self, records: int = 1) -> None:
        """Wait until all tasks and standbys are up, and that many rows are out."""

        def up() -> bool:
            view = self.view()
            if view is None or view["state"] != "running" or view["without_standby"]:
                return False
            out = sum(task["figures"].get("records_out", 0) for task in view["tasks"] if task["sink"])
            return bool(out >= records)

        wait_for("all tasks and standbys run", up)

    def log_of(self, name: str, process: str) -> str:
        """Return the log of a process of the job on a host."""
        path = self.state(name) / "logs" / f"{process}.log"
        return path.read_text() if path.exists() else ""

    def kill_host(self, name: str) -> int:
        """SIGKILL of every process of a host at the same time; its kernel and its network live.

        Returns: the moment, in the supervisor's monotonic time.
        """
        root = self._processes.pop(name)
        self.signal(name, signal.SIGSTOP, root)  # none learns that another one is dead
        moment_ns = self.signal(name, signal.SIGKILL, root)
        self.signal(name, signal.SIGKILL, root)  # what was started while the first ones were on their way
        root.wait(END_S)
        return moment_ns

    def kill_root(self, name: str) -> None:
        """SIGKILL of a host's root process alone, `causal run` or `causal agent`; those below it learn of it."""
        root = self._processes.pop(name)
        _send(self._children(root.pid)[1], signal.SIGKILL)  # below `unshare`
        root.wait(END_S)

    def kill_agent(self, name: str) -> list[int]:
        """SIGKILL of a host's root process and agent: its tasks live on, without anybody who could end them.

        Returns: the processes that live on, which `join` ends before it begins the host again.
        """
        root = self._processes.pop(name)
        workers = [each.pid for each in marked(self.state(name)) if each.slot]
        above = [pid for pid in self._children(root.pid) if pid not in workers]
        for number in (signal.SIGSTOP, signal.SIGKILL):  # none learns that another one is dead
            for pid in above:
                _send(pid, number)
        root.wait(END_S)
        return workers

    def signal(self, name: str, number: signal.Signals, root: RootProcess | None = None) -> int:
        """Send a signal to every process of a host; returns the moment, in the supervisor's monotonic time."""
        root = self._processes[name] if root is None else root
        pids = {*self._children(root.pid), *(each.pid for each in marked(self.state(name)))}
        moment_ns = time.monotonic_ns()
        for pid in pids:
            _send(pid, number)
        return self.network.clock_ns(SUPERVISOR, moment_ns)

    def _children(self, pid: int) -> list[int]:
        """Return a process and all below it."""
        below = [pid]
        for parent in below:
            below += children(parent)
        return below

    def ask_to_end(self, name: str, ctrl_c: bool = False) -> None:
        """A signal to the root process of a host: SIGTERM as systemd and Kubernetes send it, or Ctrl-C."""
        number = signal.SIGINT if ctrl_c else signal.SIGTERM
        os.kill(self._children(self._processes[name].pid)[1], number)  # below `unshare`, which ignores it

    def revoke(self, name: str) -> None:
        """Revoke the key of a host while the job runs."""
        self._edit_roster(f"[{name}]\n", f"[{name}]\nrevoked = true\n")

    def admit(self, name: str) -> None:
        """Take back that the key of a host is revoked."""
        self._edit_roster(f"[{name}]\nrevoked = true\n", f"[{name}]\n")

    def rekey(self, name: str) -> None:
        """Give a host another key, in place of the one that it had."""
        (self.keys / f"{name}.key").unlink()
        text = (self.keys / ROSTER).read_text()
        replace_text(self.keys / ROSTER, re.sub(rf"^\[{name}\]\n(?:[^\[\n].*\n|\n)*", "", text, flags=re.MULTILINE))
        save_key(self.keys, new_key(name))

    def _edit_roster(self, before: str, after: str) -> None:
        text = (self.keys / ROSTER).read_text()
        replace_text(self.keys / ROSTER, text.replace(before, after))

    def leads(self, *supervisors: str, running: bool = True) -> bool:
        """Return whether one of these supervisors leads a running job; the one of the highest term is then looked at.

        Args:
            running: every task must be at work; otherwise some may wait for a host.
        """
        terms: dict[str, int] = {}
        for name in supervisors:
            view = self._view_of(name)
            if view is not None and view.get("leader", {}).get("here") and (view["state"] == "running" or not running):
                terms[name] = view["leader"]["term"]
        if terms:
            self.leader = max(terms, key=terms.__getitem__)
        return bool(terms)

    def await_end(self, within_s: float = WAIT_S) -> int:
        """Wait for `causal run`, or the command of another leader; returns its exit status."""
        return self._processes[self.leader].wait(within_s)

    def end_of(self, name: str, within_s: float = WAIT_S) -> int:
        """Wait for the root process of a host, which may have much to do before; returns its exit status."""
        return self._processes[name].wait(within_s)

    def status_of(self, name: str) -> int:
        """Wait for a host's `causal agent` and return its exit status."""
        return self._processes[name].wait(END_S)

    def report(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.directory / "report.json").read_text())
        return content

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of `causal` on the leading supervisor's host to its end."""
        return self.command_of_job(*arguments, "--state-dir", str(self.state(self.leader)))

    def start_command(self, *arguments: str) -> RootProcess:
        """Start a command of `causal` on the leading supervisor's host; what it prints is in `command.txt`."""
        state = ("--state-dir", str(self.state(self.leader)))
        with open(self.directory / "command.txt", "wb") as output:
            return self._started(self.leader, (*arguments, *state), {**os.environ, **self.environment}, output)

    def kill_command(self, command: RootProcess) -> None:
        """SIGKILL of a command that `start_command` has started."""
        for pid in self._children(command.pid):
            _send(pid, signal.SIGKILL)

    def process(self, name: str, module: str) -> int | None:
        """Return the process of a host that runs a module, such as its agent."""
        return next((pid for pid in self._children(self._processes[name].pid) if module in argv(pid)), None)

    def command_of_job(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of `causal` that names the job itself."""
        program = [sys.executable, "-m", "deploy", *arguments]
        environment = {**os.environ, **self.environment}
        return subprocess.run(
            self.network.command(self.leader, program), capture_output=True, text=True, env=environment, timeout=WAIT_S
        )

    def close(self) -> None:
        """End all processes and remove the network, whatever fails on the way: the next test needs its names."""
        with ExitStack() as stack:
            stack.callback(self.network.close)
            for name in self.names:
                stack.callback(kill_marked, self.state(name), END_S)  # also of a host whose root process was killed
            for name, process in self._processes.items():
                stack.callback(self._end, name, process)
            for name in [name for name, process in self._processes.items() if process.poll() is None]:
                self.signal(name, signal.SIGCONT)
                for pid in self._children(self._processes[name].pid)[:2]:  # `unshare`, which ignores it, and the root
                    _send(pid, signal.SIGTERM)

    def _end(self, name: str, process: RootProcess) -> None:
        """Wait until a host has ended, and kill what has not."""
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            for each in self._children(process.pid):
                _send(each, signal.SIGKILL)
            process.wait(END_S)
        kill_marked(self.state(name), END_S)


def _send(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process that may have ended since it was seen."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)
