"""Ratios of `peers` as a PNG file: per workload and figure, how many times better ours is than each peer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import charts_style as style
from benchmarks.charts_findings import title
from benchmarks.peers.table import COLUMNS

GOALS: Mapping[tuple[str, str, str], float] = {
    ("count", "rps", "bytewax"): 7.0,
    ("index", "docs_per_s", "bytewax"): 5.0,
}
"""By workload, figure and peer."""
INCH_PER_PANEL, INCH_PER_ROW = 5.0, 0.24


def rows(pairs: Sequence[Mapping[str, Any]], workload: str, name: str) -> list[tuple[str, Mapping[str, Any]]]:
    """(peer, ratio) of those that have this ratio in this workload."""
    found = [pair for pair in pairs if pair["workload"] == workload and name in pair.get("ratios", {})]
    return [(pair["peer"], pair["ratios"][name]) for pair in found]


def draw(told: Mapping[str, Any], path: Path) -> Path:
    """Write one panel per workload, one group of rows per figure.

    Raises:
        RunFailed: matplotlib is not installed.
    """
    pyplot = style.pyplot()
    drawing, panels = pyplot.subplots(1, len(COLUMNS), figsize=(INCH_PER_PANEL * len(COLUMNS), 20 * INCH_PER_ROW + 1.6))
    for panel, workload in zip(panels, COLUMNS, strict=True):
        _panel(panel, told["pairs"], workload)
    return style.saved(drawing, title(told, 150), path)


def _panel(panel: Any, pairs: Sequence[Mapping[str, Any]], workload: str) -> None:
    labels: list[str] = []
    values: list[float] = [1.0]
    for (name, head), colour, marker in zip(COLUMNS[workload], style.COLOURS, style.MARKERS, strict=False):
        for peer, ratio in rows(pairs, workload, name):
            row = len(labels)
            labels.append(peer)
            values += [ratio["min"], ratio["max"]]
            panel.plot([ratio["min"], ratio["max"]], [row, row], color=colour, linewidth=1.5)
            label = head if peer == rows(pairs, workload, name)[0][0] else None
            panel.plot([ratio["median"]], [row], marker, color=colour, label=label)
            goal = GOALS.get((workload, name, peer))
            if goal is not None:
                panel.plot([goal, goal], [row - 0.45, row + 0.45], color=style.GOAL, linestyle="--", linewidth=1.2)
                panel.annotate(f" goal ≥ {goal:g} ", (goal, row - 0.5), fontsize="x-small", ha="right", va="center")
    panel.set_title(f"{workload}: ours ÷ peer\n(right of 1: ours is better)", fontsize="medium")
    panel.set_xlabel("median, min–max of the rounds")
    panel.set_yticks(range(len(labels)), labels)
    panel.set_ylim(len(labels) - 0.4, -1.0)
    panel.axvline(1, color=style.GOAL, linewidth=1)
    style.logarithmic(panel.xaxis, values)
    panel.grid(axis="x", alpha=0.3)
    if labels:
        panel.legend(fontsize="x-small", loc="lower right")
