"""A sink that writes rows to a topic of a Kafka cluster, each exactly once, visible immediately.

A bundle is one transaction: rows, and one record of the account in the side topic `<topic>.causal.<task>`, with
position, digest and determinants. A row has the headers `task` and `position`. A reader with `read_uncommitted` sees a
row as soon as it is written, one with `read_committed` (the default of librdkafka, not of Java) when its transaction
has ended, milliseconds later. Nothing that a `read_committed` reader has seen is contradicted later, because
determinants travel with the rows. Rows that a `read_uncommitted` reader has seen are provisional: if the sink dies
before the commit, other rows may come at their positions, because the order of delivery is lost with the transaction;
of the rows with the same headers, the latest counts.

Fence. The `transactional.id` of a task is the name of its side topic, in every run: the cluster refuses a dead writer.
The account names the owner of the output, and decides.

Clusters without transactions (`transactions=False`). Determinants are written first, then rows, then the position. Each
row is there at least once: after a kill, the rows of the last bundle come again, with the same values and headers, so
that a reader who keeps the highest position of each task sees each row once. A process that was replaced notices it
before it writes rows that its successor does not know.

Tables (`upsert=True`). A revision is a message with the text of the row's key, and its new value or, for a deletion, no
value (a tombstone), so a compacted topic keeps the table. Of several revisions of a key in one bundle only the last is
written.

Needs confluent-kafka (extra `kafka`) and Kafka 2.5 or later. Tried against noida-db 0.2 and Tansu 0.6, not against
Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from causal.errors import PipelineError, Unavailable
from causal.ports import SinkStore
from operators.kafka.kafka_cluster import Option, check_topic, cluster_of
from operators.kafka.kafka_handles import Handle, partitions_of, policy_of, require_kafka
from operators.sinks.contract.options import WAIT_MS_MAX, check_choice, check_range
from operators.sinks.contract.sink import Sink
from operators.sinks.messages.message_rows import (
    Value,
    encode_all,
    revision_encoder,
    row_encoder,
    rows_in,
    shown,
    value_encoder,
)

if TYPE_CHECKING:
    from operators.sinks.kafka.kafka_session import Target

EXISTING = ("refuse", "replace", "append")
RESERVED = {
    "transactional.id": "it is made from topic and task, and fences a dead process",
    "enable.idempotence": "a row could be written twice without it",
    "acks": "a row counts when all replicas in sync have it",
    "group.id": "a sink has no group",
    "isolation.level": "a sink reads its account as it was committed",
    "enable.partition.eof": "a sink finds the end of its account with it",
    "delivery.report.only.error": "a sink needs the reports",
}
"""Options that the user must not set → why."""


class KafkaSink(Sink):
    """A sink that writes rows as messages to a topic of a Kafka cluster.

    Needs: extra `kafka`, Kafka 2.5 or later (tried: noida-db and Tansu).
    Readers: the topic; headers `task` and `position`.
    Step: one transaction with the account.
    Fence: `transactional.id`, and the account in a side topic.
    Server: as the cluster keeps what it acknowledges (`acks=all`).
    Power: as the cluster, by its replicas.
    Limits: rows cannot be withdrawn; below full sharing depth, the job ends when it would have to; `existing="replace"`
    deletes every record of the topic; `transactions=False` repeats rows after a kill, with the same headers.

    Args:
        servers: addresses of brokers, such as "one:9092,two:9092".
        topic: the topic, which must exist.
        encode: "json", "text", "bytes", "avro" (with `schema`), or a function from a record to bytes, text or None.
        key: a function from a record to the key of its message: text, bytes or None; any other value becomes JSON.
            Equal keys share a partition, chosen as Java's client does.
        headers: a function from a record to a dict of further headers, with text or bytes as values.
        schema: the Avro schema, for encode="avro": messages are Avro's binary form without a registry's prefix.
        existing: what to do with rows of an earlier run: "refuse" to start, "replace" them (deletes every record of the
            topic), or "append" to them.
        options: options of librdkafka for TLS, SASL and more, such as {"security.protocol": "SSL"}.
        transactions: False for clusters without transactions, with the weaker promise of the module.
        trim: whether records of the account that a checkpoint made unnecessary are deleted. False for clusters that
            cannot or may not delete records: the side topics then grow, and with them the time to recover.
        timeout_ms: the time limit for each call; a call that exceeds it raises `Unavailable` and is retried.
        upsert: write the rows of a table by key, for `table.sink`, to a compacted topic; `encode` is then given the
            new value of a row, and `key` and `headers` are left out.
    """

    everywhere = True

    def __init__(
        self,
        servers: str,
        topic: str,
        encode: str | Callable[[Any], Any] = "json",
        key: Callable[[Any], Any] | None = None,
        headers: Callable[[Any], Mapping[str, Value]] | None = None,
        schema: Any = None,
        existing: str = "refuse",
        options: Mapping[str, Option] | None = None,
        transactions: bool = True,
        trim: bool = True,
        timeout_ms: int = 5000,
        upsert: bool = False,
    ) -> None:
        said = f"KafkaSink({topic!r})"
        check_topic(said, topic)
        check_choice(said, "existing", existing, EXISTING)
        check_range(said, "timeout_ms", timeout_ms, 1, WAIT_MS_MAX)
        for name, function in (("key", key), ("headers", headers)):
            if function is not None and not callable(function):
                raise PipelineError(f"{said}: {name} is {function!r}; use a function of a record")
        if existing == "replace" and not transactions:
            raise PipelineError(
                f'{said}: existing="replace" needs transactions, which fence the writers of earlier rows; use '
                '"append", or another topic'
            )
        if upsert and (key is not None or headers is not None):
            raise PipelineError(
                f"{said}: upsert=True writes a row with the key of the table; leave key and headers out"
            )
        self.upsert = upsert
        self.cluster = cluster_of(said, servers, options, RESERVED)
        self.topic = topic
        self.existing: str = existing
        self.place = f"{self.cluster.place}, topic {topic}"
        self._form = encode
        value_of = value_encoder(said, encode, schema)
        self._encode = revision_encoder(value_of) if upsert else row_encoder(value_of, key, headers)
        self._options = (transactions, trim, timeout_ms)

    def encode(self, records: Sequence[Any]) -> bytes:
        """Return the rows for these records: key, value and headers of each message."""
        return encode_all(self._encode, records)

    def shown_row(self, rows: bytes, index: int) -> Any:
        """See `Sink.shown_row`."""
        for number, row in enumerate(rows_in(rows)):
            if number == index:
                return shown(row, self._form)
        return None

    def open_store(self, task: str, job_directory: Path) -> SinkStore:
        """Return the store of one sink task; the store connects only when it is prepared or opened."""
        require_kafka("KafkaSink")
        from operators.sinks.kafka.kafka_store import KafkaStore

        return KafkaStore(self._target(), task)

    def check(self) -> None:
        """Raise `PipelineError` for mistakes in addresses, options or the topic, or a missing permission.

        A cluster that is unavailable is not an error here: the job will wait for it.
        """
        with self._asking() as reader:
            partitions_of(reader, self.topic, self._target().timeout_s)
            policy = policy_of(self.cluster, self.topic) if self.upsert else None
        if policy is not None and "compact" not in policy:
            raise PipelineError(
                f"KafkaSink({self.topic!r}): topic {self.topic} loses rows of the table after a time "
                f"(cleanup.policy={policy}); set cleanup.policy=compact (kafka-configs --alter)"
            )
        if policy == "compact" and self.existing == "replace":
            raise PipelineError(
                f'KafkaSink({self.topic!r}): existing="replace" cannot delete records of topic {self.topic}, which is '
                "only compacted; set cleanup.policy=compact,delete with retention.ms=-1, or use another topic"
            )

    def newest_run(self) -> str | None:
        """Return the newest run that has begun to write the topic."""
        require_kafka("KafkaSink")
        import confluent_kafka

        from operators.kafka.kafka_errors import translated
        from operators.sinks.kafka.kafka_store import newest_run

        try:
            return newest_run(self._target())
        except confluent_kafka.KafkaException as problem:
            raise translated(problem, self.cluster) from problem

    @contextmanager
    def _asking(self) -> Iterator[Handle]:
        require_kafka("KafkaSink")
        reader = Handle(self.cluster, "consumer", self._target().reads())
        try:
            yield reader
        except Unavailable:
            return
        finally:
            reader.close()

    def _target(self) -> Target:
        from operators.sinks.kafka.kafka_session import Target

        return Target(self.cluster, self.topic, self.existing, *self._options, self.upsert)
