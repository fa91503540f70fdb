"""The keyed count around a base point, one thing varied at a time: undisturbed, and killed about every two seconds.

Axes: batch size, parallelism, depth, sharing depth, checkpoint interval, keys, skew, record size.  A round runs, per
mode and axis, the base point, the others, and the base point again (the run that ends one axis begins the next where
both have the same base point); ratios are to the mean of these two, and how far the two are apart is the spread of the
base point.  Every output is compared with its input; a point that fails is named; the others still run.  A full round
takes about ten minutes on two quiet cores, `--quick` (the last value of each axis, once, against one run of the base
point) about two; after --minutes-max no run begins, and what was left out is named.

*cpu_us*: of all processes of the job per record, less that of a job of the same tasks with next to no records.
*wire*: determinants that travelled, bytes per record.  *checkpoint_bytes*: written per checkpoint.
*first_output_ms*: from SIGKILL of the task that has the hot key.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import runs
from benchmarks.harness.declared import Benchmark, Measurement, Option, some_of
from benchmarks.jobs import matrix_count
from benchmarks.throughput.matrix_points import AXES, Axis, Point

PIPELINE = Path(matrix_count.__file__)
MODES = ("free", "failing")
KILL_EVERY_S = 2.037
KILL_FIRST_S = 1.1
INTERVALS_MIN = 1.5
"""A run lasts about so many checkpoint intervals at least, unless it is quick."""
IDLE_RECORDS = 2
LIMIT_S = 120.0
DIGITS = {"rps": 0, "cpu_us": 3, "wire": 5, "checkpoint_bytes": 0, "first_output_ms": 1, "ratio": 3, "cpu_ratio": 3}

Values = dict[str, float]


OPTIONS = (
    Option("axis", ",".join(AXES), "which ones", some_of(AXES), setting=None),
    Option("rounds", 1),
    Option("seconds", 4.0, "about, of an undisturbed run"),
    Option("failing", 6.0, "about, of one that is killed", setting="failing_seconds"),
    Option("minutes_max", 30.0, "no run begins later"),
    Option("quick", False, "one value of each axis, once, for a second or three", setting=None),
)


def _measure(run: Measurement) -> dict[str, Any]:
    """Run all rounds; `failed`: a point failed, or its output is not exactly once.

    The result has `left_out`: what there was no time for, and `problems`: by point.

    Raises:
        RunFailed: nothing was measured.
    """
    options = run.options
    if options.quick:
        options.rounds, options.seconds, options.failing = 1, 1.0, 3.0
    jobs = Jobs(options)
    for number in run.rounds():
        shared: dict[tuple[Point, str], Values] = {}
        for name in sorted(options.axis, key=lambda each: bool(AXES[each].fixed)):
            for mode in MODES:
                for value, values in _along(AXES[name], mode, jobs, options.quick, shared):
                    run.add_all(f"{name}/{value}/{mode}/", values)
                    run.report(f"round {number}, {name}/{value}/{mode}: {_line(values)}")
    if not run.all_runs():
        late = f"there was no time for anything within {options.minutes_max:g} minutes"
        raise runs.RunFailed(next(iter(jobs.problems.values()), late))
    rounds = f" of {options.rounds} rounds" if options.rounds > 1 else ""
    left_out = [
        f"{what}, {mode}{f' ({count}{rounds})' if rounds else ''}"
        for (what, mode), count in Counter(jobs.left_out).items()
    ]
    summary = [f"{point}: {problem}" for point, problem in jobs.problems.items()]
    summary += [f"left out, for there was no time: {each}" for each in left_out]
    run.more |= {
        "left_out": left_out,
        "problems": jobs.problems,
        "failed": bool(jobs.problems),
        "summary": "\n".join(summary) or "all points were measured",
    }
    return {"axes": {name: {"unit": AXES[name].unit, "fixed": dict(AXES[name].fixed)} for name in options.axis}}


def _line(figures: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {round(value, DIGITS[name]):,}" for name, value in figures.items())


def _along(
    axis: Axis, mode: str, jobs: Jobs, quick: bool, shared: dict[tuple[Point, str], Values]
) -> Iterator[tuple[Any, Values]]:
    """(value, what it came to), of the base point both runs, first and last; without its ratio it is no point.

    Args:
        shared: the last run of each base point, by mode.
    """
    base = axis.point(axis.base)
    others = [value for value in axis.values if value != axis.base and _fits(axis.point(value), mode)]
    wanted = others[-1:] if quick else others
    if jobs.late():
        jobs.left_out.append((axis.name, mode))
        return
    bases = [shared.get((base, mode)) or jobs.tried(base, mode)]
    measured: list[tuple[Any, Values | None]] = []
    for value in wanted:
        if jobs.late():
            jobs.left_out.append((f"{axis.name} {value}", mode))
        else:
            measured.append((value, jobs.tried(axis.point(value), mode)))
    if not quick:
        bases += [] if jobs.late() else [jobs.tried(base, mode)]
    shared.pop((base, mode), None)
    if bases[-1] is not None:
        shared[base, mode] = bases[-1]
    yield from _compared([each for each in bases if each is not None], axis.base, measured)


def _compared(
    bases: Sequence[Values], base: Any, others: Sequence[tuple[Any, Values | None]]
) -> Iterator[tuple[Any, Values]]:
    """Every run with its ratio to the mean of the base point's."""
    for value, measured in [*((base, each) for each in bases), *others]:
        if measured is not None and bases:
            ratios = {
                ratio: measured[name] * len(bases) / sum(each[name] for each in bases)
                for ratio, name in (("ratio", "rps"), ("cpu_ratio", "cpu_us"))
            }
            yield value, measured | ratios


