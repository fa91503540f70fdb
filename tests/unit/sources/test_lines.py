"""Lines on their way into the ingest log: whole whatever the reads, bounded, and refused before they are taken."""

from __future__ import annotations

import http.client
import http.server
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.errors import CorruptData, PipelineError
from causal.records.unreadable import Unreadable
from operators.ingest.ingested_source import log_of
from operators.source import SourceContext
from operators.sources import HttpSource, StdinSource
from operators.sources.files.cutting_rows import json_of
from operators.sources.lines import http_source, standard_input
from operators.sources.lines.lines_log import LineSource, LineWriter
from operators.sources.lines.polling import fetch, poll
from operators.sources.lines.stdin_source import Lines
from tests.canned import Canned, answer
from tests.properties.test_files import BAD, JSON_LINES, MAX, plain, read_from, rows_of_text, text_bytes


@given(text_bytes, st.integers(1, 9), st.integers(1, 30), st.lists(st.integers(0, 50), max_size=5))
def test_lines_come_out_as_those_of_the_whole_input(
    tmp_path_factory: Any, content: bytes, size: int, batch: int, resumes: list[int]
) -> None:
    """Any division into reads and batches, and any position at which another reader begins."""
    directory = tmp_path_factory.mktemp("lines")
    writer = LineWriter(log_of(directory, "s"))
    lines = Lines(MAX, skips_empty=False)
    for begin in range(0, len(content), size):
        lines.add(content[begin : begin + size])
        assert len(lines._rest) <= MAX + 1
        if begin // size % batch == 0 and (ready := lines.take(False)):
            writer.publish(ready, "")
    if ready := lines.take(True):
        writer.publish(ready, "")
    writer.end()
    source, context = StdinSource(row_bytes_max=MAX), SourceContext("s", directory, 0)
    rows = read_from(source.open(0, context), 0)
    assert plain(rows) == rows_of_text(content)
    for position in resumes:
        position %= len(rows) + 1
        reader = source.open(0, context)
        assert read_from(reader, position) == rows[position:]


@given(st.lists(st.sampled_from(sorted(JSON_LINES)), max_size=12), st.sampled_from([b"\n", b"\r\n"]), st.booleans())
def test_a_body_is_refused_for_its_first_bad_line_or_taken_whole(lines: list[bytes], end: bytes, marked: bool) -> None:
    body = b"\xef\xbb\xbf" * marked + end.join(lines)
    values = [[int(line)] if len(line) > MAX else JSON_LINES[line] for line in lines]  # the bound is another one here
    source = HttpSource("127.0.0.1:1", body_bytes_max=1 << 20)
    bad = [number for number, each in enumerate(values, 1) if each == [BAD]]
    if bad:
        with pytest.raises(ValueError, match=rf"^line:{bad[0]}: "):
            source.lines_of(body)
    else:
        assert [json_of(line.decode()) for line in source.lines_of(body)] == [
            value for each in values for value in each
        ]


def test_a_bad_line_says_which_it_is(tmp_path: Path) -> None:
    writer = LineWriter(log_of(tmp_path, "s"))
    writer.publish([b"1", b"{"], "")
    writer.publish([b"x" * 20], "")
    writer.end()
    reader = StdinSource("json", row_bytes_max=16).open(0, SourceContext("s", tmp_path, 0))
    one, brace, long = read_from(reader, 0)
    assert one == 1 and type(brace) is Unreadable and type(long) is Unreadable
    assert brace.where == "standard input:2" and brace.why.startswith("not JSON: ")
    assert (long.where, long.why) == ("standard input:3", "a line of more than 16 bytes")


def test_a_damaged_segment_is_never_believed(tmp_path: Path) -> None:
    writer = LineWriter(log_of(tmp_path, "s"))
    writer.publish([b"1"], "")
    [segment] = (tmp_path / "ingest" / "s" / "segments").iterdir()
    segment.write_bytes(b"2\n")
    with pytest.raises(CorruptData, match="does not match its digest"):
        StdinSource().open(0, SourceContext("s", tmp_path, 0)).read(0, 1)


