"""The goals table: every figure that is aimed at, what was measured, and whether that meets it.

A row looks into the result of one benchmark, whatever run of it is there; a row without a result says so.  What is
`met` is decided from the numbers, never typed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
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


@dataclass(frozen=True)
class Goal:
    """One row: `at_most` or `at_least` this much.

    Args:
        section: of `docs/figures.md`.
        benchmark: the name of the result that has the figures.
        figures: their names; of several, the row is that whose median is highest.
        which: value of the figure that is judged.
        read: what the row says where it is no figure.
    """

    section: str
    text: str
    goal: str
    benchmark: str
    figures: Sequence[str] = ()
    at_least: float | None = None
    at_most: float | None = None
    which: str = "median"
    read: Callable[[Result], Measured] | None = None

    def measured(self, result: Result) -> Measured:
        """Return the answer of a result.

        Raises:
            LookupError: the result lacks the figure.
        """
        if self.read is not None:
            return self.read(result)
        highest = max((result["figures"][name] for name in self.figures), key=lambda each: float(each["median"]))
        return _of(highest, self.which)

    def met(self, measured: Measured) -> bool:
        """Return whether the median (or the percentile that the row is about) meets it."""
        return (self.at_least is None or measured.value >= self.at_least) and (
            self.at_most is None or measured.value <= self.at_most
        )


def _of(figure: Mapping[str, Any], which: str = "median") -> Measured:
    return Measured(float(figure[which]), float(figure["min"]), float(figure["max"]), len(figure["runs"]))


def disturbed(result: Result) -> Measured:
    """Count the places where a kill shows in tasks that do not depend on the dead one."""
    count = float(len(result["told_apart"]))
    return Measured(count, count, count, int(result["settings"]["kills"]))


def per_changed_key(result: Result) -> Measured:
    """Return bytes that a checkpoint writes ÷ keys that can have changed since the one before."""
    settings = result["settings"]
    changed = min(settings["changed_keys"], settings["records_per_s"] * settings["checkpoint_interval_s"])
    written = _of(result["figures"]["snapshot_bytes_per_checkpoint"])
    return Measured(written.value / changed, written.low / changed, written.high / changed, written.runs)


def wrong_after_losses(result: Result) -> Measured:
    """Count the rows that were wrong after all losses of hosts together."""
    output = result["output"]
    count = float(sum(output[name] for name in ("lost", "doubled", "contradicted", "visible_contradicted")))
    return Measured(count, count, count, int(result["losses"]))


def least(*figures: str) -> Callable[[Result], Measured]:
    """Read the figure with the lowest median of several."""

    def read(result: Result) -> Measured:
        return _of(min((result["figures"][name] for name in figures), key=lambda each: float(each["median"])))

    return read


def peak_over_before(result: Result) -> Measured:
    """Return the highest peak of memory of an ordinary workload ÷ what it was on 22 November 2026."""
    peaks = {name: _of(result["figures"][f"{name}.ours_peak_mib"]) for name in BEFORE_MIB}
    worst = max(peaks, key=lambda name: peaks[name].value / BEFORE_MIB[name])
    peak, before = peaks[worst], BEFORE_MIB[worst]
    return Measured(peak.value / before, peak.low / before, peak.high / before, peak.runs)


ORDINARY = ("profile", "windows", "sliding", "join", "sessions", "words", "running", "as_of")
BEFORE_MIB = {"windows": 326.0, "sliding": 363.0, "join": 759.0, "sessions": 390.0, "words": 314.0}
BAD = ("hot_key", "giant_record", "tiny_batches", "slow_operator", "slow_sink")
RUNS_MIN = 5
"""A row of fewer runs is marked: one more could turn it."""
CHANGED_KEY_BYTES_MAX = 200.0
"""A key, its count and its place, a few times over; a million keys would be thousands per key that changed."""

GOALS: Sequence[Goal] = (
    Goal(
        "recovery", "kill -9 → first new output, ms, median", "≤ 50", "recovery", ("first_output_ms",), at_most=50,
    ),
    Goal("recovery", "the same, p99", "≤ 150", "recovery", ("first_output_ms",), at_most=150, which="p99"),
    Goal(
        "recovery", "the same with 1,000,000 keys, ms, median", "≤ 80", "state", ("first_output_ms",), at_most=80,
    ),
    Goal(
        "recovery", "with hot standbys: kill -9 → first new output, ms, median", "≤ 10", "recovery_hot",
        ("first_output_ms",), at_most=10,
    ),
    Goal(
        "recovery", "the same with hot standbys, p99", "≤ 25", "recovery_hot", ("first_output_ms",), at_most=25,
        which="p99",
    ),
    Goal(
        "recovery", "at full throttle: kill -9 → first new output, ms, median", "≤ 150", "recovery_full",
        ("first_output_ms",), at_most=150,
    ),
    Goal(
        "recovery", "the same, a checkpoint each 5 s and `replay_target_ms` 200, ms, median", "≤ 150",
        "recovery_bounded", ("first_output_ms",), at_most=150,
    ),
    Goal(
        "recovery", "at 80 % of full throttle, with hot standbys, ms, median", "≤ 60", "recovery_hot_full",
        ("first_output_ms",), at_most=60,
    ),
    Goal(
        "isolation", "seconds after a kill in which output gaps of independent tasks can be distinguished from noise",
        "0", "isolation", at_most=0, read=disturbed,
    ),
    Goal(
        "latency back", "kill -9 → latency back within 10 %, ms, median", "≤ 500", "latency_back", ("back_ms",),
        at_most=500,
    ),
    Goal("latency back", "the same ÷ the replayed interval", "≤ 2", "latency_back", ("over_replayed",), at_most=2),
    Goal(
        "latency", "latency at 50 documents/s, causal ÷ none: the worst of p50, p75, p95, p99", "≤ 1.1", "latency",
        [f"causal_over_none.{name}" for name in ("p50", "p75", "p95", "p99")], at_most=1.1,
    ),
    Goal(
        "latency", "its median, causal: 1,000 ms between checkpoints ÷ 50 ms", "independent: ≤ 1.1", "latency",
        ("causal.p50_1000_over_50",), at_most=1.1,
    ),
    Goal(
        "latency", "its p99, causal, ms: the worst of 50, 500, 1,000 ms between checkpoints", "≤ 50", "latency",
        [f"causal.{interval_ms}.p99_ms" for interval_ms in (50, 500, 1000)], at_most=50,
    ),
    Goal(
        "latency", "its median, epoch: 1,000 ms between checkpoints ÷ 50 ms", "shows the interval: ≥ 2", "latency",
        ("epoch.p50_1000_over_50",), at_least=2,
    ),
    Goal(
        "latency", "PyFlink, exactly once, ÷ ours at 10 documents/s, median: the least of 50, 500, 1,000 ms", "≥ 1",
        "latency_flink", at_least=1,
        read=least(*(f"pyflink_over_causal.{interval_ms}.p50" for interval_ms in (50, 500, 1000))),
    ),
    Goal(
        "throughput", "efficiency: end-to-end records/s ÷ (cores × bare job)", "≥ 0.80", "throughput",
        ("causal_full_efficiency",), at_least=0.80,
    ),
    Goal(
        "throughput", "causal f = 1 ÷ none, records/s", "≥ 0.98", "throughput", ("causal_f1_over_none",),
        at_least=0.98,
    ),
    Goal(
        "throughput", "causal f = 1 ÷ at-least-once with the same checkpoints, records/s", "≥ 0.98", "throughput",
        ("causal_f1_over_at_least_once",), at_least=0.98,
    ),
    Goal(
        "throughput", "source → store at full throttle, full sharing, ms, median", "≤ 50", "throughput",
        ("causal_full_p50_ms",), at_most=50,
    ),
    Goal(
        "overhead", "causal full on a 5-deep graph ÷ none, records/s", "≥ 0.95", "overhead",
        ("causal_full_over_none",), at_least=0.95,
    ),
    Goal(
        "overhead", "the same in CPU time, which other work hardly changes", "≤ 1.05", "overhead",
        ("causal_full_cpu_over_none",), at_most=1 / 0.95,
    ),
    Goal(
        "overhead", "p99 latency at half load, causal ÷ none", "≤ 1.10", "overhead", ("causal_full_p99_over_none",),
        at_most=1.10,
    ),
    Goal(
        "spark", "a line that Spark is sent → the operator, at a trigger of 0, ms, median", "≤ 120", "spark",
        ("ours.p50_ms",), at_most=120,
    ),
    Goal(
        "spark", "command → first row, ÷ PySpark alone", "≤ 1.3", "spark", ("ready_over_bare",), at_most=1.3,
    ),
    Goal(
        "determinants", "determinant bytes per record at load, logged", "≤ 0.05", "determinants",
        ("keyed_count_load_full.logged",), at_most=0.05,
    ),
    Goal(
        "determinants", "the same, on the wire", "≤ 0.05", "determinants", ("keyed_count_load_full.wire",),
        at_most=0.05,
    ),
    Goal(
        "determinants", "determinant bytes per record at 1 record per batch, logged by all tasks", "≤ 4",
        "determinants", ("keyed_count_single_full.logged",), at_most=4,
    ),
    Goal(
        "determinants", "the same, on the wire, over all channels", "≤ 4", "determinants",
        ("keyed_count_single_full.wire",), at_most=4,
    ),
    Goal(
        "checkpoint", "checkpoint of 1,000,000 keys, 1 % changed: bytes per changed key", "proportional: ≤ 200",
        "state", at_most=CHANGED_KEY_BYTES_MAX, read=per_changed_key,
    ),
    Goal(
        "checkpoint", "the same: latency p99.99 of rows meanwhile, ms (holds every pause of the task)", "≤ 20",
        "state", ("latency_p9999_ms",), at_most=20,
    ),
    Goal(
        "checkpoint", "1 MB to 10 GB of state: kill -9 → first new output, the slowest size ÷ the fastest", "≤ 2",
        "state_sizes", ("failover_spread",), at_most=2,
    ),
    Goal("memory", "memory of a task beyond state and budget, MiB", "≤ 60", "memory", ("task_mib",), at_most=60),
    Goal("memory", "memory of a standby, MiB", "≤ 60", "memory", ("standby_mib",), at_most=60),
    Goal(
        "memory", "bad input, killed: memory of a task ÷ what its budgets allow, the worst of five kinds", "≤ 1",
        "bad_input", [f"{name}_killed.memory_share" for name in BAD], at_most=1,
    ),
    Goal(
        "hosts", "every process of a host killed → first new output of the last of its tasks, ms, median", "≤ 150",
        "hosts", ("killed.first_output_ms",), at_most=150,
    ),
    Goal(
        "hosts", "every process of a host killed, p99", "≤ 400", "hosts", ("killed.first_output_ms",), at_most=400,
        which="p99",
    ),
    Goal(
        "hosts", "a host cut off silently, time-out 1,000 ms → the same, ms, median", "≤ 1,500", "hosts",
        ("cut.first_output_ms",), at_most=1500,
    ),
    Goal(
        "hosts", "a host cut off silently, p99", "≤ 2,000", "hosts", ("cut.first_output_ms",), at_most=2000,
        which="p99",
    ),
    Goal(
        "hosts", "the supervisor's host and a task killed → first new output of the task, ms, median", "≤ 8,000",
        "hosts", ("supervisor.promotion_ms",), at_most=8000,
    ),
    Goal(
        "hosts", "longest gap in the output of the other tasks meanwhile, beyond the one before, ms", "0; noise ≤ 50",
        "hosts", ("supervisor.extra_gap_ms",), at_most=50,
    ),
    Goal(
        "hosts", "records/s, TCP with CURVE ÷ ipc on every channel, keyed count", "≥ 0.85", "hosts",
        ("count.curve_over_ipc",), at_least=0.85,
    ),
    Goal(
        "hosts", "records/s, TCP with CURVE ÷ ipc on every channel, ordinary records", "≥ 0.95", "hosts",
        ("records.curve_over_ipc",), at_least=0.95,
    ),
    Goal(
        "hosts", "records/s, snapshots in a shared directory ÷ on the own disk, a checkpoint per second", "≥ 0.97",
        "hosts", ("store.directory_over_local",), at_least=0.97,
    ),
    Goal(
        "hosts", "records/s, snapshots in S3 (its server on the same cores) ÷ on the own disk", "≥ 0.97", "hosts",
        ("store.s3_over_local",), at_least=0.97,
    ),
    Goal("hosts", "cores of the supervisor for 100 idle hosts", "< 0.1", "hosts", ("agents.cores",), at_most=0.1),
    Goal(
        "hosts", "rows lost, doubled, contradicted or changed after they were visible; runs: losses of hosts", "0",
        "host_losses", at_most=0, read=wrong_after_losses,
    ),
    Goal(
        "dashboard", "`causal ui` → the browser paints the page, ms, median", "< 300", "ui", ("first_paint_ms",),
        at_most=300,
    ),
    Goal(
        "dashboard", "cores of the dashboard while a page shows 200 tasks, twice a second", "< 0.05", "ui",
        ("cores_at_200_tasks",), at_most=0.05,
    ),
    Goal(
        "dashboard", "CPU time of watching ÷ CPU time of the job, keyed count at full speed", "< 0.01", "ui",
        ("watching_over_job",), at_most=0.01,
    ),
    Goal(
        "quiet", "cores of an idle job: five tasks, five standbys, a supervisor", "≤ 0.025", "quiet",
        ("causal.0.cores",), at_most=0.025,
    ),
    Goal("quiet", "cores at 1,000 records/s", "≤ 0.12", "quiet", ("causal.1000.cores",), at_most=0.12),
    Goal("quiet", "latency at 1,000 records/s, median, ms", "≤ 4", "quiet", ("causal.1000.p50_ms",), at_most=4),
    Goal("quiet", "latency at 2,000 records/s, p99, ms", "≤ 8", "quiet", ("causal.2000.p99_ms",), at_most=8),
    Goal("quiet", "`causal run` → the first row is visible, s", "≤ 0.8", "quiet", ("causal.1000.first_row_s",),
         at_most=0.8),
    Goal(
        "vectors", "keyed count on Arrow ÷ rows, CPU of the chains", "≥ 5", "vectors", ("chains_ratio",), at_least=5,
    ),
    Goal("vectors", "the same, whole jobs", "≥ 5", "vectors", ("job_ratio",), at_least=5),
    Goal(
        "peers", "records/s ÷ Bytewax, keyed count", "≥ 7", "peers", ("count.bytewax.ratios.rps",), at_least=7,
    ),
    Goal(
        "peers", "documents/s ÷ Bytewax, inverted index", "≥ 5", "peers", ("index.bytewax.ratios.docs_per_s",),
        at_least=5,
    ),
    Goal(
        "ordinary", "records/s ÷ Bytewax's best without recovery: own operator", "≥ 3", "ordinary",
        ("profile.ratio",), at_least=3,
    ),
    Goal("ordinary", "the same, tumbling windows", "≥ 4", "ordinary", ("windows.ratio",), at_least=4),
    Goal("ordinary", "the same, sliding windows", "≥ 3", "ordinary", ("sliding.ratio",), at_least=3),
    Goal("ordinary", "the same, sessions", "≥ 3", "ordinary", ("sessions.ratio",), at_least=3),
    Goal("ordinary", "the same, interval join", "≥ 1.5", "ordinary", ("join.ratio",), at_least=1.5),
    Goal("ordinary", "the same, word count with `Global()` and `Count()`", "≥ 2", "ordinary", ("words.ratio",),
         at_least=2),
    Goal("ordinary", "the same, word count with `.count`", "≥ 2", "ordinary", ("running.ratio",), at_least=2),
    Goal(
        "ordinary", "own operator: records/s ÷ (cores × bare user code)", "≥ 0.95", "ordinary",
        ("profile.efficiency",), at_least=0.95,
    ),
    Goal(
        "ordinary", "causal ÷ none, records/s: the worst of the eight workloads", "≥ 0.97", "ordinary", at_least=0.97,
        read=least(*(f"{name}.over_none" for name in ORDINARY)),
    ),
    Goal(
        "ordinary", "peak memory ÷ that of 22 November 2026: the worst of windows, join, sessions and words", "≤ 0.5",
        "ordinary", at_most=0.5, read=peak_over_before,
    ),
)  # fmt: skip


def bounds(name: str) -> dict[str, float]:
    """Return the goals of the medians of a result's figures, for its chart."""
    goals = [goal for goal in GOALS if goal.benchmark == name and goal.which == "median"]
    limits = ((goal, goal.at_most if goal.at_least is None else goal.at_least) for goal in goals)
    return {figure: limit for goal, limit in limits if limit is not None for figure in goal.figures}


