"""The tables of `matrix` for `docs/benchmarks.md`: one per axis, a row for each value and mode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.matrix import MODES
from benchmarks.matrix_points import AXES

COLUMNS = {
    "rps": "records/s",
    "ratio": "÷ base",
    "cpu_us": "CPU µs per record",
    "cpu_ratio": "÷ base",
    "wire": "determinant bytes per record",
    "checkpoint_bytes": "bytes per checkpoint",
    "first_output_ms": "first output, ms",
}


def tables(told: Mapping[str, Any]) -> str:
    """Everything that was measured, and what there was no time for."""
    figures = told["figures"]
    parts = []
    for name, axis in AXES.items():
        rows = [
            [f"{value:,}" if isinstance(value, int) else str(value), mode, *_cells(figures, f"{name}/{value}/{mode}")]
            for mode in MODES
            for value in axis.values
            if f"{name}/{value}/{mode}/rps" in figures
        ]
        if rows:
            head = [axis.unit, "", *COLUMNS.values()]
            lines = [f"| {' | '.join(head)} |", f"|---|---|{'---:|' * len(COLUMNS)}"]
            parts += ["\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]), ""]
    rounds = told["settings"]["rounds"]
    times = "once" if rounds == 1 else f"{rounds} times"
    parts.append(f"Each point was run {times}, the base point of an axis before and after the others as well.")
    if told["left_out"]:
        parts.append(f"Not measured, for there was no time: {'; '.join(told['left_out'])}.")
    parts += [f"No figures for {point}: {problem}." for point, problem in told.get("problems", {}).items()]
    return "\n".join(parts).rstrip()


def _cells(figures: Mapping[str, Any], key: str) -> list[str]:
    cells = []
    for name in COLUMNS:
        told = figures.get(f"{key}/{name}")
        cells.append("" if told is None else _spread(told))
    return cells


def _spread(told: Mapping[str, Any]) -> str:
    middle = _number(told["median"])
    return middle if told["min"] == told["max"] else f"{middle} [{_number(told['min'])}–{_number(told['max'])}]"


def _number(value: float) -> str:
    return f"{value:,}".removesuffix(".0")