@contextmanager
def standard_input_of(descriptor: int) -> Iterator[None]:
    """Provide this process, which also plays `causal run`, with another standard input."""
    before = os.dup(0)
    try:
        os.dup2(descriptor, 0)
        with standard_input.offered():
            yield
    finally:
        os.dup2(before, 0)
        os.close(before)


def ingested(directory: Path) -> list[Any]:
    """Return the lines of the standard input of this process, as a job reads them."""
    directory.mkdir(exist_ok=True)
    StdinSource().check()
    StdinSource().ingest(LineWriter(log_of(directory, "s")), "s", directory, os.getpid())
    return read_from(StdinSource().open(0, SourceContext("s", directory, 0)), 0)


def test_a_pipe_of_which_something_may_be_lost_ends_the_job_with_a_line(tmp_path: Path) -> None:
    (tmp_path / "ingest" / "s").mkdir(parents=True)
    (tmp_path / "ingest" / "s" / "taking").write_text(str(os.getpid()))
    reading, writing = os.pipe()
    with standard_input_of(reading):
        os.close(reading)
        with pytest.raises(PipelineError, match="was killed after reading some lines and before storing them"):
            ingested(tmp_path)
        os.write(writing, b"a\nb")
        os.close(writing)
        assert ingested(tmp_path) == ["a", "b"], "`--resume`: what comes next"


def test_the_descriptor_itself_is_read_whatever_it_is(tmp_path: Path) -> None:
    """A socket cannot be opened again, nor a file without its rights; the place of a shared file does not move."""
    ours, theirs = socket.socketpair()
    with ours, theirs, standard_input_of(theirs.fileno()):
        ours.sendall(b"a\nb")
        ours.shutdown(socket.SHUT_WR)
        assert ingested(tmp_path / "socket") == ["a", "b"]
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    with standard_input_of(reading):
        os.close(reading)

        def write() -> None:
            os.write(writing, b"c\n")
            os.close(writing)

        threading.Timer(0.1, write).start()
        assert ingested(tmp_path / "non-blocking") == ["c"]
    file = tmp_path / "forbidden"
    file.write_bytes(b"d\ne")
    with open(file, "rb") as opened:
        file.chmod(0)
        with standard_input_of(opened.fileno()):
            assert ingested(tmp_path / "file") == ["d", "e"]
            assert os.lseek(0, 0, os.SEEK_CUR) == 0


def test_a_file_at_standard_input_that_was_cut_is_not_at_its_end(tmp_path: Path) -> None:
    log = LineWriter(log_of(tmp_path, "s"))
    log.publish([b"1", b"2"], "4")
    (tmp_path / "in").write_bytes(b"1\n")
    with open(tmp_path / "in", "rb") as opened, standard_input_of(opened.fileno()):
        with pytest.raises(PipelineError, match="was read up to byte 4, but now ends at byte 2.*; restore it"):
            ingested(tmp_path)


def test_a_standard_input_that_cannot_be_read_is_refused_before_the_job_starts(tmp_path: Path) -> None:
    for path, flags, why in (
        ("/dev/null", os.O_WRONLY, "is closed"),
        (tmp_path, os.O_RDONLY, "is neither a pipe nor a"),
    ):
        descriptor = os.open(path, flags)
        with standard_input_of(descriptor):
            os.close(descriptor)
            with pytest.raises(PipelineError, match=rf"test_lines\.py:\d+: StdinSource: standard input {why}"):
                StdinSource().check()
    prepared = "from deploy import standard_streams as streams; streams.prepare()"
    code = f"{prepared}; from operators.sources import StdinSource as S; S().check()"
    run = subprocess.run(["sh", "-c", f'exec "$0" -c "{code}" <&-', sys.executable], capture_output=True, text=True)
    assert "standard input is closed" in run.stderr.splitlines()[-1]


