"""confluent-kafka without an engine: a loop that reads, counts in a dict and writes, in transactions with the offsets.

Rows are exactly once as long as no process dies; the counts are lost with it.  Partitions are shared out to processes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from benchmarks.peers.programs import inputs, kafka_topics

BATCH, WAIT_S = 5000, 0.05
ROOM_S = 0.01
WORKER = "worker"


def work(place: Path, number: int) -> None:
    """Count in the process of this number until it is ended."""
    asked = inputs.asked(place)
    servers = {"bootstrap.servers": asked["servers"]}
    consumer = Consumer(
        {
            **servers, "group.id": asked["output"], "enable.auto.commit": False, "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )  # fmt: skip
    producer = Producer({**servers, "transactional.id": f"{asked['output']}-{time.time_ns()}", "linger.ms": 5})
    own = range(number, inputs.PARTITIONS, asked["processes"])
    consumer.assign([TopicPartition(asked["topic"], each, OFFSET_BEGINNING) for each in own])
    producer.init_transactions()
    counts: dict[str, int] = {}
    begun, due_s = False, 0.0
    while True:
        messages = consumer.consume(BATCH, WAIT_S)
        if messages and not begun:
            inputs.began(place)
            producer.begin_transaction()
            begun, due_s = True, time.monotonic() + asked["interval_s"]
        for message in messages:
            if message.error() is not None:
                raise RuntimeError(message.error().str())
            key = json.loads(message.value())["key"]
            n = counts[key] = counts.get(key, 0) + 1
            _produce(producer, asked["output"], json.dumps([key, n]), key)
        producer.poll(0)
        if begun and time.monotonic() > due_s:
            offsets = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata())
            producer.commit_transaction()
            begun = False


def _produce(producer: Producer, topic: str, value: str, key: str) -> None:
    while True:
        try:
            producer.produce(topic, value, key)
            return
        except BufferError:
            producer.poll(ROOM_S)


def run_workers(program: str, place: Path, asked: dict[str, Any]) -> dict[str, Any]:
    """Run as many processes as are asked for until all rows are committed; returns when the last was written."""
    command = [sys.executable, "-m", program, WORKER, str(place)]
    workers = [subprocess.Popen([*command, str(number)]) for number in range(asked["processes"])]
    try:
        return {"last_s": kafka_topics.last_row_s(asked)}
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.wait()


def main() -> int:
    """Run it, or one of its processes."""
    place = Path(sys.argv[2])
    if sys.argv[1] == WORKER:
        work(place, int(sys.argv[3]))
    inputs.finished(place, "confluent-kafka", run_workers(__spec__.name, place, inputs.asked(place)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
