"""Charts of `benchmarks scale`, as PNG files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import charts_style as style

INCH = 5.0
DEPTHS = ("f1", "f2", "full")
CONTROL = {
    "CPU of the supervisor, µs per task": {
        "start": "start_cpu_us_per_task",
        "one second": "steady_cpu_us_per_task_s",
        "a checkpoint": "checkpoint_cpu_us_per_task",
        "new supervisor": "restart_cpu_us_per_task",
    },
    "bytes of messages per task": {
        "start": "start_bytes_per_task",
        "one second": "steady_bytes_per_task_s",
        "a checkpoint": "checkpoint_bytes_per_task",
        "status.json": "status_bytes_per_task",
    },
    "one failure": {
        "messages": "failure_messages",
        "bytes": "failure_bytes",
        "step that promotes, µs": "failure_step_us",
    },
}
DATA = {
    "depth": "hops from source to sink (2 tasks per layer)",
    "fan_in": "sources that a task reads",
    "width": "tasks per layer, all to all (4 hops)",
}
WIRE = {"wire_per_frame": "determinant bytes per data frame", "failure_welcome_bytes": "WELCOME bytes of one failure"}


def series(figures: Mapping[str, Mapping[str, Any]], kind: str, name: str) -> tuple[list[int], list[float]]:
    """The medians of the figures `kind.NUMBER.name`, by number."""
    found = {}
    for key, told in figures.items():
        first, number, rest = key.split(".", 2)
        if (first, rest) == (kind, name):
            found[int(number)] = float(told["median"])
    numbers = sorted(found)
    return numbers, [found[number] for number in numbers]


def draw(figures: Mapping[str, Mapping[str, Any]], directory: Path) -> list[Path]:
    """Write `scale-control.png` and `scale-data.png`; returns them.

    Raises:
        RunFailed: matplotlib is not installed.
    """
    pyplot = style.pyplot()
    drawing, places = pyplot.subplots(1, len(CONTROL), figsize=(INCH * len(CONTROL), 4.4))
    for place, (label, lines) in zip(places, CONTROL.items(), strict=True):
        _panel(place, {name: series(figures, "control", figure) for name, figure in lines.items()})
        place.set(xlabel="tasks of the job", ylabel=label)
        style.logarithmic(place.xaxis, (1, 10_000))
        style.logarithmic(place.yaxis, [value for line in place.get_lines() for value in line.get_ydata()])
    paths = [style.saved(drawing, _control_title(figures), directory / "scale-control.png")]
    drawing, rows = pyplot.subplots(len(WIRE), len(DATA), figsize=(INCH * len(DATA), 3.8 * len(WIRE)))
    for row, (name, label) in zip(rows, WIRE.items(), strict=True):
        for place, (kind, shape) in zip(row, DATA.items(), strict=True):
            lines = {f"{depth} sharing" if depth == "full" else depth.replace("f", "f = "): depth for depth in DEPTHS}
            _panel(place, {line: series(figures, kind, f"{depth}.{name}") for line, depth in lines.items()})
            place.set(xlabel=shape, ylabel=label, ylim=(0, None))
            style.plain(place.yaxis)
    return [*paths, style.saved(drawing, _data_title(figures), directory / "scale-data.png")]


def _panel(place: Any, lines: Mapping[str, tuple[list[int], list[float]]]) -> None:
    for (label, points), colour, marker in zip(lines.items(), style.COLOURS, style.MARKERS, strict=False):
        place.plot(*points, marker=marker, markersize=5, color=colour, label=label)
    place.grid(alpha=0.3)
    place.legend(fontsize="x-small", framealpha=0.6)


def _control_title(figures: Mapping[str, Mapping[str, Any]]) -> str:
    sizes, us = series(figures, "control", "steady_cpu_us_per_task_s")
    _, messages = series(figures, "control", "failure_messages")
    return (
        f"From {sizes[0]:,} to {sizes[-1]:,} tasks: {us[0]:,.0f} → {us[-1]:,.0f} µs of the supervisor's CPU per task"
        f" and second, {messages[0]:,.0f} → {messages[-1]:,.0f} messages per failure"
    )


def _data_title(figures: Mapping[str, Mapping[str, Any]]) -> str:
    parts = []
    for kind, what in (("depth", "{:,} hops"), ("fan_in", "{:,} sources of a task"), ("width", "{:,} tasks per layer")):
        numbers, sizes = series(figures, kind, "full.wire_per_frame")
        parts.append(f"{sizes[0]:.3g} → {sizes[-1]:.3g} at {what.format(numbers[-1])}")
    return f"Determinant bytes per frame with full sharing: {', '.join(parts)}"
