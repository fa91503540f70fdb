"""KafkaSource against a real broker: the kit for sources, what the cluster refuses, and values of each format."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks.servers.kafka import Broker, Topics
from causal.records.unreadable import Unreadable
from operators.sources import KafkaSource, conformance
from operators.sources.conformance import Subject

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
