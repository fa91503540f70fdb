"""Lines that come once, of jobs whose tasks and whose reading process are killed: each taken one comes out once."""

from __future__ import annotations

import socket
import subprocess
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.processes import kill, of_job
from tests.faults.conftest import Start
from tests.faults.job import PIPELINES, WAIT_S, causal, command, environment, wait_for
from tests.faults.test_files import until, written

LINES_IN = PIPELINES / "lines_in.py"
READING = "operators.runtime.ingesting"


def expect(path: Path, lines: list[str]) -> None:
    rows = written(path)
    assert Counter(row["line"] for row in rows) == Counter(lines)
    assert sorted(row["n"] for row in rows) == list(range(1, len(lines) + 1))


def reading(state: Path) -> int:
    """Return the process that reads lines."""
    return wait_for("lines are read", lambda: next((p for p, c in of_job(state).items() if READING in c), None))


def replace_reading(state: Path) -> None:
    before = reading(state)
    assert kill(before)
    wait_for("another process reads", lambda: reading(state) != before)


def are_out(path: Path, count: int) -> bool:
    return path.exists() and len(written(path)) >= count


@pytest.mark.campaign
def test_standard_input_while_tasks_and_the_reading_process_are_killed(tmp_path: Path) -> None:
    state, out = tmp_path / "job", tmp_path / "out.db"
    argv = command("run", str(LINES_IN), "--state-dir", str(state))
    run = subprocess.Popen(
        argv, cwd=tmp_path, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert run.stdin is not None
    lines: list[str] = []
    try:
        for turn, victim in enumerate(("lines/0", "", "number/0", "out/0")):
            more = [f"{turn}-{number}" for number in range(500)]
            lines += more
            run.stdin.write("".join(line + "\n" for line in more).encode())
            run.stdin.flush()
            wait_for("they are out", partial(are_out, out, len(lines)))
            if victim:
                assert causal(tmp_path, "kill", victim, "--state-dir", str(state))[0] == 0
            else:
                wait_for("nothing is being taken", lambda: not (state / "ingest" / "lines" / "taking").exists())
                replace_reading(state)
        run.stdin.write(b"half a line at the end")
        run.stdin.close()
        assert run.wait(WAIT_S) == 0, run.stderr.read() if run.stderr else ""
    finally:
        run.kill()
        run.wait()
        if run.stderr is not None:
            run.stderr.close()
    expect(out, [*lines, "half a line at the end"])


@pytest.mark.campaign
def test_a_redirected_file_is_continued_where_the_log_ends(tmp_path: Path) -> None:
    lines = [str(number) for number in range(50_000)]
    (tmp_path / "in").write_text("".join(line + "\n" for line in lines))
    with open(tmp_path / "in") as file:
        argv = command("run", str(LINES_IN), "--kill", "lines/0@0.1")
        subprocess.run(
            argv, cwd=tmp_path, env=environment(), stdin=file, check=True, capture_output=True, timeout=WAIT_S
        )
    expect(tmp_path / "out.db", lines)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def post(port: int, lines: list[str], token: str = "secret") -> int:
    body = "\n".join(lines).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/", body, {"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            status: int = response.status
            return status
    except urllib.error.HTTPError as problem:
        return problem.code
    except OSError:
        return 0


def test_what_the_listener_has_acknowledged_comes_out_once(start: Start, tmp_path: Path) -> None:
    port = free_port()
    job = start(LINES_IN, "--set", f"listen=127.0.0.1:{port}")
    wait_for("it listens", lambda: post(port, ["first"]) == 200)
    acknowledged, number = ["first"], 0
    unsure: list[str] = []
    for victim in ("lines/0", "", "number/0", ""):
        dying = job.pid_of(victim) if victim else reading(job.state)
        killer = threading.Timer(0.05, kill, [dying])
        killer.start()
        for _ in range(20):
            batch = [f"{number}-{each}" for each in range(10)]
            number += 1
            (acknowledged if post(port, batch) == 200 else unsure).extend(batch)
        killer.join()
        if victim:
            job.until_replaced(dying)
        wait_for("it listens", lambda: post(port, []) == 200)
    assert post(port, ["refused"], token="other") == 401
    job.kill_everything()
    job.start("--resume")
    wait_for("it listens", lambda: post(port, []) == 200)
    assert post(port, ["last"]) == 200
    job.until("the last line is out", lambda view: "last" in [row["line"] for row in written(tmp_path / "out.db")])
    job.kill_everything()
    rows = Counter(row["line"] for row in written(tmp_path / "out.db"))
    assert {line: rows[line] for line in [*acknowledged, "last"]} == dict.fromkeys([*acknowledged, "last"], 1)
    assert set(rows) <= {*acknowledged, *unsure, "last"} and max(rows.values()) == 1


class Page(BaseHTTPRequestHandler):
    """Serves the content of the moment, with an ETag or without, or an error."""

    content, etag, status = b"", "", 200

    def do_GET(self) -> None:
        same = bool(self.etag) and self.headers.get("If-None-Match") == self.etag
        self.send_response(304 if same else self.status)
        if self.etag:
            self.send_header("ETag", self.etag)
        if not same:
            self.send_header("Content-Length", str(len(self.content)))
        self.end_headers()
        if not same:
            self.wfile.write(self.content)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing."""


@contextmanager
def serving() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.campaign
def test_each_content_of_a_page_is_taken_once(start: Start, tmp_path: Path) -> None:
    with serving() as port:
        Page.content = b'[{"a": 1},\n {"a": 2}]'
        job = start(LINES_IN, "--set", f"poll=http://127.0.0.1:{port}/")
        until(job, tmp_path, 2)
        replace_reading(job.state)
        Page.status, Page.content = 500, b"broken"
        Page.status, Page.content, Page.etag = 200, b'{"a": 3}\n{"a": 4}\n', '"v2"'
        job.replace("lines/0")
        until(job, tmp_path, 4)
        Page.content, Page.etag = b'{"a": 5}', '"v3"'
        until(job, tmp_path, 5)
        job.kill_everything()
    assert [row["line"]["a"] for row in sorted(written(tmp_path / "out.db"), key=lambda row: row["n"])] == [
        1,
        2,
        3,
        4,
        5,
    ]
