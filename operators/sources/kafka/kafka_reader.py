"""The reader of one partition of a topic: a position is a count of messages, and a mark is the offset that follows.

Offsets are no positions, because the ends of transactions and aborted messages take offsets, too. The client is made at
the first read, so that no process inherits it, and reads ahead in threads of its own; `read` takes what has come.
"""

from __future__ import annotations

import sys
import time
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from causal.errors import CausalError, DeterminantsLost, PipelineError, Unavailable
from operators.kafka.kafka_cluster import Cluster
from operators.kafka.kafka_errors import name_of
from operators.kafka.kafka_handles import Handle, partitions_of
from operators.source import Read, SourceContext
from operators.sources.beginnings import beginnings_of
from operators.sources.kafka.kafka_decoding import Decoder

ANSWER_S = 1.0
"""The longest wait for a cluster's answer within a read."""
POLL_S, POLL_QUIET_S, QUIET_S = 0.002, 0.01, 1.0
"""The pauses between two reads of a partition that has messages, and of one that had none for `QUIET_S`."""
PARTITIONS_EVERY_S = 30.0
"""The time after which the number of partitions is looked up again."""
PLACES_MAX = 4096
"""The most places to which a reader can return directly; of more, every second is let go."""
BEYOND = ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE")
"""The partition does not have the offset that is asked for."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic, with the options that all readers of one source share.

    Attributes:
        start: returns the offsets at which partitions begin, given a client and the partitions.
        group: the consumer group whose offsets follow complete checkpoints; empty for none.
        expected: the number of partitions that the job reads.
    """

    cluster: Cluster
    name: str
    start: Callable[[Handle, list[int]], dict[int, int]]
    isolation: str
    group: str
    expected: int

    def client(self) -> Handle:
        """Return a new client that reads the topic."""
        return Handle(
            self.cluster,
            "consumer",
            {
                "group.id": self.group or f"causal-{self.name}",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "isolation.level": self.isolation,
                "check.crcs": True,
                "fetch.wait.max.ms": 100,
                "fetch.queue.backoff.ms": 10,
                "queued.max.messages.kbytes": 16384,
            },
        )

    def watermarks(self, handle: Handle, partition: int, timeout_s: float = ANSWER_S) -> tuple[int, int]:
        """Return the first offset of a partition, and the one after its last.

        Raises:
            CausalError: the cluster does not answer, or refuses.
        """
        import confluent_kafka

        where = confluent_kafka.TopicPartition(self.name, partition)
        try:
            low, high = handle.client.get_watermark_offsets(where, timeout_s)
        except confluent_kafka.KafkaException as problem:
            raise handle.translated(problem, f"topic {self.name}") from None
        except TypeError:  # the client returns None after a time-out
            raise Unavailable(f"{self.cluster.place}: topic {self.name}: no answer in {timeout_s:g} s") from None
        return int(low), int(high)