def test_standard_input_is_taken_from_the_process_that_gives_it_alone() -> None:
    with pytest.raises(PipelineError, match=r"\(process 1\) cannot be reached.*on the machine of `causal run`"):
        standard_input.taken(1)
    name = standard_input._name(os.getpid())
    code = f"import socket; s = socket.socket(socket.AF_UNIX); s.bind({name!r}); s.listen(); print(); s.accept()"
    with subprocess.Popen([sys.executable, "-uc", code], stdout=subprocess.PIPE) as stranger:
        assert stranger.stdout is not None and stranger.stdout.readline()
        with pytest.raises(PipelineError, match="does not share its standard input"):
            standard_input.taken(os.getpid())
        stranger.kill()


class Site:
    """A listener in this process."""

    def __init__(self, directory: Path, **options: Any) -> None:
        self.source = HttpSource("127.0.0.1:1", **options)
        self.directory = directory
        self.writer = LineWriter(log_of(directory, "s"))
        self.listener = http_source._Listener(self.source, self.writer, ("127.0.0.1", 0))

        class Handler(http_source._Handler):
            """Handles requests of this site."""

            owner = self.listener

        self.server = http_source._Server(("127.0.0.1", 0), Handler, self.source.requests_max)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        threading.Thread(target=self._write, daemon=True).start()

    def _write(self) -> None:
        while True:
            self.listener._write_next()

    def ask(self, body: bytes | None, method: str = "POST", path: str = "/", **headers: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.server_port, timeout=30)
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        response = connection.getresponse()
        try:
            return response.status, response.read()
        finally:
            connection.close()

    def rows(self) -> list[Any]:
        return read_from(self.source.open(0, SourceContext("s", self.directory, 0)), 0)

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def test_what_is_refused_leaves_nothing(tmp_path: Path) -> None:
    site = Site(tmp_path, body_bytes_max=100, token="secret", path="/in")
    bearer = {"Authorization": "Bearer secret"}
    try:
        assert site.ask(b"1", path="/other", **bearer)[0] == 404
        assert site.ask(b"1", path="/in")[0] == 401
        assert site.ask(b"1", path="/in", Authorization="Bearer secres")[0] == 401
        assert site.ask(b"1" * 101, path="/in", **bearer)[0] == 413
        assert site.ask(None, path="/in", Transfer_Encoding="chunked", **bearer)[0] == 411
        assert site.ask(b"1", path="/in", Content_Length="9" * 5000, **bearer)[0] == 411
        assert site.ask(b"1", path="/in", Content_Length="1", Transfer_Encoding="chunked", **bearer)[0] == 411
        assert site.ask(b"1", path="/in", Content_Length="1", content_length="2", **bearer)[0] == 411
        assert site.ask(b"1", path="/in", Content_Encoding="gzip", **bearer)[0] == 415
        assert site.ask(b"1", "PUT", path="/in", **bearer)[0] == 501
        status, body = site.ask(b'1\n{"a":\n3', path="/in", **bearer)
        assert status == 400 and b"line:2: not JSON" in body
        status, body = site.ask(b"\n \n1\r\n\n{", path="/in", **bearer)
        assert status == 400 and b"line:5: not JSON" in body, "empty lines count, as in files"
        assert site.ask(b"\xff", path="/in", **bearer)[0] == 400
        assert site.rows() == []
        assert site.ask(b'{"a": 1}\n\n[2]\r\n', path="/in", **bearer) == (200, b'{"rows": 2}\n')
        assert site.rows() == [{"a": 1}, [2]]
        assert site.ask(b'\xef\xbb\xbf"\xef\xbb\xbf"', path="/in", **bearer) == (200, b'{"rows": 1}\n')
        assert site.rows() == [{"a": 1}, [2], "\ufeff"], "a byte order mark is understood"
    finally:
        site.close()


