"""A lesson: a job in a directory of its own, lines about its events, and the number of errors."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from examples.lessons import tills
from examples.survive import phases_of

WAIT_S = 900.0
"""The time after which a lesson gives up: none of them depends on how fast the machine is."""
LOOK_S = 0.1
SALES = 4000


class Lesson:
    """One job of `tills`; everything about it is in a temporary directory, which goes with the lesson.

    Args:
        promise: the sentence that the lesson shows.
    """

    def __init__(self, promise: str) -> None:
        print(f"\n{promise}\n")
        self.directory = Path(tempfile.mkdtemp(prefix="causal-lesson-"))
        self.job = self.directory / "job"
        self.database = self.directory / "receipts.db"
        shutil.copy(tills.__file__, self.directory / "tills.py")
        self._running: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._running is not None and self._running.poll() is None:
            self._running.terminate()
            self._running.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def say(self, line: str) -> None:
        """Print a line of the lesson."""
        print(f"  {line}", flush=True)

    def command(self, verb: str, *arguments: str) -> list[str]:
        """Return a command line of `causal` about the job, and print it as a user would type it."""
        self.say(f"$ causal {' '.join((verb, *arguments))}")
        return [sys.executable, "-m", "deploy", verb, *arguments, "--state-dir", str(self.job)]

    @property
    def _environment(self) -> dict[str, str]:
        """An environment in which the directory of the lesson may be the working directory."""
        root = str(Path(__file__).resolve().parents[2])
        return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))}

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start `causal run` of the job, with the arguments of the command."""
        arguments = ("tills.py", "--set", f"count={SALES}", *arguments)
        self._running = subprocess.Popen(
            self.command("run", *arguments), cwd=self.directory, env=self._environment,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        return self._running

    def ended(self, verb: str, *arguments: str) -> tuple[int, list[str]]:
        """Run a command that looks at the job; returns its status, and the lines that it prints."""
        done = subprocess.run(
            self.command(verb, *arguments), cwd=self.directory, env=self._environment,
            capture_output=True, text=True, timeout=WAIT_S,
        )  # fmt: skip
        return done.returncode, (done.stdout + done.stderr).splitlines()

    def look(self, verb: str, *arguments: str) -> list[str]:
        """Run a command that looks at the job and must succeed; returns the lines that it prints.

        Raises:
            RuntimeError: it fails.
        """
        status, lines = self.ended(verb, *arguments)
        if status:
            raise RuntimeError(f"causal {verb} ended with status {status}: {' '.join(lines[-1:])}")
        return lines

    def savepoint(self) -> None:
        """Stop the job at a savepoint."""
        subprocess.run(
            self.command("savepoint", "--stop"),
            cwd=self.directory,
            env=self._environment,
            check=True,
            stdout=subprocess.DEVNULL,
        )

    def kill(self, task: str) -> None:
        """Kill the process of a task, and wait until its successor has caught up."""
        subprocess.run(self.command("kill", task), cwd=self.directory, env=self._environment, check=True)
        self.until(f"{task} has recovered", lambda: any(each["task"] == task for each in self.view()["recoveries"]))

    def evening(self) -> None:
        """Release the last quarter of the sales, after which the job ends."""
        (self.directory / tills.EVENING).touch()

    def end(self) -> tuple[int, str]:
        """Wait for the end of the job; returns its status, and the last line that it printed when it failed."""
        assert self._running is not None, "no job was started"
        _, text = self._running.communicate(timeout=WAIT_S)
        return self._running.returncode, text.strip().splitlines()[-1] if text.strip() else ""

    def until(self, what: str, condition: Callable[[], bool]) -> None:
        """Wait for something to happen to the job.

        Raises:
            TimeoutError: it does not happen.
            RuntimeError: the job has failed.
        """
        deadline_s = time.monotonic() + WAIT_S
        while not condition():
            if self._running is not None and (self._running.poll() or 0) > 0:
                raise RuntimeError(f"{what}: the job failed before this happened: {self.end()[1]}")
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{what}: this did not happen within {WAIT_S:.0f} s")
            time.sleep(LOOK_S)

    def rows(self) -> int:
        """Return the number of receipts that a reader can see."""
        return len(self.receipts())

    def receipts(self) -> dict[tuple[str, int], str]:
        """Return what a reader can see now: (task, position) → receipt."""
        if not self.database.exists():
            return {}
        try:
            with closing(sqlite3.connect(f"file:{self.database}?mode=ro", uri=True)) as connection:
                rows = connection.execute("SELECT task, position, record FROM output").fetchall()
        except sqlite3.OperationalError:  # the table is not there yet
            return {}
        return {(task, position): record for task, position, record in rows}

    def receipt_at(self, position: int) -> dict[str, Any]:
        """Return the receipt at a position of the sink's task."""
        receipt: dict[str, Any] = json.loads(self.receipts()["receipts/0", position])
        return receipt

    def view(self) -> dict[str, Any]:
        """Return what the supervisor shows of the job."""
        view: dict[str, Any] = json.loads((self.job / "status.json").read_text())
        return view

    def show_recoveries(self) -> list[Mapping[str, Any]]:
        """Print the phases of each recovery; returns all of them."""
        recoveries: list[Mapping[str, Any]] = self.view()["recoveries"]
        for recovery in recoveries:
            self.say(f"{recovery['task']} died: {phases_of(recovery)}")
        return recoveries

    def kept(self, *others: bool) -> int:
        """Count the errors in the receipts; returns 0 if there are none and all other conditions hold."""
        wrong = tills.wrong(self.database, SALES)
        self.say(", ".join(f"{name} {count}" for name, count in wrong.items()) + f", of {SALES:,} sales")
        return int(any(wrong.values()) or not all(others))
