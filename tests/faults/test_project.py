"""The project that `causal init` writes runs, also while a task dies, and passes its own test."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from benchmarks.harness.written import records_in
from deploy.cli import main
from tests.faults.job import WAIT_S, causal, environment


def test_a_new_project_runs_and_passes_its_test(tmp_path: Path) -> None:
    assert causal(tmp_path, "init", "spending") == (0, "")
    project = tmp_path / "spending"
    command = ("run", "pipeline.py", "--config", "settings.toml", "--kill", "spent/0@0")
    assert causal(project, *command)[0] == 0
    expected: dict[str, list[int]] = defaultdict(list)
    for line in (project / "orders" / "2026.csv").read_text().splitlines()[1:]:
        customer, cents = line.split(",")
        expected[customer].append(sum(expected[customer][-1:]) + int(cents))
    totals: dict[str, list[int]] = defaultdict(list)
    for row in records_in(project / "spending.db"):
        totals[row["customer"]].append(row["total"])
    assert totals == expected
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", "."]
    tested = subprocess.run(argv, cwd=project, env=environment(), capture_output=True, text=True, timeout=WAIT_S)
    assert tested.returncode == 0 and " passed" in tested.stdout, tested.stdout


def test_a_project_never_overwrites_anything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").write_text("mine")
    assert main(["init", str(tmp_path / "there")]) == 2
    assert main(["init", str(tmp_path / "no name")]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert "there already exists; use another name, or remove it" in first
    assert "cannot name a project" in second
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_a_project_is_made_here_if_here_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "spending").mkdir()
    monkeypatch.chdir(tmp_path / "spending")
    assert main(["init", "."]) == 0
    assert capsys.readouterr().out == "wrote ./: causal run pipeline.py --config settings.toml\n"
    assert 'Pipeline("spending", processes="one")' in Path("pipeline.py").read_text()
