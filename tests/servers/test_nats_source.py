"""NatsSource against a real server: the kit for sources, filters, starts, gaps, and what is refused."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks.servers.nats import Nats
from causal.errors import DeterminantsLost, PipelineError
from causal.records.unreadable import Unreadable
from operators.sources import NatsSource, conformance
from operators.sources.conformance import Subject
from operators.sources.nats import nats_pull, nats_reader
from tests.faults.job import wait_for

Check = Callable[[Subject], None]
ALONE = ("waits_for_an_unavailable_server", "continues_after_a_restart")
"""The checks that stop a server of their own."""


def checks(alone: bool) -> pytest.MarkDecorator:
    chosen = [check for check in conformance.CHECKS if (check.__name__ in ALONE) == alone]
    return pytest.mark.parametrize("check", chosen, ids=lambda check: check.__name__)


@checks(alone=False)
def test_the_source_keeps_every_promise(check: Check, shared_nats: Nats, tmp_path: Path) -> None:
    check(subject(shared_nats, f"kit-{check.__name__}", tmp_path))


@checks(alone=True)
def test_the_source_keeps_every_promise_while_its_server_is_killed(
    check: Check, own_nats: Nats, tmp_path: Path
) -> None:
    check(subject(own_nats, "a", tmp_path))


def test_a_server_that_is_stopped_is_waited_for(
    own_nats: Nats, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nats_reader, "ANSWER_S", 0.1)
    monkeypatch.setattr(nats_reader, "LOOK_S", 0.02)
    stopped = subject(own_nats, "a", tmp_path)
    stopped.away = own_nats.away
    conformance.servers.waits_for_an_unavailable_server(stopped)


def subject(server: Nats, stream: str, job_directory: Path) -> Subject:
    """A stream with messages of two filters and of neither, gaps, and a damaged message."""
    server.create(stream, f"{stream}.>", f"{stream}-y.y")
    filters = (f"{stream}.x.>", f"{stream}-y.y")
    values: list[list[bytes]] = [[], []]
    sequences: list[list[int]] = [[], []]

    def put(partition: int, *payloads: bytes) -> None:
        sequences[partition] += server.put(f"{stream}.x.{len(payloads)}" if partition == 0 else filters[1], *payloads)
        values[partition] += payloads

    for number in range(3):
        put(0, *(b'{"n": %d}' % (10 * number + n) for n in range(8)))
        put(1, *(b'{"m": %d}' % (10 * number + n) for n in range(7)))
        server.put(f"{stream}.other", b"neither")
        put(number % 2, b"damaged")
    for partition, position in ((0, 3), (0, 9), (1, 5), (1, 6)):
        assert server.api(f"STREAM.MSG.DELETE.{stream}", seq=sequences[partition].pop(position))["success"]
        values[partition].pop(position)

    def extend() -> None:
        for partition in range(2):
            put(partition, b'{"n": "more"}')

    def expire(partition: int, position: int) -> None:
        before = sequences[partition][position - 1] + 1
        assert server.api(f"STREAM.PURGE.{stream}", seq=before)["success"]

    def restart() -> None:
        with server.down():
            pass

    return Subject(
        lambda: NatsSource(server.address, stream, filters),
        lambda partition: [value_of(value) for value in values[partition]],
        job_directory, extend=extend, expire=expire, away=server.down, restart=restart,
    )  # fmt: skip


def value_of(value: bytes) -> Any:
    return Unreadable("", "", "") if value == b"damaged" else json.loads(value)


def reading(server: Nats, stream: str, directory: Path, *arguments: Any, **options: Any) -> conformance.Reading:
    """Return a reader of all messages, whose beginning is decided."""
    directory.mkdir(exist_ok=True)
    begun = Subject(
        partial(NatsSource, server.address, stream, *arguments, **options), lambda _: [], directory
    ).opened()
    wait_for("the beginning is written", lambda: begun.once(1) or begun.checkpoint(0).mark is not None)
    return begun


def test_a_job_begins_at_the_end_or_at_a_time(shared_nats: Nats, tmp_path: Path) -> None:
    shared_nats.create("starts")
    empty = reading(shared_nats, "starts", tmp_path / "empty")
    shared_nats.put("starts.a", b"1", b"2")
    time.sleep(0.01)
    between = datetime.now(UTC)
    shared_nats.put("starts.b", b"3")
    starts: dict[Any, list[int]] = {
        "latest": [4],
        "earliest": [1, 2, 3, 4],
        between: [3, 4],
        between.replace(tzinfo=None): [3, 4],
        between.astimezone(tz=None) - timedelta(days=1): [1, 2, 3, 4],
        between + timedelta(days=1): [4],
    }
    begun = [
        (reading(shared_nats, "starts", tmp_path / str(number), start=start), expected)
        for number, (start, expected) in enumerate(starts.items())
    ]
    shared_nats.put("starts.a", b"4")
    for each, expected in [*begun, (empty, [1, 2, 3, 4])]:
        each.until(len(expected))
        assert each.elements == expected
        each.close()


def test_records_with_metadata_and_the_formats(shared_nats: Nats, tmp_path: Path) -> None:
    shared_nats.create("meta")
    before_s = time.time()
    shared_nats.put("meta.a.b", "ü".encode(), headers={"origin": "rome"})
    shared_nats.put("meta.c", b"\xff")
    one = reading(shared_nats, "meta", tmp_path / "1", decode="text", with_metadata=True)
    one.until(2)
    first, second = one.elements
    assert before_s - 1 < first.pop("timestamp") < time.time() + 1
    assert first == {"value": "ü", "subject": "meta.a.b", "headers": {"origin": "rome"}, "sequence": 1}
    assert (second.where, second.why.split(":")[0]) == ("meta@2", "UnicodeDecodeError")
    two = reading(shared_nats, "meta", tmp_path / "2", decode=len, value_bytes_max=1)
    two.until(2)
    assert two.elements[1] == 1 and two.elements[0].why == "a payload of 2 bytes (value_bytes_max is 1)"
    for each in (one, two):
        each.close()


def test_messages_that_retention_removes_before_they_are_read_are_an_error(
    shared_nats: Nats, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nats_pull, "FIRST", 4)
    monkeypatch.setattr(nats_pull, "ASKED_MAX", 4)
    for stream, filters in (("all", None), ("some", "some.a")):
        shared_nats.create(stream)
        for _ in range(5):
            shared_nats.put(f"{stream}.a", b"1", b"2", b"3")
            shared_nats.put(f"{stream}.b", b"4")
        late = reading(shared_nats, stream, tmp_path / stream, filters)
        late.until(2)
        shared_nats.api(f"STREAM.PURGE.{stream}", seq=16)
        with pytest.raises(DeterminantsLost, match=f"stream {stream} has lost the messages from sequence"):
            late.until(30)
        late.close()


def test_a_message_that_was_deleted_before_it_was_read_is_a_gap(shared_nats: Nats, tmp_path: Path) -> None:
    shared_nats.create("holes")
    sequences = shared_nats.put("holes.a", *(b"%d" % n for n in range(6)))
    for sequence in sequences[1:3]:
        shared_nats.api("STREAM.MSG.DELETE.holes", seq=sequence)
    holes = reading(shared_nats, "holes", tmp_path)
    holes.until(4)
    assert holes.elements == [0, 3, 4, 5]
    holes.close()


def test_retention_of_other_subjects_does_not_pass_a_reader_that_has_read_all(
    shared_nats: Nats, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nats_reader, "LOOK_S", 0.0)
    shared_nats.create("rare")
    shared_nats.put("rare.a", b"1")
    rare = reading(shared_nats, "rare", tmp_path, "rare.a")
    rare.until(1)
    [*_, last] = shared_nats.put("rare.b", *[b"0"] * 20)
    wait_for("the mark follows", lambda: rare.once(1) or rare.checkpoint(1).mark == last + 1)
    at = rare.checkpoint(1)
    shared_nats.api("STREAM.PURGE.rare", seq=last + 1)
    shared_nats.put("rare.a", b"2")
    late = Subject(lambda: NatsSource(shared_nats.address, "rare", "rare.a"), lambda _: [], tmp_path).opened(at=at)
    for each in (rare, late):
        each.until(2)
        assert each.elements[-1] == 2
        each.close()


def test_a_reader_that_has_read_all_loses_nothing_to_retention_before_its_next_message(
    shared_nats: Nats, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nats_reader, "LOOK_S", 1e9)
    shared_nats.create("sparse")
    shared_nats.put("sparse.a", b"1")
    sparse = reading(shared_nats, "sparse", tmp_path, "sparse.a")
    sparse.until(1)
    [*_, last] = shared_nats.put("sparse.b", *[b"0"] * 20)
    shared_nats.api("STREAM.PURGE.sparse", seq=last)
    shared_nats.put("sparse.a", b"2")
    sparse.until(2)
    assert sparse.elements == [1, 2]
    sparse.close()


def test_the_mark_does_not_pass_a_message_that_has_not_arrived(
    shared_nats: Nats, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared_nats.create("late")
    shared_nats.put("late.a", b"1")
    late = reading(shared_nats, "late", tmp_path, "late.*")
    late.until(1)
    with monkeypatch.context() as context:
        context.setattr(nats_reader, "LOOK_S", 0.0)
        context.setattr(nats_pull.Pull, "turn", lambda self, count_max: None)
        context.setattr(nats_pull.Pull, "undelivered", lambda self: 0)
        shared_nats.put("late.b", b"2")
        assert not late.once(1) and late.checkpoint(1).mark == 2
    late.until(2)
    assert late.elements == [1, 2]
    late.close()


def test_streams_from_which_messages_vanish_are_refused(shared_nats: Nats) -> None:
    for stream, config, words in (
        ("queue", {"retention": "workqueue"}, "stream queue has retention=workqueue, so messages vanish when others"),
        ("interest", {"retention": "interest"}, "has retention=interest"),
        ("kv", {"max_msgs_per_subject": 2}, "keeps 2 messages per subject"),
        ("fine", {}, r"has no subject other\.>; it has fine\.>"),
    ):
        shared_nats.create(stream, **config)
        with pytest.raises(PipelineError, match=words):
            NatsSource(shared_nats.address, stream, "other.>").check()
    NatsSource(shared_nats.address, "fine", ["fine.a", "*.b"]).check()
    with pytest.raises(PipelineError, match=r"stream nowhere: stream not found; create the stream first"):
        NatsSource(shared_nats.address, "nowhere").check()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"servers": "user:hunter2@host:4222"}, "servers is not a list of addresses"),
        ({"stream": "a.b"}, "stream is 'a.b'; use up to 255 characters without spaces"),
        ({"subject": "a..b"}, r"subject is 'a\.\.b'; use a filter"),
        ({"subject": []}, r"subject is \[\]; use a filter"),
        ({"subject": ["a.>", "*.b"]}, r"subjects a\.> and \*\.b overlap"),
        ({"start": "now"}, "start is 'now'; use 'earliest', 'latest' or a datetime"),
        ({"decode": "avro"}, "decode is 'avro'; use one of json, text, bytes, or a function"),
        ({"value_bytes_max": 0}, "value_bytes_max is 0; use 1 to"),
        ({"options": {"pasword": "hunter2"}}, "option 'pasword' is unknown; use user, password"),
        ({"options": {"password": b"hunter2"}}, "option 'password' is a bytes"),
    ],
)
def test_wrong_arguments_are_one_line_without_secrets(options: dict[str, Any], words: str) -> None:
    pytest.importorskip("nats", reason="nats is not installed (extra nats)")
    with pytest.raises(PipelineError, match=words) as refused:
        NatsSource(**{"servers": "127.0.0.1:1", "stream": "t", **options})
    assert "hunter2" not in str(refused.value) and "\n" not in str(refused.value)
