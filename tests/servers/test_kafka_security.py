"""Kafka over TLS, and what a user reads who has a wrong authority, protocol or password.

No broker of the tests keeps users over its own restart, so that a password is accepted was tried with none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest

from benchmarks.servers.kafka import Broker, Topics, free_port
from benchmarks.servers.process import directory_of
from causal.errors import PipelineError, Unavailable
from operators.kafka.kafka_cluster import cluster_of
from operators.kafka.kafka_handles import Handle, partitions_of
from operators.sinks.conformance import Subject, bundles
from operators.source import PartitionReader, SourceContext
from operators.sources import KafkaSource
from tests.faults.job import wait_for
from tests.servers.test_kafka_conformance import fresh, named

pytest.importorskip("trustme", reason="trustme is not installed (extra dev)")
pytest.importorskip("confluent_kafka", reason="confluent_kafka is not installed (extra kafka)")
READS = {"group.id": "test"}
SECRET = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "app", "sasl.password": "hunter2"}


class Secured(NamedTuple):
    """A cluster that is reached through TLS, the options for it, and its broker."""

    topics: Topics
    options: dict[str, str]
    broker: Broker


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    from benchmarks.servers.tls import tls_before

    port = free_port()
    with directory_of(None, "kafka") as directory:
        broker = Broker(directory, "tansu", advertised_port=port)
        try:
            with tls_before(broker.port, port, directory) as authority:
                options = {"security.protocol": "SSL", "ssl.ca.location": str(authority)}
                topics = Topics(f"127.0.0.1:{port}", options)
                broker.topics = topics
                broker.start()
                yield Secured(topics, options, broker)
        finally:
            broker.kill()


@pytest.mark.parametrize("check", bundles.CHECKS, ids=named)
def test_a_topic_over_tls_conforms(check: Callable[[Subject], None], secured: Secured) -> None:
    check(fresh(secured.topics, options=secured.options))


def test_a_source_reads_over_tls(secured: Secured, tmp_path: Path) -> None:
    topic = secured.topics.create("read", 2)
    for partition in range(2):
        secured.topics.put(topic, *(b"%d" % (10 * partition + n) for n in range(5)), partition=partition)
    source = KafkaSource(secured.topics.servers, topic, options=secured.options)
    assert source.partitions == 2
    for partition in range(2):
        with closing(source.open(partition, SourceContext("in", tmp_path, 0))) as reader:
            assert first(reader) == [10 * partition + n for n in range(5)]


def first(reader: PartitionReader) -> list[Any]:
    """Return the first records of a partition, as soon as there are any."""

    def read() -> list[Any] | None:
        answer = reader.read(0, 5)
        return None if answer is None else [*cast(list[Any], answer.records)] or None

    return wait_for("there are records", read)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"security.protocol": "SSL"}, "check security.protocol and the ssl.… options"),
        ({}, "127.0.0.1:.* cannot be reached|does not answer"),
        ({"security.protocol": "SASL_SSL", **SECRET}, "check security.protocol, sasl.mechanism, sasl.username"),
    ],
    ids=["authority", "protocol", "password"],
)
def test_a_wrong_authority_protocol_or_password_is_one_line(
    secured: Secured, options: dict[str, str], words: str
) -> None:
    trusted = {"ssl.ca.location": secured.options["ssl.ca.location"]} if "sasl.password" in options else {}
    reader = Handle(cluster_of("KafkaSource", secured.topics.servers, options | trusted), "consumer", READS)
    try:
        with pytest.raises((PipelineError, Unavailable), match=words) as refused:
            partitions_of(reader, "read", 3)
    finally:
        reader.close()
    assert "hunter2" not in str(refused.value) and "\n" not in str(refused.value)
