"""The chart of `matrix`: along each axis, records/s beside the base point's, and the first output after a kill."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import charts_style as style
from benchmarks.charts_findings import title
from benchmarks.matrix import MODES
from benchmarks.matrix_points import AXES

COLUMNS = 4
SEVERAL = 20.0
"""Medians so many times apart are shown on a logarithmic scale."""
ROWS_PER_AXIS = (("ratio", "records/s ÷ base"), ("first_output_ms", "ms to first output"))


def along(figures: Mapping[str, Any], axis: str, mode: str, name: str) -> list[tuple[str, Mapping[str, Any]]]:
    """(value, figure) in the order of the axis, as far as it was measured."""
    keys = ((str(value), f"{axis}/{value}/{mode}/{name}") for value in AXES[axis].values)
    return [(value, figures[key]) for value, key in keys if key in figures]


def draw(told: Mapping[str, Any], path: Path) -> Path:
    """Write the chart of a result.

    Raises:
        RunFailed: matplotlib is not installed.
    """
    pyplot = style.pyplot()
    axes = [name for name in AXES if along(told["figures"], name, "free", "ratio")]
    bands = -(-len(axes) // COLUMNS)
    drawing, places = pyplot.subplots(
        bands * len(ROWS_PER_AXIS), COLUMNS, squeeze=False, figsize=(16, 3.1 * bands * len(ROWS_PER_AXIS))
    )
    for place in places.flat:
        place.set_visible(False)
    for number, axis in enumerate(axes):
        for row, (name, label) in enumerate(ROWS_PER_AXIS):
            if not any(along(told["figures"], axis, mode, name) for mode in MODES):
                continue
            place = places[number // COLUMNS * len(ROWS_PER_AXIS) + row, number % COLUMNS]
            place.set_visible(True)
            _panel(place, told["figures"], axis, name)
            place.set_ylabel(label)
    return style.saved(drawing, title(told, 150), path)


def _panel(place: Any, figures: Mapping[str, Any], axis: str, name: str) -> None:
    values = [str(value) for value in AXES[axis].values]
    shown: list[float] = []
    highest: list[float] = []
    for mode, colour, marker in zip(MODES, style.COLOURS, style.MARKERS, strict=False):
        found = along(figures, axis, mode, name)
        if not found:
            continue
        medians = [each["median"] for _, each in found]
        shown += medians
        highest += [each["max"] for _, each in found]
        below = [each["median"] - each["min"] for _, each in found]
        above = [each["max"] - each["median"] for _, each in found]
        where = [values.index(value) for value, _ in found]
        label = "undisturbed" if mode == "free" else "killed every 2 s"
        place.errorbar(where, medians, (below, above), color=colour, marker=marker, capsize=3, label=label)
    place.set_xticks(range(len(values)), [_short(value) for value in values], fontsize="small")
    place.set_xlim(-0.4, len(values) - 0.6)
    if shown and min(shown) > 0 and max(shown) > SEVERAL * min(shown):
        style.logarithmic(place.yaxis, shown)
    else:
        place.set_ylim(0, 1.12 * max(highest, default=1.0))
        style.plain(place.yaxis)
    place.set_xlabel(AXES[axis].unit)
    place.grid(alpha=0.3)
    if place.get_legend_handles_labels()[0]:
        place.legend(fontsize="x-small")


def _short(value: str) -> str:
    """1,000,000 as 1M, so that ticks do not overlap."""
    if value.isdigit() and int(value) >= 1_000_000:
        return f"{int(value) // 1_000_000}M"
    return f"{int(value):,}" if value.isdigit() else value
