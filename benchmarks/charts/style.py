"""The one way in which all charts look: rows of figures, and lines over a number.

In a row each run is a faint tick, a line goes from min to max, the median is a full mark, a goal is dashed.  Rows whose
names begin alike have one colour.  An axis is logarithmic where its values lie far apart.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.harness.runs import RunFailed

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#000000")
"""Colours that everybody can distinguish (Okabe and Ito)."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
"""Shapes in addition to the colours: a chart is read in grey too."""
GOAL = "#000000"
WIDTH_INCH, COLUMN_INCH, ROW_INCH, LINES_ROWS, DPI = 9.0, 6.0, 0.32, 9, 100
FAR_APART = 200
LABELS = {
    "causal_f1": "causal, f = 1",
    "causal_full": "causal, full",
    "f1": "f = 1",
    "calm_": "before the kill",
}
"""Names in results whose meaning on a chart is another text."""

Figures = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Rows:
    """Figures of one unit, a row each.

    Args:
        names: a regular expression for their names; its groups are what the rows are called.
    """

    unit: str
    names: str

    def present(self, figures: Figures) -> dict[str, tuple[str, ...]]:
        """Names of the figures that a result has → the groups; in order of their numbers where they are numbers."""
        matches = ((name, re.fullmatch(self.names, name)) for name in figures)
        rows = {name: tuple(filter(None, match.groups())) or (name,) for name, match in matches if match is not None}
        if all(groups[0].replace(".", "", 1).isdigit() for groups in rows.values()):
            return dict(sorted(rows.items(), key=lambda row: float(row[1][0])))
        return rows


@dataclass(frozen=True)
class Lines:
    """Values over a number.

    Args:
        lines: label → (numbers, values).
        joined: whether the values of a line are connected.
    """

    x: str
    y: str
    lines: Mapping[str, tuple[Sequence[float], Sequence[float]]]
    joined: bool = True


@dataclass(frozen=True)
class Chart:
    """Panels side by side in `columns`, below a title."""

    title: str
    panels: Sequence[Rows | Lines]
    columns: int = 1


def check() -> None:
    """Raise unless charts can be drawn.

    Raises:
        RunFailed: matplotlib is not installed.
    """
    if find_spec("matplotlib") is None:
        raise RunFailed("--chart needs matplotlib; install the extra: pip install '.[bench]'")


def draw(chart: Chart, figures: Figures, goals: Mapping[str, float], path: Path) -> Path:
    """Write a chart as a PNG file.

    Args:
        goals: by name of the figure.

    Raises:
        RunFailed: matplotlib is not installed.
    """
    check()
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = [panel for panel in chart.panels if isinstance(panel, Lines) or panel.present(figures)]
    bands = [panels[start : start + chart.columns] for start in range(0, len(panels), chart.columns)]
    heights = [max(_height(panel, figures) for panel in band) + 2.2 for band in bands]
    width = WIDTH_INCH if chart.columns == 1 else COLUMN_INCH * chart.columns
    drawing, places = pyplot.subplots(
        len(bands),
        chart.columns,
        squeeze=False,
        layout="constrained",
        height_ratios=heights,
        figsize=(width, sum(heights) * ROW_INCH + 0.9),
    )
    for place in places.flat[len(panels) :]:
        place.set_visible(False)
    for place, panel in zip(places.flat, panels):
        if isinstance(panel, Lines):
            _draw_lines(place, panel)
        else:
            _draw_rows(place, panel, figures, goals)
    path.parent.mkdir(parents=True, exist_ok=True)
    drawing.suptitle(chart.title, fontsize=11)
    drawing.savefig(path, dpi=DPI)
    pyplot.close(drawing)
    return path


def _height(panel: Rows | Lines, figures: Figures) -> int:
    return LINES_ROWS if isinstance(panel, Lines) else len(panel.present(figures))


def _draw_rows(place: Any, panel: Rows, figures: Figures, goals: Mapping[str, float]) -> None:
    rows = panel.present(figures)
    firsts = list(dict.fromkeys(groups[0] for groups in rows.values()))
    for row, (name, groups) in enumerate(rows.items()):
        figure, colour = figures[name], COLOURS[firsts.index(groups[0]) % len(COLOURS)]
        place.plot([figure["min"], figure["max"]], [row, row], color=colour, linewidth=1.5)
        place.plot(figure["runs"], [row] * len(figure["runs"]), "|", color=colour, alpha=0.35, markersize=9)
        marker = MARKERS[row % len(MARKERS)]
        place.plot([figure["median"]], [row], marker=marker, color=colour, markersize=7, clip_on=False)
        if name in goals:
            goal = goals[name]
            place.plot([goal, goal], [row - 0.45, row + 0.45], color=GOAL, linestyle="--", linewidth=1.2)
            place.annotate(f" goal {goal:,.4g} ", (goal, row - 0.35), fontsize="x-small", va="center")
    place.set_yticks(range(len(rows)), [label(groups) for groups in rows.values()])
    place.set_ylim(len(rows) - 0.4, -0.9)
    counts = sorted({len(figures[name]["runs"]) for name in rows})
    place.set_xlabel(f"{panel.unit}: median, min–max of {' or '.join(map(str, counts))} run{'s' * (counts != [1])}")
    ends = [float(figures[name][end]) for name in rows for end in ("min", "max")]
    if not scaled(place.xaxis, ends):
        place.set_xlim(0, 1.06 * max([*ends, *(goals[name] for name in rows if name in goals)]) or 1)
    place.grid(axis="x", alpha=0.3)


def _draw_lines(place: Any, panel: Lines) -> None:
    for number, (name, (numbers, values)) in enumerate(panel.lines.items()):
        look = {"color": COLOURS[number % len(COLOURS)], "marker": MARKERS[number % len(MARKERS)], "label": name}
        place.plot(numbers, values, markersize=4, linestyle="-" if panel.joined else "", **look)
    scaled(place.xaxis, [number for numbers, _ in panel.lines.values() for number in numbers])
    if not scaled(place.yaxis, [value for _, values in panel.lines.values() for value in values]):
        place.set_ylim(bottom=0)
    place.set(xlabel=panel.x, ylabel=panel.y)
    place.grid(alpha=0.3)
    place.legend(fontsize="x-small", framealpha=0.6)


def label(groups: Sequence[str]) -> str:
    """Return what a row is called."""
    return ", ".join(LABELS.get(group, group.replace("_", " ").strip()) for group in groups)


def scaled(axis: Any, values: Sequence[float]) -> bool:
    """Write the numbers of an axis in full, on a logarithmic scale if they lie far apart; returns whether they do."""
    from matplotlib import ticker

    far = bool(values) and min(values) > 0 and max(values) > FAR_APART * min(values)
    if far:
        axis.axes.set(**{f"{axis.axis_name}scale": "log"})
        close = max(values) < 300 * min(values)
        axis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5) if close else (1,), numticks=30))
        axis.set_minor_formatter(ticker.NullFormatter())
    axis.set_major_formatter(lambda value, place: f"{value:,.10g}")
    return far