def test_more_lines_than_the_rate_are_refused(tmp_path: Path) -> None:
    site = Site(tmp_path, rows_per_s=0.001)
    try:
        site.listener._credit = 1.0
        assert [site.ask(b"1\n2\n3")[0] for _ in range(2)] == [200, 429]
        assert site.rows() == [1, 2, 3]
    finally:
        site.close()


def test_more_requests_than_there_is_room_for_are_refused(tmp_path: Path) -> None:
    site = Site(tmp_path, requests_max=1)
    silent = http.client.HTTPConnection("127.0.0.1", site.server.server_port, timeout=30)
    try:
        silent.putrequest("POST", "/")
        silent.putheader("Content-Length", "1")
        silent.endheaders()
        refused = http.client.HTTPConnection("127.0.0.1", site.server.server_port, timeout=30)
        refused.putrequest("POST", "/")
        refused.putheader("Content-Length", "2")
        refused.endheaders()
        refused.sock.recv(1, socket.MSG_PEEK)  # the answer is here before the body is sent
        refused.send(b"1")
        refused.send(b"1")
        assert refused.getresponse().status == 429
        refused.close()
        silent.send(b"1")
        assert silent.getresponse().status == 200
    finally:
        silent.close()
        site.close()


def test_wrong_options_are_one_line() -> None:
    cases: list[tuple[type[LineSource], dict[str, Any], str]] = [
        (StdinSource, {"format": "csv"}, "format 'csv'"),
        (StdinSource, {"row_bytes_max": 0}, "row_bytes_max 0"),
        (HttpSource, {}, "pass either listen="),
        (HttpSource, {"listen": "a:1", "poll": "http://b"}, "pass either listen="),
        (HttpSource, {"listen": "8080"}, "use HOST:PORT"),
        (HttpSource, {"listen": "0.0.0.0:8080"}, "use a token"),
        (HttpSource, {"listen": "[::]:8080"}, "use a token"),
        (HttpSource, {"listen": "[::ffff:10.0.0.1]:8080"}, "use a token"),
        (HttpSource, {"listen": "127.0.0.1:\u0661"}, "use HOST:PORT"),
        (HttpSource, {"listen": "127.0.0.1:1", "token": "a\nb"}, "cannot be sent in a header"),
        (HttpSource, {"listen": "127.0.0.1:1", "path": "in"}, "begins with /"),
        (HttpSource, {"poll": "file:///etc/passwd"}, "begins with http"),
        (HttpSource, {"poll": "http://a b/"}, "whose host or port is invalid"),
        (HttpSource, {"poll": "http://a/\u00e4"}, "encode them"),
        (HttpSource, {"poll": "http://me:secret@a/"}, "use a header or a token"),
        (HttpSource, {"poll": "http://a", "every_s": 0}, "every_s 0"),
        (HttpSource, {"listen": "127.0.0.1:1", "requests_max": 0}, "requests_max 0"),
    ]
    for kind, options, why in cases:
        with pytest.raises(PipelineError, match=rf"test_lines\.py:\d+: {kind.__name__}.*{why}"):
            kind(**options)


def test_it_listens_at_loopback_of_either_family_without_a_token() -> None:
    for listen in ("127.0.0.1:1", "127.0.0.2:1", "[::1]:1", "::1:1", "localhost:1", "[::ffff:127.0.0.1]:1"):
        assert HttpSource(listen).address == (listen.removesuffix(":1").strip("[]"), 1)
    if socket.has_ipv6:
        try:
            server = http_source._server_at(("::1", 0), http_source._Handler, 1)
        except OSError:
            pytest.skip("this machine has no address ::1")
        with server:
            assert server.server_address[0] == "::1"


