"""The goals table: every figure that is aimed at, what was measured, and whether that meets it.

A row looks into the result of one benchmark, whatever run of it is there; a row without a result says so.  What is
`met` is decided from the numbers, never typed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from benchmarks.harness.measured import origin, origin_of

Result = Mapping[str, Any]
"""The result of one benchmark."""


@dataclass(frozen=True)
class Measured:
    """One row's answer."""

    value: float
    low: float
    high: float
    runs: int
    command: str = ""
    """The command, where it is not that of the whole result."""
    origin: str = ""
    """The origin, where it is not that of the whole result."""


@dataclass(frozen=True)
class Goal:
    """One row: `at_most` or `at_least` this much."""

    text: str
    goal: str
    benchmark: str
    """The name of the result that has the figure."""
    read: Callable[[Result], Measured]
    at_least: float | None = None
    at_most: float | None = None

    def met(self, measured: Measured) -> bool:
        """Whether the median (or the percentile that the row is about) meets it."""
        return (self.at_least is None or measured.value >= self.at_least) and (
            self.at_most is None or measured.value <= self.at_most
        )


def median(name: str) -> Callable[[Result], Measured]:
    """The median of a figure."""
    return lambda result: _of(result["figures"][name])


def percentile(name: str, which: str) -> Callable[[Result], Measured]:
    """Another value of a figure, say p99."""
    return lambda result: _of(result["figures"][name], which)


def _of(figure: Mapping[str, Any], which: str = "median") -> Measured:
    return Measured(float(figure[which]), float(figure["min"]), float(figure["max"]), len(figure["runs"]))


def pair(workload: str, name: str) -> Callable[[Result], Measured]:
    """A ratio to Bytewax."""

    def read(result: Result) -> Measured:
        chosen = next(p for p in result["pairs"] if (p["workload"], p["peer"]) == (workload, "bytewax"))
        if name not in chosen.get("ratios", {}):
            raise LookupError(f"no figures: {'; '.join(chosen['problems'])}")
        at = origin(chosen) if origin_of(chosen) else ""
        return replace(_of(chosen["ratios"][name]), command=chosen["command"], origin=at)

    return read


def told_from_noise(result: Result) -> Measured:
    """Counts the places where a kill shows in tasks that do not depend on the dead one."""
    count = float(len(result["told_apart"]))
    return Measured(count, count, count, int(result["settings"]["kills"]))


def per_changed_key(result: Result) -> Measured:
    """Bytes that a checkpoint writes ÷ keys that can have changed since the one before."""
    settings = result["settings"]
    changed = min(settings["changed_keys"], settings["records_per_s"] * settings["checkpoint_interval_s"])
    written = _of(result["figures"]["snapshot_bytes_per_checkpoint"])
    return Measured(written.value / changed, written.low / changed, written.high / changed, written.runs)


def worst(*names: str) -> Callable[[Result], Measured]:
    """Reads that of several figures whose median is highest."""
    return lambda result: _of(max((result["figures"][name] for name in names), key=lambda each: float(each["median"])))


BAD = ("hot_key", "giant_record", "tiny_batches", "slow_operator", "slow_sink")
RUNS_MIN = 5
"""A row of fewer runs is marked: one more could turn it."""
CHANGED_KEY_BYTES_MAX = 200.0
"""A key, its count and its place, a few times over; a million keys would be thousands per key that changed."""

