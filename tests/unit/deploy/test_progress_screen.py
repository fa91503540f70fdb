"""The screen about a running job, drawn into a terminal that exists in memory."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pyte
import pytest

from deploy.progress.display import Progress
from deploy.progress.progress_model import TASKS_SHOWN, ProgressModel
from deploy.progress.report import operators_table
from standby.supervision.job_view import JobView
from tests.unit.deploy.test_report import task, view


class Terminal(StringIO):
    """A terminal of this many columns and lines; `screen` is what it shows."""

    def __init__(self, columns: int, lines: int) -> None:
        super().__init__()
        self.screen = pyte.Screen(columns, lines)
        self._stream = pyte.Stream(self.screen)

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self._stream.feed(text.replace("\n", "\r\n"))
        return len(text)

    @property
    def shown(self) -> list[str]:
        return [line.rstrip() for line in self.screen.display if line.strip()]


def at(step: int, tasks: int = 1, **facts: Any) -> dict[str, Any]:
    shown = {**view(), "ended": None, **facts}
    shown["tasks"] = [
        task("read/0", "source", records_in=100 * step, busy_s=0.25 * step, input_read=100 * step, input_size=1000),
        *(
            task(f"count/{i}", "operator", delivered_elements=100 * step, busy_s=0.5 * step, blocked_s=0.1 * step)
            for i in range(tasks)
        ),
        task("out/0", "sink", records_out=50 * step, queued_bytes=3 << 20),
    ]
    return shown


@pytest.fixture
def sized(monkeypatch: pytest.MonkeyPatch) -> Any:
    def begin(columns: int, lines: int) -> Terminal:
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("LINES", str(lines))
        monkeypatch.setenv("TERM", "xterm-256color")
        return Terminal(columns, lines)

    return begin


def drawn(terminal: Terminal, *views: dict[str, Any]) -> list[str]:
    progress = Progress(terminal)
    for place, each in enumerate(views, 1):
        progress.show(JobView.of(each), float(place))
    shown = terminal.shown
    progress.close()
    assert terminal.shown == [], "the screen is removed at the end"
    return shown


def test_it_shows_rates_shares_the_input_and_recoveries(sized: Any) -> None:
    shown = drawn(sized(120, 30), at(1), at(2), at(3), at(4))
    assert shown[0].startswith("4.0 s  running: in 400 (100/s), out 200 (50/s)")
    [bar] = [line for line in shown if "read" in line and "%" in line and "left" in line]
    assert bar.endswith("40% read, about 6 s left")
    [count] = [line.split() for line in shown if line.startswith(" count/0")]
    assert count == ["count/0", "running", "100", "50%", "10%"]
    [out] = [line.split() for line in shown if line.startswith(" out/0")]
    assert out[-3:] == ["3.0", "MB", "50"]
    assert any(line.strip().startswith("✓ recovered") for line in shown)


def test_a_narrow_terminal_has_fewer_columns_and_a_low_one_fewer_tasks(sized: Any) -> None:
    narrow = drawn(sized(44, 30), at(1), at(2))
    [titles] = [line.split() for line in narrow if "task" in line and "state" in line]
    assert titles[:3] == ["task", "state", "in/s"] and "out/s" not in titles
    low = drawn(sized(100, 14), at(1, tasks=20), at(2, tasks=20))
    assert any("more" in line for line in low) and len(low) <= 14


def test_no_color_removes_all_of_it(sized: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def colours() -> set[str]:
        terminal = sized(100, 30)
        progress = Progress(terminal)
        progress.show(JobView.of(at(1)), 1.0)
        shown = {cell.fg for row in terminal.screen.buffer.values() for cell in row.values()}
        progress.close()
        return shown

    assert colours() != {"default"}
    monkeypatch.setenv("NO_COLOR", "1")
    assert colours() == {"default"}


def test_of_many_tasks_the_busiest_are_shown_in_their_order() -> None:
    model = ProgressModel()
    before, after = at(1, tasks=2 * TASKS_SHOWN), at(1, tasks=2 * TASKS_SHOWN)
    busy = [f"count/{i}" for i in range(0, 2 * TASKS_SHOWN, 2)]
    for each in after["tasks"]:
        each["figures"]["busy_s"] = 5.0 if each["task"] in busy else 0.5
    model.take(JobView.of(before), 1.0)
    model.take(JobView.of(after), 2.0)
    assert [row.task for row in model.rows()] == busy


def test_an_input_without_an_end_has_no_bar(sized: Any) -> None:
    endless = at(1)
    del endless["tasks"][0]["figures"]["input_size"]
    model = ProgressModel()
    model.take(JobView.of(endless), 1.0)
    assert model.bounded() is None


def test_the_table_at_the_end_has_a_line_for_each_operator() -> None:
    lines = operators_table(JobView.of(at(3, tasks=2))).splitlines()
    assert lines[0].split() == ["tasks", "elements", "in", "records", "recoveries"]
    assert [line.split()[:3] for line in lines[1:]] == [
        ["read", "source", "1"], ["count", "operator", "2"], ["out", "sink", "1"]
    ]  # fmt: skip
    assert lines[2].split() == ["count", "operator", "2", "600", "1"] and lines[3].split()[-1] == "150"


def test_a_line_that_stays_is_above_the_screen(sized: Any) -> None:
    terminal = sized(100, 20)
    progress = Progress(terminal)
    progress.show(JobView.of(at(1)), 1.0)
    progress.say("warning: x")
    progress.show(JobView.of(at(2)), 2.0)
    assert terminal.shown[0] == "causal: warning: x" and "2.0 s" in terminal.shown[1]
    progress.close()
    assert terminal.shown == ["causal: warning: x"]
