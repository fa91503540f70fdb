"""Charts of figures in rows: each run a faint dot, a line from min to max, the median a full one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import charts_style as style


@dataclass(frozen=True)
class Panel:
    """Figures of one unit.

    Args:
        figures: name in the result → what the row is called.
        goal: drawn as a line.
        several: whether the scale is logarithmic, for figures of several orders of magnitude.
    """

    unit: str
    figures: Mapping[str, str]
    goal: float | None = None
    several: bool = False


_PHASES = {
    f"{name}_ms": name.replace("_", " ") for name in ("detected", "promoted", "collected", "first_output", "live")
}
_CASES = {
    "keyed_count_load": "keyed count, load",
    "keyed_count_single": "keyed count, 1 per batch",
    "fraud_chain_load": "fraud chain, load",
    "fraud_chain_paced": "fraud chain, 2,000/s",
}
_GUARANTEES = {"none": "none", "causal_f1": "causal, f = 1", "causal_full": "causal, full"}
_SIDE_BY_SIDE = ("none", "at-least-once", "causal", "epoch")
_CHAINS = {
    "victim": "killed chain",
    "sibling": "chain of the same source",
    "stranger": "chain of another source",
}
_SINKS = {
    "sqlite": "SQLite",
    "sqlite_os": "SQLite, synced",
    "jsonlines": "JSON lines",
    "jsonlines_os": "JSON lines, synced",
    "parquet": "Parquet",
    "postgres": "PostgreSQL",
    "postgres_columns": "PostgreSQL, own columns",
    "postgres_by_copy": "(psycopg, COPY)",
    "postgres_by_executemany": "(psycopg, executemany)",
    "redis": "Redis",
    "redis_unsynced": "Redis, not synced",
}
_CAUSAL = {"causal_f1": "f = 1", "causal_full": "full"}

PANELS: Mapping[str, Sequence[Panel]] = {
    "throughput": (
        Panel("records/s", {"bare_rps": "bare job, one core", **{f"{g}_rps": n for g, n in _GUARANTEES.items()}}),
        Panel("records/s ÷ (cores × bare job)", {f"{g}_efficiency": n for g, n in _GUARANTEES.items()}, goal=0.8),
        Panel("CPU µs per record", {"bare_cpu_us": "bare job", **{f"{g}_cpu_us": n for g, n in _GUARANTEES.items()}}),
    ),
    "guarantees": (
        Panel("CPU µs per record", {f"{g}.cpu_us": g for g in _SIDE_BY_SIDE}),
        Panel("ms from element to visible row", {
            f"{g}.{name}": f"{g}, {name[:3]}" for g in _SIDE_BY_SIDE for name in ("p50_ms", "p99_ms")
        }, several=True),
        Panel("ms without a row of the killed task", {
            f"{g}.{name}": f"{g}, {what}" for g in _SIDE_BY_SIDE for name, what in
            (("calm_gap_ms", "before the kill"), ("gap_ms", "at the kill"))
        }, several=True),
    ),
    "recovery": (
        Panel("ms after SIGKILL (goal: first output)", _PHASES, goal=50),
        Panel("elements", {"replayed_elements": "replayed"}),
    ),
    "determinants": (
        Panel(
            "bytes per record",
            {
                f"{case}_{depth}.{what}": f"{name}, {depth}: {what}"
                for case, name in _CASES.items()
                for depth in ("full", "f1")
                for what in ("logged", "wire")
            },
            several=True,
        ),
    ),
    "flush": (
        Panel(
            "bytes of determinants per record",
            {
                f"{case}.{flush}.{what}": f"{name}, {flush}: {what}"
                for case, name in (("single", "1 per batch"), ("load", "load"), ("windows", "windows"))
                for what in ("wire", "bundle")
                for flush in ("off", "background")
            },
            several=True,
        ),
        Panel(
            "CPU µs per record",
            {
                f"{case}.{flush}.cpu_us": f"{name}, {flush}"
                for case, name in (("single", "1 per batch"), ("load", "load"), ("windows", "windows"))
                for flush in ("off", "background")
            },
            several=True,
        ),
        Panel(
            "ms after SIGKILL",
            {
                f"recovery.{flush}.{phase}_ms": f"{phase.replace('_', ' ')}, {flush}"
                for phase in ("collected", "first_output", "live")
                for flush in ("off", "background")
            },
        ),
    ),
    "durability": (
        Panel(
            "records/s at load", {f"load.{setting}.throughput_rps": setting for setting in ("process", "os")}
        ),
        Panel(
            "ms, paced",
            {
                f"paced.{setting}.{name}_ms": f"{name}, {setting}"
                for name in ("p50", "p99", "checkpoint")
                for setting in ("process", "os")
            },
            several=True,
        ),
    ),
    "state": (
        Panel("ms after SIGKILL (goal: first output)", _PHASES, goal=80),
        Panel("ms", {"checkpoint_ms": "a checkpoint", "latency_p50_ms": "latency, p50", "latency_p99_ms": "p99",
                     "latency_p9999_ms": "p99.99"}, several=True),
        Panel("MiB", {"task_mib": "the task", "standby_mib": "its standby"}),
    ),
    "overhead": (
        Panel(
            "causal ÷ none, depth 5",
            {
                f"{guarantee}_{what}": f"{label}, {name}"
                for what, name in (
                    ("over_none", "records/s"), ("cpu_over_none", "CPU"), ("p99_over_none", "p99 at half load"),
                )
                for guarantee, label in _CAUSAL.items()
            },
            goal=1.0,
        ),
    ),
    "vectors": (
        Panel(
            "CPU µs per record",
            {f"{at}_{form}_cpu_us": f"{at}, {form}" for at in ("chains", "job") for form in ("rows", "vectors")},
        ),
        Panel("rows ÷ vectors", {"chains_ratio": "chains", "job_ratio": "jobs"}, goal=5),
    ),
    "spark_vectors": (
        Panel("CPU µs per record, our tasks", {f"tasks_{form}_cpu_us": form for form in ("rows", "vectors")}),
        Panel("rows ÷ vectors", {"tasks_ratio": "CPU of our tasks"}),
    ),
    "isolation": (
        Panel(
            "ms, longest gap in a second",
            {
                f"{chain}.{second}_gap_ms": f"{name}, {'before a kill' if second == 'before' else second + ' after'}"
                for chain, name in _CHAINS.items()
                for second in ("before", "second1", "second2", "second3")
            },
            several=True,
        ),
    ),
    "sinks": (
        Panel("bundles of one row per second", {f"{s}_bundles_s": name for s, name in _SINKS.items()}, several=True),
        Panel("rows/s in bundles of 1,000", {f"{s}_rows_s": name for s, name in _SINKS.items()}, several=True),
        Panel("CPU µs per row in the sink's task", {f"{s}_cpu_us": name for s, name in _SINKS.items()}, several=True),
    ),
    "latency_back": (
        Panel("ms", {"back_ms": "from the kill until latency is back", "control_ms": "the same without a kill",
                     "replayed_ms": "the stretch that was replayed"}, goal=500),
        Panel("÷ the replayed stretch", {"over_replayed": "until it is back"}, goal=2),
    ),
}  # fmt: skip
"""By benchmark; rows that a result has not are left out."""


def rows(panel: Panel, figures: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """(label, figure) of the rows that there are."""
    return [(label, figures[name]) for name, label in panel.figures.items() if name in figures]


def shown(name: str, figures: Mapping[str, Any]) -> list[Panel]:
    """The panels of a benchmark that have a row."""
    return [panel for panel in PANELS[name] if rows(panel, figures)]


def draw(told: Mapping[str, Any], path: Path) -> Path:
    """Write the chart of a result.

    Raises:
        RunFailed: matplotlib is not installed.
    """
    pyplot = style.pyplot()
    name, figures = told["benchmark"], told["figures"]
    panels = shown(name, figures)
    heights = [len(rows(panel, figures)) + 2.2 for panel in panels]
    drawing, places = pyplot.subplots(
        len(panels), 1, squeeze=False, height_ratios=heights,
        figsize=(style.WIDTH_INCH, sum(heights) * style.ROW_INCH + 0.6),
    )  # fmt: skip
    for place, panel in zip(places[:, 0], panels, strict=True):
        _panel(place, panel, rows(panel, figures))
    machine = told["machine"]
    return style.saved(drawing, f"{name} ({machine['processor']}, {machine['cores']} cores)", path)


def _panel(place: Any, panel: Panel, told: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
    for row, (_, each) in enumerate(told):
        colour = style.COLOURS[row % len(style.COLOURS)]
        place.plot([each["min"], each["max"]], [row, row], color=colour, linewidth=1.5)
        place.plot(each["runs"], [row] * len(each["runs"]), "|", color=colour, alpha=style.FAINT, markersize=9)
        place.plot([each["median"]], [row], marker=style.MARKERS[row % len(style.MARKERS)], color=colour, markersize=7)
    if panel.goal is not None:
        place.axvline(panel.goal, color=style.GOAL, linestyle="--", linewidth=1)
        place.annotate(f"goal {panel.goal:g}", (panel.goal, -0.6), fontsize="x-small", va="center", ha="left")
    place.set_yticks(range(len(told)), [label for label, _ in told])
    place.set_ylim(len(told) - 0.5, -0.9)
    place.set_xlabel(f"{panel.unit}: median, runs, min–max")
    if panel.several:
        place.set_xscale("log")
    else:
        place.set_xlim(left=0)
        place.xaxis.set_major_formatter("{x:,g}")
    place.grid(axis="x", alpha=0.3)
