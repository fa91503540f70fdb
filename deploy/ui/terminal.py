"""The terminal view of a job: a line of totals, a table of tasks, the most recent recoveries, and current problems.

States are shown as words with a mark, so that no information is conveyed by colour alone, and `NO_COLOR` is respected.
The view only reads the job directory, twice a second, and shows a message if the directory is damaged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import DataTable, Footer, Sparkline, Static

from causal.errors import CausalError
from deploy.ui.observed import ObservedJob

Model = Mapping[str, Any]

EVERY_S = 0.5
RECOVERIES_SHOWN, PROBLEMS_SHOWN = 5, 5
CHART_POINTS = 120
UNKNOWN = "-"
MARKS = {"running": "●", "finished": "✓", "stopped": "■", "down": "✗"}
"""Task state → its mark; any other state is a transition to one of these."""
UNDER_WAY = "◐"

COLUMNS: Mapping[str, str] = {
    "task": "task",
    "title": "operators",
    "state": "state",
    "host": "host",
    "rate": "rate",
    "busy": "busy",
    "blocked": "blocked",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "queued_bytes": "queued",
    "snapshot_bytes": "state",
    "incarnation": "life",
    "doing": "doing",
}
ORDERS = ("task", "rate", "busy", "blocked", "p99_ms", "snapshot_bytes")
"""The columns by which the table can be sorted, in the order of selection; all but the first sort descending."""


def totals(model: Model) -> str:
    """Return the line about the job as a whole."""
    if "totals" not in model:
        return f"{model['job']}  {model['state']}  {model['says']}"
    sums, checkpoints = model["totals"], model["checkpoints"]
    entered, written = (
        f"{sums[f'records_{way}']:,}" + ("" if sums[f"rate_{way}"] is None else f" ({sums[f'rate_{way}']:,.0f}/s)")
        for way in ("in", "out")
    )
    parts = [
        f"{model['job']}  {model['state']}", f"in {entered}", f"out {written}",
        f"p50 {number(sums['p50_ms'])} ms  p99 {number(sums['p99_ms'])} ms",
        f"checkpoint {checkpoints['complete']}", f"recoveries {sums['recoveries']}",
        *(f"{title} {value:,}" for title, value in sums.get("listed", ())),
    ]  # fmt: skip
    return "   ".join(parts) + (f"\n{model['says']}" if model["says"] else "")


def values(task: Model) -> dict[str, Any]:
    """Return, for each column, the value by which the table is sorted."""
    shares = task["shares"] or {}
    return {**{name: task.get(name) for name in COLUMNS}, "busy": shares.get("busy"), "blocked": shares.get("blocked")}


def cells(task: Model) -> list[str]:
    """Return the texts in a task's row, in the order of `COLUMNS`."""
    known = values(task)
    shown = {
        **known,
        "state": f"{MARKS.get(task['state'], UNDER_WAY)} {task['state']}",
        "rate": UNKNOWN if known["rate"] is None else f"{number(known['rate'], 0)} {task['unit']}/s",
        "busy": percent(known["busy"]),
        "blocked": percent(known["blocked"]),
        "p50_ms": number(known["p50_ms"]),
        "p99_ms": number(known["p99_ms"]),
        "queued_bytes": size(known["queued_bytes"]),
        "snapshot_bytes": size(known["snapshot_bytes"]),
    }
    return [UNKNOWN if shown[name] in (None, "") else str(shown[name]) for name in COLUMNS]


def recoveries(model: Model) -> str:
    """Return a line for each of the most recent failures, newest first."""
    lines = []
    for failure in model.get("recoveries", ())[:RECOVERIES_SHOWN]:
        names = ", ".join(f"{task['task']} ({task['why']})" for task in failure["tasks"])
        took = f"{failure['took_ms']:,.0f} ms" if failure["live"] else "under way"
        lines.append(f"{failure['ago_s']:,.0f} s ago  {took}  {names}")
    return "\n".join(lines) or "no recovery"


def problems(model: Model) -> str:
    """Return the problems that keep the job waiting, one per line; empty if there are none."""
    return "\n".join(model.get("problems", ())[:PROBLEMS_SHOWN])


def number(value: float | None, digits: int = 1) -> str:
    """Return a number with thousands separators."""
    return UNKNOWN if value is None else f"{value:,.{digits}f}"


def percent(share: float | None) -> str:
    """Return a share of time as a percentage."""
    return UNKNOWN if share is None else f"{share:.0%}"


def size(count: int | None) -> str:
    """Return a number of bytes with a unit."""
    if count is None:
        return UNKNOWN
    for unit, bytes_of in (("GB", 1 << 30), ("MB", 1 << 20), ("kB", 1 << 10)):
        if count >= bytes_of:
            return f"{count / bytes_of:.1f} {unit}"
    return f"{count} B"


class Terminal(App[None]):
    """The application of `causal top`.

    Args:
        job: the job to watch.
    """

    CSS = """
    #totals { height: auto; padding: 0 1; text-style: bold; }
    #chart { height: 3; margin: 0 1; }
    #tasks { height: 1fr; }
    #recoveries, #problems { height: auto; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "quit"),
        Binding("s", "sort", "sort by the next column"),
    ]
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, job: ObservedJob) -> None:
        super().__init__()
        self._job = job
        self._order = ORDERS[0]

    def compose(self) -> ComposeResult:
        """Yield the parts of the screen from top to bottom."""
        yield Static("", id="totals", markup=False)
        yield Sparkline([], id="chart")
        yield DataTable(id="tasks", cursor_type="row")
        yield Static("", id="problems", markup=False)
        yield Static("", id="recoveries", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        """Start watching the job."""
        table = self.query_one(DataTable)
        for name, title in COLUMNS.items():
            table.add_column(title, key=name)
        self.renew()
        self.set_interval(EVERY_S, self.renew)

    def action_sort(self) -> None:
        """Sort the table by the next column."""
        self._order = ORDERS[(ORDERS.index(self._order) + 1) % len(ORDERS)]
        self.renew()

    def renew(self) -> None:
        """Show the current state of the job."""
        try:
            model = self._job.page()
        except (CausalError, OSError) as problem:
            self.query_one("#totals", Static).update(str(problem))
            return
        self.query_one("#totals", Static).update(totals(model))
        self.query_one("#chart", Sparkline).data = [rate for _, _, rate in model.get("history", ())[-CHART_POINTS:]]
        self.query_one("#problems", Static).update(problems(model))
        self.query_one("#recoveries", Static).update(recoveries(model))
        self._fill(model)

    def _fill(self, model: Model) -> None:
        table, tasks = self.query_one(DataTable), list(model["tasks"])
        if self._order != ORDERS[0]:
            tasks.sort(key=lambda task: -(values(task)[self._order] or 0))
        for column in table.columns.values():
            title = COLUMNS[str(column.key.value)]
            column.label = Text(f"{title} ▼" if title == COLUMNS[self._order] else title)
        row, top = table.cursor_row, table.scroll_y
        table.clear()
        for task in tasks:
            table.add_row(*map(Text, cells(task)), key=task["task"])
        table.move_cursor(row=row, scroll=False)
        table.scroll_to(y=top, animate=False)
