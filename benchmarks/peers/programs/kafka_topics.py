"""The topics of *kafka*, which all programs read and write: what is in them, and when the last row was written.

An event is JSON, `{"key": "k12", "value": 3}`, in the partition of its key; a row is `["k12", n]`, the running count of
the key.  Imported by every system, so it needs confluent-kafka and nothing else.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.peers.programs import inputs

STILL_S = 3.0
"""The time without a new row after which all rows are there: three commits of the peers."""
LOOK_S, ASK_S = 0.01, 20.0
QUEUED_MAX = 200_000


def events(records: int) -> Iterator[tuple[str, int, bytes]]:
    """Yield (key, partition, message) of the events, from both partitions in turn."""
    per_partition = records // inputs.PARTITIONS
    halves = [inputs.rows(partition, 0, per_partition) for partition in range(inputs.PARTITIONS)]
    for both in zip(*halves, strict=True):
        for number, value in both:
            yield f"k{number}", number % inputs.PARTITIONS, json.dumps({"key": f"k{number}", "value": value}).encode()


def fill(servers: str, topic: str, records: int) -> None:
    """Append the events to a topic that exists."""
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "linger.ms": 20, "log_level": 0})
    for number, (key, partition, message) in enumerate(events(records)):
        producer.produce(topic, message, key, partition)
        if number % 1000 == 0:
            producer.poll(0)
            while len(producer) > QUEUED_MAX // 4:
                producer.poll(LOOK_S)
    if producer.flush(ASK_S):
        raise TimeoutError(f"the events of {topic} are not acknowledged")


def last_row_s(asked: Mapping[str, Any]) -> float:
    """Return when the last row was written, on the wall's clock, once the end of the output has been still.

    The end also moves by one per partition when a transaction ends. That is not counted, because a finite input would
    charge peers, which commit by time, with the rest of their interval.

    Raises:
        TimeoutError: rows are missing after `within_s`.
    """
    quiet = {"group.id": "watching", "log_level": 0}
    consumer = Consumer({"bootstrap.servers": asked["servers"], "isolation.level": "read_uncommitted", **quiet})
    topic = consumer.list_topics(asked["output"], ASK_S).topics[asked["output"]]
    partitions = [TopicPartition(topic.topic, each) for each in topic.partitions]
    ends, moved_s, written_s, deadline_s = 0, 0.0, 0.0, time.time() + asked["within_s"]
    while ends < asked["records"] or time.time() < moved_s + STILL_S:
        now = sum(consumer.get_watermark_offsets(each, ASK_S)[1] for each in partitions)
        if now != ends:
            moved_s = time.time()
            written_s = moved_s if now - ends > len(partitions) else written_s
            ends = now
        if time.time() > deadline_s:
            raise TimeoutError(f"{topic.topic} has {ends:,} of {asked['records']:,} rows after {asked['within_s']:g} s")
        time.sleep(LOOK_S)
    consumer.close()
    return written_s


if __name__ == "__main__":
    fill(sys.argv[1], sys.argv[2], int(sys.argv[3]))
