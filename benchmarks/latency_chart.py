"""The chart of `latency`: percentiles per guarantee at each interval, beside what others published; and three kills."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import charts_style as style
from benchmarks.charts_findings import title
from benchmarks.latency import GUARANTEES, INTERVALS_MS, KILLED, RATE, SERIES_INTERVAL_MS, SHARES

PUBLISHED_MS: Mapping[str, tuple[float, ...]] = {
    "FlameStream, published median": (12, 11, 11),
    "Flink, published median": (165, 332, 591),
}
"""Medians of FlameStream's Figures 10 to 12 at these intervals, on ten machines of one core, Wikipedia articles."""

LIMIT_MS = 20_000.0
"""Above all bars, with room for the legend."""


def bars(figures: Mapping[str, Any], interval_ms: int, guarantee: str) -> list[Mapping[str, Any]]:
    """The percentiles of one guarantee, ascending; none where it was not measured."""
    names = (f"{guarantee}.{interval_ms}.{name}_ms" for name in SHARES)
    return [figures[name] for name in names if name in figures]


def draw(told: Mapping[str, Any], path: Path) -> Path:
    """Write the chart of a result.

    Raises:
        RunFailed: matplotlib is not installed.
    """
    pyplot = style.pyplot()
    figures, series = told["figures"], told.get("series", {})
    names = [name for name in GUARANTEES if bars(figures, INTERVALS_MS[0], name)]
    drawing = pyplot.figure(figsize=(12, 4.2 + 1.9 * len(series)))
    grid = drawing.add_gridspec(1 + len(series), len(INTERVALS_MS), height_ratios=[3.4] + [1.5] * len(series))
    first = None
    for column, interval_ms in enumerate(INTERVALS_MS):
        place = first = drawing.add_subplot(grid[0, column], sharey=first)
        _percentiles(place, figures, interval_ms, names)
        if not column:
            place.legend(fontsize="x-small", loc="upper left", framealpha=0.6)
    for row, (name, held) in enumerate(series.items(), 1):
        _kills(drawing.add_subplot(grid[row, :]), name, held, last=row == len(series))
    return style.saved(drawing, title(told), path)


def _percentiles(place: Any, figures: Mapping[str, Any], interval_ms: int, names: list[str]) -> None:
    width = 0.8 / max(1, len(names))
    for number, name in enumerate(names):
        found = bars(figures, interval_ms, name)
        at = [group + (number - (len(names) - 1) / 2) * width for group in range(len(found))]
        medians = [each["median"] for each in found]
        below = [each["median"] - each["min"] for each in found]
        above = [each["max"] - each["median"] for each in found]
        place.bar(at, medians, width, color=style.COLOURS[GUARANTEES.index(name)], label=name)
        place.errorbar(at, medians, (below, above), fmt="none", ecolor="#000000", capsize=2, linewidth=1)
    for (name, medians_ms), marker in zip(PUBLISHED_MS.items(), style.MARKERS, strict=False):
        published = medians_ms[INTERVALS_MS.index(interval_ms)]
        place.plot([0], [published], marker, color="#000000", markerfacecolor="none", label=name)
    place.axhline(50, color=style.GOAL, linestyle="--", linewidth=1, label="goal of causal p99: 50 ms")
    place.set_xticks(range(len(SHARES)), list(SHARES))
    place.set_yscale("log")
    style.plain(place.yaxis)
    place.set_ylabel("ms, document in → all rows seen")
    place.set_title(f"{interval_ms:,} ms between checkpoints")
    place.set_ylim(bottom=1.0, top=LIMIT_MS)
    place.grid(axis="y", alpha=0.3)


def _kills(place: Any, name: str, held: Mapping[str, Any], last: bool) -> None:
    there = [(number / RATE, took) for number, took in enumerate(held["latency_ms"]) if took is not None]
    colour = style.COLOURS[GUARANTEES.index(name)]
    place.plot([at for at, _ in there], [took for _, took in there], ".", markersize=2.5, color=colour)
    for moment in held["kills_s"]:
        place.axvline(moment, color=style.GOAL, linestyle=":", linewidth=1)
    said = f"; never whole: {held['incomplete']} documents" if held["incomplete"] else ""
    said += f"; {held['contradicted']:,} rows contradict" if held["contradicted"] else ""
    place.set_title(
        f"{name}: {KILLED} killed (dotted), {SERIES_INTERVAL_MS:,} ms between checkpoints{said}", fontsize=9
    )
    place.set_yscale("log")
    style.plain(place.yaxis)
    place.set_ylabel("ms")
    place.grid(alpha=0.3)
    if last:
        place.set_xlabel("s, when the document was due")
