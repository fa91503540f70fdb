"""The chart of `budget`: what each part takes of a batch in each task, and what it takes in the bare job."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import charts_style as style
from benchmarks.budget_drive import TASKS
from benchmarks.budget_parts import PARTS
from benchmarks.charts_findings import title


def stacked(figures: Mapping[str, Any], size: int, what: str, task: str) -> list[float]:
    """Medians by part, 0 where there is none."""
    return [float(figures.get(f"{size}/{what}/{task}/{part}", {"median": 0.0})["median"]) for part in PARTS]


def draw(told: Mapping[str, Any], path: Path) -> Path:
    """Write the chart of a result.

    Raises:
        RunFailed: matplotlib is not installed.
    """
    pyplot = style.pyplot()
    figures, sizes = told["figures"], told["settings"]["sizes"]
    drawing, places = pyplot.subplots(1, len(sizes), squeeze=False, figsize=(5.2 * len(sizes), 5.5))
    for place, size in zip(places[0], sizes, strict=True):
        left = [0.0] * len(PARTS)
        for task, colour, hatch in zip(TASKS, style.COLOURS, ("", "//", ".."), strict=False):
            took = stacked(figures, size, "parts", task)
            place.barh(range(len(PARTS)), took, left=left, color=colour, hatch=hatch, edgecolor="white", label=task)
            left = [before + more for before, more in zip(left, took, strict=True)]
        bare = [sum(part) for part in zip(*(stacked(figures, size, "bare", task) for task in TASKS), strict=True)]
        rows = [row for row, value in enumerate(bare) if value]
        place.plot([bare[row] for row in rows], rows, "D", color="#000000", label="bare job, all stages")
        _spread(place, figures, size, left)
        place.set_yticks(range(len(PARTS)), PARTS)
        place.invert_yaxis()
        place.set_xlabel("CPU µs per batch (line: min–max of the sum)")
        place.set_title(f"{size:,} {'records' if size > 1 else 'record'} per batch")
        place.grid(axis="x", alpha=0.3)
        place.legend(fontsize="x-small")
    return style.saved(drawing, title(told, 60 * len(sizes)), path)


def _spread(place: Any, figures: Mapping[str, Any], size: int, medians: list[float]) -> None:
    """Over the rounds, of the three tasks together."""
    for row, part in enumerate(PARTS):
        told = [figures[key] for task in TASKS if (key := f"{size}/parts/{task}/{part}") in figures]
        if told and medians[row]:
            low, high = sum(each["min"] for each in told), sum(each["max"] for each in told)
            place.plot([low, high], [row, row], color="#000000", linewidth=1)
