"""Checks the README: its pipeline runs and survives a kill, it is short, and its links lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.harness.written import records_in
from tests.faults.conftest import Start
from tests.faults.conftest import start as start
from tests.faults.job import WAIT_S

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
KILL = "count/0@1.5"


def first_pipeline() -> str:
    match = re.search(r"<!-- first pipeline -->\n```python\n(.*?)```", README, re.DOTALL)
    assert match is not None
    return match[1]


@pytest.mark.campaign
def test_the_first_pipeline_runs_as_it_is_shown(tmp_path: Path) -> None:
    (tmp_path / "counts.py").write_text(first_pipeline())
    argv = [sys.executable, "-m", "deploy", "run", "counts.py", "--kill", KILL]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(argv, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=WAIT_S)
    assert done.returncode == 0, done.stderr
    assert_counted(tmp_path)


def test_the_first_pipeline_survives_a_kill(start: Start, tmp_path: Path) -> None:
    """Its end is held back until the kill has happened: on a busy machine it would be over before."""
    assert f"causal run counts.py --kill {KILL} " in README
    shown, source = first_pipeline(), "GeneratedSource("
    assert shown.count(source) == 1
    gate = tmp_path / "gate"
    import_line = "from tests.faults.pipelines.held_source import held_generated\n"
    (tmp_path / "counts.py").write_text(import_line + shown.replace(source, f"held_generated({str(gate)!r}, "))
    job = start(tmp_path / "counts.py", "--kill", KILL)
    report = job.finish_killed(gate)
    assert [recovery["task"] for recovery in report["recoveries"]] == ["count/0"]
    assert_counted(tmp_path)


def assert_counted(directory: Path) -> None:
    counts: dict[int, list[int]] = {}
    for row in records_in(directory / "out.db"):
        counts.setdefault(row["key"], []).append(row["n"])
    assert counts == {key: list(range(1, 201)) for key in range(100)}


def test_it_is_short_and_has_one_picture() -> None:
    assert len(README.splitlines()) < 150
    assert len(re.findall(r"^!\[", README, re.MULTILINE)) == 1


def test_every_page_that_is_linked_exists() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        if "://" not in target:
            assert (ROOT / target).exists(), target
