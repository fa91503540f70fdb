"""A job of fake workers under the real `causal run`, supervisor and agent, to be killed at will."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.harness.graphs import chain_of
from causal.config import JobConfig
from deploy.jobs.jobdirectory import JobDirectory
from deploy.launching import local, parts
from standby.blueprint import Blueprint, CompanionCall
from standby.host.processes import marked
from tests.faults.forked import Call

WAIT_S = 120.0
"""The bound for a hang: a busy machine may take long for anything."""

TASKS = ("read/0", "count/0", "out/0")
ROOT = Path(__file__).resolve().parents[3]

T = TypeVar("T")


def wait_for(what: str, look: Callable[[], T | None], instead: Callable[[], object] = lambda: "") -> T:
    """Return the first result of `look` other than None or False; a failure shows what `instead` returns."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        value = look()
        if value is not None and value is not False:
            return value
        time.sleep(0.02)
    raise AssertionError(f"waited {WAIT_S:.0f} s in vain: {what} {instead()}".rstrip())


class CountedLooks(parts.Parts):
    """The parts of a job's directory; one byte in a file next to it counts each complete look."""

    def __init__(self, job: Path, say: Callable[[str], None], alone: bool | None = None) -> None:
        super().__init__(job, say, alone)
        self._count = looks_of(job.resolve())

    def lost(self, runtime: Path | None) -> str:
        lost = super().lost(runtime)
        with self._count.open("ab") as file:
            file.write(b".")
        return lost


def looks_of(job: Path) -> Path:
    """Return the file whose length is the number of looks at the parts of a job's directory."""
    return job.with_name(f"{job.name}.looks")


class Stage:
    """One `causal run` on a directory."""

    def __init__(
        self, job: Path, *, resume: bool = False, companion: str = "", silent_s: float = 0.0, **config: Any
    ) -> None:
        self.job = job.resolve()
        options = {"resume": resume, "companion": companion, "silent_s": silent_s, "config": config}
        self.process = Call(lambda: main(str(job), options), ROOT, dict(os.environ))

    def view(self) -> dict[str, Any] | None:
        try:
            view: dict[str, Any] = json.loads((self.job / "status.json").read_text())
        except FileNotFoundError:
            return None
        return view

    def task(self, name: str) -> dict[str, Any]:
        view = self.view()
        assert view is not None
        return next(task for task in view["tasks"] if task["task"] == name)

    def up(self) -> dict[str, Any]:
        """Wait until all tasks run and have their standbys."""

        def look() -> dict[str, Any] | None:
            view = self.view()
            ready = view is not None and view["state"] == "running" and all(t["standbys"] for t in view["tasks"])
            return view if ready else None

        return wait_for("the job is up", look)

    def seen(self) -> None:
        """Wait until `causal run` has looked for the parts of its directory that exist now."""
        looks = looks_of(self.job)
        before = looks.stat().st_size if looks.exists() else 0
        # One look may have begun before.
        wait_for("it has looked", lambda: looks.exists() and looks.stat().st_size >= before + 2)

    def kill(self, pid: int, number: int = signal.SIGKILL) -> None:
        os.kill(pid, number)

    def agent_pid(self) -> int | None:
        return self._server("standby.agent")

    def supervisor_pid(self) -> int | None:
        return self._server("standby.daemon")

    def _server(self, module: str) -> int | None:
        for entry in Path("/proc").iterdir():
            try:
                argv = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdecimal() else []
            except OSError:
                continue
            if module.encode() in argv and str(self.job).encode() in argv:
                return int(entry.name)
        return None

    def recovered(self, task: str, incarnation: int, *, or_later: bool = False) -> dict[str, Any]:
        """Wait until that incarnation runs the task."""

        def look() -> dict[str, Any] | None:
            view = self.view()  # once: a run that is resumed removes the view of the life before
            entry = next(each for each in view["tasks"] if each["task"] == task) if view is not None else None
            if entry is None or entry["state"] != "running":
                return None
            reached = entry["incarnation"] == incarnation or or_later and entry["incarnation"] > incarnation
            return entry if reached else None

        return wait_for(f"{task} runs in incarnation {incarnation}", look, self.view)

    def finish(self) -> tuple[int, str]:
        """Finish the sinks, and return the exit status and the error line."""
        (self.job / "finish").touch()
        return self.end()

    def end(self) -> tuple[int, str]:
        _, output = self.process.communicate(timeout=WAIT_S)
        return self.process.status, output.strip()

    def nothing_left(self) -> bool:
        return not marked(self.job) and self.agent_pid() is None and self.supervisor_pid() is None

    def close(self) -> None:
        """Whatever the test did: leave nothing running."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        self.process.communicate(timeout=WAIT_S)
        wait_for("no process is left", self.nothing_left)


def main(job: str, options: dict[str, Any]) -> int:
    directory = JobDirectory(Path(job))
    companions = (CompanionCall("spark", (sys.executable, "-c", options["companion"])),) if options["companion"] else ()
    config = JobConfig(
        **{"run": "r", "name": "job", "pipeline": "/p.py", "checkpoint_interval_s": 0.2, **options["config"]}
    )
    blueprint = Blueprint(chain_of(*TASKS), companions, worker="tests.unit.standby.fake_worker")
    try:
        if options["resume"]:
            directory.take_over()
            directory.note_resumption()
        else:
            directory.clear()
        directory.open_runtime()
        config.save(directory.path)
        blueprint.save(directory.path)
        parts.LOOK_S, local.TURN_S = 0.0, 0.05
        local.Parts = CountedLooks  # type: ignore[attr-defined]
        local.SILENT_S = options["silent_s"] or local.SILENT_S
        outcome = local.LocalDeployment(directory.path, lambda view, elapsed_s: None, say=print).run()
    finally:
        directory.close()
    print(outcome.reason, file=sys.stderr)
    return outcome.status