class Page:
    """A page in this process, which is the same whenever it is fetched."""

    def __init__(self, body: bytes) -> None:
        class Handler(http.server.BaseHTTPRequestHandler):
            """Answers with the page."""

            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def polled(directory: Path, body: bytes, **options: Any) -> list[Any]:
    """Return the records of a page that is fetched once, as the job reads them."""
    page = Page(body)
    try:
        source = HttpSource(poll=page.url, **options)
        fetched = fetch(source, "")
        assert fetched is not None and fetch(source, fetched[1]) is None
        LineWriter(log_of(directory, "s")).publish(*fetched)
        return read_from(source.open(0, SourceContext("s", directory, 0)), 0)
    finally:
        page.close()


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"a":[1e15,1e15]}', [{"a": [1e15, 1e15]}]),
        (b'[["\\u0000"],[1e15]]', [["\0"], [1e15]]),
        (b'[\n  {"a":\r\n 1},\n  [2,\n3]\n]\n', [{"a": 1}, [2, 3]]),
        (b'\xef\xbb\xbf\n{"a":\n 1}\n', [{"a": 1}]),
        (b"[1]\n[2]\n", [[1], [2]]),
        (b" [ ] ", []),
        (b"[123456789012345678901234567890]", [123456789012345678901234567890]),
    ],
    ids=["grows", "items grow", "lines in items", "lines in a value", "lines", "empty", "large number"],
)
def test_a_page_of_the_most_bytes_is_taken_however_its_values_are_spelled(
    tmp_path: Path, body: bytes, expected: list[Any]
) -> None:
    assert polled(tmp_path, body, body_bytes_max=max(16, len(body))) == expected


def test_a_page_that_is_too_large_says_so(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"more than 16 bytes \(body_bytes_max\)"):
        polled(tmp_path, b"[1, 2, 3, 4, 5, 6]", body_bytes_max=16)


ROWS = b"1\n2\n3\n"
CUT = {
    "a length that is more": (answer(ROWS, "Content-Length: 100", 'ETag: "cut"'), "94 of 100 bytes are missing"),
    "no length": (answer(ROWS, "Connection: close", 'ETag: "cut"'), "does not state its length"),
    "no number": (answer(ROWS, "Content-Length: much"), "does not state its length"),
    "two lengths": (answer(ROWS, "Content-Length: 2", "Content-Length: 6"), "two lengths"),
    "a chunk that is missing": (answer(b"6\r\n1\n2\n3\n\r\n", "Transfer-Encoding: chunked"), "between two chunks"),
    "half a chunk": (answer(b"ff\r\n1\n2\n3\n", "Transfer-Encoding: chunked"), "249 bytes of a chunk"),
    "no chunk": (answer(b"1\n2\n3\n4x\n", "Transfer-Encoding: chunked"), "between two chunks"),
    "half a size": (answer(b"0006\r\n1\n2\n3\n\r\n00", "Transfer-Encoding: chunked"), "between two chunks"),
    "a chunk that is longer": (
        answer(b"4\r\n1\n2\n3\n0\r\n", "Transfer-Encoding: chunked"),
        "longer than its header states",
    ),
    "a size that is not a number": (answer(b"-1\r\n1\n2\n3\n\r\n", "Transfer-Encoding: chunked"), "between two chunks"),
    "a part": (answer(ROWS, "Content-Length: 6", "Content-Range: bytes 0-5/100", status="206 Partial"), "status 206"),
    "another encoding": (answer(ROWS, "Content-Length: 6", "Content-Encoding: gzip"), "encoded as gzip"),
    "a part without its status": (
        answer(ROWS, "Content-Length: 6", "Content-Range: bytes 0-5/100"),
        "only part of the page",
    ),
    "encoded chunks": (
        answer(ROWS, "Content-Length: 6", "Transfer-Encoding: gzip, chunked"),
        "encoded as gzip, chunked",
    ),
    "a length in another spelling": (answer(ROWS, "Content-Length: 0_4"), "not a number (0_4)"),
    "nothing that was not asked for": (answer(b"", status="304 Not Modified"), "304"),
    "half an array": (answer(b"[1, 2, 3", "Connection: close"), "does not state its length"),
    "not HTTP": (b"SSH-2.0-OpenSSH_9.6\r\n", "SSH-2.0"),
    "nothing": (b"", "closed connection"),
    "a long header": (answer(ROWS, f"X: {'x' * 70_000}", "Content-Length: 6"), "header line"),
    "many headers": (answer(ROWS, *["X: 1"] * 200, "Content-Length: 6"), "100 headers"),
    "half a header": (b"HTTP/1.1 200 OK\r\nContent-Le", "does not state its length"),
}


