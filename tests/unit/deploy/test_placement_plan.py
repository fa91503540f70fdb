"""`causal plan --hosts`: where tasks would be, and what the sharing depth is worth with these hosts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from causal.config import JobConfig
from causal.shell.curve import new_key
from causal.shell.roster import save_key
from deploy.cli import main
from deploy.placement_plan import warnings
from operators.builder.loading import load
from operators.engine.plan import plan

PIPELINE = """
from operators import Pipeline
from operators.sinks import JsonLinesSink
from operators.sources import GeneratedSource

pipeline = Pipeline("tiny")
numbers = pipeline.source("numbers", GeneratedSource(lambda p, i: {"v": i}, count=100)).key_by(lambda r: r["v"])
numbers.count("count").key_by(lambda c: c["key"]).count("again").sink("out", JsonLinesSink("rows"), host="a")
"""


@pytest.fixture(autouse=True)
def _with_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("p.py").write_text(PIPELINE)
    for name in ("supervisor", "a", "b"):
        save_key(Path("two"), new_key(name))
    for name in ("a", "b", "c", "d"):
        save_key(Path("four"), new_key(name))


def planned(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    assert main(["plan", "p.py", "--json", *arguments]) == 0
    plan: dict[str, object] = json.loads(capsys.readouterr().out)
    return plan


def test_a_depth_that_these_hosts_cannot_reach_is_said_with_the_number_that_can(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["plan", "p.py", "--hosts", "two/hosts.toml", "--sharing-depth", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "if a, b have joined:" in lines
    assert lines[-1] == (
        "sharing depth 2 counts as 1, as copies on the owner's own host count zero (numbers/0, again/0); it needs 3 "
        "hosts, there are 2; with --sharing-depth full the death of a host loses no determinant"
    )
    assert any(line.split() == ["out/0", "on", "a,", "standby", "on", "a"] for line in lines)


def test_a_depth_that_is_reached_is_said_and_the_full_one_needs_no_word(capsys: pytest.CaptureFixture[str]) -> None:
    placement = planned(capsys, "--hosts", "four/hosts.toml", "--sharing-depth", "1")["placement"]
    assert isinstance(placement, dict)
    assert placement["sharing_depth"] == {"wanted": 1, "reached": 1, "hosts_needed": 2, "at_home": {}}
    assert main(["plan", "p.py", "--hosts", "four/hosts.toml", "--sharing-depth", "1"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("sharing depth 1 is reached")
    placement = planned(capsys, "--hosts", "four/hosts.toml")["placement"]
    assert isinstance(placement, dict) and "sharing_depth" not in placement
    assert "placement" not in planned(capsys)


@pytest.mark.parametrize(("folder", "depth", "count"), [("two", 2, 1), ("four", 1, 0), ("two", 100, 0)])
def test_a_job_begins_with_a_warning_where_its_hosts_do_not_reach_the_depth(
    folder: str, depth: int, count: int, tmp_path: Path
) -> None:
    pipeline = load("p.py", {})
    roster = str(tmp_path / folder / "hosts.toml")
    config = JobConfig("r", "tiny", "p.py", hosts=roster, sharing_depth=depth)
    assert len(warnings(plan(pipeline, config), config)) == count
    assert warnings(plan(pipeline, config), replace(config, hosts="")) == []


def test_a_plan_of_a_roster_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "p.py", "--hosts", "absent.toml"]) == 2
    assert "absent.toml cannot be read" in capsys.readouterr().err
