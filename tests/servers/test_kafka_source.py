"""KafkaSource against a real broker: the kit for sources, what the cluster refuses, and values of each format."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks.servers.kafka import Broker, Topics
from causal.errors import PipelineError
from causal.records.unreadable import Unreadable
from operators.sources import KafkaSource, conformance
from operators.sources.conformance import Subject
from tests.faults.job import wait_for

Check = Callable[[Subject], None]
ALONE = ("waits_for_an_unavailable_server", "continues_after_a_restart")
"""The checks that stop a broker of their own."""


def checks(alone: bool) -> pytest.MarkDecorator:
    chosen = [check for check in conformance.CHECKS if (check.__name__ in ALONE) == alone]
    return pytest.mark.parametrize("check", chosen, ids=lambda check: check.__name__)


@checks(alone=False)
def test_the_source_keeps_every_promise(check: Check, shared_kafka: Topics, tmp_path: Path) -> None:
    check(subject(shared_kafka, check.__name__, tmp_path))


@checks(alone=True)
def test_the_source_keeps_every_promise_while_its_broker_is_stopped(
    check: Check, own_kafka: Broker, tmp_path: Path
) -> None:
    check(subject(own_kafka.topics, check.__name__, tmp_path, own_kafka))


def subject(topics: Topics, topic: str, job_directory: Path, broker: Broker | None = None) -> Subject:
    """A topic of two partitions with aborted transactions, their gaps, a tombstone and a damaged message."""
    topics.create(topic, 2)
    committed = {partition: fill(topics, topic, partition) for partition in range(2)}
    group = f"group-{topic}"

    def put(partition: int, *values: bytes) -> None:
        topics.put(topic, *values, partition=partition)
        committed.setdefault(partition, []).extend(values)

    def extend() -> None:
        for partition in range(2):
            put(partition, b'{"n": "more"}')

    def grow() -> None:
        topics.grow(topic, 3)
        put(2, b'{"n": "new"}', b'{"n": "newer"}')

    def expire(partition: int, position: int) -> None:
        topics.delete(topic, partition, topics.rows(topic, partitions=[partition])[position].offset)

    def acknowledged(partition: int) -> int:
        offset = topics.committed(group, topic, partition)
        return sum(row.offset < offset for row in topics.rows(topic, partitions=[partition]))

    @contextmanager
    def stopped() -> Iterator[None]:
        """Stop it in order: after `kill -9`, noida-db lacks rows of the last second."""
        assert broker is not None
        for pid in broker.pids:
            os.kill(pid, signal.SIGTERM)
        while topics.answers():
            pass
        with broker.down():
            yield

    def restart() -> None:
        with stopped():
            pass

    return Subject(
        lambda: KafkaSource(topics.servers, topic, group=group),
        lambda partition: [value_of(value) for value in committed[partition]],
        job_directory, extend=extend, grow=grow, expire=expire, acknowledged=acknowledged,
        away=stopped if broker else None, restart=restart if broker else None,
    )  # fmt: skip


def fill(topics: Topics, topic: str, partition: int) -> list[bytes | None]:
    """Write three transactions, of which the second is aborted, and others; return the values that are committed."""
    committed: list[bytes | None] = []
    for number in range(3):
        values: list[bytes | None] = [b'{"n": %d}' % (10 * number + n) for n in range(8)]
        if number == 2:
            values[3], values[5] = b"damaged", None
        with transaction(topics, f"{topic}-{partition}-{number}", commits=number != 1) as producer:
            for value in values:
                producer.produce(topic, value, partition=partition)
        committed += values if number != 1 else []
    plain = [b'{"n": "plain %d"}' % n for n in range(6)]
    topics.put(topic, *plain, partition=partition)
    return [*committed, *plain]


@contextmanager
def transaction(topics: Topics, name: str, commits: bool = True) -> Iterator[Any]:
    """Yield a producer within a transaction, which is then committed or aborted.

    Each has a name of its own, because noida-db hides later transactions of a producer that has aborted one.
    """
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": topics.servers, "transactional.id": name, "log_level": 0})
    producer.init_transactions(20)
    producer.begin_transaction()
    yield producer
    assert producer.flush(20) == 0
    if commits:
        producer.commit_transaction(20)
    else:
        producer.abort_transaction(20)


def value_of(value: bytes | None) -> Any:
    return None if value is None else Unreadable("", "", "") if value == b"damaged" else json.loads(value)


def test_a_job_begins_at_the_end_or_at_a_time(shared_kafka: Topics, tmp_path: Path) -> None:
    shared_kafka.create("starts", 1)
    shared_kafka.put("starts", b"1", b"2", timestamp_ms=1_000_000)
    shared_kafka.put("starts", b"3", timestamp_ms=2_000_000)
    starts: dict[str | datetime, list[int]] = {
        "latest": [4],
        "earliest": [1, 2, 3, 4],
        datetime.fromtimestamp(1500, UTC): [3, 4],
        datetime.fromtimestamp(1000, UTC).replace(microsecond=1): [3, 4],
        datetime.fromtimestamp(0, UTC) - timedelta(milliseconds=1): [1, 2, 3, 4],
    }
    readings = []
    for number, (start, expected) in enumerate(starts.items()):
        (tmp_path / str(number)).mkdir()
        make = partial(KafkaSource, shared_kafka.servers, "starts", start=start)
        reading = Subject(make, lambda partition: [], tmp_path / str(number)).opened()
        wait_for("the beginning is written", lambda r=reading: r.once(1) or r.checkpoint(0).mark is not None)  # type: ignore[misc]
        readings.append((reading, expected))
    shared_kafka.put("starts", b"4", timestamp_ms=3_000_000)
    for reading, expected in readings:
        reading.until(len(expected))
        assert reading.elements == expected
        reading.close()


def test_a_compacted_topic_is_refused(shared_kafka: Topics) -> None:
    shared_kafka.create("compacted", 1, **{"cleanup.policy": "compact"})
    shared_kafka.create("kept", 1)
    KafkaSource(shared_kafka.servers, "kept").check()
    with pytest.raises(PipelineError, match="topic compacted is compacted .* read a topic with cleanup.policy=delete"):
        KafkaSource(shared_kafka.servers, "compacted").check()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"servers": "user:hunter2@host:9092"}, "servers is not a list of addresses"),
        ({"topic": "a b"}, "topic is 'a b'"),
        ({"start": "now"}, "start is 'now'; use 'earliest', 'latest' or a datetime"),
        ({"isolation": "none"}, "isolation is 'none'; use read_committed or read_uncommitted"),
        ({"group": ""}, "group is ''"),
        ({"decode_key": "avro"}, "decode_key is 'avro'; use one of json, text, bytes"),
        ({"value_bytes_max": 0}, "value_bytes_max is 0; use 1 to"),
        ({"options": {"group.id": "x", "sasl.password": "hunter2"}}, "option 'group.id' cannot be set: pass group="),
    ],
)
def test_wrong_arguments_are_one_line_without_secrets(options: dict[str, Any], words: str) -> None:
    pytest.importorskip("confluent_kafka", reason="confluent_kafka is not installed (extra kafka)")
    with pytest.raises(PipelineError, match=words) as refused:
        KafkaSource(**{"servers": "127.0.0.1:1", "topic": "t", **options})
    assert "hunter2" not in str(refused.value) and "\n" not in str(refused.value)
