"""One job under torture: its `causal run`, begun and resumed as often as it is killed, and what it shows meanwhile."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.harness import children
from benchmarks.harness.children import ROOT
from benchmarks.harness.processes import AGENT, SUPERVISOR, kill, of_job, server, workers
from standby.host.processes import kill_marked, marked
from tests.soak import leaks
from tests.soak.targets import Target

GONE_S = 15.0
"""The time that all of a job's killed processes may take to be gone."""


class TortureRun:
    """A job in a directory of its own.

    Args:
        place: of logs, configuration and report; never full.
        state: the job's state directory.
        out: directory of its output.
    """

    def __init__(self, target: Target, place: Path, state: Path, out: Path) -> None:
        self.target = target
        self.place, self.state, self.out = place, state.resolve(), out
        self.runtimes: set[Path] = set()
        self.usage = leaks.ProcessUsage()
        lines = [f"{name} = {json.dumps(value)}" for name, value in target.config.items()]
        (place / "job.toml").write_text("\n".join(lines) + "\n")
        settings = [
            f"--set={name}={value}" for name, value in {**target.settings, "out": out / target.database}.items()
        ]
        self.pipeline = place / target.pipeline.name
        shutil.copy(target.pipeline, self.pipeline)
        self._arguments = [str(self.pipeline), *settings, f"--config={place / 'job.toml'}"]
        self._arguments += [f"--state-dir={self.state}", f"--report={place / 'report.json'}"]
        self._process: subprocess.Popen[bytes] | None = None
        self._change: subprocess.Popen[bytes] | None = None

    def start(self, *more: str) -> None:
        """Begin a `causal run`; its output goes to a file."""
        self._process = self._begun("run.log", "run", *self._arguments, *more)

    def resume(self) -> None:
        """Begin a `causal run` that resumes the job with the code that it has, which may be that of an upgrade."""
        self.start("--resume", "--code", "kept")

    def begin_change(self, *words: str) -> None:
        """Begin a command that changes the running job; a command that still runs is killed first."""
        self.end_change()
        self._change = self._begun("change.log", *words, f"--state-dir={self.state}")

    def change_status(self) -> int | None:
        """Exit status of the command that was begun last; None while it runs, and if there is none."""
        return self._change.poll() if self._change is not None else None

    def end_change(self) -> None:
        """Kill the command that was begun last, if it still runs."""
        if self._change is not None:
            self._change.kill()
            self._change.wait(GONE_S)
            self._change = None

    def _begun(self, log_name: str, *words: str) -> subprocess.Popen[bytes]:
        with open(self.place / log_name, "ab") as log:
            return children.opened(
                [sys.executable, "-m", "deploy", *words],
                cwd=self.place,
                env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def root(self) -> int:
        """The process of `causal run`."""
        return self._process.pid if self._process is not None else 0

    def status(self) -> int | None:
        """Exit status of `causal run`; None while it runs."""
        return self._process.poll() if self._process is not None else None

    def said(self) -> str:
        """Return the last line that a `causal run` said."""
        lines = (self.place / "run.log").read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def tracebacks(self) -> list[str]:
        """Return errors that no process of the job was prepared for: file and last line of each."""
        errors: list[str] = []
        for log in (*sorted((self.state / "logs").glob("*.log")), self.place / "run.log"):
            lines = log.read_text(errors="replace").splitlines() if log.exists() else []
            for number, line in enumerate(lines):
                if line.startswith("Traceback "):
                    last = next((each for each in lines[number + 1 :] if each and not each.startswith(" ")), line)
                    errors.append(f"{log.name}: {last}")
        return errors

    def view(self) -> Mapping[str, Any] | None:
        """Return the supervisor's latest view; None before there is one."""
        try:
            view: Mapping[str, Any] = json.loads((self.state / "status.json").read_text())
        except FileNotFoundError:
            return None
        runtime = leaks.runtime_of(self.state)
        if runtime is not None:
            self.runtimes.add(runtime)
        return view

    def report(self) -> Mapping[str, Any] | None:
        """Return the report of the run that finished; None where a kill fell between the end and the report."""
        try:
            report: Mapping[str, Any] = json.loads((self.place / "report.json").read_text())
        except FileNotFoundError:
            return None
        return report

    def up(self) -> bool:
        """Return whether the job has been seen running with all of its tasks since it was begun or resumed."""
        view = self.view()
        return view is not None and all(task["state"] in ("running", "finished") for task in view["tasks"])

    def servers(self) -> dict[str, int]:
        """Supervisor and agent, those that run."""
        servers = {name: server(self.root, module) for name, module in (("supervisor", SUPERVISOR), ("agent", AGENT))}
        return {name: pid for name, pid in servers.items() if pid is not None}

    def workers(self) -> dict[str, int]:
        """Slot → process, of tasks and standbys that live."""
        return {slot: pid for slot, pid in workers(self.state).items() if slot.startswith("w")}

    def companions(self) -> dict[str, int]:
        """Return all processes that the job's sources have next to it: a Spark driver, its Java machine, its Python
        workers.
        """
        return {f"{p.slot} {p.pid}": p.pid for p in marked(self.state) if not p.slot.startswith("w")}

    def kill_root(self) -> bool:
        """SIGKILL `causal run` alone; supervisor and agent end by themselves."""
        killed = kill(self.root)
        self._await_root()
        return killed

    def kill_all(self) -> int:
        """Send SIGKILL to every process of the job, `causal run` first; returns how many there were."""
        count = int(kill(self.root))
        self._await_root()
        deadline = time.monotonic() + GONE_S
        while (left := of_job(self.state)) and time.monotonic() < deadline:
            count += sum(kill(pid) for pid in left)
            time.sleep(0.01)
        return count

    def _await_root(self) -> None:
        if self._process is not None:
            self._process.wait(GONE_S)

    def look_at_processes(self) -> None:
        """Look at every process of the job, in a quiet moment."""
        view = self.view()
        if view is None:
            return
        alive = self.workers()
        for name, pid in self.servers().items():
            self.usage.look(pid, name, expected=3 * len(alive))
        for process in view["processes"]:
            if alive.get(process["slot"]) == process["pid"]:
                self.usage.look(process["pid"], f"{process['slot']} as {process['task'] or 'a standby'}")

    def close(self) -> None:
        """Leave no process of the job, and no sockets where it was killed: a resume would have removed them."""
        self.end_change()
        killed = self.status() is None and self.kill_all()
        kill_marked(self.state, GONE_S)
        runtime = leaks.runtime_of(self.state)
        if killed and runtime is not None:
            shutil.rmtree(runtime, ignore_errors=True)
