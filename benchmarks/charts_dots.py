"""Charts of figures in rows: each run a faint tick, a line from min to max, the median a full mark, a goal dashed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import charts_style as style
from benchmarks.charts_findings import title
from benchmarks.charts_panels import PANELS, Panel, kind


def rows(panel: Panel, figures: Mapping[str, Any]) -> list[tuple[str, str, Mapping[str, Any]]]:
    """(name, label, figure) of the rows that there are."""
    return [(name, label, figures[name]) for name, label in panel.figures.items() if name in figures]


def shown(name: str, figures: Mapping[str, Any]) -> list[Panel]:
    """The panels of a kind of result that have a row."""
    return [panel for panel in PANELS[name] if rows(panel, figures)]


def draw(told: Mapping[str, Any], path: Path) -> Path:
    """Write the chart of a result.

    Raises:
        RunFailed: matplotlib is not installed.
    """
    pyplot = style.pyplot()
    figures = told["figures"]
    panels = shown(kind(told), figures)
    heights = [len(rows(panel, figures)) + 2.2 for panel in panels]
    drawing, places = pyplot.subplots(
        len(panels), 1, squeeze=False, height_ratios=heights,
        figsize=(style.WIDTH_INCH, sum(heights) * style.ROW_INCH + 0.9),
    )  # fmt: skip
    for place, panel in zip(places[:, 0], panels, strict=True):
        _panel(place, panel, rows(panel, figures))
    return style.saved(drawing, title(told), path)


def _panel(place: Any, panel: Panel, told: Sequence[tuple[str, str, Mapping[str, Any]]]) -> None:
    groups = list(dict.fromkeys(_group(panel, name) for name, _, _ in told))
    for row, (name, _, each) in enumerate(told):
        colour = style.COLOURS[groups.index(_group(panel, name)) % len(style.COLOURS)]
        place_in_group = list(panel.figures).index(name) % panel.together if panel.together > 1 else row
        marker = style.MARKERS[place_in_group % len(style.MARKERS)]
        place.plot([each["min"], each["max"]], [row, row], color=colour, linewidth=1.5)
        place.plot(each["runs"], [row] * len(each["runs"]), "|", color=colour, alpha=style.FAINT, markersize=9)
        place.plot([each["median"]], [row], marker=marker, color=colour, markersize=7, clip_on=False)
        for goals, sign, side in ((panel.at_most, "≤", "left"), (panel.at_least, "≥", "right")):
            if name in goals:
                _goal(place, row, goals[name], sign, side)
    place.set_yticks(range(len(told)), [label for _, label, _ in told])
    place.set_ylim(len(told) - 0.4, -0.9)
    runs = sorted({len(each["runs"]) for _, _, each in told})
    place.set_xlabel(f"{panel.unit}: median, min–max of {' or '.join(map(str, runs))} run{'s' if runs != [1] else ''}")
    if panel.several:
        style.logarithmic(place.xaxis, [value for _, _, each in told for value in (each["min"], each["max"])])
    else:
        aims = [*panel.at_most.values(), *panel.at_least.values()]
        place.set_xlim(0, 1.06 * max([*(each["max"] for _, _, each in told), *aims]) or 1)
        style.plain(place.xaxis)
    place.grid(axis="x", alpha=0.3)


def _group(panel: Panel, name: str) -> int:
    """Rows of one group are compared with one another."""
    return list(panel.figures).index(name) // panel.together


def _goal(place: Any, row: int, value: float, sign: str, side: str) -> None:
    place.plot([value, value], [row - 0.45, row + 0.45], color=style.GOAL, linestyle="--", linewidth=1.2)
    place.annotate(
        f" goal {sign} {value:,g} ", (value, row - 0.35), fontsize="x-small", va="center", ha=side,
    )  # fmt: skip
