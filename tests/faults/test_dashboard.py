"""`causal ui` on a job that has ended: what it answers, what it refuses, and that it never changes anything."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from benchmarks.harness.runs import sets
from causal.config import JobConfig
from causal.sealed import seal
from deploy.ui.dashboard import CONNECTIONS_MAX
from deploy.ui.observed import LETTERS_MAX, LOG_LINES_MAX
from deploy.ui.pages import ARGUMENT_MAX, BODY_BYTES_MAX
from standby.blueprint import Blueprint
from tests.faults.conftest import Start
from tests.faults.dashboard import Dashboard
from tests.faults.job import PIPELINES, causal, wait_for
from tests.members import members
from tests.unit.deploy.test_ui_models import topology, viewed

LETTER = {"operator": "count", "key": 1, "record": {"k": "<script>"}, "error": "KeyError: 1", "traceback": "line 7"}


def ended_job(directory: Path) -> Path:
    """Return the directory of a job that has ended."""
    job = directory / "job"
    (job / "dead-letters").mkdir(parents=True)
    (job / "logs").mkdir()
    JobConfig("r", "j", str(directory / "j.py")).save(job)
    Blueprint(topology()).save(job)
    write_view(job, json.dumps(viewed(ended={"status": 0, "reason": ""})))
    lines = "".join(f"2026-11-22T12:40:49.017Z count/0 print: {i}\n" for i in range(2 * LOG_LINES_MAX))
    (job / "logs" / "w1.log").write_text(lines)
    letters = "".join(json.dumps({**LETTER, "position": i}) + "\n" for i in range(2 * LETTERS_MAX))
    (job / "dead-letters" / "count-0.jsonl").write_text(letters + '{"half')
    return job


def write_view(job: Path, text: str) -> None:
    (job / "status.new").write_text(text)
    (job / "status.new").rename(job / "status.json")


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ended_job(tmp_path_factory.mktemp("ended"))


@pytest.fixture(scope="module")
def dashboard(job: Path) -> Iterator[Dashboard]:
    with Dashboard(job) as started:
        yield started


def test_a_job_that_has_ended_is_shown_and_not_changed(dashboard: Dashboard, job: Path) -> None:
    def files() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in sorted(job.rglob("*"))}

    before = files()
    model = dashboard.get("/api/job")
    assert (model["job"], model["state"], model["breaks"]) == ("j", "finished", False)
    assert [node["name"] for node in model["graph"]["nodes"]] == ["read", "count", "out"]
    log = dashboard.get("/api/log?task=count%2F0")["lines"]
    assert len(log) == LOG_LINES_MAX and log[-1].endswith(f"print: {2 * LOG_LINES_MAX - 1}")
    assert dashboard.get("/api/log?task=nothing")["lines"] == []
    letters = dashboard.get("/api/letters")["letters"]
    assert len(letters) == LETTERS_MAX and letters[0]["position"] == 2 * LETTERS_MAX - 1
    assert letters[0]["traceback"] == "line 7"
    status, answer = dashboard.kill("task", "count/0")
    assert status == 409 and "is not running" in answer["problem"]
    assert files() == before


def test_the_page_and_its_files_load_nothing_from_elsewhere(dashboard: Dashboard) -> None:
    for path in ("/", "/static/app.js", "/static/style.css"):
        status, headers, body = dashboard.request("GET", path, headers={})
        assert status == 200 and b"https://" not in body
        assert headers["content-security-policy"].startswith("default-src 'none'")
        assert headers["x-content-type-options"] == "nosniff"


def test_what_does_not_come_from_our_page_is_refused(dashboard: Dashboard) -> None:
    ours = dashboard.ours
    paths = (
        "/api/job",
        "/api/log?task=count/0",
        "/api/letters",
        "/api/state?operator=count&key=1",
        "/api/keys?operator=count",
    )
    for path in paths:
        assert dashboard.request("GET", path, headers={})[0] == 403
        assert dashboard.request("GET", path, headers={**ours, "x-causal-token": "guess"})[0] == 403
        assert dashboard.request("GET", path, headers={**ours, "Host": "evil.example:80"})[0] == 403
    assert dashboard.request("GET", "/", headers={"Host": "evil.example"})[0] == 403
    body = json.dumps({"kind": "supervisor", "name": ""}).encode()
    for headers in (
        {},
        {**ours, "Origin": "http://evil.example"},
        {"x-causal-token": dashboard.token},
        {**ours, "x-causal-token": ""},
        {**ours, "Host": "evil.example", "Origin": "http://evil.example"},
    ):
        status, _, answer = dashboard.request("POST", "/api/break", headers, body)
        assert status == 403 and b"killed" not in answer, headers
    assert dashboard.request("GET", "/api/break")[0] == 404


@pytest.mark.parametrize(
    "path",
    [
        "/static/../pages.py",
        "/static/%2e%2e/pages.py",
        "/static/..%2fpages.py",
        "/static/",
        "/job.json",
        "//etc/passwd",
    ],
)
def test_only_the_files_of_the_page_are_served(dashboard: Dashboard, path: str) -> None:
    status, _, body = dashboard.request("GET", path)
    assert status == 404 and b"import" not in body and b"root:" not in body


def test_what_is_asked_is_bounded(dashboard: Dashboard) -> None:
    assert dashboard.request("GET", f"/api/state?operator=count&key={'1' * (ARGUMENT_MAX + 1)}")[0] == 400
    for body in (b"", b"[]", b'{"kind": 1, "name": ""}', b"[" * 4000, b" " * (BODY_BYTES_MAX + 1), b"\xff"):
        assert dashboard.request("POST", "/api/break", body=body)[0] == 400, body[:20]
    assert dashboard.request("GET", "/" + "x" * 100_000)[0] in (400, 404)
    assert dashboard.get("/api/job")["job"] == "j"


@pytest.mark.parametrize("key", members(["1", "--help", "-x", "{", "$(reboot)"], "--help", "$(reboot)"))
def test_a_question_that_cannot_be_answered_is_one_line(dashboard: Dashboard, key: str) -> None:
    asked = {f"/api/state?operator=count&key={key}": 409, f"/api/keys?operator=count&prefix={key}": 200}
    for path, wanted in asked.items():  # the page asks for keys on its own, which is not an error on its console
        status, _, body = dashboard.request("GET", path)
        problem = json.loads(body)["problem"]
        assert status == wanted and "\n" not in problem and "Traceback" not in problem and problem


def test_while_the_directory_is_damaged_the_page_says_so(tmp_path: Path) -> None:
    job = ended_job(tmp_path)
    good = (job / "status.json").read_text()
    with Dashboard(job) as dashboard:
        for damaged in ("{", "[]", "{}", '{"tasks": 5, "at_ns": 1, "run": "r", "ended": null}', "[" * 100_000):
            write_view(job, damaged)
            for _ in range(2):
                status, _, body = dashboard.request("GET", "/api/job")
                assert status == 409 and "status.json is damaged" in json.loads(body)["problem"], damaged[:60]
        write_view(job, good)
        assert dashboard.get("/api/job")["state"] == "finished"
        (job / "topology.json").write_text("{}")
        assert b"topology.json is damaged" in dashboard.request("GET", "/api/job")[2]


def test_what_cannot_be_shown_is_one_line_and_status_2(tmp_path: Path, dashboard: Dashboard, job: Path) -> None:
    other = ended_job(tmp_path)
    config = json.loads((other / "job.json").read_text())
    (other / "job.json").write_text(seal({**{k: v for k, v in config.items() if k != "digest"}, "format": 99}))
    for arguments, expected in (
        (("--state-dir", str(tmp_path / "nowhere")), "does not contain a job"),
        (("--state-dir", str(other)), "was written by another version"),
        (("--state-dir", str(job), "--port", str(dashboard.port)), "cannot be used"),
        (("--state-dir", str(job), "--port", "70000"), "is not a port"),
        (("j", "--state-dir", str(job)), "use only one of JOB, --job and --state-dir"),
        (("--job", "j", "--state-dir", str(job)), "use only one of JOB, --job and --state-dir"),
        (("j", "--job", "j"), "use only one of JOB, --job and --state-dir"),
    ):
        status, line = causal(tmp_path, "ui", *arguments)
        assert status == 2 and expected in line and len(line.splitlines()) == 1, line


def test_without_a_port_a_free_one_is_taken(dashboard: Dashboard, job: Path) -> None:
    with Dashboard(job, "--no-break") as another:
        assert another.port != dashboard.port and another.token != dashboard.token
        status, answer = another.kill("supervisor")
        assert status == 403 and "--no-break" in answer["problem"]


def test_a_browser_that_does_not_read_blocks_no_other(dashboard: Dashboard) -> None:
    slow = [socket.create_connection(("127.0.0.1", dashboard.port)) for _ in range(5)]
    try:
        for each in slow:
            each.sendall(b"GET /api/job HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        wait_for("it answers", lambda: dashboard.get("/api/job")["job"] == "j")
    finally:
        for each in slow:
            each.close()


@pytest.mark.campaign
def test_requests_that_are_never_ended_block_no_other_for_long(job: Path) -> None:
    with Dashboard(job) as another, ExitStack() as slow:
        for begun in (b"", b"GET /api/job HTTP/1.1\r\n"):
            for _ in range(CONNECTIONS_MAX):
                connection = slow.enter_context(socket.create_connection(("127.0.0.1", another.port)))
                connection.sendall(begun)
        wait_for("they are too many", lambda: another.request("GET", "/")[0] == 503)
        wait_for("they are closed", lambda: another.request("GET", "/")[0] == 200)


def test_a_key_whose_records_take_long_leads_on_the_page_of_its_task(start: Start, tmp_path: Path) -> None:
    slow = ",".join(str(i) for i in range(3, 500, 7))  # the records of key 3
    settings = sets(slow="process", at=slow, sleep_s=0.3, count=4000, out=tmp_path / "out.db")
    job = start(PIPELINES / "long_events.py", *settings)
    job.until_warm()

    def hottest() -> list[object] | None:
        tasks = {task["task"]: task["hot_keys"] for task in page.get("/api/job")["tasks"]}
        keys = tasks.pop("count/0")
        assert tasks and not any(tasks.values()), "the others work on no key"
        return next((each for each in keys[:1] if each[0] == "3" and each[1] > 0.5), None)

    with Dashboard(job.state) as page:
        wait_for("key 3 takes most of the time", hottest)
    job.interrupt()
    assert job.finish()[0] == 130


def test_a_question_under_way_ends_with_the_dashboard(tmp_path: Path) -> None:
    job = ended_job(tmp_path)
    (tmp_path / "j.py").write_text("import time\ntime.sleep(600)\n")
    started = tmp_path / "started"
    (tmp_path / "j.py").write_text(f"import time\nopen({str(started)!r}, 'w')\ntime.sleep(600)\n")
    dashboard = Dashboard(job)
    with ThreadPoolExecutor(1) as asking, dashboard:
        answer = asking.submit(dashboard.request, "GET", "/api/keys?operator=count")
        wait_for("the pipeline is loaded", lambda: started.exists() or answer.done())
        assert not answer.done(), answer.result()
    assert "problem" in json.loads(answer.result()[2])  # and nothing was printed
