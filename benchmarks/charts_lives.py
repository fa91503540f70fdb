"""The chart of `total_failure`: for each time that everything died, how long until readers saw rows again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import charts_style as style
from benchmarks.charts_findings import title

TIMES = {"first_row_ms": "a reader sees the first new row", "live_ms": "the supervisor says that all tasks are live"}


def points(lives: Sequence[Mapping[str, Any]], name: str) -> list[tuple[int, float]]:
    """(number of the resume, value) of the lives that have it, from 1."""
    return [(number, float(life[name])) for number, life in enumerate(lives, 1) if life[name] is not None]


def lives_of(told: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """One by one; of a result without them, what its figures have in the order in which they came."""
    if "lives" in told:
        return list(told["lives"])
    runs = [told["figures"][name]["runs"] for name in TIMES]
    return [{**dict(zip(TIMES, each, strict=True)), "replayed_elements": None} for each in zip(*runs, strict=True)]


def draw(told: Mapping[str, Any], path: Path) -> Path:
    """Write the chart of a result.

    Raises:
        RunFailed: matplotlib is not installed.
    """
    pyplot = style.pyplot()
    lives = lives_of(told)
    replayed = points(lives, "replayed_elements")
    heights = [3, 2] if replayed else [3]
    drawing, places = pyplot.subplots(
        len(heights), 1, sharex=True, squeeze=False, figsize=(style.WIDTH_INCH, 1.2 * sum(heights) + 0.8),
        height_ratios=heights,
    )  # fmt: skip
    _times(places[0, 0], told, lives)
    if replayed:
        places[1, 0].bar(*zip(*replayed, strict=True), color=style.COLOURS[2])
        places[1, 0].set_ylabel("elements replayed")
        style.plain(places[1, 0].yaxis)
    for place in places[:, 0]:
        place.grid(axis="y", alpha=0.3)
    places[-1, 0].set_xlabel("number of the resume")
    return style.saved(drawing, title(told), path)


def _times(place: Any, told: Mapping[str, Any], lives: Sequence[Mapping[str, Any]]) -> None:
    for (name, label), colour, marker in zip(TIMES.items(), style.COLOURS, style.MARKERS, strict=False):
        found = points(lives, name)
        place.plot(*zip(*found, strict=True), marker, color=colour, markersize=5, label=label)
        middle = told["figures"][name]["median"]
        place.axhline(middle, color=colour, linewidth=1, linestyle=":")
    early = [number for number, life in enumerate(lives, 1) if life["first_row_ms"] is None]
    if early:
        place.plot(early, [0] * len(early), "x", color=style.GOAL, label="struck again before that", clip_on=False)
    place.set_ylabel("ms from the resume; dotted: median")
    place.set_ylim(bottom=0)
    style.plain(place.yaxis)
    place.legend(fontsize="x-small")
