"""Sources of messages against real servers: each message is stored once, and gaps are counted."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from causal.errors import CorruptData, PipelineError
from causal.records.unreadable import Unreadable
from operators.ingest.bound import LogBounds
from operators.ingest.ingested_source import log_of
from operators.source import SourceContext
from operators.sources import SseSource, WebSocketSource
from operators.sources.messages import receiving
from operators.sources.messages.message_log import MessageWriter, Note
from operators.sources.messages.receiving import MessageSource, Receiving
from tests.faults.job import wait_for
from tests.unit.sources.message_servers import EventServer, Feed, event_server, socket_server

pytest.importorskip("websockets", reason="websockets is not installed (extra websocket)")


class Receiver:
    """A source's process without its job, forked so that it can be killed, and the reader of what it stores."""

    def __init__(self, source: MessageSource, directory: Path) -> None:
        self.directory = directory
        self.source = source
        self._said = directory / "said"
        self._pid = 0
        self._reader: Any = source.open(0, SourceContext("feed", directory, 0))
        self.records: list[Any] = []

    def start(self) -> Receiver:
        """Start the process."""
        self._pid = os.fork()
        if self._pid == 0:
            status = 1
            try:
                os.closerange(3, 1024)  # a socket of a server would stay open with this process
                os.dup2(os.open(self._said, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
                sys.stderr = os.fdopen(2, "w", buffering=1)
                self.source.store(log_of(self.directory, "feed"), LogBounds(), self.directory, os.getppid())
                status = 0
            except BaseException as problem:
                os.write(2, f"{type(problem).__name__}: {problem}\n".encode())
            finally:
                os._exit(status)
        return self

    @property
    def said(self) -> str:
        """The lines that the processes have printed."""
        return self._said.read_text() if self._said.exists() else ""

    @property
    def gaps(self) -> int:
        """The number of gaps that the task of the source reports."""
        self.read()
        return int(self._reader.counters()["input_gaps"])

    def read(self) -> list[Any]:
        """Return all records so far."""
        while (read := self._reader.read(len(self.records), 1000)) is not None and read.records:
            self.records += read.records
        return self.records

    def until(self, count: int) -> list[Any]:
        """Wait until there are `count` records."""
        wait_for(f"{count} records are there", lambda: len(self.read()) >= count)
        return self.records

    def kill(self) -> None:
        """SIGKILL the process."""
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self._pid = 0

    def ended(self) -> int:
        """Return the status of the process, which ends on its own."""
        statuses: list[int] = []

        def looked() -> bool:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                statuses.append(os.waitstatus_to_exitcode(status))
            return bool(pid)

        wait_for("it ends", looked)
        self._pid = 0
        return statuses[0]


@pytest.fixture
def receiving_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Receiver]]:
    """`receiving_from(source)` receives messages until the test ends."""
    monkeypatch.setattr(receiving, "PAUSE_S", 0.01)
    monkeypatch.setattr(receiving, "PAUSE_S_MAX", 0.02)
    started: list[Receiver] = []

    def begin(source: MessageSource) -> Receiver:
        directory = tmp_path / f"job{len(started)}"
        directory.mkdir()
        started.append(Receiver(source, directory).start())
        return started[-1]

    yield begin
    for receiver in started:
        receiver.kill()


@pytest.fixture
def events() -> Iterator[EventServer]:
    with event_server() as server:
        yield server


