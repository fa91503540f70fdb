"""The source of Kafka messages, `KafkaSource`: read in place, each message exactly once, in the order of partitions.

Nothing is copied: checkpoints keep offsets. Consumer groups decide nothing; a group's offsets may follow, for tools.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from causal.errors import PipelineError
from operators.graph import caller
from operators.kafka.kafka_cluster import Option, check_topic, cluster_of
from operators.kafka.kafka_handles import Handle, partitions_of, policy_of, require_kafka
from operators.source import PartitionReader, Source, SourceContext
from operators.sources.beginnings import lend_beginnings
from operators.sources.kafka.kafka_decoding import FORMATS, Decoder, decoder_of
from operators.sources.kafka.kafka_reader import ANSWER_S, KafkaReader, Topic, check_kept
from operators.sources.kafka.kafka_schemas import Registry
from operators.stage.unreadable import SET_ASIDE

STARTS = ("earliest", "latest")
ISOLATIONS = ("read_committed", "read_uncommitted")
VALUE_BYTES_MAX = 15 << 20
_EPOCH = datetime.fromtimestamp(0, UTC)
_RESERVED = {
    "group.id": "pass group=",
    "isolation.level": "pass isolation=",
    "auto.offset.reset": "pass start=",
    "enable.auto.commit": "checkpoints decide where reading continues",
    "enable.auto.offset.store": "checkpoints decide where reading continues",
    "enable.partition.eof": "a topic has no end",
}


class KafkaSource(Source[Any]):
    """A source of the messages of a topic, each exactly once; each partition is a partition of the source.

    Args:
        servers: the addresses of brokers, `"one:9092,two:9092"`.
        decode: "json", "text", "bytes", "avro", "protobuf", or a pure function of the value's bytes; a message without
            a value (a tombstone) is None.
        start: where a new job begins: "earliest", "latest", or a time (a datetime; UTC if naive) by the messages'
            timestamps. Partitions that are added later are read from their beginning.
        with_metadata: whether records are dicts of `value`, `key`, `headers` (name → bytes; of several with one name,
            the last), `timestamp` (seconds, or None), `partition` and `offset`.
        decode_key: as `decode`, for the keys: "text", "json", "bytes", or a function.
        schema: for avro, the schema of values without a schema's number; for protobuf, the class of the messages.
        registry: the URL of a schema registry with Confluent's interface.
        registry_user: "user:password" for the registry.
        isolation: "read_committed", or "read_uncommitted" to also read messages of open and aborted transactions.
        group: a consumer group whose offsets follow complete checkpoints, only for tools that show lag.
        value_bytes_max: the maximum size of a value; a larger one is not a record.
        options: further options of the clients by librdkafka's names, such as `security.protocol`.
    """

    asks_partitions = True
    may_be_unreadable = True
    bad_input_remedy = SET_ASIDE.replace("lines", "messages")

    def __init__(
        self,
        servers: str,
        topic: str,
        decode: str | Callable[[bytes], Any] = "json",
        start: str | datetime = "earliest",
        *,
        with_metadata: bool = False,
        decode_key: str | Callable[[bytes], Any] = "text",
        schema: Any = None,
        registry: str | None = None,
        registry_user: str | None = None,
        isolation: str = "read_committed",
        group: str | None = None,
        value_bytes_max: int = VALUE_BYTES_MAX,
        options: Mapping[str, Option] | None = None,
    ) -> None:
        self._said = f"{caller()}: KafkaSource"
        said = self._said
        require_kafka(said)
        self._cluster = cluster_of(said, servers, options, _RESERVED)
        check_topic(said, topic)
        self.topic = topic
        self.with_metadata = with_metadata
        registered = None if registry is None else Registry(said, registry, registry_user)
        self._decode = decoder_of(said, decode, schema, registered)
        if decode_key in ("avro", "protobuf"):
            raise PipelineError(f"{said}: decode_key is {decode_key!r}; use one of {', '.join(FORMATS[:3])}")
        self._decode_key = decoder_of(said, decode_key, None, None)
        if start not in STARTS and not isinstance(start, datetime):
            raise PipelineError(f"{said}: start is {start!r}; use 'earliest', 'latest' or a datetime")
        self.start = start.replace(tzinfo=UTC) if isinstance(start, datetime) and start.tzinfo is None else start
        if isolation not in ISOLATIONS:
            raise PipelineError(f"{said}: isolation is {isolation!r}; use {' or '.join(ISOLATIONS)}")
        self.isolation = isolation
        if group is not None and (not isinstance(group, str) or not group):
            raise PipelineError(f"{said}: group is {group!r}; use the name of a consumer group")
        self.group = group or ""
        if type(value_bytes_max) is not int or not 1 <= value_bytes_max <= 1 << 30:
            raise PipelineError(f"{said}: value_bytes_max is {value_bytes_max!r}; use 1 to {1 << 30:,}")
        self.value_bytes_max = value_bytes_max
        self._partitions = 0

    @property
    def partitions(self) -> int:  # the cluster is asked for it
        """The number of partitions: that which the job has fixed, or else that of the topic now.

        Raises:
            PipelineError: there is no such topic, or it may not be read.
            Unavailable: the cluster does not answer.
        """
        if not self._partitions:
            handle = self._shared(0).client()
            try:
                self._partitions = len(partitions_of(handle, self.topic, 10 * ANSWER_S))
            finally:
                handle.close()
        return self._partitions

    @partitions.setter
    def partitions(self, number: int) -> None:
        self._partitions = number

    def check(self) -> None:
        """Raise `PipelineError` if the topic is compacted, because messages vanish from it at any moment."""
        policy = policy_of(self._cluster, self.topic)
        if policy is not None and "compact" in policy:
            raise PipelineError(
                f"{self._said}: topic {self.topic} is compacted (cleanup.policy={policy}), so messages vanish "
                "before they could be read again after a failure; read a topic with cleanup.policy=delete"
            )

    def check_readable(self, partition: int, position: int, context: SourceContext) -> None:
        """Raise `PipelineError` if retention has removed messages from `position` on."""
        if context.mark is not None:
            check_kept(self._shared(self.partitions), partition, context.name, int(context.mark))

    def lend(self, name: str, job_directory: Path, elsewhere: Path) -> bool:
        """Copy the places at which the job began to read."""
        lend_beginnings(name, job_directory, elsewhere)
        return True

    def open(self, partition: int, context: SourceContext) -> PartitionReader:
        """Return a reader of one partition, which connects at its first read."""
        place = f"{self.topic}[{partition}]"
        decoder = Decoder(place, self._decode, self._decode_key, self.with_metadata, self.value_bytes_max)
        return KafkaReader(self._shared(self.partitions), partition, context, decoder)

    def _shared(self, expected: int) -> Topic:
        return Topic(self._cluster, self.topic, self._first_offsets, self.isolation, self.group, expected)

    def _first_offsets(self, handle: Handle, partitions: list[int]) -> dict[int, int]:
        """Return the offset of each partition at which a new job begins."""
        import confluent_kafka

        topic = self._shared(len(partitions))
        ends = {partition: topic.watermarks(handle, partition) for partition in partitions}
        if isinstance(self.start, datetime):
            at_ms = _first_ms(self.start)
            asked = [confluent_kafka.TopicPartition(self.topic, partition, at_ms) for partition in partitions]
            try:
                answers = handle.client.offsets_for_times(asked, ANSWER_S)
            except confluent_kafka.KafkaException as problem:
                raise handle.translated(problem, f"topic {self.topic}") from None
            for each in answers:
                if each.error is not None:
                    raise handle.translated(each.error, f"topic {self.topic}")
            return {each.partition: each.offset if each.offset >= 0 else ends[each.partition][1] for each in answers}
        return {partition: low if self.start == "earliest" else high for partition, (low, high) in ends.items()}


def _first_ms(start: datetime) -> int:
    """Return the first timestamp in ms that is not before `start`; negative numbers would mean ends of the topic."""
    return max(0, -((_EPOCH - start) // timedelta(milliseconds=1)))
