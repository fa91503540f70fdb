"""RedisStreamSource against a real Redis: the kit for sources, what was trimmed, and what the server refuses."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from benchmarks.servers.redis import Redis, redis_server
from causal.errors import DeterminantsLost, PipelineError, Unavailable
from causal.records.unreadable import Unreadable
from operators.sources import RedisStreamSource, conformance
from operators.sources.conformance import Reading, Subject
from operators.sources.redis import redis_stream_reader
from tests.faults.job import wait_for

Check = Callable[[Subject], None]
ALONE = ("waits_for_an_unavailable_server", "continues_after_a_restart")
"""The checks that stop a server of their own."""
NUMBERS = count()


def checks(alone: bool) -> pytest.MarkDecorator:
    chosen = [check for check in conformance.CHECKS if (check.__name__ in ALONE) == alone]
    return pytest.mark.parametrize("check", chosen, ids=lambda check: check.__name__)


@checks(alone=False)
def test_the_source_keeps_every_promise(check: Check, shared_redis: Redis, tmp_path: Path) -> None:
    check(subject(shared_redis, tmp_path))


@checks(alone=True)
def test_the_source_keeps_every_promise_while_its_server_is_stopped(
    check: Check, own_redis: Redis, tmp_path: Path
) -> None:
    check(subject(own_redis, tmp_path))


def subject(server: Redis, job_directory: Path) -> Subject:
    """Two streams with deleted entries and a damaged one."""
    keys = [f"orders:{next(NUMBERS)}" for _ in range(2)]
    kept: dict[str, list[tuple[str, Any]]] = {key: [] for key in keys}

    def put(key: str, value: str) -> None:
        with server.client() as client:
            kept[key].append((client.xadd(key, {"n": value}), as_record(value)))

    def extend() -> None:
        for key in keys:
            put(key, "more")

    def restart() -> None:
        with server.down():
            pass

    def expire(partition: int, position: int) -> None:
        with server.client() as client:
            client.xtrim(keys[partition], minid=kept[keys[partition]][position][0], approximate=False)

    for key in keys:
        for number in range(24):
            put(key, f"number {number}" if number != 9 else "damaged")
        with server.client() as client:
            client.xdel(key, *(kept[key].pop(place)[0] for place in (15, 3)))
    return Subject(
        lambda: RedisStreamSource(server.url, keys, decode_number, field="n", timeout_ms=150),
        lambda partition: [record for _, record in kept[keys[partition]]],
        job_directory, extend=extend, expire=expire, away=server.away, restart=restart,
    )  # fmt: skip


def decode_number(value: bytes) -> str:
    """Return the text of a value, unless it is damaged."""
    if value == b"damaged":
        raise ValueError("it is damaged")
    return value.decode()


def as_record(value: str) -> Any:
    return Unreadable("", "", "") if value == "damaged" else value


def reading_of(server: Redis, directory: Path, key: str, **options: Any) -> Reading:
    return Subject(partial(RedisStreamSource, server.url, key, **options), lambda partition: [], directory).opened()


def test_records_are_dicts_of_all_fields_or_one_value(shared_redis: Redis, tmp_path: Path) -> None:
    with shared_redis.client() as client:
        client.xadd("forms", {"a": "1", "b": "ü"}, id="1700000000123-4")
        client.xadd("forms", {"a": "2"}, id="1700000000123-5")
        client.xadd("forms", {"b": b"\xff"}, id="1700000000124-0")
    expected: list[tuple[dict[str, Any], list[Any]]] = [
        ({}, [{"a": "1", "b": "ü"}, {"a": "2"}, ("forms@1700000000124-0", "UnicodeDecodeError")]),
        ({"decode": "json", "field": "a"}, [1, 2, ("forms@1700000000124-0", "it has no field 'a'")]),
        ({"decode": "bytes", "entry_bytes_max": 3}, [
            ("forms@1700000000123-4", "an entry of 5 bytes (entry_bytes_max is 3)"), {"a": b"2"}, {"b": b"\xff"},
        ]),
        ({"decode": len, "field": "b", "with_metadata": True}, [
            {"value": 2, "id": "1700000000123-4", "timestamp": 1700000000.123, "stream": "forms"},
            ("forms@1700000000123-5", "it has no field 'b'"),
            {"value": 1, "id": "1700000000124-0", "timestamp": 1700000000.124, "stream": "forms"},
        ]),
    ]  # fmt: skip
    for number, (options, records) in enumerate(expected):
        (tmp_path / str(number)).mkdir()
        reading = reading_of(shared_redis, tmp_path / str(number), "forms", **options)
        reading.until(3)
        for element, record in zip(reading.elements, records, strict=True):
            if isinstance(record, tuple):
                assert type(element) is Unreadable and element.where == record[0] and element.why.startswith(record[1])
            else:
                assert element == record
        reading.close()


def test_a_job_begins_at_the_end_or_at_a_time(shared_redis: Redis, tmp_path: Path) -> None:
    with shared_redis.client() as client:
        for number, ms in enumerate((1_000_000, 1_000_001, 2_000_000), 1):
            client.xadd("starts", {"n": number}, id=f"{ms}-0")
        client.xadd("starts", {"n": 0}, id="2000001-0")
        client.xdel("starts", "2000001-0")
        starts: dict[str | datetime, list[int]] = {
            "latest": [4],
            "earliest": [1, 2, 3, 4],
            datetime.fromtimestamp(1000, UTC): [1, 2, 3, 4],
            datetime.fromtimestamp(1000, UTC).replace(microsecond=1): [2, 3, 4],
            datetime(1970, 1, 1, 0, 33, 20): [3, 4],
            datetime(1960, 1, 1): [1, 2, 3, 4],
        }
        readings = []
        for number, (start, expected) in enumerate(starts.items()):
            (tmp_path / str(number)).mkdir()
            reading = reading_of(shared_redis, tmp_path / str(number), "starts", start=start, decode="json", field="n")
            reading.once(1)
            readings.append((reading, expected))
        client.xadd("starts", {"n": 4}, id="3000000-0")
    for reading, expected in readings:
        reading.until(len(expected))
        assert reading.elements == expected
        reading.close()


def test_a_stream_that_does_not_exist_yet_is_waited_for(shared_redis: Redis, tmp_path: Path) -> None:
    subject = Subject(lambda: RedisStreamSource(shared_redis.url, "later", start="latest"), lambda p: [], tmp_path)
    subject.source().check()
    first = subject.opened()
    first.expect_no_more("there is no stream")
    with shared_redis.client() as client:
        client.xadd("later", {"n": 1})
        client.xadd("later", {"n": 2})
    for reading in (first, subject.opened()):
        reading.until(2)
        assert reading.elements == [{"n": "1"}, {"n": "2"}]
        reading.close()


LOSSES: dict[str, tuple[Callable[[Any, str, list[str]], object], str]] = {
    "trimmed within": (
        lambda client, key, ids: client.xtrim(key, minid=ids[6], approximate=False), "the entries from .* are gone",
    ),
    "all trimmed": (lambda client, key, ids: client.xtrim(key, maxlen=0), "up to its end, are gone"),
    "created again": (
        lambda client, key, ids: (client.delete(key), client.xadd(key, {"n": "new"}, id="1-0")), "it ends at 1-0",
    ),
    "removed": (lambda client, key, ids: client.delete(key), "it ends at 0-0"),
}  # fmt: skip


@pytest.mark.parametrize("case", LOSSES)
def test_what_is_lost_while_a_job_reads_ends_it(case: str, shared_redis: Redis, tmp_path: Path) -> None:
    key, (lose, line) = f"lost {case}", LOSSES[case]
    with shared_redis.client() as client:
        ids = [client.xadd(key, {"n": number}) for number in range(9)]
        reading = reading_of(shared_redis, tmp_path, key)
        reading.until(4, 2)
        lose(client, key, ids)
        with pytest.raises(DeterminantsLost, match=line) as caught:
            reading.until(5)
    assert "\n" not in str(caught.value) and "start a new job" in str(caught.value)
    assert len(reading.elements) == 4
    reading.close()


def test_the_last_entry_is_the_proof_that_nothing_is_missing(shared_redis: Redis, tmp_path: Path) -> None:
    with shared_redis.client() as client:
        key, ids = "proof", [client.xadd("proof", {"n": 0})]
        reading = reading_of(shared_redis, tmp_path, key)
        reading.until(1)
        client.xdel(key, ids[0])
        reading.expect_no_more("nothing has followed the entry that was deleted")
        client.xadd(key, {"n": 1})
        with pytest.raises(DeterminantsLost, match=f"entry {ids[0]}, which the job has read last, is gone"):
            reading.until(2)
    reading.close()


def test_large_entries_are_asked_for_one_by_one(
    shared_redis: Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_stream_reader, "FETCH_BYTES", 1 << 16)
    with shared_redis.client() as client:
        for number in range(60):
            client.xadd("large", {"n": str(number) + "x" * 50_000})
    reading = reading_of(shared_redis, tmp_path, "large")
    reading.until(60, 1000)
    assert [record["n"].rstrip("x") for record in reading.elements] == list(map(str, range(60)))
    reader: Any = reading.reader
    assert reader._fetch == 1
    del reading.elements[3:]
    reading.until(60, 1000)
    assert reading.elements[59]["n"].startswith("59")
    reading.close()


def test_the_lag_is_the_distance_of_ids(shared_redis: Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_stream_reader, "LOOK_S", 0.0)
    with shared_redis.client() as client:
        for number, ms in enumerate((1000, 1000, 4000, 9000)):
            client.xadd("lag", {"n": ms}, id=f"{ms}-{number}")
    reading = reading_of(shared_redis, tmp_path, "lag")
    reader: Any = reading.reader
    assert reader.counters() == {}
    lags = []
    for position in range(1, 5):
        reading.until(position)
        lags.append(reader.counters()["input_lag"])
    assert lags == [8000, 5000, 1, 0]
    reading.close()


def test_mistakes_are_one_line_with_the_remedy(shared_redis: Redis, capfd: pytest.CaptureFixture[str]) -> None:
    url = shared_redis.url
    wrong: list[tuple[Callable[[], Any], str]] = [
        (lambda: RedisStreamSource("localhost", "s"), 'use one like "redis://host:6379/0"|url must begin with'),
        (lambda: RedisStreamSource(url, ""), "use the key of a stream"),
        (lambda: RedisStreamSource(url, []), "use the key of a stream"),
        (lambda: RedisStreamSource(url, ["a", "a"]), "name each once"),
        (lambda: RedisStreamSource(url, "s", "avro"), "decode is 'avro'; use one of json, text, bytes"),
        (lambda: RedisStreamSource(url, "s", start="now"), "use 'earliest', 'latest' or a datetime"),
        (lambda: RedisStreamSource(url, "s", field=""), "use the name of a field"),
        (lambda: RedisStreamSource(url, "s", timeout_ms=0), "timeout_ms is 0; use 1 to"),
        (lambda: RedisStreamSource(f"{url}?decode_responses=1", "s").check(), "leave decode_responses out"),
    ]
    for attempt, line in wrong:
        with pytest.raises(PipelineError, match=line):
            attempt()
    with shared_redis.client() as client:
        client.set("a text", "x")
    with pytest.raises(PipelineError, match="WRONGTYPE"):
        RedisStreamSource(url, "a text").check()
    assert capfd.readouterr().err == ""


def test_no_message_has_the_password(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with redis_server() as server:
        with server.client() as client:
            client.config_set("requirepass", "secret")
        for url in (server.url, server.url.replace("unix://", "unix://:hunter2@")):
            with pytest.raises(PipelineError, match="password") as caught:
                RedisStreamSource(url, "s").check()
            assert "hunter2" not in str(caught.value)
        right = RedisStreamSource(server.url.replace("unix://", "unix://:secret@"), "s")
        right.check()
        reading = Subject(lambda: right, lambda partition: [], tmp_path).opened()
        reading.expect_no_more("the stream is empty")
    right.check()
    for _ in range(2):
        with pytest.raises(Unavailable):
            reading.once(1)
    printed = capfd.readouterr().err.splitlines()
    assert len(printed) == 2 and "waits for it" in printed[0] and "source 'source', partition 0 waits" in printed[1]
    assert "secret" not in "".join([*printed, repr(vars(right)["streams"]), repr(right._stream(0))])


def test_a_server_without_an_answer_is_waited_for(own_redis: Redis, tmp_path: Path) -> None:
    with own_redis.client() as client:
        client.xadd("s", {"n": 0})
        reading = reading_of(own_redis, tmp_path, "s", timeout_ms=100)
        reading.until(1)
        with own_redis.away(), pytest.raises(Unavailable, match="does not answer"):
            reading.once(1)
        assert reading.reader.ready_in_s(1) == redis_stream_reader.AWAY_S
        client.xadd("s", {"n": 1})
    wait_for("reading continues", lambda: _came(reading))
    assert reading.elements == [{"n": "0"}, {"n": "1"}]
    reading.close()


def _came(reading: Reading) -> bool:
    try:
        return reading.once(1)
    except Unavailable:
        return False
