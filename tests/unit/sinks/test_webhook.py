"""Rows posted to a real service: the kit where it honours keys, and what each answer means."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from causal.errors import PipelineError, RowRefused, Unavailable
from causal.ports import Bundle
from operators.sinks import WebhookSink, conformance
from operators.sinks.conformance import Subject, bundle_at, fill, record_at
from operators.sinks.conformance.crashes import dies_at_every_step_of_a_write
from operators.sinks.conformance.zombies import fences_zombies_at_every_step_of_a_write
from operators.sinks.contract.refusals import refusing
from operators.sinks.contract.refused_rows import RefusedRows
from operators.sinks.delivery import outward, webhook
from tests.canned import Canned, answer
from tests.unit.sinks.bounded import in_bounds
from tests.unit.sinks.receiver import Receiver
from tests.unit.sinks.service import serving


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.getbasetemp()) as url:
        yield url


@pytest.fixture
def service(served: str, tmp_path: Path) -> str:
    return f"{served}/{tmp_path.name}"


def subject_of(url: str, directory: Path, **options: Any) -> tuple[Receiver, Subject]:
    receiver = Receiver(directory)
    return receiver, Subject(WebhookSink(url, **options), receiver.rows, job_directory=directory, away=receiver.away)


def requests_in(directory: Path) -> list[Any]:
    """(path, headers, rows) of each request."""
    return [json.loads(line) for line in (directory / "requests").read_text().splitlines()]


STEP_BY_STEP = (dies_at_every_step_of_a_write, fences_zombies_at_every_step_of_a_write)
"""They are steps of `OutwardStore`, which callbacks have too: `test_callback.py` takes all of them in every run."""


@pytest.mark.parametrize("check", in_bounds(conformance.CHECKS, *STEP_BY_STEP), ids=lambda check: check.__name__)
def test_webhooks_conform_where_keys_are_honoured(
    check: Callable[[Subject], None], service: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outward, "BUSY_MS", 50)
    receiver, subject = subject_of(service, tmp_path)
    check(subject)


def test_a_request_says_what_a_service_needs(service: str, tmp_path: Path) -> None:
    receiver, subject = subject_of(f"{service}/rows?for=me", tmp_path, batch_rows=4, headers={"Authorization": "x"})
    store, state = subject.opened()
    fill(subject, store, state, 7)
    subject.expect_rows(7, "every row is there")
    requests = requests_in(tmp_path)
    assert [rows for _, _, rows in requests] == [4, 3]
    assert {path for path, _, _ in requests} == {f"/{tmp_path.name}/rows?for=me"}
    assert [headers["Idempotency-Key"] for _, headers, _ in requests] == ["run-1/out/0/0-3:4", "run-1/out/0/4-6:3"]
    assert {headers["Authorization"] for _, headers, _ in requests} == {"x"}
    store.close()


@pytest.mark.parametrize("status", sorted(webhook.RETRIED))
def test_a_status_that_may_pass_is_tried_again_with_the_same_key(service: str, tmp_path: Path, status: int) -> None:
    receiver, subject = subject_of(service, tmp_path)
    store, state = subject.opened()
    (tmp_path / "script").write_text(json.dumps([[status, {}]]))
    bundle = bundle_at(subject, state, 3)
    with pytest.raises(Unavailable, match=f"http://127.0.0.1:[0-9]+/.* answers {status} .*: because of a reason"):
        store.write(bundle)
    store.write(bundle)
    subject.expect_rows(3, "every row is there")
    first, second = requests_in(tmp_path)
    assert first[1]["Idempotency-Key"] == second[1]["Idempotency-Key"]
    store.close()


def test_a_service_that_asks_to_be_left_alone_is(service: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1000.0
    monkeypatch.setattr(webhook, "monotonic", lambda: now_s)
    receiver, subject = subject_of(service, tmp_path)
    store, state = subject.opened()
    (tmp_path / "script").write_text(json.dumps([[429, {"Retry-After": "7"}]]))
    bundle = bundle_at(subject, state, 3)
    for message in ("answers 429", "asked for a pause before", "asked for a pause before"):
        with pytest.raises(Unavailable, match=message):
            store.write(bundle)
        now_s += 3
    assert len(requests_in(tmp_path)) == 1
    store.write(bundle)
    subject.expect_rows(3, "every row is there")
    store.close()


def test_an_answer_that_was_lost_doubles_what_a_service_without_keys_has(service: str, tmp_path: Path) -> None:
    receiver, subject = subject_of(service, tmp_path)
    store, state = subject.opened()
    state = fill(subject, store, state, 4)
    (tmp_path / "deaf").write_text("2")
    bundle = bundle_at(subject, state, 3)
    for _ in range(2):
        with pytest.raises(Unavailable, match="RemoteDisconnected|ConnectionResetError"):
            store.write(bundle)
    store.write(bundle)
    subject.expect_rows(7, "with keys each row takes effect once")
    assert receiver.doubled() == 6, "without, a row that was taken and not acknowledged comes again"
    store.close()


def test_a_row_that_is_refused_is_found_among_those_that_are_not(service: str, tmp_path: Path) -> None:
    receiver, subject = subject_of(service, tmp_path, batch_rows=16)
    sink, rows = subject.sink, [record_at("out/0", n) for n in range(30)]
    for bad in (5, 6, 29):
        rows[bad] = {"n": -bad}
    bundle = Bundle(0, 30, sink.encode(rows), 7, 0, 1, ())
    store, _ = subject.opened()
    with pytest.raises(RowRefused) as caught:
        store.write(bundle)
    assert caught.value.rows == ((5, caught.value.rows[0][1]),)
    assert re.search("answers 422 Unprocessable (Entity|Content): because of a reason", caught.value.rows[0][1])
    assert [row["n"] for row in receiver.rows()] == [0, 1, 2, 3, 4], "nothing overtakes it"
    store.close()
    letters = RefusedRows(tmp_path / "letters", "out/0", "run-1")
    lenient = refusing(sink.open_store("out/0", tmp_path), sink, "out", "out/0", letters)
    state = lenient.open("out/0", "run-1", 2)
    assert (state.next, state.refused) == (30, 3)
    assert [row["n"] for row in receiver.rows()] == [n for n in range(30) if n not in (5, 6, 29)]
    assert receiver.doubled() == 0
    assert [json.loads(line)["position"] for line in letters.path.read_text().splitlines()] == [5, 6, 29]
    lenient.close()


@pytest.mark.parametrize("status", [301, 401, 403, 404, 405, 501])
def test_a_status_that_somebody_must_see_to_ends_the_job(service: str, tmp_path: Path, status: int) -> None:
    receiver, subject = subject_of(f"{service}/secret?key=hidden", tmp_path)
    store, state = subject.opened()
    (tmp_path / "script").write_text(json.dumps([[status, {"Location": "/elsewhere"}]]))
    with pytest.raises(
        PipelineError, match=f"/secret answers {status} .*; correct the address or its access"
    ) as caught:
        store.write(bundle_at(subject, state, 3))
    assert "hidden" not in str(caught.value)
    store.close()


def test_a_service_that_is_not_there_or_says_nothing_is_away(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        subject = Subject(
            WebhookSink(f"http://127.0.0.1:{port}", timeout_s=0.1), lambda t: None, job_directory=tmp_path
        )
        store, state = subject.opened()
        with pytest.raises(Unavailable, match=f"http://127.0.0.1:{port}: TimeoutError: timed out"):
            store.write(bundle_at(subject, state, 1))
    with pytest.raises(Unavailable, match="Connection(Refused|Reset)Error"):
        store.write(bundle_at(subject, state, 1))
    store.close()


INTERIM = answer(b"", status="102 Processing") + answer(b"", "Link: </style.css>", status="103 Early Hints")


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (INTERIM + answer(b"", status="204 No Content"), ""),
        (answer(b"", status="199 Of one's own") + answer(b"", "Content-Length: 0"), ""),
        (INTERIM + answer(b"", "Content-Length: 0", "Connection: close", status="503 Later"), "answers 503 Later"),
        (INTERIM, "RemoteDisconnected|BadStatusLine"),
        (INTERIM * 60, "more than 100 interim answers"),
        (answer(b"half", "Content-Length: 100"), "IncompleteRead"),
        (answer(b"half", "Content-Length: 100", status="400 Bad"), "IncompleteRead"),
        (answer(b"ff\r\nhalf", "Transfer-Encoding: chunked"), "IncompleteRead"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "BadStatusLine"),
    ],
    ids=["taken", "unknown", "later", "no final one", "endless", "cut", "a cut refusal", "a cut chunk", "not HTTP"],
)
def test_the_answer_is_the_last_one_and_whole(tmp_path: Path, sent: bytes, why: str) -> None:
    """Interim answers are skipped; without a whole final one, the same request is sent again."""
    server = Canned(sent, answer(b"", status="204 No Content"))
    store, state = Subject(WebhookSink(server.url), lambda t: None, job_directory=tmp_path).opened()
    bundle = bundle_at(Subject(WebhookSink(server.url), lambda t: None, job_directory=tmp_path), state, 3)
    try:
        if why:
            with pytest.raises(Unavailable, match=why):
                store.write(bundle)
        store.write(bundle)
    finally:
        store.close()
        server.close()
    bodies = [request.partition(b"\r\n\r\n")[0] for request in server.requests]
    assert len(bodies) == 1 + bool(why) and len(set(bodies)) == 1
