"""The count of `examples/kafka_counts.py`, with dice and times, whose account is trimmed as it is by default."""

from __future__ import annotations

from examples.kafka_counts import Count
from operators import Pipeline
from operators.sinks import KafkaSink
from operators.sources import KafkaSource

COUNTERS = 2

pipeline = Pipeline("kafka-rows")
servers = pipeline.settings.get("servers", "127.0.0.1:9092")
(
    pipeline.source("events", KafkaSource(servers, "events"))
    .key_by(lambda record: record["key"])
    .process("count", Count(), parallelism=COUNTERS)
    .sink("out", KafkaSink(servers, "counts", key=lambda row: row["key"]))
)