def judged(results: Mapping[str, Result], problems: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return all rows as JSON has them.

    Args:
        results: by name, those that are there.
        problems: why others are not.
    """
    return [_row(goal, results.get(goal.benchmark), problems) for goal in GOALS]


def _row(goal: Goal, result: Result | None, problems: Mapping[str, str]) -> dict[str, Any]:
    row: dict[str, Any] = {"figure": goal.text, "goal": goal.goal, "benchmark": goal.benchmark}
    if result is None:
        return row | {"problem": problems.get(goal.benchmark, "not measured")}
    part = _pair(goal, result) if "pairs" in result else result
    try:
        measured = goal.measured(result)
    except LookupError as problem:
        reasons = "; ".join(part.get("problems", ())) if part is not result else ""
        return row | {"problem": f"the result has no such figure: {reasons or problem}"}
    where = {"command": part["command"], "origin": origin(part if origin_of(part) else result)}
    return row | asdict(measured) | where | {"met": goal.met(measured)}


def _pair(goal: Goal, result: Result) -> Result:
    """Return the pair of ours and a peer that a figure `WORKLOAD.PEER.…` is of; the result if it has none."""
    names = tuple(goal.figures[0].split(".")[:2])
    return next((pair for pair in result["pairs"] if (pair["workload"], pair["peer"]) == names), result)


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the rows for a page, and below them the commands that repeat them."""
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
    return "\n".join([*lines, "", *repeated(row for row in rows if "command" in row)]).rstrip()


def repeated(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a line per command that repeats some of the rows, with when and on which tree it was run."""
    return [f"* {line}" for line in dict.fromkeys(f"`{row['command']}`: {row['origin']}" for row in rows)]


def spread(row: Mapping[str, Any]) -> str:
    """Return the value of a row with the least and the highest of its runs, where they differ."""
    value, low, high = (shown(row[name]) for name in ("value", "low", "high"))
    return value if low == high else f"{value} [{low}–{high}]"


def shown(value: float) -> str:
    """Three figures that count."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.4f}".rstrip("0").rstrip(".") if value < 0.1 else f"{value:.3g}"


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return one line for a person."""
    missed = [row["figure"] for row in rows if row.get("met") is False]
    absent = [row["figure"] for row in rows if "problem" in row]
    text = f"{sum(row.get('met', False) for row in rows)} of {len(rows)} goals met"
    text += f"\nmissed: {'; '.join(missed)}" if missed else ""
    return text + (f"\nnot measured: {'; '.join(absent)}" if absent else "")
