"""Addresses, options, subjects and errors of NATS: what is refused, what is translated, and that no secret is shown."""

from __future__ import annotations

from typing import Any

import pytest

from causal.errors import PipelineError, Unavailable
from causal.records.values import NotCarried
from operators.nats.nats_errors import Declined, translated
from operators.nats.nats_servers import servers_of
from operators.nats.nats_subjects import check_stream, is_pattern, is_subject, overlap, token_of
from operators.sinks import NatsSink
from operators.sinks.messages.message_rows import rows_in
from operators.sinks.nats.nats_session import Message, batches

SAID = "NatsSink('orders')"


@pytest.mark.parametrize("servers", ["host:4222", "nats://one:4222, tls://two:4223", "[::1]:4222", "h_1.example"])
def test_addresses(servers: str) -> None:
    assert servers_of(SAID, servers, None).place == f"NATS at {servers.replace(' ', '')}"


@pytest.mark.parametrize(
    "servers", ["", "h:", "h:0", "h:99999", "a,,b", "nats://app:secret@h:4222", "http://h", 7, None]
)
def test_what_is_no_address_is_refused_without_being_shown(servers: Any) -> None:
    with pytest.raises(PipelineError, match="is not a list of addresses") as refused:
        servers_of(SAID, servers, None)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"passwort": "secret"}, "option 'passwort' is unknown; use user,"),
        ({"password": b"secret"}, "option 'password' is a bytes; use text"),
        ({"tls_handshake_first": "yes"}, "option 'tls_handshake_first' is a str"),
        ({"domain": "a.b"}, "option 'domain' is 'a.b'; use letters"),
        ({7: "secret"}, "option 7 is unknown"),
    ],
)
def test_options_are_refused_by_name(options: Any, words: str) -> None:
    with pytest.raises(PipelineError, match=words) as refused:
        servers_of(SAID, "host", options)
    assert "secret" not in str(refused.value)


def test_no_text_has_a_secret() -> None:
    servers = servers_of(
        SAID, "host", {"password": "hunter two", "nkeys_seed_str": "SUA", "user": "app", "domain": "d"}
    )
    assert "hunter" not in repr(servers) and servers.api == "$JS.d.API"
    assert servers.masked("wrong: hunter\n two of app, SUA") == "wrong: *** of app, ***"
    assert "hunter" not in str(translated(ValueError('"hunter two"'), servers))


@pytest.mark.parametrize(
    ("problem", "kind", "words"),
    [
        (Declined(10059, "stream not found"), PipelineError, "stream not found; create the stream first"),
        (Declined(10008, "no leader"), Unavailable, "no leader; JetStream has no leader at the moment"),
        (Declined(1, "odd"), Unavailable, r"odd \(1\)"),
        (Exception("nats: 'Authorization Violation'"), PipelineError, "Authorization Violation; check user"),
        (Exception("nats: permissions violation for publish"), PipelineError, "grant the user this permission"),
        (Exception("nats: no responders available for request"), Unavailable, "enable it in the server"),
        (TimeoutError("no answer in 1 s"), Unavailable, "does not answer: no answer in 1 s; check it"),
        (ConnectionRefusedError(111, "refused"), Unavailable, "cannot be reached: .*refused; start it"),
    ],
)
def test_errors_have_a_remedy(problem: Exception, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=f"NATS at host.*{words}"):
        raise translated(problem, servers_of(SAID, "host", None))


@pytest.mark.parametrize(
    ("one", "other", "overlapping"),
    [
        ("a", "a", True), ("a", "b", False), ("a.*", "a.b", True), ("a.*", "a.b.c", False), ("a.>", "a", False),
        ("a.>", "a.b.c", True), (">", "a", True), ("*.b", "a.*", True), ("*.b", "a.c", False), ("a.b", "a", False),
        ("a.*.c", "a.b.>", True), ("a.>", "b.>", False),
    ],
)  # fmt: skip
def test_patterns_overlap(one: str, other: str, overlapping: bool) -> None:
    assert overlap(one, other) is overlap(other, one) is overlapping


def test_names_of_subjects_and_streams() -> None:
    assert all(map(is_subject, ("a", "a.b-c", "ü.$x"))) and all(map(is_pattern, ("a", "*", ">", "a.*.>", "a.>")))
    assert not any(map(is_subject, ("", "a.", ".a", "a..b", "a b", "a.*", "a.>", "a\r\nPUB x", "a" * 256, None, 7)))
    assert not any(map(is_pattern, ("", "a.", "a.>.b", "a.b>", "a b", None)))
    for stream in ("", "a.b", "a b", "a*", ">", "a/b", "a\\b", None):
        with pytest.raises(PipelineError, match="without spaces"):
            check_stream(SAID, stream)
    check_stream(SAID, "orders_1-ü")
    assert token_of("out/0") == "out-0" and is_subject(token_of("a.b ü*/1"))


def test_a_row_has_a_subject_a_value_and_headers() -> None:
    sink = NatsSink("h", "t", subject=lambda r: f"t.{r['k']}", headers=lambda r: {"k": r["k"]})
    [row] = rows_in(sink.encode([{"k": "x"}]))
    assert list(row) == [b"t.x", b'{"k": "x"}', [["k", b"x"]]]
    shown = sink.shown_row(sink.encode([{"k": "x"}, {"k": "y"}]), 1)
    assert shown == {"key": "t.y", "value": {"k": "y"}, "headers": {"k": "y"}}
    assert next(rows_in(NatsSink("h", "t").encode([7])))[0] == b"t.rows"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subject": lambda r: "a b"}, "the subject is 'a b'"),
        ({"subject": lambda r: None}, "the subject is None"),
        ({"encode": lambda r: None}, "encode gave None"),
        ({"headers": lambda r: {"Nats-Msg-Id": "x"}}, "a header is named 'Nats-Msg-Id'"),
        ({"headers": lambda r: {"a:b": "x"}}, "a header is named 'a:b'"),
        ({"headers": lambda r: {"task": "x"}}, "a header is named 'task'"),
        ({"headers": lambda r: {"a": b"x"}}, "header 'a' is b'x'"),
        ({"headers": lambda r: {"a": "x\r\nb: c"}}, "header 'a' is"),
        ({"headers": lambda r: {"a": " x"}}, "header 'a' is ' x'"),
        ({"headers": lambda r: 7}, "headers gave a int"),
    ],
)
def test_what_no_message_carries_unchanged_is_refused(options: Any, words: str) -> None:
    with pytest.raises(NotCarried, match=words):
        NatsSink("h", "t", **options).encode([{}])


def test_rows_are_cut_into_batches_by_number_and_size() -> None:
    small: Message = ("s", {}, b"")
    large: Message = ("s", {}, b"x" * (9 << 20))
    assert batches([], 1) == [[]]
    assert [len(batch) for batch in batches([small] * 2500, 10)] == [990, 990, 520]
    assert [len(batch) for batch in batches([large, small, large, large], 1)] == [2, 1, 1]
