"""The side topics of a sink: their names, how they are made, and how they are read to their end.

    <topic>.causal           the runs that have begun to write the topic, and where the rows of each begin
    <topic>.causal.<task>    the account of one sink task (`account_log`)

Each has one partition. Neither expires: records that a later one makes unnecessary are deleted by the sink itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import confluent_kafka
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewTopic

from causal.errors import CorruptData, PipelineError, Unavailable
from causal.records.values import decode, encode
from operators.kafka.kafka_cluster import TOPIC_CHARS_MAX
from operators.kafka.kafka_errors import MISSING, name_of
from operators.kafka.kafka_handles import Handle, answered

_AT_ONCE = 500
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-")
_KEPT = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}


def runs_topic(topic: str) -> str:
    """Return the name of the topic of a sink's runs."""
    return f"{topic}.causal"


def account_topic(topic: str, task: str) -> str:
    """Return the name of the topic with a task's account, which is also the task's transactional.id."""
    plain = "".join(
        char if char in _PLAIN else "-" if char == "/" else "".join(f"_{byte:02x}" for byte in char.encode())
        for char in task
    )
    name = f"{runs_topic(topic)}.{plain}"
    if len(name) > TOPIC_CHARS_MAX:
        raise PipelineError(
            f"KafkaSink({topic!r}): the side topic {name} has more than {TOPIC_CHARS_MAX} characters; give the sink a "
            "shorter name"
        )
    return name


@dataclass(slots=True)
class RunLog:
    """The runs that have begun to write a topic.

    Attributes:
        newest: the newest run; "" before the first.
        ready: whether the newest run has dealt with the rows of earlier ones, so that its tasks may write.
        begins: partition → the offset at which the rows of the newest run begin.
    """

    where: str
    newest: str = ""
    ready: bool = False
    begins: dict[int, int] = field(default_factory=dict)

    def take(self, message: bytes) -> None:
        """Read the next message of the topic; a message of an older run counts no more."""
        try:
            run, ready, begins = decode(message)
            begins = {int(partition): int(offset) for partition, offset in begins}
            if not isinstance(run, str) or not isinstance(ready, bool):
                raise ValueError("no run")
        except (TypeError, ValueError) as problem:
            raise CorruptData(f"{self.where} does not hold the runs of a sink: {problem}") from None
        if run > self.newest or (run == self.newest and ready):
            self.newest, self.ready, self.begins = run, ready, begins


def run_message(run: str, ready: bool, begins: Mapping[int, int]) -> bytes:
    """Return the message by which a run begins, or is ready, to write a topic."""
    return encode([run, ready, sorted(begins.items())])


def make_topics(admin: Handle, topics: Sequence[str], timeout_s: float) -> None:
    """Make side topics; those that exist stay as they are."""
    new = [NewTopic(topic, 1, -1, config=_KEPT) for topic in topics]
    for topic, future in admin.client.create_topics(new, operation_timeout=timeout_s).items():
        try:
            future.result(timeout_s)
        except confluent_kafka.KafkaException as problem:
            if name_of(problem) != "TOPIC_ALREADY_EXISTS":
                raise admin.translated(problem, f"side topic {topic}") from problem
        except TimeoutError as problem:
            raise admin.translated(problem, f"side topic {topic}") from problem


def are_there(reader: Handle, topics: Sequence[str], timeout_s: float) -> list[bool]:
    """Return which of the topics exist, without creating any."""
    there = []
    for topic in topics:
        seen = reader.client.list_topics(topic, timeout_s).topics.get(topic)
        problem = seen.error if seen is not None else None
        if problem is not None and name_of(problem) not in MISSING:
            raise reader.translated(problem, f"side topic {topic}")
        there.append(problem is None and seen is not None and bool(seen.partitions))
    return there


def read_to_end(reader: Handle, takes: Mapping[str, Callable[[bytes], None]], timeout_s: float) -> dict[str, int]:
    """Pass every committed message of some topics, which exist, to their functions; return each topic's end.

    Raises:
        CorruptData: a broker hides the beginning of a topic, so that an account would seem new.
        Unavailable: the cluster does not answer.
    """
    client, deadline_s = reader.client, time.monotonic() + timeout_s
    ends: dict[str, int] = {}
    begins = {topic: offsets_of(reader, topic, [0], timeout_s)[0][0] for topic in takes}
    seen: set[str] = set()
    client.assign([TopicPartition(topic, 0, begin) for topic, begin in begins.items()])
    try:
        while len(ends) < len(takes):
            one = client.poll(max(deadline_s - time.monotonic(), 0))
            if one is None:
                raise reader.translated(TimeoutError("the side topics were not read in time"))
            for message in [one, *client.consume(_AT_ONCE, 0)]:
                topic, problem = message.topic(), message.error()
                if problem is None:
                    seen.add(topic)
                    takes[topic](message.value() or b"")
                elif name_of(problem) == "_PARTITION_EOF":
                    ends[topic] = message.offset()
                else:
                    raise reader.translated(problem, f"side topic {topic}")
        for topic, end in ends.items():
            if 0 < begins[topic] < end and topic not in seen:
                raise CorruptData(f"{reader.cluster.place}: side topic {topic} shows none of its records; restore it")
    finally:
        client.unassign()
    return ends


def delete_before(admin: Handle, ends: Mapping[tuple[str, int], int], timeout_s: float) -> None:
    """Delete the records of partitions before these offsets."""
    wanted = [TopicPartition(topic, partition, end) for (topic, partition), end in ends.items() if end > 0]
    if wanted:
        asked = admin.client.delete_records(wanted, operation_timeout=timeout_s, request_timeout=timeout_s)
        answered(admin, asked, timeout_s, f"topic {wanted[0].topic}: its records cannot be deleted")


def offsets_of(reader: Handle, topic: str, partitions: Sequence[int], timeout_s: float) -> dict[int, tuple[int, int]]:
    """Return partition → the offsets of the first record and after the last one."""
    try:
        return {
            each: reader.client.get_watermark_offsets(TopicPartition(topic, each), timeout_s) for each in partitions
        }
    except TypeError:  # the client answers None when the time is over
        raise Unavailable(f"{reader.cluster.place} does not answer; check it, or raise timeout_ms") from None
