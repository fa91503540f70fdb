"""The one way in which all charts look: rows of figures, and lines over a number.

In a row each run is a faint tick, a line goes from min to max, the median is a full mark, a goal is dashed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.harness.runs import RunFailed

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#000000")
"""Colours that everybody can distinguish (Okabe and Ito)."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
"""Beside the colours: a chart is read in grey too."""
GOAL = "#000000"
WIDTH_INCH, ROW_INCH, LINES_ROWS, DPI = 9.0, 0.32, 9, 100
Figures = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Rows:
    """Figures of one unit, a row each; those that a result lacks are left out.

    Args:
        figures: name in the result → what the row is called.
        at_most, at_least: goals, by name of the figure.
        together: so many rows that follow one another are compared, and have one colour.
        several: whether the scale is logarithmic, for figures of several orders of magnitude.
    """

    unit: str
    figures: Mapping[str, str]
    at_most: Mapping[str, float] = field(default_factory=dict)
    at_least: Mapping[str, float] = field(default_factory=dict)
    together: int = 1
    several: bool = False

    def present(self, figures: Figures) -> list[str]:
        """Names of the rows that a result has."""
        return [name for name in self.figures if name in figures]


@dataclass(frozen=True)
class Lines:
    """Values over a number.

    Args:
        lines: label → (numbers, values).
        joined: whether the values of a line are connected.
        upright: numbers at which something happened, as dotted lines.
        several: which of the axes "x" and "y" are logarithmic.
    """

    x: str
    y: str
    lines: Mapping[str, tuple[Sequence[float], Sequence[float]]]
    joined: bool = True
    upright: Sequence[float] = ()
    several: str = ""


@dataclass(frozen=True)
class Chart:
    """Panels side by side in `columns`, with the figures that their rows show."""

    panels: Sequence[Rows | Lines]
    figures: Figures = field(default_factory=dict)
    columns: int = 1


def check() -> None:
    """Raise unless charts can be drawn.

    Raises:
        RunFailed: matplotlib is not installed.
    """
    if find_spec("matplotlib") is None:
        raise RunFailed("--chart needs matplotlib; install the extra: pip install '.[bench]'")


def draw(chart: Chart, title: str, path: Path) -> Path:
    """Write a chart as a PNG file.

    Raises:
        RunFailed: matplotlib is not installed.
    """
    check()
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = [panel for panel in chart.panels if isinstance(panel, Lines) or panel.present(chart.figures)]
    bands = [panels[start : start + chart.columns] for start in range(0, len(panels), chart.columns)]
    heights = [max(_rows(panel, chart.figures) for panel in band) + 2.2 for band in bands]
    width = WIDTH_INCH if chart.columns == 1 else 6.0 * chart.columns
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
            _draw_rows(place, panel, chart.figures)
    path.parent.mkdir(parents=True, exist_ok=True)
    drawing.suptitle(title, fontsize=11)
    drawing.savefig(path, dpi=DPI)
    pyplot.close(drawing)
    return path


def _rows(panel: Rows | Lines, figures: Figures) -> int:
    return LINES_ROWS if isinstance(panel, Lines) else len(panel.present(figures))


def _draw_rows(place: Any, panel: Rows, figures: Figures) -> None:
    names, order = panel.present(figures), list(panel.figures)
    for row, name in enumerate(names):
        figure, (group, number) = figures[name], divmod(order.index(name), panel.together)
        colour = COLOURS[group % len(COLOURS)]
        marker = MARKERS[(number if panel.together > 1 else row) % len(MARKERS)]
        place.plot([figure["min"], figure["max"]], [row, row], color=colour, linewidth=1.5)
        place.plot(figure["runs"], [row] * len(figure["runs"]), "|", color=colour, alpha=0.35, markersize=9)
        place.plot([figure["median"]], [row], marker=marker, color=colour, markersize=7, clip_on=False)
        for goals, sign, side in ((panel.at_most, "≤", "left"), (panel.at_least, "≥", "right")):
            if name in goals:
                goal = goals[name]
                place.plot([goal, goal], [row - 0.45, row + 0.45], color=GOAL, linestyle="--", linewidth=1.2)
                label = f" goal {sign} {goal:,g} "
                place.annotate(label, (goal, row - 0.35), fontsize="x-small", va="center", ha=side)
    place.set_yticks(range(len(names)), [panel.figures[name] for name in names])
    place.set_ylim(len(names) - 0.4, -0.9)
    counts = sorted({len(figures[name]["runs"]) for name in names} - {0})
    runs = f" of {' or '.join(map(str, counts))} run{'s' if counts != [1] else ''}" if counts else ""
    place.set_xlabel(f"{panel.unit}: median, min–max{runs}")
    ends = [float(figures[name][end]) for name in names for end in ("min", "max")]
    if panel.several:
        logarithmic(place.xaxis, ends)
    else:
        place.set_xlim(0, 1.06 * max([*ends, *panel.at_most.values(), *panel.at_least.values()]) or 1)
        plain(place.xaxis)
    place.grid(axis="x", alpha=0.3)


def _draw_lines(place: Any, panel: Lines) -> None:
    for number, (label, (numbers, values)) in enumerate(panel.lines.items()):
        look = {"color": COLOURS[number % len(COLOURS)], "marker": MARKERS[number % len(MARKERS)], "label": label}
        place.plot(numbers, values, markersize=4, linestyle="-" if panel.joined else "", **look)
    for moment in panel.upright:
        place.axvline(moment, color=GOAL, linestyle=":", linewidth=1)
    for name, axis in (("x", place.xaxis), ("y", place.yaxis)):
        if name in panel.several:
            logarithmic(axis, [each for points in panel.lines.values() for each in points["xy".index(name)]])
        else:
            plain(axis)
    if "y" not in panel.several:
        place.set_ylim(bottom=0)
    place.set(xlabel=panel.x, ylabel=panel.y)
    place.grid(alpha=0.3)
    place.legend(fontsize="x-small", framealpha=0.6)


def plain(axis: Any) -> None:
    """Numbers on an axis as one would write them: 2,500,000 and 0.001."""
    axis.set_major_formatter(lambda value, place: f"{value:,.10g}")


def logarithmic(axis: Any, values: Sequence[float]) -> None:
    """An axis of several orders of magnitude, with enough numbers on it to read off a value; as it is if one is 0."""
    from matplotlib import ticker

    if values and min(values) > 0:
        axis.axes.set(**{f"{axis.axis_name}scale": "log"})
        close = max(values) < 300 * min(values)
        axis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5) if close else (1,), numticks=30))
        axis.set_minor_formatter(ticker.NullFormatter())
    plain(axis)
