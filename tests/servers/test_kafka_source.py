"""KafkaSource against a real broker: the kit for sources, what the cluster refuses, and values of each format."""

from __future__ import annotations

import json
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
"""The checks that kill a broker of their own."""


@pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__)
def test_the_source_keeps_every_promise(check: Check, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    if check.__name__ in ALONE:
        broker: Broker = request.getfixturevalue("own_kafka")
        check(subject(broker.topics, check.__name__, tmp_path, broker))
    else:
        check(subject(request.getfixturevalue("shared_kafka"), check.__name__, tmp_path))


def subject(topics: Topics, topic: str, job_directory: Path, broker: Broker | None = None) -> Subject:
    """A topic of two partitions with aborted transactions, their gaps, a tombstone and a damaged message."""
    topics.create(topic, 2)
    for partition in range(2):
        fill(topics, topic, partition)
    group, known = f"group-{topic}", dict[int, list[Any]]()

    def rows(partition: int) -> list[Any]:
        if partition not in known:
            known[partition] = topics.rows(topic, partitions=[partition])
        return known[partition]

    @contextmanager
    def away() -> Iterator[None]:
        assert broker is not None
        broker.kill()
        yield
        broker.start()

    def restart() -> None:
        assert broker is not None
        broker.kill()
        broker.start()

    def extend() -> None:
        known.clear()
        for partition in range(2):
            topics.put(topic, b'{"n": "more"}', partition=partition)

    def grow() -> None:
        topics.grow(topic, 3)
        topics.put(topic, b'{"n": "new"}', b'{"n": "newer"}', partition=2)

    def expire(partition: int, position: int) -> None:
        topics.delete(topic, partition, rows(partition)[position].offset)

    def acknowledged(partition: int) -> int:
        offset = topics.committed(group, topic, partition)
        return sum(row.offset < offset for row in rows(partition))

    return Subject(
        lambda: KafkaSource(topics.servers, topic, group=group),
        lambda partition: [value_of(row.value) for row in rows(partition)],
        job_directory, extend=extend, grow=grow, expire=expire, acknowledged=acknowledged,
        away=away if broker else None, restart=restart if broker else None,
    )  # fmt: skip


def fill(topics: Topics, topic: str, partition: int) -> None:
    from confluent_kafka import Producer

    for number in range(4):
        producer = Producer(
            {"bootstrap.servers": topics.servers, "transactional.id": f"{topic}-{partition}-{number}", "log_level": 0}
        )
        producer.init_transactions(20)
        producer.begin_transaction()
        for n in range(7):
            value: bytes | None = b'{"n": %d}' % (10 * number + n)
            if number == 2 and n == 3:
                value = b"damaged"
            elif number == 2 and n == 5:
                value = None
            producer.produce(topic, value, partition=partition)
        producer.flush(20)
        if number == 1:
            producer.abort_transaction(20)
        else:
            producer.commit_transaction(20)
    topics.put(topic, *[b'{"n": "plain %d"}' % n for n in range(5)], partition=partition)


def value_of(value: bytes | None) -> Any:
    return None if value is None else Unreadable("", "", "") if value == b"damaged" else json.loads(value)
