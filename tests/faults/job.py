"""A whole job as its user meets it: one `causal run` in a temporary directory, and hands on all of its processes.

Every wait has an end, a process is only signalled after its start time has shown that it is the one meant, and
`close` leaves nothing running, whatever the test did.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.harness import processes
from benchmarks.harness.processes import SUPERVISOR, argv, children, kill, of_job
from benchmarks.harness.processes import WAIT_S as WAIT_S  # tests import it from here
from benchmarks.harness.written import lines_in
from standby.host.processes import kill_marked
from tests.faults.forked import LOOKING, forked
from tests.faults.roots import ROOTS, Root
from tests.soak import leaks

HOME = Path(__file__).resolve().parents[2]
PIPELINES = Path(__file__).resolve().parent / "pipelines"
FRAUD_CHAIN = HOME / "examples" / "fraud_chain.py"
NUMBERED = PIPELINES / "numbered.py"

CLEAN_S = 10.0
PROGRESS = re.compile(r"causal: \d+\.\d s  \w+: in ")

T = TypeVar("T")

PAUSES = 3
"""A test pauses so many times as long as its last look took."""


def wait_for(what: str, holds: Callable[[], T | None], within_s: float = WAIT_S) -> T:
    """Return the first answer of `holds` that is not None or False."""
    return processes.wait_for(what, holds, within_s, PAUSES)


class Job:
    """A job's directory, and its `causal run` while there is one.

    Args:
        directory: everything of the job goes in there.
        pipeline: the pipeline's file.
        arguments: of every `causal run` of this job.
        config: the configuration file's settings.
    """

    def __init__(
        self, directory: Path, pipeline: Path, *arguments: str, config: Mapping[str, Any] | None = None
    ) -> None:
        self.directory = directory
        self.state = directory / "job"
        self.report_path = directory / "report.json"
        self.arguments = [str(pipeline), "--state-dir", str(self.state), "--report", str(self.report_path), *arguments]
        if config:
            lines = "".join(f"{name} = {json.dumps(value)}\n" for name, value in config.items())
            (directory / "job.toml").write_text(lines)
            self.arguments += ["--config", str(directory / "job.toml")]
        self._run: Root | None = None
        self._runtimes: set[Path] = set()
        self._shared: set[Path] = set()
        self._status: int | None = None
        self._began_ns = 0
        self._status_file = self.state / "status.json"
        self._seen: tuple[tuple[int, int, int], dict[str, Any]] | None = None
        """The version of that file that was read last, and its content: most looks find it again."""
        self.printed = ""
        """The standard output of the `causal run` that has ended."""

    # -- causal run ----------------------------------------------------------------------------------

    def start(self, *arguments: str) -> Job:
        """Begin a `causal run`; several of one job may follow each other."""
        if self._run is not None:
            self._run.communicate(timeout=WAIT_S)  # the one before has ended or been killed
        self._note_runtime()
        self._status = None
        self._began_ns = time.monotonic_ns()
        self._run = ROOTS.start(["run", *self.arguments, *arguments], self.directory, environment())
        return self

    def finish(self) -> tuple[int, str]:
        """Return the exit status and standard error, once the job has ended and nothing of it is left.

        Lines about the progress of the job are left out: how many there are depends on how busy the machine is.
        """
        assert self._run is not None
        try:
            self.printed, said = self._run.communicate(timeout=WAIT_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"`causal run` does not end\n{self.log_tails()}") from None
        left = self.living()
        assert not left, f"still running after the job ended: {left}"
        status = self._status = self._run.returncode
        assert status is not None
        return status, without_progress(said)

    def finish_well(self) -> dict[str, Any]:
        """Return the report of a run that must end with exit status 0."""
        status, said = self.finish()
        assert status == 0, f"{said}\n{self.log_tails()}"
        report: dict[str, Any] = json.loads(self.report_path.read_text())
        return report

    @property
    def root(self) -> int:
        assert self._run is not None
        return self._run.pid

    def note_change(self) -> None:
        """Ignore the views of the version before."""
        self._began_ns = time.monotonic_ns()

    def has_ended(self) -> bool:
        """Return whether the `causal run` has ended."""
        assert self._run is not None
        return self._run.poll() is not None

    def interrupt(self) -> None:
        """Send the signal that Ctrl-C sends to the foreground process."""
        assert self._run is not None
        self._run.send_signal(signal.SIGINT)

    # -- what it shows -------------------------------------------------------------------------------

    def view(self) -> dict[str, Any] | None:
        """Return the supervisor's latest view; None before there is one."""
        try:
            file = self._status_file.stat()
            version = (file.st_ino, file.st_mtime_ns, file.st_size)
            if self._seen is None or self._seen[0] != version:
                self._seen = version, json.loads(self._status_file.read_text())
                self._note_runtime()
        except FileNotFoundError:
            return None
        return self._seen[1]

    def _note_runtime(self) -> None:
        runtime = leaks.runtime_of(self.state)
        if runtime is not None:
            self._runtimes.add(runtime)

    @property
    def runtime(self) -> Path:
        """The directory of sockets."""
        return wait_for("the job has a runtime directory", lambda: leaks.runtime_of(self.state))

    def until(self, what: str, holds: Callable[[dict[str, Any]], T | None]) -> T:
        """Return the first answer of `holds` about the view of a job that must be running until then."""

        def look() -> T | None:
            self._still_runs(what)
            view = self.view()
            if view is None or view["at_ns"] < self._began_ns:  # what the life before has left says nothing
                return None
            return holds(view)

        try:
            return wait_for(what, look)
        except AssertionError as problem:
            raise AssertionError(f"{problem}\n{self.log_tails()}") from None

    def _still_runs(self, what: str) -> None:
        assert self._run is not None
        if self._run.poll() is not None:
            raise AssertionError(f"the job ended before: {what}\n{self._said()}\n{self.log_tails()}")

    def _said(self) -> str:
        assert self._run is not None
        return self._run.communicate(timeout=WAIT_S)[1]

    def until_warm(self, records: int = 0, checkpoints: int = 1) -> dict[str, Any]:
        """Every task runs, those of a job with one standby per task have it, and a checkpoint is complete."""

        def warm(view: dict[str, Any]) -> dict[str, Any] | None:
            ready = all(task["state"] == "running" for task in view["tasks"])
            if view["standbys"] == "per-task":
                ready = ready and all(task["standbys"] for task in view["tasks"])
            done = sum(task["figures"].get("records_out", 0) for task in view["tasks"] if task["sink"])
            return view if ready and view["checkpoint"]["count"] >= checkpoints and done >= records else None

        view = self.until(f"{records} records out, {checkpoints} checkpoints, all standbys ready", warm)
        for pid in self.living():
            self._shared |= leaks.shared_memory(pid)
        return view

    def until_killed(self) -> None:
        """Wait until each `--kill` of the job has happened and each dead process has a successor."""
        asked = sum(argument.startswith("--kill") for argument in self.arguments)

        def killed(view: dict[str, Any]) -> bool:
            return not view["kills_left"] and len(view["recoveries"]) >= asked

        self.until(f"{asked} kills have happened", killed)

    def finish_killed(self, gate: Path) -> dict[str, Any]:
        """End the sources once each `--kill` has happened; returns the report of a run that must end well."""
        self.until_killed()
        gate.touch()
        return self.finish_well()

    def until_written(self, records: int) -> None:
        """Wait until the sinks have written at least that many records."""

        def written(view: dict[str, Any]) -> bool:
            return sum(int(task["figures"].get("records_out", 0)) for task in view["tasks"] if task["sink"]) >= records

        self.until(f"{records} records out", written)

    def pid_of(self, task: str) -> int:
        """Return the process that runs the task now."""

        def served(view: dict[str, Any]) -> int | None:
            [entry] = [entry for entry in view["tasks"] if entry["task"] == task]
            return entry["pid"] if entry["state"] in ("running", "finished") else None

        return self.until(f"{task} runs", served)

    def until_replaced(self, *pids: int) -> None:
        """Wait until none of these processes runs a task any more."""
        self.until(f"{pids} are replaced", lambda view: not any(entry["pid"] in pids for entry in view["tasks"]))

    def server(self, module: str) -> int:
        """Return the supervisor (`standby.daemon`) or the agent (`standby.agent`) of a job that must be running until
        then.
        """

        def look() -> int | None:
            self._still_runs(f"{module} runs")
            return next((p for p in children(self.root) if module in argv(p)), None)

        return wait_for(f"{module} runs", look)

    def living(self) -> dict[int, str]:
        """Return every process of the job that runs: by the marks of its environment, or by its command line."""
        return of_job(self.state.resolve())

    def letters(self) -> list[dict[str, Any]]:
        """Return its dead letters."""
        return list(lines_in(self.state / "dead-letters"))

    def log_tails(self) -> str:
        """Return the last lines that its processes logged, which show why a test failed."""
        lines: list[str] = []
        for log in sorted((self.state / "logs").glob("*.log")):
            lines += [f"--- {log.name}", *log.read_text(errors="replace").splitlines()[-12:]]
        return "\n".join(lines)

    # -- failures ------------------------------------------------------------------------------------

    def strike(self, *tasks: str) -> list[int]:
        """Send SIGKILL to the tasks' processes, none of which is replaced before all are dead; returns their pids.

        A busy machine may let seconds pass between two signals.  So the supervisor, which decides who takes over, is
        stopped meanwhile, if there are several.
        """
        dying = [self.pid_of(task) for task in tasks]
        with self._undecided() if len(tasks) > 1 else nullcontext():
            missed = [pid for pid in dying if not kill(pid)]
        assert not missed, f"{missed} of {dying} had ended before"
        return dying

    @contextmanager
    def _undecided(self) -> Iterator[None]:
        """Stop the supervisor inside the context."""
        supervisor = self.server(SUPERVISOR)
        assert kill(supervisor, signal.SIGSTOP)
        try:
            yield
        finally:
            kill(supervisor, signal.SIGCONT)

    def replace(self, *tasks: str) -> None:
        """Kill these tasks' processes at the same time, and wait until others run in their place."""
        self.until_replaced(*self.strike(*tasks))

    def kill_everything(self) -> None:
        """SIGKILL every process of the job, its `causal run` first, so that nothing can be cleaned up."""
        assert self._run is not None
        self._run.kill()
        self._run.communicate(timeout=WAIT_S)

        def gone() -> bool:
            for pid in self.living():
                kill(pid)
            return not self.living()

        wait_for("every process of the job is gone", gone)

    def leaks(self) -> list[str]:
        """Return what a job that has ended on its own left behind; one that was killed could not clean up."""
        if self._status is None:
            return []
        return leaks.after(self.state.resolve(), self._runtimes, self._shared, well=self._status == 0)

    def close(self) -> None:
        """Leave nothing running, and no directory of sockets."""
        if self._run is not None:
            if self._run.poll() is None:
                self._run.kill()
            self._run.communicate(timeout=WAIT_S)
        for pid in self.living():
            kill(pid)
        kill_marked(self.state.resolve(), CLEAN_S)
        self._note_runtime()
        for runtime in self._runtimes:
            if runtime.parent == Path(tempfile.gettempdir()) and runtime.name.startswith("causal-"):
                shutil.rmtree(runtime, ignore_errors=True)