@pytest.mark.parametrize("name", CUT)
@pytest.mark.parametrize("format", ["json", "text"])
def test_a_page_that_is_not_whole_is_fetched_again_and_not_remembered(
    tmp_path: Path, name: str, format: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The process that polls reports it, continues, and takes the whole page at the next poll."""
    cut, why = CUT[name]
    whole = answer(ROWS + b"4\n", "Content-Length: 8", 'ETag: "whole"')
    server, pauses = Canned(cut, whole, answer(b"", status="304 Not Modified")), []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("operators.sources.lines.polling.time.sleep", pause)
    source = HttpSource(poll=server.url, every_s=0.01, format=format)
    try:
        with pytest.raises(KeyboardInterrupt):
            poll(source, LineWriter(log_of(tmp_path, "s")), "s")
    finally:
        server.close()
    (line,) = capsys.readouterr().err.splitlines()
    assert why in line and line.endswith("; the request is retried"), line
    assert pauses[0] > pauses[1]
    rows = read_from(source.open(0, SourceContext("s", tmp_path, 0)), 0)
    assert rows == ([1, 2, 3, 4] if format == "json" else ["1", "2", "3", "4"])
    assert b"If-None-Match" not in server.requests[1] and b'If-None-Match: "whole"' in server.requests[2]


@pytest.mark.parametrize(
    ("sent", "rows"),
    [
        (answer(b"3\r\n1\n2\r\n3\r\n\n3\n\r\n0\r\n\r\n", "Transfer-Encoding: chunked"), [1, 2, 3]),
        (answer(b"[1, 2, 3]", "Connection: close"), [1, 2, 3]),
        (answer(b'\xef\xbb\xbf{"a": 1}\n', "Connection: close"), [{"a": 1}]),
        (answer(b"", status="204 No Content"), []),
        (answer(ROWS + b"next", "Content-Length: 6"), [1, 2, 3]),
    ],
    ids=["chunks", "array to the end", "object to the end", "no content", "what follows is no part"],
)
def test_a_page_that_is_known_to_be_whole_is_taken(tmp_path: Path, sent: bytes, rows: list[Any]) -> None:
    server = Canned(sent)
    try:
        source = HttpSource(poll=server.url)
        fetched = fetch(source, "")
    finally:
        server.close()
    assert fetched is not None and [json_of(line.decode()) for line in fetched[0]] == rows


def test_an_answer_that_never_ends_is_given_up() -> None:
    server, now_s = Canned(answer(ROWS, "Content-Length: 6")), iter(range(0, 10_000, 1000))
    try:
        with pytest.raises(ValueError, match="still incomplete after 120 s"):
            fetch(HttpSource(poll=server.url), "", clock=lambda: next(now_s))
    finally:
        server.close()


def test_a_token_does_not_follow_a_redirection_and_no_odd_etag_is_sent_back() -> None:
    other = Canned(answer(b"[1]", "Content-Length: 3", 'ETag: "a\r\n b"'))
    first = Canned(answer(b"", f"Location: {other.url}", "Content-Length: 0", status="302 Found"))
    try:
        source = HttpSource(poll=first.url, token="secret")
        fetched = fetch(source, "")
        assert fetched is not None and fetch(source, fetched[1]) is None
    finally:
        first.close()
        other.close()
    assert b"secret" in first.requests[0] and b"secret" not in b"".join(other.requests)
    assert b"If-None-Match" not in b"".join(first.requests)
