"""The output check of the dashboard: rows that differ, or are gone, are counted; others are not."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from deploy.cli import main
from deploy.jobs.lookup import find_job
from deploy.ui import output_check, seen_rows
from deploy.ui.output_check import OutputCheck, said
from deploy.ui.seen_rows import SeenRows, places

ROWS = 400
PIPELINE = f"""
from operators import Pipeline
from operators.sinks import JsonLinesSink, SqliteSink
from operators.sources import GeneratedSource

pipeline = Pipeline("j")
print("loaded")
read = pipeline.source("read", GeneratedSource(lambda p, i: {{"i": i}}, count={ROWS}))
read.sink("table", SqliteSink({{place!r}} + "/out.db"))
read.sink("lines", JsonLinesSink({{place!r}} + "/lines"))
"""


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a job that has ended, next to what it wrote."""
    place = tmp_path_factory.mktemp("seen")
    (place / "j.py").write_text(PIPELINE.replace("{place!r}", repr(str(place))))
    assert main(["run", str(place / "j.py"), "--state-dir", str(place / "job")]) == 0
    return find_job(None, str(place / "job"))


def change(database: Path, statement: str) -> None:
    with closing(sqlite3.connect(database)) as connection, connection:
        assert connection.execute(statement).rowcount == 1


def test_a_row_that_was_changed_and_one_that_is_gone_are_counted(ended: Path) -> None:
    rows = SeenRows(places(ended))
    assert rows.remember().rows == 2 * ROWS
    findings = rows.check()
    assert (findings.rows, findings.changed, findings.missing, findings.unreadable) == (2 * ROWS, 0, 0, {})
    database = ended.parent / "out.db"
    change(database, "UPDATE output SET record = '{}' WHERE position = 7")
    assert (rows.check().changed, rows.check().missing) == (1, 0)
    change(database, "DELETE FROM output WHERE position = 8")
    assert (rows.check().changed, rows.check().missing) == (1, 1)


def test_the_newest_rows_are_remembered_up_to_a_bound(ended: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen_rows, "ROWS_MAX", 100)
    assert SeenRows({"lines": ended.parent / "lines"}).remember().rows == 100


def test_a_sink_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    findings = SeenRows({"far": None, "gone": tmp_path / "gone"}).remember()
    assert findings.rows == 0 and set(findings.unreadable) == {"far", "gone"}


def test_the_rows_are_read_in_another_process_once_the_job_has_settled(ended: Path) -> None:
    check = OutputCheck(ended)
    assert check.shown(lambda since_s: True) == {"says": "", "holds": None}
    process = check._rows._process
    assert process is not None and process.poll() is None, "it loads its modules before the first kill"
    check.remember()
    assert "rows were seen before the kill" in check.shown(lambda since_s: False)["says"]
    assert check.shown(lambda since_s: True)["holds"] is True
    assert "0 changed, 0 missing." in check.shown(lambda since_s: False)["says"]
    check.close()


def test_a_process_that_does_not_answer_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_check, "REMEMBER_S", 0.0)
    check = OutputCheck(tmp_path)
    check.remember()
    assert "could not be read within 0 s" in check.shown(lambda since_s: True)["says"]
    monkeypatch.undo()
    check.remember()
    assert "The output is not checked" in check.shown(lambda since_s: True)["says"]
    check.close()


def test_the_directory_of_a_job_need_not_be_utf_8(tmp_path: Path) -> None:
    check = OutputCheck(tmp_path / "no UTF-8 \udcff")
    check.remember()
    assert "no UTF-8 \udcff does not contain a job" in check.shown(lambda since_s: True)["says"]
    check.close()


def test_what_was_found_is_said() -> None:
    seen = {"rows": 48210, "unreadable": {"far": "no reader"}}
    findings = {"rows": 48210, "changed": 0, "missing": 0, "unreadable": {"far": "no reader"}}
    assert said(seen, findings) == {
        "says": "Checked 48,210 rows seen before the kill: 0 changed, 0 missing. far is not readable from here:"
        " no reader.",
        "holds": True,
    }
    assert said(seen, {**findings, "missing": 2})["holds"] is False
    assert said({**seen, "rows": 0}, None)["says"].startswith("No row was readable")
    assert said(seen, {"problem": "it ended"})["holds"] is None
