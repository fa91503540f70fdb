"""Charts of `benchmarks scale`, as PNG files; matplotlib comes with the extra `bench` and is needed here only."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.runs import RunFailed

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
    "of one failure": {
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


def check() -> None:
    """
    Raises:
        RunFailed: matplotlib is not installed.
    """
    if find_spec("matplotlib") is None:
        raise RunFailed("--charts needs matplotlib; install the extra: pip install '.[bench]'")


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
    check()
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    directory.mkdir(parents=True, exist_ok=True)
    drawing, axes = pyplot.subplots(1, len(CONTROL), figsize=(5 * len(CONTROL), 4))
    for place, (title, lines) in zip(axes, CONTROL.items(), strict=True):
        for label, name in lines.items():
            place.plot(*series(figures, "control", name), marker="o", label=label)
        place.set(xscale="log", yscale="log", xlabel="tasks of the job", title=title)
        place.legend()
    paths = [_saved(drawing, directory / "scale-control.png", pyplot)]
    drawing, rows = pyplot.subplots(len(WIRE), len(DATA), figsize=(5 * len(DATA), 4 * len(WIRE)))
    for row, (name, title) in zip(rows, WIRE.items(), strict=True):
        for place, (kind, label) in zip(row, DATA.items(), strict=True):
            for depth in ("f1", "f2", "full"):
                place.plot(*series(figures, kind, f"{depth}.{name}"), marker="o", label=depth.replace("f", "f = ", 1)
                           if depth != "full" else depth)  # fmt: skip
            place.set(xlabel=label, title=title, ylim=(0, None))
            place.legend()
    return [*paths, _saved(drawing, directory / "scale-data.png", pyplot)]


def _saved(drawing: Any, path: Path, pyplot: Any) -> Path:
    drawing.tight_layout()
    drawing.savefig(path, dpi=80)
    pyplot.close(drawing)
    return path