def assert_numbered(
    rows: Iterable[Mapping[str, Any]], count: int, without: Callable[[int], bool] | None = None
) -> None:
    """Assert that the rows are those of `pipelines/numbered.py`, without the refused ones, in their order."""
    expected = [(i, i // 7 + 1) for i in range(count) if without is None or not without(i)]
    assert [(row["i"], row["n"]) for row in rows] == expected


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "deploy", *arguments]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(HOME), "PYTHONDONTWRITEBYTECODE": "1"}


def causal(directory: Path, *arguments: str) -> tuple[int, str]:
    """Run a `causal` command that must end on its own; returns its exit status and standard error."""
    ended = ended_of(directory, *arguments)
    return ended.returncode, without_progress(ended.stderr)


def causal_output(directory: Path, *arguments: str) -> str:
    """Return what one `causal` command that must succeed printed."""
    ended = ended_of(directory, *arguments)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def ended_of(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a `causal` command that must end on its own."""
    if arguments[0] in LOOKING:
        return forked(directory, arguments, environment(), WAIT_S)
    root = ROOTS.start(arguments, directory, environment())
    try:
        out, err = root.communicate(timeout=WAIT_S)
    except subprocess.TimeoutExpired:
        root.kill()
        raise
    assert root.returncode is not None
    return subprocess.CompletedProcess(arguments, root.returncode, out, err)


def without_progress(said: str) -> str:
    """Return standard error without the lines that a job repeats every few seconds."""
    return "\n".join(line for line in said.splitlines() if not PROGRESS.match(line)).strip()
