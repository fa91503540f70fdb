"""`causal plan --hosts`: where tasks would be, and what the sharing depth is worth with these hosts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from causal.config import JobConfig
from causal.network.curve import new_key
from causal.network.roster import save_key
from deploy.cli import main
from deploy.monitoring.placement_plan import RoomWatch, room_watch, warnings
from operators.builder.loading import load
from operators.engine.plan import plan
from standby.blueprint import Blueprint
from standby.supervision.job_view import JobView
from tests.unit.deploy import tiny
from tests.unit.deploy.test_report import host, view

PIPELINE = tiny.text(f'{tiny.KEYED}.key_by(lambda c: c["key"]).count("again")', f'{tiny.ROWS}, host="a"')


@pytest.fixture(autouse=True)
def _with_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("p.py").write_text(PIPELINE)
    for name in ("supervisor", "a", "b"):
        save_key(Path("two"), new_key(name))
    save_key(Path("one"), new_key("a"))
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
        "sharing depth 2 counts as 1, because copies on the owner's host do not count (numbers/0, again/0); it needs 3 "
        "hosts, but there are 2; with --sharing-depth full the death of a host loses no determinant"
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


def test_a_job_begins_with_a_warning_where_its_hosts_have_no_room_for_standbys(tmp_path: Path) -> None:
    pipeline = load("p.py", {})
    config = JobConfig("r", "tiny", "p.py", listen="tcp://127.0.0.1:1", hosts=str(tmp_path / "one" / "hosts.toml"))
    assert warnings(plan(pipeline, config), config) == [
        "1 host has no room for the standby of numbers/0, count/0, again/0; start another `causal agent`, or "
        "use --standbys 0"
    ]
    assert warnings(plan(pipeline, config), replace(config, standbys="0")) == []
    assert warnings(plan(pipeline, config), replace(config, hosts=str(tmp_path / "two" / "hosts.toml"))) == []


def seen(at_s: int, lacking: Sequence[str], **changes: object) -> JobView:
    return JobView.of(
        {
            **view(),
            "at_ns": at_s * 10**9,
            "hosts": [host("a"), host("b", "lost")],
            "without_standby": lacking,
            **changes,
        }
    )


def test_missing_standbys_of_a_running_job_are_said_once_for_each_task() -> None:
    watch = RoomWatch()
    assert [watch.line(seen(at_s, ["read/0", "out/0"])) for at_s in (1, 2, 5)] == [None] * 3
    said = "1 host has no room for the standby of out/0, read/0; start another `causal agent`, or use --standbys 0"
    assert watch.line(seen(6, ["read/0", "out/0"])) == said
    assert [watch.line(seen(at_s, ["out/0"])) for at_s in (7, 20)] == [None, None]
    assert watch.line(seen(21, ["read/1"])) is None
    assert "standby of read/1;" in (watch.line(seen(26, ["read/1"])) or "")


def test_standbys_that_are_only_late_or_were_said_to_be_missing_are_not_said() -> None:
    others: list[dict[str, object]] = [{"state": "recovering"}, {"hosts": []}]
    others.append({"tasks": [{"task": "out/0", "state": "finished"}]})
    for changes in others:
        watch = RoomWatch()
        assert [watch.line(seen(at_s, ["out/0"], **changes)) for at_s in (1, 9)] == [None, None]
    watch = RoomWatch(["out/0"])
    assert [watch.line(seen(at_s, ["out/0"])) for at_s in (1, 9)] == [None, None]


def test_the_watch_knows_what_was_said_of_the_hosts_of_a_roster(tmp_path: Path) -> None:
    pipeline = load("p.py", {})
    config = JobConfig("r", "tiny", "p.py", listen="tcp://127.0.0.1:1", hosts=str(tmp_path / "one" / "hosts.toml"))
    planned = plan(pipeline, config)
    Blueprint(planned.topology).save(tmp_path)
    lacking = [task.name for task in planned.topology.tasks]
    for known, lines in ((config, 0), (replace(config, hosts=""), 1)):
        watch = room_watch(tmp_path, known)
        assert sum(watch.line(seen(at_s, lacking)) is not None for at_s in (1, 9)) == lines
