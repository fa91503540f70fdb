"""The job of `change`, as its user changes it: with a stop at a savepoint, or by the commands for a running job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.harness import children, zero_point
from benchmarks.harness.runs import RunFailed, arguments, last_line
from benchmarks.harness.watched import Watched, ready
from benchmarks.jobs import changing_ledger
from benchmarks.jobs.changing_ledger import PARTITIONS
from benchmarks.jobs.gated import shut
from benchmarks.jobs.stamped_sink import Arrivals

OPERATOR = "count"
WITHIN_S = 180.0
BACKLOG_MAX_S = 0.1
LOOK_S = 0.02


class ChangingJob:
    """One job, over all of its changes.

    Args:
        place: everything of the job goes in there.
        settings: of the pipeline.
        options: of each `causal run`.

    Attributes:
        rate: records per second that the counting operator gets.
        tasks: of the counting operator.
        version: of the code.
        counted: the rows of that operator, as they become visible.
        apart: the rows of the operator that is never changed.
    """

    def __init__(self, place: Path, settings: Mapping[str, Any], options: tuple[str, ...]) -> None:
        self._place, self._settings, self._options = place, settings, options
        self._code = place / "ledger.py"
        self._run: subprocess.Popen[str] | None = None
        self._seen_from_ns = 0
        self.directory, self.out = place / "job", place / "out.db"
        self.rate = float(settings["rate"])
        self.tasks = 2
        self.version = self._version_before = self._versions = 1
        self.counted = Arrivals(self.out)
        self.apart = Arrivals(changing_ledger.database_apart(self.out))

    # -- changes ---------------------------------------------------------------------------------------------------

    def rescale(self, tasks: int, running: bool) -> dict[str, float]:
        """Change the number of tasks of the counting operator; returns the seconds that each step took, by name."""
        self.tasks = tasks
        return self._commanded("rescale", f"{OPERATOR}={tasks}") if running else self._stopped_and_resumed()

    def upgrade(self, running: bool) -> dict[str, float]:
        """Replace the code by a version that the job has never had; returns as `rescale` does."""
        self._versions += 1
        self._version_before, self.version = self.version, self._versions
        self._write()
        return self._commanded("upgrade", str(self._code)) if running else self._stopped_and_resumed()

    def roll_back(self, running: bool) -> dict[str, float]:
        """Return to the savepoint with which the version began; returns as `rescale` does."""
        self.version = self._version_before
        took_s = self._commanded("rollback") if running else self._stopped_and_resumed("--rollback")
        self._write()
        return took_s

    def _stopped_and_resumed(self, *options: str) -> dict[str, float]:
        began_s = time.monotonic()
        self._causal("savepoint", "--stop")
        self._ended()
        stopped_s = time.monotonic()
        self.begin("--resume", *options)
        return {"stop_s": stopped_s - began_s}

    def _commanded(self, *words: str) -> dict[str, float]:
        began_s = time.monotonic()
        self._causal(*words)
        self._seen_from_ns = time.monotonic_ns()
        return {"command_s": time.monotonic() - began_s}

    def _write(self) -> None:
        self._code.write_text(changing_ledger.text_of(self.version))

    # -- its processes ---------------------------------------------------------------------------------------------

    def begin(self, *options: str) -> None:
        """Start a `causal run`."""
        self._write()
        words = arguments(
            self._place, self._code, {**self._settings, "tasks": self.tasks}, (*self._options, *options), None
        )
        self._seen_from_ns = time.monotonic_ns()
        with open(self._place / "said.txt", "w") as said:
            self._run = children.opened(
                [sys.executable, "-m", "deploy", *words], stdout=subprocess.DEVNULL, stderr=said, text=True,
                cwd=children.ROOT, env=_environment(),
            )  # fmt: skip

    def _causal(self, *words: str) -> str:
        """Return what a command about this job printed.

        Raises:
            RunFailed: it failed.
        """
        command = [sys.executable, "-m", "deploy", *words, "--state-dir", str(self.directory)]
        done = children.run(command, WITHIN_S, _environment())
        if done.returncode:
            raise RunFailed(f"causal {words[0]} ended with status {done.returncode}: {last_line(done.stderr)}")
        return done.stdout

    def _ended(self) -> None:
        """Wait until `causal run` has ended.

        Raises:
            RunFailed: it does not end, or not well.
        """
        if self._run is None:
            raise RunFailed("the job was not begun")
        try:
            status = self._run.wait(WITHIN_S)
        except subprocess.TimeoutExpired:
            raise RunFailed(f"the job does not end within {WITHIN_S:.0f} s") from None
        if status:
            raise RunFailed(f"the job ended with status {status}: {last_line((self._place / 'said.txt').read_text())}")

    def close(self) -> None:
        """End the job if it runs."""
        if self._run is not None:
            children.end(self._run)

    def until(self, what: str, holds: Callable[[Mapping[str, Any]], Any]) -> dict[str, Any]:
        """Return the first view since the last command for which `holds`.

        Raises:
            RunFailed: the job ended before, or it took too long.
        """
        if self._run is None:
            raise RunFailed("the job was not begun")
        watched = Watched(self._place, self._run)
        return watched.until(what, lambda view: view["at_ns"] > self._seen_from_ns and holds(view), WITHIN_S)

    # -- what is waited for ----------------------------------------------------------------------------------------

    def until_ready(self) -> None:
        """Wait until every task runs, and has a standby."""
        self.until("every standby was ready", lambda view: view["tasks"] and ready(view))

    def until_calm(self) -> None:
        """Wait until two more checkpoints are complete, and no record waits."""
        self.until_ready()
        before = self.until("a view", lambda view: True)["checkpoint"]["complete"]
        self.until("two more checkpoints", lambda view: view["checkpoint"]["complete"] >= before + 2)
        self.until_rows("nothing waits", lambda: self._due() - self.counted.rows < BACKLOG_MAX_S * self.rate)

    def until_rows(self, what: str, holds: Callable[[], object]) -> None:
        """Look for rows until `holds`.

        Raises:
            RunFailed: it took too long.
        """
        deadline_s = time.monotonic() + WITHIN_S
        while True:
            self.counted.look()
            self.apart.look()
            if holds():
                return
            if time.monotonic() > deadline_s:
                raise RunFailed(f"{WITHIN_S:.0f} s passed before {what}")
            time.sleep(LOOK_S)

    def _due(self) -> float:
        """Return how many records are due by now."""
        return (time.monotonic_ns() - zero_point.began_ns(self.directory)) / 1e9 * self.rate

    # -- savepoints and the end ------------------------------------------------------------------------------------

    def forget_savepoints(self) -> None:
        """Delete all that are kept: a job may keep a hundred."""
        for each in json.loads(self._causal("savepoint", "--list", "--json")):
            self._causal("savepoint", "--delete", each["name"])

    def end(self) -> dict[str, int]:
        """End the sources; returns how many rows there are, and how many are wrong."""
        began_ns = zero_point.began_ns(self.directory)
        rates = {"numbers": self.rate / PARTITIONS, "apart": float(self._settings["rate_apart"])}
        counts = [shut(changing_ledger.gate_of(self.out, name), began_ns, rate) for name, rate in rates.items()]
        self._ended()
        return changing_ledger.check(self.out, *counts)


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(children.ROOT)}


@contextmanager
def changing_job(place: Path, settings: Mapping[str, Any], options: tuple[str, ...]) -> Iterator[ChangingJob]:
    """Yield a job that has begun; whatever happens, it has ended afterwards."""
    job = ChangingJob(place, settings, options)
    try:
        job.begin()
        yield job
    finally:
        job.close()
