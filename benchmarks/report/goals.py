"""The goals table: every figure that is aimed at, what was measured, and whether that meets it.

The goals are the rows of `goals.csv`.  A row looks into the result of one benchmark, whatever run of it is there; a row
without a result says so.  Whether it is met is decided from the numbers, never typed.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
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
    """One row of `goals.csv`.

    Args:
        section: of `docs/figures.md`.
        benchmark: the name of the result that has the figures.
        figures: one name, or several with spaces between them, of which the worst counts; `:p99` after them if that
            percentile is judged instead of the median.  A name in parentheses is one of `READERS`.
        goal: as the table shows it; it ends with the number that is the limit.
        text: what the row is called.
    """

    section: str
    benchmark: str
    figures: str
    goal: str
    text: str

    @property
    def names(self) -> list[str]:
        """The names of the figures; none where a reader makes the answer."""
        return [] if self.figures.startswith("(") else self.figures.partition(":")[0].split()

    @property
    def which(self) -> str:
        """The value of the figure that is judged."""
        return self.figures.partition(":")[2] or "median"

    @property
    def limit(self) -> float:
        """The number that is just met."""
        return float(self.goal.rpartition(" ")[2].replace(",", ""))

    @property
    def high_is_good(self) -> bool:
        """Whether the limit is the least instead of the most."""
        return "≥" in self.goal

    def measured(self, result: Result) -> Measured:
        """Return the answer of a result.

        Raises:
            LookupError: the result lacks the figure.
        """
        if not self.names:
            return READERS[self.figures.strip("()")](result)
        every = [_of(result["figures"][name], self.which) for name in self.names]
        return (min if self.high_is_good else max)(every, key=lambda each: each.value)

    def met(self, measured: Measured) -> bool:
        """Return whether the median (or the percentile that the row is about) meets it."""
        return measured.value >= self.limit if self.high_is_good else measured.value <= self.limit


def _of(figure: Mapping[str, Any], which: str = "median") -> Measured:
    return Measured(float(figure[which]), float(figure["min"]), float(figure["max"]), len(figure["runs"]))


def disturbed(result: Result) -> Measured:
    """Count the places where a kill shows in tasks that do not depend on the dead one."""
    count = float(len(result["told_apart"]))
    return Measured(count, count, count, int(result["settings"]["kills"]))


def per_changed_key(result: Result) -> Measured:
    """Return bytes that a checkpoint writes ÷ keys that can have changed since the one before.

    The limit is a key, its count and its place, a few times over; a million keys would be thousands per key that
    changed.
    """
    settings = result["settings"]
    changed = min(settings["changed_keys"], settings["records_per_s"] * settings["checkpoint_interval_s"])
    written = _of(result["figures"]["snapshot_bytes_per_checkpoint"])
    return Measured(written.value / changed, written.low / changed, written.high / changed, written.runs)


def wrong_after_losses(result: Result) -> Measured:
    """Count the rows that were wrong after all losses of hosts together."""
    output = result["output"]
    count = float(sum(output[name] for name in ("lost", "doubled", "contradicted", "visible_contradicted")))
    return Measured(count, count, count, int(result["losses"]))


def peak_over_before(result: Result) -> Measured:
    """Return the highest peak of memory of an ordinary workload ÷ what it was on 22 November 2026."""
    peaks = {name: _of(result["figures"][f"{name}.ours_peak_mib"]) for name in BEFORE_MIB}
    worst = max(peaks, key=lambda name: peaks[name].value / BEFORE_MIB[name])
    peak, before = peaks[worst], BEFORE_MIB[worst]
    return Measured(peak.value / before, peak.low / before, peak.high / before, peak.runs)


BEFORE_MIB = {"windows": 326.0, "sliding": 363.0, "join": 759.0, "sessions": 390.0, "words": 314.0}
READERS: Mapping[str, Callable[[Result], Measured]] = {
    each.__name__: each for each in (disturbed, per_changed_key, wrong_after_losses, peak_over_before)
}
"""Name in the table → the function that reads an answer which is no figure."""
RUNS_MIN = 5
"""A row of fewer runs is marked: one more could turn it."""
with open(Path(__file__).with_name("goals.csv"), newline="") as _file:
    GOALS: Sequence[Goal] = [Goal(**row) for row in csv.DictReader(_file)]


def bounds(name: str) -> dict[str, float]:
    """Return the goals of the medians of a result's figures, for its chart."""
    goals = [goal for goal in GOALS if goal.benchmark == name and goal.which == "median"]
    return {figure: goal.limit for goal in goals for figure in goal.names}


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
    names = tuple(goal.figures.split(".")[:2])
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
