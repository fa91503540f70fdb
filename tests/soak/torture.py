"""Jobs under fire: kills, hangs, cut connections and full disks by the seed, and a checker at the end of each job.

Exit status 1 if any row was lost, doubled or contradicted, any job failed or hung, or anything was left behind.
The logs of such a job are kept.  The plan of faults follows from the seed; when exactly each hits does not.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.harness.measured import distribution, result
from benchmarks.harness.runs import RunFailed
from tests.soak import fire, leaks
from tests.soak.disk import SmallDisk
from tests.soak.fire import Fire
from tests.soak.targets import TARGETS, USUAL
from tests.soak.tortured import TortureRun
from tests.soak.witness import Witness

DISK_BYTES = 96 << 20
UP_S = 90.0
FINISH_S = 150.0
"""The time that a job without further faults may take to finish; what it bounds is a hang."""

QUIET_S = 8.0
QUIET_AFTER = 7
"""Faults between two quiet moments."""

BURST = 0.25
"""Share of faults that follow immediately on the one before."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.add_argument("--minutes", type=float, default=5.0, help="no job begins after that (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of jobs and faults (default: %(default)s)")
    parser.add_argument(
        "--first", type=int, default=0, metavar="JOB", help="begin with this job (default: %(default)s)"
    )
    parser.add_argument("--pipeline", choices=sorted(TARGETS), help=f"default: {', '.join(sorted(set(USUAL)))} in turn")
    parser.add_argument("--seconds", type=float, default=25.0, help="each job's records span (default: %(default)s)")
    parser.add_argument("--gap", type=float, default=0.7, help="mean seconds between faults (default: %(default)s)")
    parser.add_argument(
        "--changes",
        type=float,
        default=0.0,
        help="rescale and upgrade the job so often, where a task is killed 8 times",
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="for jobs that went wrong (default: a temporary one)")


@dataclass(slots=True)
class Sums:
    """The sums over all jobs."""

    kills: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    changes: Counter[str] = field(default_factory=Counter)
    pipelines: Counter[str] = field(default_factory=Counter)
    groupings: Counter[str] = field(default_factory=Counter)
    """Kills by what shared a process."""
    recoveries: Counter[str] = field(default_factory=Counter)
    live_ms: dict[str, list[float]] = field(default_factory=dict)
    kills_per_job: list[float] = field(default_factory=list)
    violations: Counter[str] = field(default_factory=Counter)
    leaks: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    unavailable: set[str] = field(default_factory=set)
    rows: int = 0
    withdrawn: int = 0

    def report(self, job_report: Mapping[str, Any]) -> None:
        """Take in the report of a job."""
        self.withdrawn += job_report["withdrawn"]
        for recovery in job_report["recoveries"]:
            self.recoveries[recovery["mode"]] += 1
            if recovery["live_ms"] is not None:
                self.live_ms.setdefault(f"{recovery['mode']}_live_ms", []).append(recovery["live_ms"])

    def summary(self, jobs: int) -> str:
        """Return a summary in one line."""
        modes = ", ".join(f"{count} {mode}" for mode, count in sorted(self.recoveries.items())) or "none"
        wrong = ", ".join(f"{count} {what}" for what, count in sorted(self.violations.items())) or "none"
        return (
            f"{jobs} jobs, {sum(self.kills.values()):,} kills, {sum(self.faults.values()):,} other faults,"
            f" {sum(self.changes.values()):,} changes,"
            f" recoveries: {modes}; {self.rows:,} rows checked; violations: {wrong}; leaks: {len(self.leaks)}"
        )


def measure(options: argparse.Namespace, command: str, progress: Callable[[str], None]) -> dict[str, Any]:
    """Torture jobs for the time that was given; returns the common form with what was thrown and what was found.

    Raises:
        RunFailed: there was nothing to measure.
    """
    sums = Sums()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # clean up what is under way
    keep = options.keep if options.keep is not None else Path(tempfile.mkdtemp(prefix="torture-kept-"))
    keep.mkdir(parents=True, exist_ok=True)
    ends = time.monotonic() + options.minutes * 60
    job = options.first
    while time.monotonic() < ends:
        _one(options, job, sums, keep, progress)
        job += 1
    if job == options.first:
        raise RunFailed("--minutes is not enough for a single job")
    if not any(keep.iterdir()):
        keep.rmdir()
    figures = {name: distribution(times) for name, times in sorted(sums.live_ms.items())}
    figures["kills_per_job"] = distribution(sums.kills_per_job, 0)
    settings = {"seed": options.seed, "minutes": options.minutes, "gap_s": options.gap, "job_s": options.seconds}
    return result(
        "torture",
        command,
        settings,
        figures,
        jobs=dict(sums.pipelines),
        kills_by_grouping=dict(sorted(sums.groupings.items())),
        kills={"all": sum(sums.kills.values()), **dict(sorted(sums.kills.items()))},
        faults=dict(sorted(sums.faults.items())),
        changes=dict(sorted(sums.changes.items())),
        recoveries=dict(sorted(sums.recoveries.items())),
        rows_checked=sums.rows,
        withdrawn=sums.withdrawn,
        violations=dict(sorted(sums.violations.items())),
        leaks=sums.leaks,
        kept=sums.kept,
        unavailable=sorted(sums.unavailable),
        summary=sums.summary(job - options.first),
        failed=bool(sums.violations or sums.leaks),
    )


def _one(options: argparse.Namespace, number: int, sums: Sums, keep: Path, progress: Callable[[str], None]) -> None:
    """One job: begun, tortured, checked."""
    rng = Random(f"{options.seed}:{number}")
    name = options.pipeline or USUAL[number % len(USUAL)]
    target = TARGETS[name](rng, options.seconds)
    with _ground(name, sums) as (place, disks):
        run = TortureRun(target, place, place / "state" / "job", place / "out")
        fire = Fire(run, rng, disks, options.changes)
        witness = Witness(run.out / target.database)
        try:
            problems = _tortured(options, run, fire, witness)
            problems += _checked(run, witness, sums)
        finally:
            fire.settle(everything=True)
            run.close()
        left = run.usage.grown() + leaks.after(run.state, run.runtimes, run.usage.shared, well=not fire.changes)
        sums.leaks += [f"job {number} ({name}): {leak}" for leak in dict.fromkeys(left)]
        for kind, count in problems.items():
            sums.violations[kind] += count
        if problems or left:
            sums.kept.append(
                str(_kept(keep / f"{options.seed}-{number}-{name}", run, fire, [*map(str, problems), *left]))
            )
    sums.kills += fire.kills
    sums.kills_per_job.append(sum(fire.kills.values()))
    sums.faults += fire.faults
    sums.changes += fire.changes
    sums.unavailable |= fire.unavailable
    sums.pipelines[name] += 1
    grouping = target.config.get("processes", "per-task")
    sums.groupings[grouping] += sum(fire.kills.values())
    wrong = f"WRONG: {dict(problems)} {left[:3]}" if problems or left else "exact"
    thrown = f"{sum(fire.kills.values())} kills, {sum(fire.faults.values())} other faults, {dict(fire.changes)}"
    progress(f"job {number} ({name}, {grouping}): {thrown}: {wrong}")


@contextmanager
def _ground(name: str, sums: Sums) -> Iterator[tuple[Path, list[SmallDisk]]]:
    """Yield a directory for one job with small disks in it, where that is permitted; gone afterwards."""
    place = Path(tempfile.mkdtemp(prefix="torture-"))
    disks: list[SmallDisk] = []
    try:
        if name != "inverted_index":  # its corpus and its index are larger than a small disk
            disks, problem = fire.disks(place, DISK_BYTES)
            if problem:
                sums.unavailable.add(problem)
        for each in ("state", "out"):
            (place / each).mkdir(exist_ok=True)
        yield place, disks
    finally:
        for disk in disks:
            disk.close()
        shutil.rmtree(place, ignore_errors=True)


def _tortured(options: argparse.Namespace, run: TortureRun, fire: Fire, witness: Witness) -> Counter[str]:
    """Throw faults at the job for as long as its records span and a little longer, then let it finish."""
    run.start()
    if not _until(run, fire, witness, run.up, UP_S) and run.status() is None:
        return Counter({"job did not come up": 1})
    stop = time.monotonic() + 1.15 * options.seconds
    thrown = 0
    while run.status() is None and time.monotonic() < stop:
        fire.throw()
        thrown += 1
        if thrown % QUIET_AFTER == 0 and _until(run, fire, witness, lambda: _whole(run), QUIET_S):
            run.look_at_processes()
        elif fire.rng.random() >= BURST:
            _until(run, fire, witness, lambda: False, min(fire.rng.expovariate(1 / options.gap), 5 * options.gap))
    fire.settle(everything=True)
    if not _until(run, fire, witness, lambda: run.status() is not None, FINISH_S):
        return Counter({"job hung": 1})
    return Counter() if run.status() == 0 else Counter({f"job failed: {run.said()}": 1})


def _until(run: TortureRun, fire: Fire, witness: Witness, holds: Callable[[], bool], within_s: float) -> bool:
    """Wait, waking and making room when it is time; whether it came to hold before the job or the time ended."""
    deadline = time.monotonic() + within_s
    looked_s = 0.0
    while True:
        fire.settle()
        if holds():
            return True
        now_s = time.monotonic()
        if now_s >= deadline or run.status() is not None:
            return holds()
        if now_s - looked_s > 0.3:
            looked_s = now_s
            witness.look()
        time.sleep(min(0.02, deadline - now_s))


def _whole(run: TortureRun) -> bool:
    """Return whether every task runs and every standby that there should be is ready."""
    view = run.view()
    if view is None or any(task["state"] not in ("running", "finished") for task in view["tasks"]):
        return False
    return view["standbys"] != "per-task" or all(task["standbys"] for task in view["tasks"])


def _checked(run: TortureRun, witness: Witness, sums: Sums) -> Counter[str]:
    """Count what the rows, the report and the logs show to be wrong."""
    tracebacks = Counter({f"traceback in {error}": 1 for error in run.tracebacks()})
    if run.status() != 0:
        return tracebacks
    counts = dict(run.target.check(run.out))
    sums.rows += counts.pop("rows")
    report = run.report()
    withdrawn = 0
    if report is not None:
        sums.report(report)
        withdrawn = report["withdrawn"]
    # Below full sharing depth visible rows may be withdrawn, as many as the report counts and not one more.
    kind = (
        "visible rows contradicted" if run.target.config["sharing_depth"] == "full" else "rows withdrawn, not counted"
    )
    counts[kind] = max(0, witness.contradicted() - withdrawn)
    return tracebacks + Counter({kind: count for kind, count in counts.items() if count})


def _kept(place: Path, run: TortureRun, fire: Fire, problems: list[str]) -> Path:
    """Keep everything of a job that went wrong."""
    place.mkdir(parents=True, exist_ok=True)
    (place / "torture.log").write_text("\n".join([*problems, "", *fire.log]) + "\n")
    for source in (
        run.state,
        run.out,
        run.place / "run.log",
        run.place / "change.log",
        run.pipeline,
        run.place / "job.toml",
        run.place / "report.json",
    ):
        if source.is_dir():
            shutil.copytree(source, place / source.name, dirs_exist_ok=True, ignore_dangling_symlinks=True)
        elif source.exists():
            shutil.copy(source, place)
    return place
