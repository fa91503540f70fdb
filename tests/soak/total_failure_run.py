"""One job whose processes all die at the same moment, repeatedly, and readers that watch its output throughout."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.harness import sink_reader, zero_point
from benchmarks.harness.processes import of_job
from benchmarks.harness.runs import RunFailed
from benchmarks.jobs.gated import shut
from standby.host.processes import open_process, send_signal, start_time
from tests.soak import total_failure_job
from tests.soak.mix import check
from tests.soak.targets import Target
from tests.soak.tortured import TortureRun

PIPELINE = Path(total_failure_job.__file__)
INTERVAL_S = 1.0
UP_S = 120.0
END_S = 200.0
PROCESSES = 14
"""The processes of the job without its standbys: a strike before it is up comes when 2 to this many are there."""
LOOK_S = 0.01


@dataclass(slots=True)
class Lines:
    """A reader of JSON lines: its content of each file must be how that file begins at the end."""

    directory: Path
    seen: dict[Path, int] = field(default_factory=dict)
    digests: dict[Path, Any] = field(default_factory=dict)

    def look(self) -> None:
        """Take in the lines that have come; a line counts when its newline is there."""
        for path in sorted(self.directory.glob("*.jsonl")):
            at = self.seen.get(path, 0)
            with open(path, "rb") as file:
                file.seek(at)
                fresh = file.read()
            whole = fresh[: fresh.rfind(b"\n") + 1]
            self.digests.setdefault(path, blake2b()).update(whole)
            self.seen[path] = at + len(whole)

    def any_seen(self) -> bool:
        """Return whether any line has come yet."""
        return any(self.seen.values())

    def changed(self) -> int:
        """Return how many files do not begin with what was seen of them."""
        began = {path: path.read_bytes()[:size] if path.exists() else b"" for path, size in self.seen.items()}
        return sum(blake2b(began[path]).digest() != digest.digest() for path, digest in self.digests.items())


@dataclass(frozen=True, slots=True)
class Life:
    """The time from a resume to the next strike."""

    resumed_ns: int
    struck_ns: int
    struck: int
    """Processes that were killed at its end."""
    spread_ms: float
    """Milliseconds from the first of these signals to the last."""
    live_ns: int | None
    """The time at which the supervisor first said that every task runs; None if the strike came first."""
    replayed: int | None
    """Elements that its tasks had performed before and performed again; None if the strike came first."""


class Struck:
    """The job, its readers, and its lives so far."""

    def __init__(self, run: TortureRun, reader: sink_reader.Reader, gate: Path, rate: float) -> None:
        self.run, self.reader, self.gate, self.rate = run, reader, gate, rate
        self.lines = Lines(run.out / "lines")
        self.lives: list[Life] = []

    def live(self, rng: Random, up: bool) -> None:
        """Begin or resume, lives a while, and dies: some time after it is up, or when it has a few processes."""
        resumed_ns = time.monotonic_ns()
        self.run.start(*(["--resume"] if self.lives else []))
        live_ns = replayed = None
        if up:
            self._until("the job is up", lambda: self._up(resumed_ns), UP_S)
            live_ns = time.monotonic_ns()
            moment = time.monotonic() + rng.uniform(0.05, 0.9)
            self._until("its time has come", lambda: time.monotonic() >= moment, UP_S)
            self._until("there are rows that a second execution could contradict", self.lines.any_seen, UP_S)
            replayed = self._replayed()
        else:
            several = rng.randint(2, PROCESSES)
            self._until("it has some processes", lambda: len(of_job(self.run.state)) >= several, UP_S)
        struck_ns = time.monotonic_ns()
        count, spread_ms = strike(self.run)
        self.lines.look()
        self.lives.append(Life(resumed_ns, struck_ns, count, spread_ms, live_ns, replayed))

    def finish(self) -> int:
        """Resume once more and let the sources end; returns how many elements each of their partitions had.

        Raises:
            RunFailed: the job did not end well.
        """
        resumed_ns = time.monotonic_ns()
        self.run.start("--resume")
        self._until("the job is up", lambda: self._up(resumed_ns), UP_S)
        elements = shut(self.gate, zero_point.began_ns(self.run.state), self.rate)
        self._until("the job ends", lambda: self.run.status() is not None, END_S, ends=True)
        if self.run.status() != 0:
            raise RunFailed(f"the job failed: {self.run.said()}")
        return elements

    def _up(self, since_ns: int) -> bool:
        view = self.run.view()
        return view is not None and view["at_ns"] > since_ns and self.run.up()

    def _replayed(self) -> int:
        """Return how many elements the present tasks have performed again."""
        view = self.run.view()
        return sum(task["figures"].get("replayed_elements", 0) for task in view["tasks"]) if view is not None else 0

    def _until(self, what: str, holds: Callable[[], bool], within_s: float, ends: bool = False) -> None:
        deadline = time.monotonic() + within_s
        while not holds():
            if time.monotonic() >= deadline or (not ends and self.run.status() is not None):
                raise RunFailed(f"not before {what}: {self.run.said()}")
            self.lines.look()
            time.sleep(LOOK_S)

    def wrong(self, elements: int) -> dict[str, int]:
        """Return the number of rows, and of the lost, doubled and contradicted ones, also against readers."""
        seen = {(each.task, each.first + at): text for each in self.reader.end() for at, text in enumerate(each.rows)}
        with closing(sqlite3.connect(self.run.out / self.run.target.database)) as connection:
            rows = connection.execute("SELECT task, position, record FROM output")
            there = {(task, position): record for task, position, record in rows}
        counts = check(self.run.out / self.run.target.database, self.run.out / "lines", elements)
        changed = sum(there.get(at) != text for at, text in seen.items()) + self.lines.changed()
        return counts | {"visible_contradicted": changed, "seen": len(seen)}


def strike(run: TortureRun) -> tuple[int, float]:
    """Send SIGKILL to every process of the job together; returns how many, and ms from first signal to last."""
    pids = [run.root, *(pid for pid in of_job(run.state) if pid != run.root)]
    started = [(pid, start_time(pid)) for pid in pids]
    handles = [open_process(pid, at) for pid, at in started if at is not None]
    alive = [handle for handle in handles if handle is not None]
    before_ns = time.monotonic_ns()
    for handle in alive:
        send_signal(handle, signal.SIGKILL)
    spread_ms = (time.monotonic_ns() - before_ns) / 1e6
    for handle in alive:
        os.close(handle)
    run.kill_all()  # those that were just being started
    return len(alive), spread_ms


@contextmanager
def begun(place: Path, rate: float, load_bytes: int, carried: bool = True) -> Iterator[Struck]:
    """Yield a job in that directory with its readers, not started yet; whatever happens, nothing of it is left
    running.
    """
    out, gate = place / "out", place / "gate"
    out.mkdir()
    settings = {"rate": rate, "gate": gate, "load_bytes": load_bytes, "carried": "yes" if carried else "no"}
    config = {"checkpoint_interval_s": INTERVAL_S, "sharing_depth": "full"}
    target = Target(PIPELINE, settings, config, lambda directory: {})
    run = TortureRun(target, place, place / "job", out)
    with sink_reader.reading(out / target.database, place / "seen", whole=True) as reader:
        try:
            yield Struck(run, reader, gate, rate)
        finally:
            run.close()
