"""`causal ui` on the past of a job: with a real recording, a long one, a damaged one, and without any."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from causal.config import JobConfig
from causal.recorded_files import DIRECTORY
from tests.faults.dashboard import Dashboard
from tests.faults.job import causal_output, wait_for
from tests.faults.recorded_jobs import MARKUP, recorded_shop, write_long_recording
from tests.faults.test_dashboard import ended_job

ORDER = '"order": 777,'


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded_shop(tmp_path_factory.mktemp("shop"))


@pytest.fixture(scope="module")
def dashboard(shop: Path) -> Iterator[Dashboard]:
    with Dashboard(shop) as started:
        yield started


def problem(dashboard: Dashboard, path: str) -> str:
    """Return the one line with which a request is refused."""
    status, _, body = dashboard.request("GET", path)
    line = json.loads(body)["problem"]
    assert status == 409 and "\n" not in line and "Traceback" not in line, body
    return str(line)


def test_the_axis_leads_to_epochs_and_to_failures_with_commands_that_work(dashboard: Dashboard, shop: Path) -> None:
    axis = dashboard.get("/api/recorded")
    listed = json.loads(causal_output(shop.parent, "recordings", "job", "--json"))
    assert (axis["first"], axis["last"]) == (listed["stretches"][0]["first"], listed["stretches"][0]["last"])
    assert [bar["first"] for bar in axis["bars"]] == list(range(axis["first"], axis["last"] + 1))
    newest, before = axis["failed"]
    assert newest["task"] == before["task"] == "total/0" and newest["at_s"] > before["at_s"]

    epoch = dashboard.get(f"/api/recorded/epoch?epoch={axis['last']}")
    assert {each["task"] for each in epoch["tasks"]} == set(listed["versions"][0]["tasks"])
    assert epoch["bytes"] == axis["bars"][-1]["bytes"] == sum(each["bytes"] for each in epoch["tasks"])
    assert (epoch["before"], epoch["after"]) == (axis["last"] - 1, None)
    assert {each["name"] for each in epoch["settings"]} == {"checkpoint_interval_s", "on_error", "record"}

    for failure in (newest, before):
        shown = dashboard.get(f"/api/recorded/failure?epoch={failure['epoch']}&task=total/0")
        verb, *arguments = shlex.split(shown["commands"][0]["command"])[1:]
        assert verb == "replay" and ("--epoch" in arguments) == (failure is before)
        assert causal_output(shop.parent, verb, *arguments).startswith(f"total/0, epoch {shown['epoch']}")


def test_a_row_is_found_by_what_it_contains(dashboard: Dashboard, shop: Path) -> None:
    newest = dashboard.get("/api/rows?sink=&text=")
    assert newest["sinks"] == ["out"] and len(newest["rows"]) == 50
    positions = [each["position"] for each in newest["rows"]]
    assert positions == sorted(positions, reverse=True) and newest["rows"][0]["account"] == "out/0"
    assert "problem" in dashboard.get("/api/rows?sink=in&text=")
    [row] = dashboard.get(f"/api/rows?{urlencode({'sink': 'out', 'text': ORDER})}")["rows"]
    shown = dashboard.get(f"/api/recorded/row?account={row['account']}&position={row['position']}")
    assert "'order': 777," in replayed(shown, shop)
    marked = dashboard.get(f"/api/rows?text={quote(MARKUP)}")["rows"]
    assert marked and all(MARKUP in each["row"] for each in marked)


def test_a_dead_letter_leads_to_the_record_that_failed(dashboard: Dashboard, shop: Path) -> None:
    letters = dashboard.get("/api/letters")["letters"]
    shown = dashboard.get(f"/api/recorded/row?{urlencode(letters[1]['row'])}")
    order = json.loads(letters[1]["record"].replace("'", '"'))["order"]
    assert f"'order': {order}," in replayed(shown, shop)


def replayed(shown: dict[str, Any], shop: Path) -> str:
    """Return what the first replay prints that the page offers."""
    command = next(each["command"] for each in shown["commands"] if each["command"].startswith("causal replay "))
    return causal_output(shop.parent, *shlex.split(command)[1:])


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("/api/recorded?since=noon", "is not a time in seconds since 1970"),
        ("/api/recorded?since=nan", "is not a time in seconds since 1970"),
        ("/api/recorded?until=1e300", "is not a time in seconds since 1970"),
        ("/api/recorded/epoch?epoch=99999", "contains no epoch 99999; it has epochs 0 to"),
        ("/api/recorded/epoch?epoch=-1", "is not the number of an epoch or a position"),
        (f"/api/recorded/epoch?epoch={'9' * 500}", "is not the number of an epoch or a position"),
        ("/api/recorded/epoch", "is not the number of an epoch or a position"),
        ("/api/recorded/failure?epoch=0&task=total/0", "no failure of total/0 was detected in epoch 0"),
        ("/api/recorded/row?account=out/0&position=x", "is not the number of an epoch or a position"),
    ],
)
def test_what_is_not_recorded_is_one_line(dashboard: Dashboard, path: str, line: str) -> None:
    assert line in problem(dashboard, path)


def test_without_the_token_nothing_about_the_past_is_answered(dashboard: Dashboard) -> None:
    for path in ("/api/recorded", "/api/recorded/epoch?epoch=1", "/api/recorded/row?account=a&position=1", "/api/rows"):
        assert dashboard.request("GET", path, headers={})[0] == 403


def test_a_job_that_is_not_recorded_says_how_to_record_it(tmp_path: Path) -> None:
    job = ended_job(tmp_path)
    with Dashboard(job) as dashboard:
        line = dashboard.get("/api/recorded")["none"]
        assert line.startswith("The job is not recorded. From now on it is, with: causal run ")
        assert line.endswith(" --resume --state-dir job --record")
        assert "is not recorded" in problem(dashboard, "/api/recorded/epoch?epoch=1")
        config = JobConfig.load(job)
        JobConfig(config.run, config.name, config.pipeline, record="1h,1GB").save(job)
        assert "after the next checkpoint" in dashboard.get("/api/recorded")["none"]


def test_a_long_recording_is_answered_within_bounds_and_a_damaged_one_with_a_line(tmp_path: Path) -> None:
    job = ended_job(tmp_path)
    write_long_recording(job, 10_000)
    with Dashboard(job) as dashboard:
        _, _, body = dashboard.request("GET", "/api/recorded")
        axis = json.loads(body)
        assert axis["epochs"] == 9_900 and len(axis["bars"]) <= 210 and len(body) < 60_000
        assert [each["version"] for each in axis["versions"]] == [1, 1, 2, 3, 4]
        assert "the code of version 1 again" in [each["change"] for each in axis["versions"]]
        zoomed = dashboard.get(f"/api/recorded?since={axis['since_s'] + 60}&until={axis['since_s'] + 120}")
        assert all(bar["first"] == bar["last"] for bar in zoomed["bars"]) and len(zoomed["bars"]) == 60

        entries = sorted((job / DIRECTORY / "index").glob("i*.json"))
        whole = entries[5].read_text()
        assert "is missing; restore it" in problem(dashboard, "/api/recorded/failure?epoch=700&task=total/0")
        for damage in (b"", b"{", b"\0" * 500, whole.encode()[:-20]):
            entries[5].unlink()
            dashboard.get("/api/recorded")  # without it
            entries[5].write_bytes(damage)
            assert "restore it from a copy" in problem(dashboard, "/api/recorded")
        entries[5].write_text(whole)
        assert dashboard.get("/api/recorded")["epochs"] == 9_900
        os.rename(job / DIRECTORY, job / "gone")
        assert "none" in dashboard.get("/api/recorded")


def assert_drawn(lineage: dict[str, Any]) -> None:
    """Assert that the drawing leads from the orders of the key to the row."""
    assert [column["operator"] for column in lineage["columns"]] == ["orders", "total", "out"]
    newest = lineage["columns"][0]["nodes"][-1]
    assert ORDER in newest["record"] and not newest["bounded"] and not lineage["exact"]


def searched(dashboard: Dashboard, kind: str, row: str) -> tuple[int, dict[str, Any]]:
    """Begin or cancel a search, as the page does."""
    body = json.dumps({"kind": kind, "name": row}).encode()
    status, _, answer = dashboard.request("POST", "/api/recorded/search", body=body)
    return status, json.loads(answer)


def test_the_origin_of_a_row_is_searched_for_once_at_a_time_and_can_be_cancelled(
    dashboard: Dashboard, shop: Path
) -> None:
    def files() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in sorted(shop.rglob("*"))}

    def progress(position: int) -> dict[str, Any]:
        return dashboard.get(f"/api/recorded/origin?account=out/0&position={position}")

    def ended(position: int) -> dict[str, Any]:
        return wait_for("it ends", lambda: shown if (shown := progress(position))["state"] != "searching" else None)

    before = files()
    [row] = dashboard.get(f"/api/rows?text={quote(ORDER)}")["rows"]
    wanted = row["position"]
    assert progress(wanted) == {"state": "idle"}
    assert searched(dashboard, "search", f"out/0:{wanted}")[1]["state"] == "searching"
    status, refused = searched(dashboard, "search", "out/0:3")
    assert status == 409 and refused["problem"].startswith(f"the origin of row out/0:{wanted} is being looked up")
    assert progress(3)["state"] == "busy", "another tab sees that it has to wait"
    assert searched(dashboard, "search", f"out/0:{wanted}")[0] == 200, "the same question joins the one in progress"
    answer = ended(wanted)
    assert answer["state"] == "found", answer
    lineage = answer["lineage"]
    assert_drawn(lineage)
    assert "'order': 777," in answer["then"] and "  after   {" in answer["then"]

    assert searched(dashboard, "search", "out/0:3")[1]["state"] == "searching"
    assert searched(dashboard, "cancel", "out/0:3")[0] == 200
    assert ended(3)["problem"] == "the search was cancelled"
    assert searched(dashboard, "search", "out/0:999999")[0] == 200
    assert "rows in the recorded epochs; positions begin at 0" in ended(999_999)["problem"]
    for kind, name in (("search", "out"), ("find", "out/0:1"), ("search", ":1"), ("search", "--version:1")):
        status, refused = searched(dashboard, kind, name)
        assert status == 409 and "\n" not in refused["problem"]
    headers = {**dashboard.ours, "Origin": "http://evil.example"}
    body = json.dumps({"kind": "search", "name": "out/0:1"}).encode()
    assert dashboard.request("POST", "/api/recorded/search", headers, body)[0] == 403
    assert files() == before, "the job is not touched"
