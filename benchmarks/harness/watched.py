"""A job that is looked at while it runs: its view, and the memory of its processes."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.harness import children
from benchmarks.harness.processes import kill
from benchmarks.harness.runs import RunFailed, arguments, last_line

POLL_S = 0.05


class Watched:
    """One running `causal run` in a directory of its own.

    Args:
        place: everything of the job goes in there.
    """

    def __init__(self, place: Path, run: subprocess.Popen[str]) -> None:
        self._place = place
        self._run = run
        self.directory = place / "job"
        self.out = place / "out.db"

    def view(self) -> dict[str, Any]:
        """Return the supervisor's last view; empty before there is one."""
        try:
            view: dict[str, Any] = json.loads((self.directory / "status.json").read_text())
        except (FileNotFoundError, ValueError):
            return {}
        return view

    def until(self, what: str, holds: Callable[[Mapping[str, Any]], Any], within_s: float) -> dict[str, Any]:
        """Return the first view for which `holds`.

        Raises:
            RunFailed: the job ended before, or it took too long.
        """
        deadline_s = time.monotonic() + within_s
        while time.monotonic() < deadline_s:
            view = self.view()
            if view and holds(view):
                return view
            if self._run.poll() is not None:
                raise RunFailed(f"the job ended before {what}")
            time.sleep(POLL_S)
        raise RunFailed(f"{within_s:.0f} s passed before {what}")

    def kill(self, task: str) -> None:
        """SIGKILL, by the job itself: its report then counts from that moment, not from the last sign of life.

        Raises:
            RunFailed: the job refused.
        """
        command = [sys.executable, "-m", "deploy", "kill", "--state-dir", str(self.directory), task]
        done = children.run(command)
        if done.returncode:
            raise RunFailed(f"{task} could not be killed: {last_line(done.stderr)}")

    def kill_process(self, task: str) -> int:
        """SIGKILL, from outside: the moment, in monotonic time.

        Raises:
            RunFailed: there is no such process.
        """
        pid, _ = processes(self.view(), task)
        moment_ns = time.monotonic_ns()
        if pid is None or not kill(pid):
            raise RunFailed(f"{task} has no process to kill")
        return moment_ns

    def report(self, within_s: float) -> dict[str, Any]:
        """The report, once the job has ended well."""
        try:
            _, said = self._run.communicate(timeout=within_s)
        except subprocess.TimeoutExpired:
            raise RunFailed(f"the job does not end within {within_s:.0f} s") from None
        if self._run.returncode:
            raise RunFailed(f"the job ended with status {self._run.returncode}: {last_line(said)}")
        report: dict[str, Any] = json.loads((self._place / "report.json").read_text())
        return report


@contextmanager
def watched(
    pipeline: Path, settings: Mapping[str, Any], options: Sequence[str], config: Mapping[str, Any] | None = None
) -> Iterator[Watched]:
    """Run a pipeline and look at it; whatever happens, it has ended afterwards.  `out` is added to its settings."""
    with tempfile.TemporaryDirectory(prefix="causal-bench-") as name:
        place = Path(name)
        command = [sys.executable, "-m", "deploy", *arguments(place, pipeline, settings, options, config)]
        with children.started(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as run:
            yield Watched(place, run)


def processes(view: Mapping[str, Any], task: str) -> tuple[int | None, int | None]:
    """(pid of the task, pid of its standby), as far as there is one."""
    serving = next((p["pid"] for p in view["processes"] if p["task"] == task and p["state"] == "serving"), None)
    standby = next((p["pid"] for p in view["processes"] if p["standby_of"] == task and p["state"] == "idle"), None)
    return serving, standby


def follows(view: Mapping[str, Any], task: str) -> bool:
    """Return whether the standby of a task has loaded the last checkpoint, or the one before."""
    loaded = [p["follows"] for p in view["processes"] if p["standby_of"] == task and p["state"] == "idle"]
    return any(epoch is not None and epoch >= view["checkpoint"]["complete"] - 1 for epoch in loaded)


def ready(view: Mapping[str, Any], task: str = "") -> bool:
    """Return whether one task, or every task, runs and has a standby that could take over."""
    tasks = [task] if task else [each["task"] for each in view["tasks"]]
    return all(pid is not None for name in tasks for pid in processes(view, name))
