"""Objects in a real S3 server as a source: the kit, odd keys, refusals of the server, and its restarts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from benchmarks.servers.s3 import BUCKET, S3
from causal.errors import CausalError, DeterminantsLost, OperatorFailed, PipelineError, Unavailable
from causal.records.rows import listed
from causal.records.unreadable import Unreadable
from operators.source import SourceContext
from operators.sources import FilesSource, conformance
from operators.sources.conformance import Subject
from operators.sources.conformance.deaths import survives_kills
from operators.sources.conformance.servers import continues_after_a_restart, waits_for_an_unavailable_server
from operators.sources.files import object_client
from tests.members import except_for
from tests.servers.cut_line import Line

LINES = [b'{"n": %d}' % number for number in range(8)] + [b"damaged", b'{"n": 9}']
BAD = Unreadable("", "", "")
LESS_OFTEN = (survives_kills, waits_for_an_unavailable_server, continues_after_a_restart)
"""They need a process of their own, or a way to the server that can be cut."""


def value_of(line: bytes) -> Any:
    return BAD if line == b"damaged" else json.loads(line)


class Objects:
    """The objects of one test, and the elements that a source of them has."""

    def __init__(self, server: S3, directory: Path) -> None:
        self._server = server
        self._folder = directory.name
        self._names: list[str] = []
        self.rows: list[Any] = []
        self.pattern = f"s3://{BUCKET}/{self._folder}/*.jsonl"

    def add(self, name: str) -> None:
        self._names.append(name)
        self._server.put(f"{self._folder}/{name}.jsonl", b"\n\n".join(LINES) + b"\n")
        self.rows.extend(map(value_of, LINES))

    def expire(self, partition: int, position: int) -> None:
        for name in self._names[: position // len(LINES)]:
            self._server.delete(f"{self._folder}/{name}.jsonl")

    def subject(self, job: Path) -> Subject:
        job.mkdir(exist_ok=True)
        for name in "abcd":
            self.add(name)
        return Subject(
            lambda: FilesSource(self.pattern, follow=True),
            lambda partition: self.rows,
            job,
            extend=lambda: self.add("e"),
            expire=self.expire,
        )


@pytest.mark.parametrize("check", except_for(conformance.CHECKS, *LESS_OFTEN), ids=lambda check: check.__name__)
def test_objects_conform(check: Callable[[Subject], None], s3_here: S3, tmp_path: Path) -> None:
    check(Objects(s3_here, tmp_path).subject(tmp_path / "job"))


@pytest.fixture
def line(s3_here: S3, monkeypatch: pytest.MonkeyPatch) -> Iterator[Line]:
    """The way by which clients of this process reach the server."""
    line = Line(int(s3_here.endpoint.rpartition(":")[2]))
    monkeypatch.setenv("AWS_ENDPOINT", f"http://127.0.0.1:{line.port}")
    monkeypatch.setattr(object_client, "RETRY_S", 0.2)
    yield line
    line.close()


def test_an_unavailable_store_is_waited_for(s3_here: S3, line: Line, tmp_path: Path) -> None:
    subject = Objects(s3_here, tmp_path).subject(tmp_path / "job")
    subject.away = line.cut
    waits_for_an_unavailable_server(subject)


def test_a_store_that_is_restarted_changes_no_element(s3_here: S3, line: Line, tmp_path: Path) -> None:
    def restart() -> None:
        with line.cut():
            time.sleep(0.1)

    subject = Objects(s3_here, tmp_path).subject(tmp_path / "job")
    subject.restart = restart
    continues_after_a_restart(subject)


def test_a_store_that_does_not_answer_keeps_no_task_waiting(own_s3: S3, tmp_path: Path) -> None:
    subject = Objects(own_s3, tmp_path).subject(tmp_path / "job")
    subject.away = own_s3.away
    waits_for_an_unavailable_server(subject)


KILLED = """
import sys
from pathlib import Path
from operators.sources import FilesSource
from operators.sources.conformance import Subject
from operators.sources.conformance.deaths import survives_kills
from tests.servers.test_object_source import LINES, value_of
rows = [value_of(line) for line in LINES] * 4
survives_kills(Subject(lambda: FilesSource(sys.argv[1]), lambda partition: rows, Path(sys.argv[2])))
"""


def test_objects_survive_kills(s3_here: S3, tmp_path: Path) -> None:
    """The client has threads, and this process has used it, so a process of its own forks those that are killed."""
    objects = Objects(s3_here, tmp_path)
    objects.subject(tmp_path / "job")
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, objects.pattern, str(tmp_path / "job")], capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr


def read_all(source: FilesSource, job: Path) -> list[Any]:
    """Return the records of a source that ends."""
    job.mkdir(exist_ok=True)
    reader = source.open(0, SourceContext("s", job, 0))
    records: list[Any] = []
    try:
        while True:
            read = reader.read(len(records), 1000)
            records += listed(read.records) if read is not None else []
            if read is not None and read.ended:
                return records
    finally:
        reader.close()


KEYS = ("a b", "é", "p%20q", "h#x", "q&y=z", "plus+", "t~", "c:d", "deep/er/x", "_hidden", "deep/.hid/x", "A'B(1)")


def test_keys_stand_for_themselves_and_folders_of_consoles_are_no_objects(s3_here: S3, tmp_path: Path) -> None:
    for key in KEYS:
        s3_here.put(f"{tmp_path.name}/in/{key}", key.encode())
    for folder in ("deep", "deep/er", "empty"):
        s3_here.put(f"{tmp_path.name}/in/{folder}/", b"")
    s3_here.put(f"{tmp_path.name}/in-another/x", b"no")
    visible = sorted(key for key in KEYS if "hid" not in key)
    url = f"s3://{BUCKET}/{tmp_path.name}/in/"
    for number, (pattern, expected) in enumerate((("**", visible), ("*", [key for key in visible if "/" not in key]))):
        source = FilesSource(url + pattern, located=True)
        records = read_all(source, tmp_path / str(number))
        assert [(record["file"], record["value"]) for record in records] == [(url + key, key) for key in expected]
    for key in KEYS:
        assert read_all(FilesSource(url + key), tmp_path / f"key-{KEYS.index(key)}") == [key]


def test_an_object_that_changes_while_it_is_read_is_one_line(s3_here: S3, tmp_path: Path) -> None:
    key = f"{tmp_path.name}/a"
    changes: tuple[tuple[Callable[[], None], str], ...] = (
        (lambda: s3_here.put(key, b"z\n" * 3_000_000), "its ETag was .* and now is "),
        (lambda: s3_here.put(key, b"z\n"), "it had 6,000,000 bytes and now has 2;"),
        (lambda: s3_here.delete(key), "is missing, but the job has not finished reading it;"),
    )
    for number, (change, why) in enumerate(changes):
        s3_here.put(key, b"a\n" * 3_000_000)
        (tmp_path / str(number)).mkdir()
        reader = FilesSource(f"s3://{BUCKET}/{key}").open(0, SourceContext("s", tmp_path / str(number), 0))
        count = 0
        with pytest.raises(DeterminantsLost, match=f"^s3://{BUCKET}/{key} .*{why}.*restore the original"):
            while True:
                read = reader.read(count, 100_000)
                if read is not None and read.records:
                    assert set(listed(read.records)) == {"a"}
                    if not count:
                        change()
                    count += len(read.records)
        reader.close()


class Refusing(BaseHTTPRequestHandler):
    """A store that lists one object, and answers a request for it as the test wants."""

    status = 403
    listing = (
        '<?xml version="1.0"?><ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>in/a</Key>'
        '<Size>4</Size><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>"e1"</ETag></Contents>'
        "</ListBucketResult>"
    )

    def do_GET(self) -> None:
        if "list-type" in self.path:
            self.answer(200 if self.status != 401 else 403, self.listing.encode(), {})
        elif self.status == 206:  # a server that knows no conditions
            self.answer(206, b"b\nb\n", {"ETag": '"e2"', "Content-Range": "bytes 0-3/4"})
        elif self.status == 200:
            self.answer(206, b"b\n", {"ETag": '"e1"', "Content-Range": "bytes 0-3/4"})
        else:
            self.answer(self.status, b"<Error><Code>AccessDenied</Code></Error>", {})

    def answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, text in {"Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT", **headers}.items():
            self.send_header(name, text)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        return


SECRET = "s3cret-of-this-test"


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """The options with which a client reaches a store that refuses."""
    monkeypatch.setattr(object_client, "RETRY_S", 0.2)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield {
        "AWS_ENDPOINT": f"http://127.0.0.1:{server.server_port}", "AWS_ALLOW_HTTP": "true", "AWS_REGION": "x",
        "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": SECRET,
    }  # fmt: skip
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("status", "kind", "line"),
    [
        (403, OperatorFailed, "s3://b/in/a cannot be read: permission denied (.*); grant the job's credentials"),
        (401, OperatorFailed, "s3://b/in cannot be listed: permission denied (.*); grant the job's credentials"),
        (404, DeterminantsLost, "s3://b/in/a is missing"),
        (503, Unavailable, "s3://b/in/a cannot be read: "),
        (206, DeterminantsLost, 's3://b/in/a has changed since the job listed it: its ETag was "e1" and now is "e2"'),
    ],
)
def test_a_refusal_of_the_store_is_one_line_without_secrets(
    status: int,
    kind: type[CausalError],
    line: str,
    refusing: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Refusing, "status", status)
    source = FilesSource("s3://b/in/*", options=refusing)
    with pytest.raises(PipelineError, match=f"FilesSource: {line}") as refusal:
        source.check()
    with pytest.raises(kind, match=line) as failure:
        read_all(source, tmp_path)
    for shown in (str(refusal.value), str(failure.value)):
        assert SECRET not in shown and "\n" not in shown


@pytest.mark.parametrize(
    ("url", "options", "line"),
    [
        ("s3://b/x", {"AWS_NOTHING": SECRET}, "s3://b cannot be used: .*correct options= or the variables"),
        ("az://c/x", {}, "az://c cannot be used: .*ccount.*correct options= or the variables"),
        ("gs://b/x", {"GOOGLE_SERVICE_ACCOUNT": "/nothing"}, "gs://b cannot be used: "),
        (f"s3://missing-{BUCKET}/x/*", {}, "cannot be listed: .*; check the URL, the endpoint and the credentials"),
    ],
)
def test_wrong_addresses_and_options_are_one_line(url: str, options: dict[str, str], line: str, s3_here: S3) -> None:
    for name in list(os.environ):
        assert not name.startswith("AZURE_")
    with pytest.raises(PipelineError, match=line) as refusal:
        FilesSource(url, options=options).check()
    assert SECRET not in str(refusal.value) and "\n" not in str(refusal.value)
