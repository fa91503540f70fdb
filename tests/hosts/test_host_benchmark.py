"""The benchmark of hosts runs, in its smallest form, and writes every figure that a goal looks at."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.hosts.hosts import PARTS
from benchmarks.report.goals import GOALS

SMALL = (
    "--deaths", "1", "--cuts", "1", "--successions", "1", "--rounds", "1", "--records", "20000", "--agents", "3",
    "--seconds", "1",
)  # fmt: skip


@pytest.mark.parametrize("part", [pytest.param(name, marks=pytest.mark.campaign) for name in PARTS])
def test_a_part_has_its_figures(part: str, tmp_path: Path) -> None:
    path = tmp_path / "hosts.json"
    assert main(["hosts", "--parts", part, *SMALL, "--json", str(path)]) == 0
    figures = json.loads(path.read_text())["figures"]
    begins = {"transport": ("count.", "records."), "store": ("store.",)}.get(part, (f"{part}.",))
    wanted = {name for goal in GOALS if goal.benchmark == "hosts" for name in goal.names if name.startswith(begins)}
    assert wanted and wanted <= figures.keys()