def disturbed(receiver: Receiver, feed: Feed, chance: random.Random) -> None:
    """Send numbers while connections end and the process is killed."""
    number = feed.end
    for _ in range(12):
        feed.put(*range(number, number := number + chance.choice([1, 3, 40])))
        if chance.random() < 0.8:
            receiver.until(len(receiver.read()) + 1)
        time.sleep(chance.random() * 0.02)
        if chance.random() < 0.5:
            feed.drop()
        else:
            receiver.kill()
            receiver.start()


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.campaign) for seed in range(2, 12))])
def test_events_with_ids_come_once_whatever_dies(
    events: EventServer, receiving_from: Callable[..., Receiver], seed: int
) -> None:
    receiver = receiving_from(SseSource(events.url))
    disturbed(receiver, events.feed, random.Random(seed))
    assert receiver.until(events.feed.end) == list(range(events.feed.end))
    last = [int(each["last-event-id"]) for each in events.feed.requests if "last-event-id" in each]
    assert last and last == sorted(last)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.campaign) for seed in range(2, 12))])
def test_a_websocket_resumes_after_the_last_record_whatever_dies(
    receiving_from: Callable[..., Receiver], seed: int
) -> None:
    with socket_server() as (url, feed):
        source = WebSocketSource(
            url, subscribe='{"after": -1}', resume=lambda record: json.dumps({"after": record}).encode()
        )
        receiver = receiving_from(source)
        disturbed(receiver, feed, random.Random(seed))
        assert receiver.until(feed.end) == list(range(feed.end))
        assert receiver.gaps < len([first for _, first in feed.requests if first["after"] == -1])


@pytest.mark.parametrize("kind", ["events", "websocket"])
def test_what_a_server_does_not_send_again_is_missing_and_counted(
    kind: str, receiving_from: Callable[..., Receiver]
) -> None:
    """Nothing comes twice or in another order, and wherever something is missing, there was a gap."""
    if kind == "events":
        with event_server(keeps=False) as server:
            _check_gaps(receiving_from(SseSource(server.url)), server.feed)
    else:
        with socket_server(keeps=False) as (url, feed):
            _check_gaps(receiving_from(WebSocketSource(url)), feed)


def _check_gaps(receiver: Receiver, feed: Feed) -> None:
    """Numbers are sent while the source is connected, and while its process or its connection has just been ended."""
    for turn in range(6):
        known = len(receiver.read())

        def came(known: int = known) -> bool:
            feed.put(feed.end)
            return len(receiver.read()) > known

        wait_for("a later message comes", came)
        if turn % 2:
            feed.drop()
            feed.put(feed.end)
        else:
            receiver.kill()
            feed.put(feed.end)
            receiver.start()
    records, gaps = receiver.read(), receiver.gaps
    assert records == sorted(set(records))
    holes = sum(after - before > 1 for before, after in zip(records, records[1:]))
    assert 3 <= holes <= gaps
    lines = [line for line in receiver.said.splitlines() if "(gap " in line]
    assert len(lines) >= gaps and "are missing (gap 1): it has no means to resume" in lines[0]


def test_the_first_connection_is_no_gap(receiving_from: Callable[..., Receiver]) -> None:
    with socket_server(keeps=False) as (url, feed):
        receiver = receiving_from(WebSocketSource(url))
        wait_for("it is connected", lambda: feed.connections > 0)
        feed.put(1)
        receiver.until(1)
        assert receiver.gaps == 0


def test_a_source_ends_when_its_server_says_so(events: EventServer, receiving_from: Callable[..., Receiver]) -> None:
    events.feed.put({"n": 1}, "two")
    receiver = receiving_from(SseSource(events.url))
    receiver.until(2)
    events.answers.append(b"HTTP/1.1 204 No Content\r\n\r\n")
    events.feed.drop()
    assert receiver.ended() == 0
    assert receiver.start().ended() == 0
    assert receiver.read() == [{"n": 1}, "two"]
    with socket_server(keeps=False) as (url, feed):
        ending, other = receiving_from(WebSocketSource(url, ends=True)), receiving_from(WebSocketSource(url))
        wait_for("both are connected", lambda: feed.connections == 2)
        feed.put(1)
        for each in (ending, other):
            each.until(1)
        feed.drop()
        assert ending.ended() == 0
        wait_for("the other one is connected again", lambda: other.gaps == 1)
    with socket_server(keeps=False, code=1011) as (url, feed):
        ending = receiving_from(WebSocketSource(url, ends=True))
        wait_for("it is connected", lambda: feed.connections > 0)
        feed.drop()
        wait_for("it is connected again", lambda: ending.gaps == 1)
        assert "the server has closed it (1011); another connection is made in 0.0 s" in ending.said