GOALS: Sequence[Goal] = (
    Goal(
        "efficiency: end-to-end records/s ÷ (cores × bare job)",
        "≥ 0.80", "throughput", median("causal_full_efficiency"), at_least=0.80,
    ),
    Goal("records/s ÷ Bytewax, keyed count", "≥ 7", "peers", pair("count", "rps"), at_least=7),
    Goal("documents/s ÷ Bytewax, inverted index", "≥ 5", "peers", pair("index", "docs_per_s"), at_least=5),
    Goal("causal f = 1 ÷ none, records/s", "≥ 0.98", "throughput", median("causal_f1_over_none"), at_least=0.98),
    Goal(
        "causal full on a 5-deep graph ÷ none, records/s",
        "≥ 0.95", "overhead", median("causal_full_over_none"), at_least=0.95,
    ),
    Goal(
        "the same in CPU time, which other work hardly changes",
        "≤ 1.05", "overhead", median("causal_full_cpu_over_none"), at_most=1 / 0.95,
    ),
    Goal(
        "p99 latency at half load, causal ÷ none", "≤ 1.10", "overhead", median("causal_full_p99_over_none"),
        at_most=1.10,
    ),
    Goal(
        "determinant bytes per record at load, logged", "≤ 0.05", "determinants",
        median("keyed_count_load_full.logged"), at_most=0.05,
    ),
    Goal(
        "the same, on the wire", "≤ 0.05", "determinants", median("keyed_count_load_full.wire"), at_most=0.05,
    ),
    Goal(
        "determinant bytes per record at 1 record per batch, logged by all tasks", "≤ 4", "determinants",
        median("keyed_count_single_full.logged"), at_most=4,
    ),
    Goal(
        "the same, on the wire, over all channels", "≤ 4", "determinants", median("keyed_count_single_full.wire"),
        at_most=4,
    ),
    Goal(
        "kill -9 → first new output, ms, median", "≤ 50", "recovery", median("first_output_ms"), at_most=50,
    ),
    Goal("the same, p99", "≤ 150", "recovery", percentile("first_output_ms", "p99"), at_most=150),
    Goal(
        "the same with 1,000,000 keys, ms, median", "≤ 80", "state", median("first_output_ms"), at_most=80,
    ),
    Goal(
        "seconds after a kill in which output gaps of independent tasks can be distinguished from noise",
        "0", "isolation", told_from_noise, at_most=0,
    ),
    Goal("kill -9 → latency back within 10 %, ms, median", "≤ 500", "latency_back", median("back_ms"), at_most=500),
    Goal("the same ÷ the replayed interval", "≤ 2", "latency_back", median("over_replayed"), at_most=2),
    Goal("memory of a task beyond state and budget, MiB", "≤ 60", "memory", median("task_mib"), at_most=60),
    Goal("memory of a standby, MiB", "≤ 60", "memory", median("standby_mib"), at_most=60),
    Goal(
        "checkpoint of 1,000,000 keys, 1 % changed: bytes per changed key", "proportional: ≤ 200", "state",
        per_changed_key, at_most=CHANGED_KEY_BYTES_MAX,
    ),
    Goal(
        "the same: latency p99.99 of rows meanwhile, ms (holds every pause of the task)", "≤ 20", "state",
        median("latency_p9999_ms"), at_most=20,
    ),
    Goal(
        "latency at 50 documents/s, causal ÷ none: the worst of p50, p75, p95, p99", "≤ 1.1", "latency",
        worst(*(f"causal_over_none.{name}" for name in ("p50", "p75", "p95", "p99"))), at_most=1.1,
    ),
    Goal(
        "its median, causal: 1,000 ms between checkpoints ÷ 50 ms", "independent: ≤ 1.1", "latency",
        median("causal.p50_1000_over_50"), at_most=1.1,
    ),
    Goal(
        "its p99, causal, ms: the worst of 50, 500, 1,000 ms between checkpoints", "≤ 50", "latency",
        worst(*(f"causal.{interval_ms}.p99_ms" for interval_ms in (50, 500, 1000))), at_most=50,
    ),
    Goal(
        "its median, epoch: 1,000 ms between checkpoints ÷ 50 ms", "shows the interval: ≥ 2", "latency",
        median("epoch.p50_1000_over_50"), at_least=2,
    ),
    Goal(
        "bad input, killed: memory of a task ÷ what its budgets allow, the worst of five kinds", "≤ 1", "bad_input",
        worst(*(f"{name}_killed.memory_share" for name in BAD)), at_most=1,
    ),
    Goal("keyed count on Arrow ÷ rows, CPU of the chains", "≥ 5", "vectors", median("chains_ratio"), at_least=5),
    Goal("the same, whole jobs", "≥ 5", "vectors", median("job_ratio"), at_least=5),
)  # fmt: skip


def judged(results: Mapping[str, Result], problems: Mapping[str, str]) -> list[dict[str, Any]]:
    """All rows as JSON has them.

    Args:
        results: by name, those that are there.
        problems: why others are not.
    """
    rows = []
    for goal in GOALS:
        row: dict[str, Any] = {"figure": goal.text, "goal": goal.goal, "benchmark": goal.benchmark}
        result = results.get(goal.benchmark)
        if result is None:
            rows.append(row | {"problem": problems.get(goal.benchmark, "not measured")})
            continue
        try:
            measured = goal.read(result)
        except (LookupError, StopIteration) as problem:
            rows.append(row | {"problem": f"the result has no such figure: {problem}"})
            continue
        judgement = asdict(measured) | {
            "command": measured.command or result["command"],
            "origin": measured.origin or origin(result),
        }
        rows.append(row | judgement | {"met": goal.met(measured)})
    return rows


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns the rows for a page, and below them the commands that repeat them."""
    lines = ["| figure | goal | measured [min–max] | runs | |", "|---|---|---:|---:|---|"]
    for row in rows:
        if "problem" in row:
            problem = row["problem"].replace("|", "/")
            lines.append(f"| {row['figure']} | {row['goal']} | | | {problem} |")
            continue
        met = {True: "met", False: "**missed**", None: ""}[row["met"]]
        if row["met"] is not None and row["runs"] < RUNS_MIN:
            met += " (few runs)"
        lines.append(f"| {row['figure']} | {row['goal']} | {spread(row)} | {row['runs']:,} | {met} |")
    return "\n".join([*lines, "", *repeated(row for row in rows if "command" in row)])


def repeated(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """A line per command that repeats some of the rows, with when and on which tree it was run."""
    return [f"* {line}" for line in dict.fromkeys(f"`{row['command']}`: {row['origin']}" for row in rows)]


def spread(row: Mapping[str, Any]) -> str:
    """Returns the value of a row with the least and the highest of its runs, where they differ."""
    value, low, high = (shown(row[name]) for name in ("value", "low", "high"))
    return value if low == high else f"{value} [{low}–{high}]"


def shown(value: float) -> str:
    """Three figures that count."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.4f}".rstrip("0").rstrip(".") if value < 0.1 else f"{value:.3g}"


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """One line for a person."""
    missed = [row["figure"] for row in rows if row.get("met") is False]
    absent = [row["figure"] for row in rows if "problem" in row]
    text = f"{sum(row.get('met', False) for row in rows)} of {len(rows)} goals met"
    text += f"\nmissed: {'; '.join(missed)}" if missed else ""
    return text + (f"\nnot measured: {'; '.join(absent)}" if absent else "")
