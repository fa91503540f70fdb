"""`python -m benchmarks.scale_page`: writes the tables of `docs/scale.md` from `docs/benchmarks/scale/scale.json`.

As in `benchmarks.page`, what stands between the marks is made from the file and never typed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.page import DOCS, RESULTS
from benchmarks.scale import DEPTHS, SHAPES
from benchmarks.scale_charts import series

PAGE = DOCS / "scale.md"
RESULT = RESULTS / "scale" / "scale.json"

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


def marks(name: str) -> tuple[str, str]:
    """The lines between which a table stands."""
    return f"<!-- {name}: made by python -m benchmarks.scale_page -->", f"<!-- end of {name} -->"


def grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose first column is text."""
    lines = [f"| {' | '.join(head)} |", f"|---|{'---:|' * (len(head) - 1)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def shown(value: float) -> str:
    """Three figures that count are enough."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def numbered(figures: Mapping[str, Any], kind: str, head: str, lines: Mapping[str, str]) -> str:
    """Figures by the number that is varied, one column each."""
    numbers, _ = series(figures, kind, next(iter(lines.values())))
    rows = [[label, *map(shown, series(figures, kind, name)[1])] for label, name in lines.items()]
    return grid([head, *(f"{number:,}" for number in numbers)], rows)


def shaped(figures: Mapping[str, Any], kind: str, head: str) -> str:
    """The data plane's figures for one way to vary the graph, a row for each sharing depth."""
    numbers = list(SHAPES[kind])
    rows = []
    for label, name in DATA.items():
        for depth in DEPTHS:
            told = dict(zip(*series(figures, kind, f"{depth}.{name}"), strict=True))
            cells = [shown(told[number]) if number in told else "" for number in numbers]
            rows.append([f"{label}, {depth.replace('f1', 'f = 1').replace('f2', 'f = 2')}", *cells])
    return grid([head, *map(str, numbers)], rows)


def tables(told: Mapping[str, Any]) -> dict[str, str]:
    """All tables of the page by name."""
    figures, machine = told["figures"], told["machine"]
    where = f"`{told['command']}`: {machine['processor']}, Python {told['versions']['python']}."
    return {
        "control": f"{where}\n\n{numbered(figures, 'control', 'tasks', CONTROL)}",
        "neighbours": numbered(figures, "neighbours", "tasks per layer", NEIGHBOURS),
        "depth": shaped(figures, "depth", "hops from source to sink"),
        "fan-in": shaped(figures, "fan_in", "sources that a task reads"),
        "width": shaped(figures, "width", "tasks per layer, all to all, 4 hops"),
    }


def filled(page: str, told: Mapping[str, Any]) -> str:
    """The page with all tables in their places.

    Raises:
        ValueError: the page lacks the marks of one.
    """
    for name, content in tables(told).items():
        begin, end = marks(name)
        before, found, rest = page.partition(begin)
        _, closed, after = rest.partition(end)
        if not found or not closed:
            raise ValueError(f"{PAGE} has no marks for {name}; put '{begin}' and '{end}' where the table belongs")
        page = f"{before}{begin}\n\n{content}\n\n{end}{after}"
    return page


def main() -> int:
    """Fill in what is measured."""
    PAGE.write_text(filled(PAGE.read_text(), json.loads(RESULT.read_text())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