def test_records_have_what_the_message_had(events: EventServer, receiving_from: Callable[..., Receiver]) -> None:
    before_s = time.time()
    events.feed.put(b"line one\nline two", "ü", b"{damaged", b"\xff", b"x" * 2000)
    plain = receiving_from(SseSource(events.url, message_bytes_max=1000))
    first, text, *bad = plain.until(5)
    assert type(first) is Unreadable and text == "ü"
    assert [each.where for each in (first, *bad)] == [f"{plain.source.place} message {n}" for n in (1, 3, 4, 5)]
    assert bad[0].raw == "{damaged" and bad[1].raw == b"\xff"
    assert bad[2].why == "an event of 2,000 bytes (message_bytes_max is 1,000)" and bad[2].raw == "x" * 1000
    full = receiving_from(SseSource(events.url, "bytes", with_metadata=True))
    record = full.until(5)[0]
    assert before_s <= record.pop("received_at") <= time.time()
    assert record == {"value": b"line one\nline two", "id": "0", "event": "message"}
    with socket_server(keeps=False) as (url, feed):
        receiver = receiving_from(WebSocketSource(url, "text", with_metadata=True))
        wait_for("it is connected", lambda: feed.connections > 0)
        feed.put(b"line one\nline two")
        [record] = receiver.until(1)
        assert record == {"value": "line one\nline two", "received_at": record["received_at"]}


def test_a_message_that_is_too_large_ends_the_job_and_is_asked_for_again(
    receiving_from: Callable[..., Receiver],
) -> None:
    with socket_server() as (url, feed):
        options: dict[str, Any] = {
            "subscribe": '{"after": -1}', "resume": lambda record: json.dumps({"after": len(record) - 1}),
        }  # fmt: skip
        receiver = receiving_from(WebSocketSource(url, message_bytes_max=100, **options))
        feed.put("x", "y" * 200)
        assert receiver.ended() == 1
        last = receiver.said.splitlines()[-1]
        assert "sent a message of more than 100 bytes, which was not stored; raise message_bytes_max" in last
        assert receiver.read() == ["x"]
        receiver.source = WebSocketSource(url, message_bytes_max=1000, **options)
        receiver.start()
        assert receiver.until(2) == ["x", "y" * 200]


def test_resume_uses_the_last_message_that_is_a_record(receiving_from: Callable[..., Receiver]) -> None:
    with socket_server() as (url, feed):
        source = WebSocketSource(url, subscribe='{"after": -1}', resume=lambda record: json.dumps({"after": record}))
        receiver = receiving_from(source)
        feed.put(0, 1, b"damaged")
        receiver.until(3)
        receiver.kill()
        receiver.start()
        wait_for("it resumes", lambda: len(feed.requests) == 2)
        assert feed.requests[1][1] == {"after": 1} and receiver.gaps == 0
        failing = receiving_from(WebSocketSource(url, subscribe='{"after": -1}', resume=lambda record: record["none"]))
        failing.until(3)
        feed.drop()
        assert failing.ended() == 1
        assert "resume failed for the last record: 'int' object is not subscriptable" in failing.said


