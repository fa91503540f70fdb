"""What the README shows is true: its pipeline runs and survives, its diagram is the table."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

from docs.diagrams import drawn

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


def test_the_diagram_is_drawn_from_the_table() -> None:
    assert "collecting --> replaying" in README
    assert drawn(README) == README, "run python docs/diagrams.py"


def test_the_first_pipeline_runs_and_survives_a_kill(tmp_path: Path) -> None:
    found = re.search(r"<!-- first pipeline -->\n```python\n(.*?)```", README, re.DOTALL)
    assert found is not None
    (tmp_path / "counts.py").write_text(found[1])
    argv = [sys.executable, "-m", "deploy", "run", "counts.py", "--kill", "count/0@1.5", "--report", "report.json"]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(argv, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert [recovery["task"] for recovery in report["recoveries"]] == ["count/0"]
    counts: dict[int, list[int]] = {}
    with sqlite3.connect(tmp_path / "out.db") as database:
        for (record,) in database.execute("SELECT record FROM output ORDER BY task, position"):
            row = json.loads(record)
            counts.setdefault(row["key"], []).append(row["n"])
    assert counts == {key: list(range(1, 201)) for key in range(100)}


def test_every_page_that_is_linked_exists() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        if "://" not in target:
            assert (ROOT / target).exists(), target
