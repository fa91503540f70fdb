"""Canaries: both versions perform what a job reads, and the job notices nothing of it (0042)."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

from benchmarks.harness.processes import children, workers
from tests.faults.changing import LEDGER, TOOK, Changing
from tests.faults.conftest import Start
from tests.faults.job import environment, wait_for
from tests.faults.roots import ROOTS
from tests.faults.test_bad_input import one_line

SECONDS = "5"
"""The duration of a canary; even a busy machine completes checkpoints in it."""


def canary(changing: Changing, text: str, *options: str) -> tuple[int, str, str]:
    """Upgrade to this code with a canary; returns the status and what was printed."""
    changing.path.write_text(text)
    return changing.command("upgrade", str(changing.path), "--canary", SECONDS, *options)


def test_rows_that_differ_are_shown_and_nothing_is_changed_until_they_are_accepted(
    start: Start, tmp_path: Path
) -> None:
    changing = Changing(start, tmp_path)
    changing.job.until_warm(records=200)
    before = workers(changing.job.state)
    other = LEDGER.replace('"version": VERSION', '"version": VERSION + (ctx.key == 3)')
    status, out, err = canary(changing, other, "--json")
    result: dict[str, Any] = json.loads(out)
    sink = result["sinks"]["out"]
    assert status == 1 and "--accept-differences" in one_line(err)
    assert result["verdict"] == "the rows differ" and 0 < result["performed"] <= result["read"]
    assert sink["same"] > 0 and sink["only_current"] == sink["only_new"] > 0
    rows = [(each["surplus"], json.loads(each["row"])) for each in sink["first"]]
    assert {(surplus > 0, row["key"], row["version"]) for surplus, row in rows} == {(False, 3, 1), (True, 3, 2)}
    assert workers(changing.job.state) == before
    assert not (changing.job.state / "next").exists() and not list(changing.job.state.glob("savepoints/*"))
    changing.until_more()
    assert changing.versions() == [1]
    status, out, err = canary(changing, other, "--accept-differences")
    assert status == 0 and not err and TOOK.search(out) and "only of the new version" in out
    changing.job.note_change()
    changing.until_more()
    assert {row["version"] for row in changing.last(120) if row["key"] == 3} == {2}
    changing.finish()


def test_the_upgrade_follows_if_no_row_differs(start: Start, tmp_path: Path) -> None:
    changing = Changing(start, tmp_path, "--processes", "stages")
    changing.job.until_warm(records=200)
    status, out, err = canary(changing, f"# the same pipeline\n{LEDGER}")
    assert status == 0 and not err, (out, err)
    assert "rows are the same, 0 only of the current version, 0 only of the new version" in out and TOOK.search(out)
    changing.job.note_change()
    changing.until_more()
    changing.finish()


def test_a_version_that_fails_at_the_input_of_the_job_is_not_accepted(start: Start, tmp_path: Path) -> None:
    changing = Changing(start, tmp_path)
    changing.job.until_warm(records=200)
    failing = LEDGER.replace("        yield {", "        assert record['i'] % 50, 'a mistake'\n        yield {")
    status, out, err = canary(changing, failing, "--accept-differences")
    assert status == 1 and "because the new version failed" in one_line(err)
    assert "AssertionError: a mistake" in out
    asking = LEDGER.replace('"n": n,', '"n": ctx.call(lambda: n),')
    status, out, err = canary(changing, asking)
    assert status == 2 and not out and "asks the outside world" in one_line(err)
    for options in (["--canary", "0"], ["--canary", "nan"], ["--accept-differences"], ["--json"]):
        assert "--canary" in changing.refused("upgrade", str(changing.path), *options)
    changing.until_more()
    assert changing.versions() == [1]
    changing.finish()


def test_a_canary_that_is_interrupted_leaves_nothing(start: Start, tmp_path: Path) -> None:
    changing = Changing(start, tmp_path)
    changing.job.until_warm(records=200)
    words = ("upgrade", str(changing.path), "--canary", "1000", "--state-dir", str(changing.job.state))
    command = ROOTS.start(words, tmp_path, environment())
    wait_for("both versions are performed", lambda: len(children(command.pid)) == 2)
    performers = children(command.pid)
    command.send_signal(signal.SIGINT)
    out, _ = command.communicate(timeout=60)
    assert command.returncode == 130 and not out
    wait_for("both have ended", lambda: not any(Path(f"/proc/{pid}").exists() for pid in performers))
    changing.until_more()
    assert changing.versions() == [1]
    changing.finish()
