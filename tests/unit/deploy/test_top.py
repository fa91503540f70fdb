"""`causal top`: what the screen shows of a job, and that user text and damage do no harm."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("textual", reason="textual is not installed (extra ui)")

from textual.widgets import DataTable, Static

from deploy.cli import main
from deploy.ui import models, terminal
from deploy.ui.meter import Meter
from deploy.ui.observed import ObservedJob
from tests.faults.test_dashboard import ended_job, write_view
from tests.unit.deploy.test_ui_models import facts, viewed


def rows(app: terminal.Terminal) -> list[list[str]]:
    table = app.query_one(DataTable)
    return [[str(cell) for cell in table.get_row_at(place)] for place in range(table.row_count)]


def text(app: terminal.Terminal, name: str) -> str:
    return str(app.query_one(f"#{name}", Static).content)


def test_the_tasks_of_a_job_are_shown_and_sorted_by_the_next_column(tmp_path: Path) -> None:
    async def watch() -> None:
        app = terminal.Terminal(ObservedJob(ended_job(tmp_path), breaks=False))
        async with app.run_test(size=(120, 40)) as pilot:
            assert text(app, "totals").startswith("j   finished") or text(app, "totals").startswith("j  finished")
            first = rows(app)
            assert [row[0] for row in first] == [task["task"] for task in viewed()["tasks"]]
            await pilot.press("s")
            place = list(terminal.COLUMNS).index("rate")
            rates = [
                float(row[place].split()[0].replace(",", "")) for row in rows(app) if row[place] != terminal.UNKNOWN
            ]
            assert rates == sorted(rates, reverse=True)
            assert "rate ▼" in [str(column.label) for column in app.query_one(DataTable).columns.values()]
            for _ in terminal.ORDERS[1:]:
                await pilot.press("s")
            assert rows(app) == first
            await pilot.press("q")
        assert app.return_code == 0

    asyncio.run(watch())


def test_a_directory_that_is_damaged_meanwhile_is_a_line_until_it_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = ended_job(tmp_path)

    def refused(path: Any) -> os.stat_result:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    async def watch() -> None:
        app = terminal.Terminal(ObservedJob(job, breaks=False))
        async with app.run_test():
            whole = text(app, "totals")
            write_view(job, "{")
            app.renew()
            assert "status.json is damaged" in text(app, "totals")
            write_view(job, json.dumps(viewed(ended={"status": 0, "reason": ""})))
            app.renew()
            assert text(app, "totals") == whole
            with monkeypatch.context() as without:
                without.setattr(os, "stat", refused)
                app.renew()
            assert "Permission denied" in text(app, "totals")
            app.renew()
            assert text(app, "totals") == whole

    asyncio.run(watch())


def test_text_of_users_is_shown_as_it_is(tmp_path: Path) -> None:
    job = ended_job(tmp_path)
    view: dict[str, Any] = viewed(ended={"status": 1, "reason": "KeyError: [red] [/nothing"})
    view["tasks"][0]["host"] = "[bold"
    write_view(job, json.dumps(view))

    async def watch() -> None:
        app = terminal.Terminal(ObservedJob(job, breaks=False))
        async with app.run_test():
            assert "KeyError: [red] [/nothing" in text(app, "totals")
            assert "[bold" in rows(app)[0]

    asyncio.run(watch())


def test_recoveries_and_waits_are_lines() -> None:
    view = viewed()
    model = models.page(facts(view), Meter(), breaks=False)
    assert terminal.recoveries({**model, "recoveries": []}) == "no recovery"
    task = {"task": "count/0", "why": "killed"}
    failure = {"ago_s": 3.2, "took_ms": 41.7, "live": True, "tasks": [task]}
    assert terminal.recoveries({"recoveries": [failure]}) == "3 s ago  42 ms  count/0 (killed)"
    assert terminal.recoveries({"recoveries": [{**failure, "live": False}]}).split("  ")[1] == "under way"
    assert len(terminal.recoveries({"recoveries": [failure] * 50}).splitlines()) == terminal.RECOVERIES_SHOWN
    assert terminal.problems({"problems": ["one", "two"]}) == "one\ntwo"


def test_what_is_not_known_is_a_dash_and_no_zero() -> None:
    assert [terminal.number(None), terminal.percent(None), terminal.size(None)] == [terminal.UNKNOWN] * 3
    assert [terminal.number(0.0, 0), terminal.percent(0.0), terminal.size(0)] == ["0", "0%", "0 B"]
    assert terminal.size(3 << 29) == "1.5 GB"


def test_without_a_terminal_it_says_what_prints_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--state-dir", str(ended_job(tmp_path))]) == 2
    assert capsys.readouterr().err == "causal: top needs a terminal; causal status prints the same information once\n"


def test_a_job_that_is_not_there_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--state-dir", str(tmp_path / "none")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
