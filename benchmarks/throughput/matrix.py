"""The keyed count around a base point, one thing varied at a time: undisturbed, and killed about every two seconds.

Axes: batch size, parallelism, depth, sharing depth, checkpoint interval, keys, skew, record size.  A round runs, per
axis and mode, the base point, the others, and the base point again; ratios are to the mean of these two, and how far
the two are apart is the spread of the base point.  Every output is compared with its input; a point that fails is
named, and the others still run.  A full round takes about ten minutes on two quiet cores, `--quick` (the last value of
each axis, once, against one run of the base point) about two; after --minutes-max no run begins, and what was left out
is named.

*cpu_us*: of all processes of the job per record, less that of a job of the same tasks with next to no records.
*wire*: determinants that travelled, bytes per record.  *checkpoint_bytes*: written per checkpoint.
*first_output_ms*: from SIGKILL of the task that has the hot key.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.harness import runs
from benchmarks.harness.declared import Benchmark, Measurement, Option, some_of
from benchmarks.jobs import matrix_count

PIPELINE = Path(matrix_count.__file__)
MODES = ("free", "failing")
KILL_EVERY_S = 2.037
KILL_FIRST_S = 1.1
INTERVALS_MIN = 1.5
"""A run lasts about so many checkpoint intervals at least, unless it is quick."""
IDLE_RECORDS = 2
LIMIT_S = 120.0
READ_BYTES_MAX = 1 << 20
"""Large records are read fewer at a time: a batch of them must fit into a chunk."""
CORES = 2
DIGITS = {"rps": 0, "cpu_us": 3, "wire": 5, "checkpoint_bytes": 0, "first_output_ms": 1, "ratio": 3, "cpu_ratio": 3}


@dataclass(frozen=True)
class Point:
    """One job."""

    batch: int = 16384
    parallelism: int = 2
    depth: int = 1
    """Counting tasks in a row."""
    sharing: str = "full"
    interval_s: float = 1.0
    keys: int = 10_000
    skew: str = "zipf"
    record_bytes: int = 16

    def __str__(self) -> str:
        """Returns what is not as in the base point."""
        base = vars(Point())
        return ", ".join(f"{name}={value!r}" for name, value in vars(self).items() if value != base[name]) or "base"

    @property
    def batch_elements_max(self) -> int:
        """Rows per read."""
        return max(1, min(self.batch, READ_BYTES_MAX // self.record_bytes))

    def records(self, seconds: float) -> int:
        """About what two cores get through in that time; a guess, and the same wherever it is made."""
        frames = 1 + self.depth * self.parallelism / 2
        per_record_us = 0.35 + 0.9 * self.depth + (3.5 if self.keys > 100_000 else 0.0)
        us = per_record_us + 0.004 * self.record_bytes + 150 * frames / self.batch_elements_max
        return max(1_000, int(seconds * CORES * 1e6 / us)) // 2 * 2


@dataclass(frozen=True)
class Axis:
    """One thing that is varied; the value of the base point is among `values`.

    Args:
        name: the field of `Point`.
        fixed: fields that differ from the base point along this axis.
    """

    unit: str
    name: str
    values: tuple[Any, ...]
    fixed: Mapping[str, Any] = field(default_factory=dict)

    @property
    def base(self) -> Any:
        """The value that the others are compared with."""
        return getattr(Point(), self.name)

    def point(self, value: Any) -> Point:
        """The point at that value."""
        return replace(Point(), **{**self.fixed, self.name: value})

    def order(self, mode: str, quick: bool) -> list[Any]:
        """The values in the order of their runs; without a guarantee nothing is killed, for nothing would be exact."""
        others = [value for value in self.values if value != self.base and (mode == "free" or value != "none")]
        return [self.base, *others[-1:]] if quick else [self.base, *others, self.base]


AXES: Mapping[str, Axis] = {
    "batch": Axis("elements per read", "batch", (1, 16, 256, 4096, 16384, 65536)),
    "parallelism": Axis("counting tasks", "parallelism", (1, 2, 4, 8)),
    "depth": Axis("counting tasks in a row", "depth", (1, 2, 3, 4, 5)),
    "sharing": Axis("sharing depth f (3 counting tasks in a row)", "sharing", ("none", "1", "2", "full"), {"depth": 3}),
    "interval": Axis("s between checkpoints", "interval_s", (0.1, 0.5, 1.0, 5.0)),
    "keys": Axis("keys", "keys", (100, 10_000, 1_000_000), {"skew": "uniform"}),
    "skew": Axis("distribution of keys", "skew", ("uniform", "zipf", "one")),
    "size": Axis("bytes per record", "record_bytes", (16, 256, 4096, 65536)),
}
OPTIONS = (
    Option("axis", ",".join(AXES), "which ones", some_of(AXES), setting=None),
    Option("rounds", 1),
    Option("seconds", 4.0, "about, of an undisturbed run"),
    Option("failing", 6.0, "about, of one that is killed", setting="failing_seconds"),
    Option("minutes_max", 30.0, "no run begins later"),
    Option("quick", False, "one value of each axis, once, for a second or three", setting=None),
)


def _measure(run: Measurement) -> dict[str, Any]:
    """Run all rounds; the result has `left_out`, what there was no time for, and `problems`, by point.

    Raises:
        RunFailed: nothing was measured.
    """
    options = run.options
    if options.quick:
        options.rounds, options.seconds, options.failing = 1, 1.0, 3.0
    ends_s = time.monotonic() + options.minutes_max * 60
    left_out: list[str] = []
    problems: dict[str, str] = {}
    for _ in run.rounds():
        for name in options.axis:
            for mode in MODES:
                measured: list[tuple[Any, dict[str, float]]] = []
                for value in AXES[name].order(mode, options.quick):
                    point = AXES[name].point(value)
                    if time.monotonic() > ends_s:
                        left_out.append(f"{name} {value}, {mode}")
                        continue
                    try:
                        measured.append((value, run_point(point, mode, options)))
                    except runs.RunFailed as problem:
                        problems[f"{point}, {mode}"] = str(problem)
                for value, values in compared(AXES[name].base, measured):
                    run.add_all(f"{name}/{value}/{mode}/", values)
                    shown = ", ".join(f"{each} {round(number, DIGITS[each]):,}" for each, number in values.items())
                    run.report(f"{name}/{value}/{mode}: {shown}")
    lines = [f"{point}: {problem}" for point, problem in problems.items()]
    if not run.all_runs():
        raise runs.RunFailed(
            lines[0] if lines else f"there was no time for anything within {options.minutes_max:g} min"
        )
    lines += [f"left out, for there was no time: {each}" for each in left_out]
    summary = "\n".join(lines) or "all points were measured"
    run.more |= {"left_out": left_out, "problems": problems, "failed": bool(problems), "summary": summary}
    return {"axes": {name: {"unit": AXES[name].unit, "fixed": dict(AXES[name].fixed)} for name in options.axis}}


def compared(base: Any, measured: Sequence[tuple[Any, Mapping[str, float]]]) -> Iterator[tuple[Any, dict[str, float]]]:
    """Every run with its ratios to the mean of the base point's; none if that was not measured."""
    bases = [values for value, values in measured if value == base]
    for value, values in measured if bases else ():
        ratios = {
            ratio: values[name] * len(bases) / sum(each[name] for each in bases)
            for ratio, name in (("ratio", "rps"), ("cpu_ratio", "cpu_us"))
        }
        yield value, {**values, **ratios}