class KafkaReader:
    """A `PartitionReader` of one partition of a topic."""

    def __init__(self, topic: Topic, partition: int, context: SourceContext, decoder: Decoder) -> None:
        self._topic = topic
        self._partition = partition
        self._context = context
        self._decoder = decoder
        self._name = f"source {context.name!r}, partition {partition}"
        self._handle: Handle | None = None
        self._places: list[tuple[int, int]] = []
        """(position, offset) of places to which reading can return, in ascending order."""
        if context.mark is not None:
            self._places.append((context.position, int(context.mark)))
        self._next = -1
        """The position of the next message that the client gives; -1 if it is not assigned."""
        self._offset = 0
        """The offset that follows the last message."""
        self._reached = 0
        """The offset up to which there was no other message; the ends of transactions may precede it."""
        self._skips = 0
        """The number of messages to leave out, because they precede the position that was asked for."""
        self._came_s = time.monotonic()
        self._looked_s = time.monotonic()
        self._added = 0

    def read(self, position: int, count_max: int) -> Read | None:
        """Return up to `count_max` messages, or None while none are there.

        Raises:
            DeterminantsLost: the topic does not have the messages at this position any more.
            PipelineError: the topic is gone, or may not be read.
            Unavailable: the cluster does not answer.
        """
        handle = self._opened()
        if not self._places:
            self._places.append((0, self._beginning(handle)))
            if position == 0:
                return Read([], time.monotonic_ns(), marks=[self._places[0][1]])
        if position != self._next:
            self._return_to(handle, position)
        if self._partition == 0:
            self._look_for_partitions(handle)
        return self._taken(handle, position, count_max)

    def ready_in_s(self, position: int) -> float:
        """Return the pause until the next read is worthwhile."""
        return POLL_S if time.monotonic() - self._came_s < QUIET_S else POLL_QUIET_S

    def completed(self, position: int) -> None:
        """Forget places before `position`, and commit the offset to the group, if there is one."""
        at = bisect_right(self._places, position, key=_position) - 1
        if at < 0:
            return
        del self._places[:at]
        if self._topic.group and self._handle is not None:
            self._commit(self._handle, self._places[0][1])

    def counters(self) -> dict[str, int | float]:
        """Return how many offsets are still to be read, and the number of partitions that the job does not read."""
        if self._handle is None or self._next < 0:
            return {}
        import confluent_kafka

        where = confluent_kafka.TopicPartition(self._topic.name, self._partition)
        known = self._handle.client.get_watermark_offsets(where, cached=True)
        end = known[1] if known is not None else 0
        return {"input_lag": max(0, end - max(self._offset, self._reached)), "new_partitions": self._added}

    def close(self) -> None:
        """Close the client."""
        handle, self._handle, self._next = self._handle, None, -1
        if handle is not None:
            handle.close()

    # ----------------------------------------------------------------------------------------------------------

    def _opened(self) -> Handle:
        if self._handle is None or self._handle.gone:
            self._handle, self._next = self._topic.client(), -1
        return self._handle

    def _beginning(self, handle: Handle) -> int:
        def first() -> dict[int, int]:
            return self._topic.start(handle, partitions_of(handle, self._topic.name, ANSWER_S))

        def added() -> int:
            return self._topic.watermarks(handle, self._partition)[0]

        return beginnings_of(self._context).offset(self._partition, first, added)

    def _return_to(self, handle: Handle, position: int) -> None:
        import confluent_kafka

        at = bisect_right(self._places, position, key=_position) - 1
        if at < 0:
            raise DeterminantsLost(f"{self._name}: position {position} was already released by a checkpoint")
        self._next, self._offset = self._places[at]
        self._skips = position - self._next
        handle.client.assign([confluent_kafka.TopicPartition(self._topic.name, self._partition, self._offset)])
        self._next = position

    def _taken(self, handle: Handle, position: int, count_max: int) -> Read | None:
        messages = handle.client.consume(min(count_max + self._skips, 100_000), 0)
        records: list[Any] = []
        marks: list[int] = []
        try:
            for message in messages:
                if message.error() is not None:
                    self._check(handle, message)
                elif self._skips:
                    self._skips -= 1
                else:
                    records.append(self._decoder.record(message))
                    marks.append(message.offset() + 1)
        except CausalError:
            self._next = -1  # what was taken from the client is read again
            raise
        if not records:
            return None
        self._came_s = time.monotonic()
        self._next, self._offset = position + len(records), marks[-1]
        self._remember(self._next, self._offset)
        return Read(records, time.monotonic_ns(), marks=marks)

    def _remember(self, position: int, offset: int) -> None:
        if position > self._places[-1][0]:
            self._places.append((position, offset))
            if len(self._places) > PLACES_MAX:
                del self._places[1::2]

    def _check(self, handle: Handle, message: Any) -> None:
        """Raise the project's error for one that the client gave instead of a message, unless it is only a notice."""
        error = message.error()
        name = name_of(error)
        if name == "_PARTITION_EOF":
            self._reached = message.offset()
            return
        if name not in BEYOND:
            raise handle.translated(error, f"topic {self._topic.name}")
        low, high = self._topic.watermarks(handle, self._partition)
        if low <= self._offset <= high:
            raise Unavailable(f"{self._name}: offset {self._offset} cannot be read at the moment")
        raise lost(f"{self._name}: topic {self._topic.name}", self._offset, low, high)

    def _look_for_partitions(self, handle: Handle) -> None:
        now_s = time.monotonic()
        if now_s - self._looked_s < PARTITIONS_EVERY_S:
            return
        self._looked_s = now_s
        added = len(partitions_of(handle, self._topic.name, ANSWER_S)) - self._topic.expected
        if added > self._added:
            print(
                f"{self._name}: topic {self._topic.name} has {added} new partition{'s' * (added != 1)}, which this job "
                "does not read yet; `causal rescale`, `causal upgrade`, or a resume after `causal savepoint --stop` "
                "takes them up",
                file=sys.stderr,
                flush=True,
            )
        self._added = max(0, added)

    def _commit(self, handle: Handle, offset: int) -> None:
        import confluent_kafka

        where = confluent_kafka.TopicPartition(self._topic.name, self._partition, offset)
        try:
            handle.client.commit(offsets=[where], asynchronous=True)
        except confluent_kafka.KafkaException as problem:
            # Only tools that show lag read these offsets; the next checkpoint commits a later one.
            print(f"{self._name}: {handle.translated(problem, 'its group')}", file=sys.stderr, flush=True)


def lost(where: str, offset: int, low: int, high: int) -> DeterminantsLost:
    """Return the error for an offset that a partition does not have."""
    if offset < low:
        return DeterminantsLost(
            f"{where} has lost the messages from offset {offset} to {low - 1}, which the job has not processed: "
            "retention removed them; raise retention.ms or retention.bytes, and start a new job, which begins at what "
            "is kept"
        )
    return DeterminantsLost(
        f"{where} ends at offset {high}, but the job has read up to {offset}: the topic was created again or lost "
        "messages; start a new job"
    )


def check_kept(topic: Topic, partition: int, name: str, offset: int) -> None:
    """Raise `PipelineError` unless a partition still has the messages from an offset on."""
    handle = topic.client()
    try:
        low, high = topic.watermarks(handle, partition, 5.0)
    finally:
        handle.close()
    if not low <= offset <= high:
        raise PipelineError(str(lost(f"source {name!r}, partition {partition}: topic {topic.name}", offset, low, high)))


def _position(place: tuple[int, int]) -> int:
    return place[0]
