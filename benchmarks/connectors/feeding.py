"""Appends events of `examples/kafka_counts.py` to their topic at a rate, until standard input ends.

    python -m benchmarks.connectors.feeding SERVERS EVENTS_PER_S

Each event has the moment at which it was produced, `made_ns`, in monotonic time.  At the end all are acknowledged, and
their number per partition is printed.
"""

from __future__ import annotations

import json
import select
import sys
import time

from confluent_kafka import Producer

from examples.kafka_counts import event
from examples.kafka_demo import WAIT_S

PARTITIONS = 2


def main(servers: str, rate: float) -> int:
    """Feed, and return the exit status."""
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 0, "log_level": 0})
    began_s, count = time.monotonic(), 0
    while not select.select([sys.stdin], [], [], max(began_s + count * PARTITIONS / rate - time.monotonic(), 0))[0]:
        for partition in range(PARTITIONS):
            sent = {**event(partition, count), "made_ns": time.monotonic_ns()}
            producer.produce("events", json.dumps(sent).encode(), partition=partition)
        producer.poll(0)
        count += 1
    left = producer.flush(WAIT_S)
    print(count)
    return int(left > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], float(sys.argv[2])))