def run_point(point: Point, mode: str, options: argparse.Namespace) -> dict[str, float]:
    """One run of a point.

    Raises:
        RunFailed: it failed, its output is not exactly once, or no kill took place.
    """
    seconds = options.seconds if mode == "free" else options.failing
    records = point.records(seconds if options.quick else max(seconds, INTERVALS_MIN * point.interval_s))
    count = max(1, int((options.failing - KILL_FIRST_S) / KILL_EVERY_S)) if mode == "failing" else 0
    task = f"count0/{matrix_count.owner(point.parallelism)}"
    kills = [f"--kill={task}@{KILL_FIRST_S + number * KILL_EVERY_S:.3f}" for number in range(count)]
    report = job(point, records, kills)
    cpu_s = report["cpu_s"] - _idle_s(point.parallelism, point.depth)
    figures = {"rps": float(report["throughput_rps"]), "cpu_us": max(0.0, cpu_s) / records * 1e6}
    if kills:
        times = [each["first_output_ms"] for each in report["recoveries"] if each["first_output_ms"] is not None]
        if not times:
            raise runs.RunFailed("the job ended before the first kill; give --failing more seconds")
        return figures | {"first_output_ms": sum(times) / len(times)}
    tasks = report["tasks"].values()
    figures["wire"] = sum(task["delta_bytes"] for task in tasks) / records
    if report["checkpoints"]:
        figures["checkpoint_bytes"] = sum(task.get("snapshot_bytes", 0) for task in tasks) / report["checkpoints"]
    return figures


@cache
def _idle_s(parallelism: int, depth: int) -> float:
    """CPU time of a job of so many tasks that has nothing to do."""
    return float(job(Point(parallelism=parallelism, depth=depth), IDLE_RECORDS, ())["cpu_s"])


def job(point: Point, records: int, kills: Sequence[str]) -> dict[str, Any]:
    """The report of one job.

    Raises:
        RunFailed: it failed, or its output is not exactly once.
    """
    settings = {name: getattr(point, name) for name in ("parallelism", "depth", "keys", "skew", "record_bytes")}
    guarantee = "--guarantee=none" if point.sharing == "none" else f"--sharing-depth={point.sharing}"
    report = runs.job(
        PIPELINE,
        {"count": records, **settings},
        [guarantee, f"--checkpoint-interval={point.interval_s}", *kills],
        {"batch_elements_max": point.batch_elements_max},
        lambda out, report: matrix_count.check(out, point.skew, point.keys, records),
        LIMIT_S,
    )
    if report["checked"] != {"rows": records, "lost": 0, "doubled": 0, "contradicted": 0}:
        raise runs.RunFailed(f"the output of {records} records is not exactly once: {report['checked']}")
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