def _fits(point: Point, mode: str) -> bool:
    """Returns whether a point has an exact output: without a guarantee a killed task loses its state."""
    return mode == "free" or point.sharing != "none"


class Ended(runs.RunFailed):
    """A run that was to be killed was through before."""


class Jobs:
    """Runs points; remembers what the processes of a job take that has nothing to do.

    Attributes:
        problems: why points have no figures.
        left_out: (axis, or axis and value; mode) that there was no time for.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self._seconds = {"free": options.seconds, "failing": options.failing}
        self._intervals_min = 0.0 if options.quick else INTERVALS_MIN
        self._idle_cpu_s: dict[tuple[int, int], float] = {}
        self._ends_s: float = time.monotonic() + options.minutes_max * 60
        self.problems: dict[str, str] = {}
        self.left_out: list[tuple[str, str]] = []

    def late(self) -> bool:
        """Whether no run is to begin any more."""
        return time.monotonic() > self._ends_s

    def tried(self, point: Point, mode: str) -> Values | None:
        """One run of a point, or None: `problems` then has the reason."""
        try:
            try:
                return self.run(point, mode)
            except Ended:
                return self.run(point, mode, 4.0)
        except runs.RunFailed as problem:
            self.problems[f"{point}, {mode}"] = str(problem)
            return None

    def run(self, point: Point, mode: str, longer: float = 1.0) -> Values:
        """One run of a point.

        Args:
            longer: so many times the records.

        Raises:
            RunFailed: it failed, its output is not exactly once, or no kill took place.
        """
        records = point.records(max(self._seconds[mode], self._intervals_min * point.interval_s) * longer)
        report = _job(point, records, self._kills(point) if mode == "failing" else ())
        cpu_s = report["cpu_s"] - self._idle(point)
        figures = {"rps": float(report["throughput_rps"]), "cpu_us": max(0.0, cpu_s) / records * 1e6}
        if mode == "failing":
            times = [each["first_output_ms"] for each in report["recoveries"] if each["first_output_ms"] is not None]
            if not times:
                raise Ended("the job ended before the first kill; give --failing more seconds")
            return figures | {"first_output_ms": sum(times) / len(times)}
        tasks = report["tasks"].values()
        figures["wire"] = sum(task["delta_bytes"] for task in tasks) / records
        if report["checkpoints"]:
            figures["checkpoint_bytes"] = sum(task.get("snapshot_bytes", 0) for task in tasks) / report["checkpoints"]
        return figures

    def _kills(self, point: Point) -> list[str]:
        task = f"count0/{matrix_count.owner(point.parallelism)}"
        count = max(1, int((self._seconds["failing"] - KILL_FIRST_S) / KILL_EVERY_S))
        return [f"--kill={task}@{KILL_FIRST_S + number * KILL_EVERY_S:.3f}" for number in range(count)]

    def _idle(self, point: Point) -> float:
        if point.tasks not in self._idle_cpu_s:
            idle = Point(parallelism=point.parallelism, depth=point.depth)
            self._idle_cpu_s[point.tasks] = float(_job(idle, IDLE_RECORDS, ())["cpu_s"])
        return self._idle_cpu_s[point.tasks]


def _job(point: Point, records: int, kills: list[str] | tuple[()]) -> dict[str, Any]:
    def check(out: Path, report: Mapping[str, Any]) -> dict[str, int]:
        return matrix_count.check(out, point.skew, point.keys, records)

    report = runs.job(
        PIPELINE,
        point.settings(records),
        [*point.options(), *kills],
        {"batch_elements_max": point.batch_elements_max},
        check,
        LIMIT_S,
    )
    checked = report["checked"]
    if checked["rows"] != records or checked["lost"] or checked["doubled"] or checked["contradicted"]:
        raise runs.RunFailed(f"the output of {records} records is not exactly once: {checked}")
    return report


SETTINGS = {
    "base": vars(Point()),
    "partitions": matrix_count.PARTITIONS,
    "standbys": "per-task",
    "kill_every_s": KILL_EVERY_S,
}
BENCHMARK = Benchmark(
    "matrix", OPTIONS, _measure, digits_of={f"/{name}": digits for name, digits in DIGITS.items()}, settings=SETTINGS
)
