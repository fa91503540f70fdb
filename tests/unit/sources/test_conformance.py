"""Every source that ships keeps every promise of the kit, and each check finds a source that breaks its promise."""

from __future__ import annotations

import http.client
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from causal.errors import DeterminantsLost
from causal.records.unreadable import Unreadable
from operators.ingest.ingested_source import log_of
from operators.sources import (
    FilesSource,
    GeneratedSource,
    HttpSource,
    SseSource,
    StdinSource,
    WebSocketSource,
    conformance,
)
from operators.sources.conformance import Subject, deaths, positions
from operators.sources.conformance import source_subject as material
from operators.sources.lines.lines_log import LineSource, LineWriter
from operators.sources.messages.message_log import Message, MessageWriter, Note
from operators.sources.messages.receiving import MessageSource, Receiving
from tests.members import members
from tests.unit.sources.message_servers import Feed, event_server, socket_server
from tests.unit.sources.toy import OTHERS, SABOTAGES, Toy

Check = Callable[[Subject], None]
each_check = pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__)


@each_check
def test_the_toy_keeps_every_promise(check: Check, tmp_path: Path) -> None:
    check(toy(tmp_path))


@pytest.mark.parametrize(
    ("name", "sabotage"), [*SABOTAGES.items(), *OTHERS.items()], ids=lambda text: text.replace(" ", "-")
)
def test_each_check_finds_a_broken_promise(
    name: str, sabotage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(material, "WAIT_S", 0.2)
    (check,) = [check for check in conformance.CHECKS if check.__name__ == name]
    with pytest.raises((conformance.NotConforming, DeterminantsLost)):
        check(toy(tmp_path, sabotage))


def test_every_check_has_a_sabotage() -> None:
    assert list(SABOTAGES) == [check.__name__ for check in conformance.CHECKS]


def toy(tmp_path: Path, sabotage: str = "") -> Subject:
    (tmp_path / "job").mkdir()
    return Toy(tmp_path / "toy").subject(tmp_path / "job", sabotage)


@each_check
def test_generated(check: Check, tmp_path: Path) -> None:
    check(
        Subject(
            lambda: GeneratedSource(lambda partition, i: (partition, i), count=30, partitions=2),
            lambda partition: [(partition, i) for i in range(30)],
            tmp_path,
        )
    )


LINES = [b'{"n": %d}' % number for number in range(25)] + [b"damaged", b'{"n": 25}']
BAD = Unreadable("", "", "")


@each_check
def test_files(check: Check, tmp_path: Path) -> None:
    rows: list[Any] = []

    def add(name: str) -> None:
        path = tmp_path / name
        path.write_bytes(b"\n\n".join(LINES) + b"\n")
        path.rename(tmp_path / "in" / name)
        rows.extend(map(_value, LINES))

    (tmp_path / "in").mkdir()
    (tmp_path / "job").mkdir()
    add("a.jsonl")
    check(
        Subject(
            lambda: FilesSource(str(tmp_path / "in" / "*.jsonl"), follow=True, quiet_s=0),
            lambda partition: rows,
            tmp_path / "job",
            extend=lambda: add("b.jsonl"),
        )
    )


@each_check
def test_stdin(check: Check, tmp_path: Path) -> None:
    check(_of_lines(lambda: StdinSource("json"), tmp_path, _published))


@each_check
def test_http(check: Check, tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = "{}:{}".format(*probe.getsockname())
    check(_of_lines(lambda: HttpSource(address), tmp_path, _posted))


@each_check
def test_events(check: Check, tmp_path: Path) -> None:
    with event_server() as server:
        _check_messages(check, lambda: SseSource(server.url), server.feed, tmp_path)


@pytest.mark.parametrize(
    "check",
    members(conformance.CHECKS, deaths.has_what_it_acknowledged, positions.reads_every_element_once),
    ids=lambda check: check.__name__,
)
def test_websocket(check: Check, tmp_path: Path) -> None:
    pytest.importorskip("websockets", reason="websockets is not installed (extra websocket)")
    with socket_server() as (url, feed):
        options: dict[str, Any] = {
            "subscribe": '{"after": -1}', "resume": lambda record: json.dumps({"after": record["n"]}),
        }  # fmt: skip
        _check_messages(check, lambda: WebSocketSource(url, **options), feed, tmp_path)


def _check_messages(check: Check, make: Callable[[], MessageSource], feed: Feed, directory: Path) -> None:
    """Check a source whose messages come over connections to a server, which continues to send in one of the checks."""

    def receive(*numbers: int) -> None:
        feed.put(*(b"damaged" if n == 25 else {"n": n} for n in numbers))
        received: list[Any] = []
        _receive(make(), directory, received.append, lambda: len(received) >= len(numbers))

    receive(*range(9))
    receive(*range(9, 27))
    subject = Subject(
        make, lambda partition: [_value(message.payload) for message in reversed(list(_writer(directory).stored()))],
        directory, extend=lambda: receive(27), ingest=lambda say: _receive(make(), directory, say, lambda: False),
    )  # fmt: skip
    if check is not deaths.has_what_it_acknowledged:
        return check(subject)
    with ThreadPoolExecutor() as executor:
        checking = executor.submit(check, subject)
        while not checking.done():
            feed.put({"n": feed.end})
            time.sleep(0.003)
        checking.result()
    assert feed.end > 50


def _writer(directory: Path) -> MessageWriter:
    return MessageWriter(log_of(directory, "source"))


def _receive(source: MessageSource, directory: Path, say: Callable[[Any], None], enough: Callable[[], bool]) -> None:
    """Receive messages until there are enough."""

    class Saying(MessageWriter):
        """A writer that reports stored messages."""

        def publish_messages(self, messages: Sequence[Message], note: Note) -> None:
            super().publish_messages(messages, note)
            for message in messages:
                say(_value(message.payload))
            if enough():
                raise Enough

    with suppress(Enough):
        Receiving(source, Saying(log_of(directory, "source")), "source").run()


class Enough(Exception):
    """No more messages are needed."""


def _of_lines(make: Callable[[], LineSource], directory: Path, ingest: Any) -> Subject:
    """Return a subject whose log has the lines; `ingest` adds more."""

    def publish(*lines: bytes) -> None:
        LineWriter(log_of(directory, "source")).publish(lines, "")

    for begin in range(0, len(LINES), 9):
        publish(*LINES[begin : begin + 9])
    return Subject(
        make, lambda partition: list(map(_value, _stored(directory))), directory,
        extend=lambda: publish(b'{"n": 26}'), ingest=lambda say: ingest(make(), directory, say),
    )  # fmt: skip


def _value(line: bytes) -> Any:
    return BAD if line == b"damaged" else json.loads(line)


def _stored(directory: Path) -> list[bytes]:
    log = log_of(directory, "source")
    manifests = [log.manifest(batch) for batch in log.batches()]
    segments = [segment for manifest in manifests if manifest for segment in manifest.segments]
    return [line for segment in segments for line in bytes(log.supply([segment]) or b"").split(b"\n") if line]


def _published(source: StdinSource, directory: Path, say: Callable[[Any], None]) -> None:
    writer = LineWriter(log_of(directory, "source"))
    for number in range(1000):
        value = {"process": os.getpid(), "n": number}
        writer.publish([json.dumps(value).encode()], "")
        say(value)


def _posted(source: HttpSource, directory: Path, say: Callable[[Any], None]) -> None:
    """Post lines to the process that listens; an answer 200 acknowledges them."""
    writer = LineWriter(log_of(directory, "source"))
    threading.Thread(target=source.ingest, args=(writer, "source", directory, os.getpid()), daemon=True).start()
    assert source.address is not None
    connection = http.client.HTTPConnection(*source.address)
    for number in range(1000):
        value = {"process": os.getpid(), "n": number}
        while True:
            try:
                connection.request("POST", "/", json.dumps(value))
                answer = connection.getresponse()
            except OSError:  # it does not listen yet
                connection.close()
                time.sleep(0.001)
                continue
            answer.read()
            break
        assert answer.status == 200
        say(value)