def test_a_server_that_restarts_or_answers_otherwise_is_tried_again(
    events: EventServer, receiving_from: Callable[..., Receiver]
) -> None:
    events.answers += [
        b"HTTP/1.1 503 Busy\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<p>",
        b"no HTTP at all\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 0\r\n\r\n",
        b'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nid: 0\ndata: "cut',
        b"",
    ]
    events.feed.put("kept")
    receiver = receiving_from(SseSource(events.url))
    assert receiver.until(1) == ["kept"]
    place = receiver.source.place
    assert place == events.url.removesuffix("/events")
    for words in (
        "answers with status 503; check the url", "answers with status 200 and content of type text/html, not with",
        "cannot be reached: ", "has ended the stream",
    ):  # fmt: skip
        assert f"{place} {words}" in receiver.said
    port = events.server_port
    events.shutdown()
    events.socket.close()
    events.feed.drop()
    wait_for("it cannot connect", lambda: "Connection refused" in receiver.said)
    with socket.create_server(("127.0.0.1", port), reuse_port=False) as again:
        again.settimeout(20)
        connection, _ = again.accept()
        with connection:
            assert b"last-event-id: 0\r\n" in connection.recv(4096).lower()


def test_a_silent_server_is_given_up(receiving_from: Callable[..., Receiver]) -> None:
    with event_server(keeps=False) as server:
        receiver = receiving_from(SseSource(server.url, silence_s=0.05))
        wait_for("it is connected again", lambda: len(server.feed.requests) > 1)
        wait_for("a line is printed", lambda: "has sent nothing for 0.05 s; raise silence_s" in receiver.said)


def test_a_server_can_ask_for_a_pause_up_to_a_bound(
    events: EventServer, receiving_from: Callable[..., Receiver]
) -> None:
    ok = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    events.answers += [ok + b"retry: 15\n\n", ok + b"retry: 999999999\n\n"]
    events.feed.put(0)
    receiver = receiving_from(SseSource(events.url))
    receiver.until(1)
    pauses = [line.split()[-2] for line in receiver.said.splitlines() if "another connection" in line]
    assert pauses == ["0.0", "0.0"] and receiver.said.count("has ended the stream") == 2


SECRETS = ("hunter2", "s3cret", "t0ken")


