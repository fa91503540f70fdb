"""The screen of `causal run` on a terminal: headline, waits, progress of a bounded input, tasks, recoveries.

No information is conveyed by colour alone, and `NO_COLOR` removes all colour.  Content that does not fit on the
terminal is left out: columns from the right, and tasks from the bottom.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from deploy.progress.progress_model import Bounded, ProgressModel, TaskRow, in_bytes

LINES_BESIDE_TASKS = 9
"""The lines of the terminal that are not for tasks."""
BAR_WIDTH = 40
Column = tuple[str, int, Callable[[TaskRow], str]]


def _rate(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{min(value, 1.0):.0%}"


COLUMNS: tuple[Column, ...] = (
    ("in/s", 10, lambda row: _rate(row.entering)),
    ("busy", 5, lambda row: _share(row.busy)),
    ("blocked", 8, lambda row: _share(row.blocked)),
    ("waiting", 10, lambda row: in_bytes(row.waiting_bytes) if row.waiting_bytes else ""),
    ("out/s", 10, lambda row: _rate(row.leaving)),
)
"""The columns after task and state, with their minimum widths; columns are left out starting with the last."""


class Screen:
    """A region at the bottom of the terminal that is redrawn with each view and removed at the end."""

    def __init__(self, out: TextIO) -> None:
        self._console = Console(file=out, highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, transient=True, redirect_stdout=False)
        self._live.start()

    def show(self, model: ProgressModel, elapsed_s: float) -> None:
        """Draw the content that the model provides."""
        self._live.update(self._drawn(model, elapsed_s), refresh=True)

    def say(self, line: str) -> None:
        """Print a line above the region."""
        self._console.print(Text(line))

    def close(self) -> None:
        self._live.stop()

    def _drawn(self, model: ProgressModel, elapsed_s: float) -> RenderableType:
        parts: list[RenderableType] = [Text(model.headline(elapsed_s), style="bold")]
        parts += [Text(f"  … {wait}", style="yellow") for wait in model.waits(elapsed_s)]
        bounded = model.bounded()
        if bounded is not None:
            parts.append(_bar(bounded))
        parts.append(self._table(model.rows()))
        parts += [Text(f"  ✓ {line}", style="cyan") for line in model.recoveries()]
        return Group(*parts)

    def _table(self, rows: list[TaskRow]) -> Table:
        width = self._console.width
        names = max([len(row.task) for row in rows] + [len("task")])
        room = width - names - max([len(row.state) for row in rows] + [len("state")]) - 6
        columns: list[Column] = []
        for column in COLUMNS:
            room -= column[1] + 2
            if room < 0:
                break
            columns.append(column)
        table = Table(box=None, pad_edge=True, header_style="dim")
        table.add_column("task", no_wrap=True, overflow="ellipsis")
        table.add_column("state", no_wrap=True)
        for title, _, _ in columns:
            table.add_column(title, justify="right", no_wrap=True)
        fitting = max(1, self._console.height - LINES_BESIDE_TASKS)
        for row in rows[:fitting]:
            table.add_row(row.task, row.state, *(shown(row) for _, _, shown in columns))
        if len(rows) > fitting:
            table.add_row(f"and {len(rows) - fitting} more", "")
        return table


def _bar(bounded: Bounded) -> RenderableType:
    line = Table.grid(padding=(0, 1))
    left = "" if bounded.left_s is None else f", about {bounded.left_s:,.0f} s left"
    share = bounded.read / bounded.size
    line.add_row(
        " ", ProgressBar(total=bounded.size, completed=bounded.read, width=BAR_WIDTH), Text(f"{share:.0%} read{left}")
    )
    return line
