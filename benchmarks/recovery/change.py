"""Changes of a job, with a stop and while it runs: how long no row comes, and how fast a rollback is there.

In turn the counting operator gets 4 tasks and again 2, the job gets other code, and, --later seconds afterwards, is
rolled back.  *wider*, *narrower*, *upgrade*: `gap_ms` is the longest time in which no row of one of four parts of the
keys became visible, from the moment of the command until every standby was ready again, and a second; the parts are
those of 4 tasks, so that one task which stops alone is seen.  `apart_gap_ms` is the same of an operator with its own
source and sink, `calm_ms` and `apart_calm_ms` of the --calm seconds before; *apart* compares them as `isolation` does.
*rollback*: `first_row_s` from the command until the first row of the old version, `again_rps` how fast the withdrawn
rows were there again.  `stop_s` is what `causal savepoint --stop` and the end of the job take, `command_s` a command.
All rows are checked; those that rollbacks withdraw are counted.
"""

from __future__ import annotations

import tempfile
import time
from argparse import Namespace
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.harness.declared import CAUSAL, Benchmark, Measurement, Option, some_of
from benchmarks.harness.measured import figure, longest_gap_ms
from benchmarks.harness.runs import RunFailed
from benchmarks.harness.written import records_from
from benchmarks.jobs.changing_ledger import Row, tasks_of
from benchmarks.jobs.stamped_sink import Stamp
from benchmarks.recovery.changing_job import ChangingJob, changing_job
from benchmarks.recovery.isolation import bootstrap, chance
from causal.config import JobConfig
from operators.records.keys import key_group, task_of_group

MODES = ("running", "stop")
NARROW, WIDE = 2, 4
AFTER_S = 1.0
LAST_NS = 500_000_000
"""The time at the end of a change whose rows must be those of the new version, by all of its tasks and no other."""
OPTIONS = (
    Option("changes", 20, "of each kind"),
    Option("mode", ",".join(MODES), "while the job runs, with a stop", some_of(MODES)),
    Option("kinds", "rescale,upgrade", "an upgrade is also rolled back", some_of(("rescale", "upgrade"))),
    Option("rate", 5000, "records per second", setting="records_per_s"),
    Option("rate_apart", 1000, "of the operator that is not changed", setting="records_per_s_apart"),
    Option("keys", 100_000),
    Option("later", 10.0, "seconds from an upgrade to its rollback", setting="later_s"),
    Option("calm", 5.0, "seconds before each change", setting="calm_s"),
    Option("checkpoint_interval", 1.0, "seconds", setting="checkpoint_interval_s"),
)


def _measure(run: Measurement) -> None:
    outputs = []
    for mode in run.options.mode:
        with tempfile.TemporaryDirectory(prefix="causal-bench-") as name:
            outputs.append(_changed(run, mode, Path(name)))
        run.figures |= apart(run.all_runs(), mode)
    output = {name: sum(each[name] for each in outputs) for name in outputs[0]}
    if output["lost"] or output["doubled"] or output["contradicted"]:
        raise RunFailed(f"the output is not exactly once: {output}")
    run.more["output"] = output


def _changed(run: Measurement, mode: str, place: Path) -> dict[str, int]:
    """Change a job as often as it is asked for; returns what became of its rows."""
    options, withdrawn = run.options, 0
    settings = {name: getattr(options, name) for name in ("rate", "rate_apart", "keys")}
    with changing_job(place, settings, (f"--checkpoint-interval={options.checkpoint_interval}",)) as job:
        job.until_rows("every key has come", lambda: job.counted.rows >= options.keys)
        for number in range(1, options.changes + 1):
            for kind, figures in _round(options, job, mode == "running"):
                run.add_all(f"{mode}.{kind}.", figures)
                withdrawn += int(figures.get("withdrawn_rows", 0))
                shown = ", ".join(f"{name} {value:,.4g}" for name, value in figures.items())
                run.report(f"{mode} {number}, {kind}: {shown}")
            job.forget_savepoints()
        return {**job.end(), "withdrawn": withdrawn}


def _round(options: Namespace, job: ChangingJob, running: bool) -> Iterator[tuple[str, dict[str, float]]]:
    """Make one change of each kind; yields the kind and its figures."""
    if "rescale" in options.kinds:
        for kind, tasks in (("wider", WIDE), ("narrower", NARROW)):
            yield kind, _Change(job, options.calm, partial(job.rescale, tasks, running)).gaps()
    if "upgrade" in options.kinds:
        upgrade = _Change(job, options.calm, partial(job.upgrade, running))
        yield "upgrade", upgrade.gaps()
        yield "rollback", rolled_back(job, upgrade.begins, options.later, running)