def test_secrets_are_sent_and_never_shown(
    events: EventServer, receiving_from: Callable[..., Receiver], capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither lines nor files have the headers, the query or the path of the url, or what is subscribed to."""
    headers = {"Authorization": "Bearer hunter2"}
    events.answers += [b"HTTP/1.1 401 No\r\n\r\n"]
    url = f"{events.url}/s3cret?token=t0ken"
    with pytest.raises(PipelineError, match="answers with status 401; pass the right token") as caught:
        SseSource(url, headers=headers).check()
    events.feed.put(0, b"damaged")
    receiver = receiving_from(SseSource(url, headers=headers))
    receiver.until(2)
    assert events.feed.requests[-1]["authorization"] == "Bearer hunter2"
    printed = [str(caught.value), repr(receiver.records)]
    with socket_server() as (socket_url, feed):
        source = WebSocketSource(f"{socket_url}?token=t0ken", headers=headers, subscribe='{"after": -1, "s": "s3cret"}')
        source.check()
        other = receiving_from(source)
        feed.put(0)
        other.until(1)
        feed.drop()
        wait_for("it is connected again", lambda: other.gaps > 0)
        sent, first = feed.requests[-1]
        assert sent["authorization"] == "Bearer hunter2" and first["s"] == "s3cret"
    wait_for("it cannot connect", lambda: "cannot be reached" in other.said)
    SseSource("http://127.0.0.1:1/s3cret?t0ken", headers=headers).check()
    WebSocketSource("ws://127.0.0.1:1/s3cret?t0ken", headers=headers).check()
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 2 and all(line.endswith("; the job waits for it") for line in lines)
    for each in (receiver, other):
        printed += [path.read_bytes().decode(errors="replace") for path in each.directory.rglob("*") if path.is_file()]
    assert not [secret for secret in SECRETS for text in (*printed, *lines) if secret in text]


def test_headers_do_not_follow_a_redirection(events: EventServer, receiving_from: Callable[..., Receiver]) -> None:
    with event_server() as other:
        events.answers.append(b"HTTP/1.1 302 Found\r\nLocation: %s\r\n\r\n" % other.url.encode())
        other.feed.put(0)
        assert receiving_from(SseSource(events.url, headers={"X-Key": "hunter2"})).until(1) == [0]
        assert events.feed.requests[0]["x-key"] == "hunter2" and "x-key" not in other.feed.requests[0]


WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: SseSource("ws://host"), "begins with http or https; use one like https://host/path"),
    (lambda: WebSocketSource("https://host"), "begins with ws or wss; use one like wss://host/path"),
    (lambda: WebSocketSource("wss://ann:hunter2@host"), "url has a user name; pass headers="),
    (lambda: WebSocketSource("wss://host/hunter2 x"), "a request cannot have; encode them"),
    (lambda: SseSource("http://host:hunter2/"), "url is not a URL"),
    (lambda: SseSource(None), "url is not a URL"),  # type: ignore[arg-type]
    (lambda: SseSource("http://host", "avro"), "decode is 'avro'; use one of json, text, bytes"),
    (lambda: SseSource("http://host", silence_s=0), "silence_s 0; use seconds"),
    (lambda: SseSource("http://host", message_bytes_max=1), "message_bytes_max 1; use 16 to"),
    (lambda: SseSource("http://host", headers={"A": "hunter2\n"}), "header 'A' cannot be sent"),
    (lambda: WebSocketSource("ws://host", subscribe={"hunter2": 1}), "subscribe is a dict; use text or bytes"),  # type: ignore[arg-type]
    (lambda: WebSocketSource("ws://host", resume="x"), "resume is not a function"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("place", range(len(WRONG)))
def test_mistakes_are_one_line_with_the_remedy(place: int) -> None:
    attempt, line = WRONG[place]
    with pytest.raises(PipelineError) as caught:
        attempt()
    assert line in str(caught.value) and "hunter2" not in str(caught.value) and "\n" not in str(caught.value)


def test_a_process_continues_for_a_version_that_receives_the_same() -> None:
    url = "wss://host/feed"
    assert WebSocketSource(url, lambda data: 1).continues(WebSocketSource(url, with_metadata=True))
    assert SseSource("http://host").continues(SseSource("http://host", len))
    assert not WebSocketSource(url, subscribe="a").continues(WebSocketSource(url, subscribe="b"))
    assert not WebSocketSource(url, headers={"A": "1"}).continues(WebSocketSource(url))
    assert not WebSocketSource(url, resume=str).continues(WebSocketSource(url, "text", resume=str))
    assert not SseSource("http://host").continues(SseSource("http://host", silence_s=5))


def test_a_note_that_is_damaged_is_not_used() -> None:
    assert Note.of("") == Note() and Note.of(Note(3, "ü").text()) == Note(3, "ü")
    for text in ("{", "[]", '{"gap": 1}'):
        with pytest.raises(CorruptData, match="is no note"):
            Note.of(text)


def test_what_came_before_a_connection_ended_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last batch of a connection is stored with the number of the gap before it, not with that of the next one."""
    monkeypatch.setattr(receiving, "PAUSE_S", 0.0)
    notes: list[tuple[int, str]] = []
    threads = threading.active_count()

    class Noting(MessageWriter):
        def publish_messages(self, messages: Any, note: Note) -> None:
            super().publish_messages(messages, note)
            notes.append((len(messages), note.id))

    with event_server() as server:
        server.feed.put(0, 1)
        server.answers += [b"", b"HTTP/1.1 204 No Content\r\n\r\n"]
        stream = (
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nid: a\ndata: 1\n\nid: b\ndata: 2\n\nid: c\n"
        )
        server.answers[0] = stream
        Receiving(SseSource(server.url), Noting(log_of(tmp_path, "feed")), "feed").run()
        assert server.feed.requests[1]["last-event-id"] == "b"
    assert notes == [(0, ""), (2, "b")]
    assert threading.active_count() < threads + 10
