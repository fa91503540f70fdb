"""The tables of a job that grows, which have more than a row per figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.harness.measured import origin, series
from benchmarks.scale.scale import DEPTHS, SHAPES

Result = Mapping[str, Any]
CONTROL = {
    "start: messages per task": "start_messages_per_task",
    "start: bytes of messages per task": "start_bytes_per_task",
    "start: CPU of the supervisor, µs per task": "start_cpu_us_per_task",
    "steady: messages per task and second": "steady_messages_per_task_s",
    "steady: bytes per task and second": "steady_bytes_per_task_s",
    "steady: CPU, µs per task and second": "steady_cpu_us_per_task_s",
    "one step in steady state, µs": "step_us",
    "a beat, bytes": "beat_bytes",
    "the agent's beat, bytes per task": "agent_beat_bytes_per_task",
    "checkpoint: messages per task": "checkpoint_messages_per_task",
    "checkpoint: bytes per task": "checkpoint_bytes_per_task",
    "checkpoint: CPU, µs per task": "checkpoint_cpu_us_per_task",
    "checkpoint: journal, bytes per task": "checkpoint_journal_bytes_per_task",
    "checkpoint: manifest, bytes per task": "manifest_bytes_per_task",
    "checkpoint: longest step, ms": "checkpoint_step_ms_max",
    "the journal that a new supervisor reads, bytes per task": "journal_kept_bytes_per_task",
    "failure: messages": "failure_messages",
    "failure: bytes": "failure_bytes",
    "failure: journal, bytes": "failure_journal_bytes",
    "failure: from the exit to `promote`, µs": "failure_step_us",
    "`status.json`, bytes per task": "status_bytes_per_task",
    "`status.json`, CPU, µs per task": "status_cpu_us_per_task",
    "a new supervisor: CPU, µs per task": "restart_cpu_us_per_task",
}
NEIGHBOURS = {
    "start: messages per task": "start_messages_per_task",
    "a beat, bytes": "beat_bytes",
    "failure: messages": "failure_messages",
    "failure: bytes": "failure_bytes",
}
DATA = {
    "determinant bytes per data frame": "wire_per_frame",
    "determinant bytes per record": "wire_per_record",
    "failure: HELLO bytes": "failure_hello_bytes",
    "failure: WELCOME and LOGS bytes": "failure_welcome_bytes",
}


def grid(head: Sequence[str], rows: Sequence[Sequence[str]], text_columns: int = 1) -> str:
    """Return a Markdown table; all columns but the first are numbers, aligned to the right."""
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * text_columns}{'---:|' * (len(head) - text_columns)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def scale(result: Result) -> dict[str, str]:
    """Return all tables of the page about scale, by name."""
    figures, machine = result["figures"], result["machine"]
    where = f"`{result['command']}`: {machine['processor']}, Python {result['versions']['python']}; {origin(result)}."
    return {
        "control": f"{where}\n\n{_numbered(figures, 'control', 'tasks', CONTROL)}",
        "neighbours": _numbered(figures, "neighbours", "tasks per layer", NEIGHBOURS),
        "depth": _shaped(figures, "depth", "hops from source to sink"),
        "fan-in": _shaped(figures, "fan_in", "sources that a task reads"),
        "width": _shaped(figures, "width", "tasks per layer, all to all, 4 hops"),
    }


def _three(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _numbered(figures: Mapping[str, Any], kind: str, head: str, lines: Mapping[str, str]) -> str:
    """Return figures by the number that is varied, one column each."""
    numbers, _ = series(figures, kind, next(iter(lines.values())))
    rows = [[label, *map(_three, series(figures, kind, name)[1])] for label, name in lines.items()]
    return grid([head, *(f"{number:,}" for number in numbers)], rows)


def _shaped(figures: Mapping[str, Any], kind: str, head: str) -> str:
    """Return the data plane's figures for one way to vary the graph, a row for each sharing depth."""
    numbers = list(SHAPES[kind])
    rows = []
    for label, name in DATA.items():
        for depth in DEPTHS:
            medians = dict(zip(*series(figures, kind, f"{depth}.{name}"), strict=True))
            cells = [_three(medians[number]) if number in medians else "" for number in numbers]
            rows.append([f"{label}, {depth.replace('f1', 'f = 1').replace('f2', 'f = 2')}", *cells])
    return grid([head, *map(str, numbers)], rows)