class _Change:
    """A change, once it has happened and all is as it was.

    Attributes:
        begins: the positions of the first rows of the next version, of the counting operator and of the one apart.
    """

    def __init__(self, job: ChangingJob, calm_s: float, change: Callable[[], Mapping[str, float]]) -> None:
        job.until_calm()
        time.sleep(calm_s)
        self._began_ns = time.monotonic_ns()
        self._key_groups = JobConfig.load(job.directory).key_groups
        self._calm_from_ns = self._began_ns - int(calm_s * 1e9)
        self._took_s = change()
        job.until_ready()
        time.sleep(AFTER_S)
        self._ended_ns = time.monotonic_ns()
        job.counted.look()
        job.apart.look()
        self._stamps = _since(job.counted.stamps, self._calm_from_ns)
        self._apart = _since(job.apart.stamps, self._calm_from_ns)
        self._rows: list[Row] = records_from(job.out, self._stamps[0].first)
        self.begins = self._begins(job)

    def _begins(self, job: ChangingJob) -> tuple[int, int]:
        """Return where the rows of the next version begin.

        Raises:
            RunFailed: the job is not what it was changed to.
        """
        last = self._rows[_since(self._stamps, self._ended_ns - LAST_NS)[0].first - self._stamps[0].first :]
        if {row[-1] for row in last} != {job.version} or tasks_of(last) != set(range(job.tasks)):
            raise RunFailed(
                f"the job should have version {job.version} and {job.tasks} tasks; its last rows are of version "
                f"{sorted({row[-1] for row in last})} and tasks {sorted(tasks_of(last))}"
            )
        counted = next(i for i, row in enumerate(self._rows) if row[-1] == job.version)
        apart = records_from(job.apart.database, self._apart[0].first)
        apart_first = next(i for i, row in enumerate(apart) if row[-1] == job.version)
        return self._stamps[0].first + counted, self._apart[0].first + apart_first

    def gaps(self) -> dict[str, float]:
        """Return the figures of a change that withdraws nothing."""
        parts = by_part(self._stamps, self._rows, self._key_groups)
        apart = [stamp.at_ns for stamp in self._apart]
        until_ns = self._ended_ns
        return {
            "gap_ms": max(gap_ms(moments, self._began_ns, until_ns) for moments in parts),
            "calm_ms": max(gap_ms(moments, self._calm_from_ns, self._began_ns) for moments in parts),
            "apart_gap_ms": gap_ms(apart, self._began_ns, until_ns),
            "apart_calm_ms": gap_ms(apart, self._calm_from_ns, self._began_ns),
            **self._took_s,
        }


def _since(stamps: Sequence[Stamp], from_ns: int) -> list[Stamp]:
    return list(stamps[bisect_left(stamps, from_ns, key=lambda stamp: stamp.at_ns) :])


def by_part(stamps: Sequence[Stamp], rows: Sequence[Row], key_groups: int) -> list[list[int]]:
    """Return when rows of each part of the keys became visible; a part is what one of the four tasks has.

    Args:
        rows: from the first of the stamps on.
    """
    part_of: dict[int, int] = {}
    parts: list[list[int]] = [[] for _ in range(WIDE)]
    for stamp in stamps:
        first = stamp.first - stamps[0].first
        keys = {row[0] for row in rows[first : first + stamp.count]}
        for key in keys - part_of.keys():
            part_of[key] = task_of_group(key_group(key, key_groups), WIDE, key_groups)
        for part in {part_of[key] for key in keys}:
            parts[part].append(stamp.at_ns)
    return parts


def gap_ms(moments_ns: Sequence[int], from_ns: int, until_ns: int) -> float:
    """Return the longest time without a row that ends in a stretch of time, or with it."""
    moments = [at_ns for at_ns in moments_ns if at_ns < until_ns]
    return longest_gap_ms([*moments, until_ns], from_ns, until_ns + 1)


def rolled_back(job: ChangingJob, begins: tuple[int, int], later_s: float, running: bool) -> dict[str, float]:
    """Roll an upgrade back; returns the figures.

    Args:
        begins: the positions of its first rows.

    Raises:
        RunFailed: the rows of the old version do not come.
    """
    time.sleep(later_s)
    job.until_calm()
    counted, apart = job.counted, job.apart
    counted.will_return_to(begins[0])
    apart.will_return_to(begins[1])
    began_ns = time.monotonic_ns()
    took_s = job.roll_back(running)
    job.until_rows("the old version's first row", lambda: counted.returned_ns is not None and apart.returned_ns)
    until = begins[0] + counted.withdrawn
    job.until_rows("the withdrawn rows were there again", lambda: counted.rows >= until)
    stretch = [stamp for stamp in _since(counted.stamps, counted.returned_ns or 0) if stamp.first < until]
    again_rps = sum(stamp.count for stamp in stretch[1:]) / max(1, stretch[-1].at_ns - stretch[0].at_ns) * 1e9
    return {
        "first_row_s": (stretch[0].at_ns - began_ns) / 1e9,
        "again_rps": again_rps,
        "again_over_real": again_rps / job.rate,
        "withdrawn_rows": counted.withdrawn + apart.withdrawn,
        **took_s,
    }


def apart(runs: Mapping[str, Sequence[float]], mode: str) -> dict[str, Any]:
    """Return how much longer the longest gap of the operator apart is at a change than before it, and the ratio.

    `chance` is how often gaps that are shuffled between the two differ as much.
    """
    after, before = (
        [each for name, values in runs.items() if name.startswith(mode) and name.endswith(end) for each in values]
        for end in ("apart_gap_ms", "apart_calm_ms")
    )
    if not after:
        return {}
    low, high = bootstrap(after, before)
    ratio = figure([median(after) / median(before)])
    return {
        f"{mode}.apart_extra_ms": figure([max(0.0, a - b) for a, b in zip(after, before, strict=True)], 1),
        f"{mode}.apart_ratio": {
            **ratio,
            "low": round(low, 3),
            "high": round(high, 3),
            "chance": round(chance(after, before), 4),
        },
    }


DIGITS_OF = {"_ms": 1, "_rps": 0, "_rows": 0}
BENCHMARK = Benchmark("change", OPTIONS, _measure, digits_of=DIGITS_OF, settings=CAUSAL)
