"""Sources of records; those with a process next to the job are imported only when they are accessed.

Users of the other sources therefore do not need PySpark, and no worker loads a web server.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from operators.source import Companion, PartitionReader, Read, Source, SourceContext
from operators.sources.files.files_source import FilesSource
from operators.sources.generated import ArrowSource, GeneratedSource, SequenceSource

if TYPE_CHECKING:
    from operators.sources.kafka.kafka_source import KafkaSource
    from operators.sources.lines.http_source import HttpSource
    from operators.sources.lines.stdin_source import StdinSource
    from operators.sources.messages.sse_source import SseSource
    from operators.sources.messages.websocket_source import WebSocketSource
    from operators.sources.nats.nats_source import NatsSource
    from operators.sources.outputs.output_source import OutputSource
    from operators.sources.postgres.postgres_changes import PostgresChanges
    from operators.sources.redis.redis_stream_source import RedisStreamSource
    from operators.spark.spark_source import SparkSource

__all__ = [
    "ArrowSource",
    "Companion",
    "FilesSource",
    "GeneratedSource",
    "HttpSource",
    "KafkaSource",
    "NatsSource",
    "OutputSource",
    "PartitionReader",
    "PostgresChanges",
    "Read",
    "RedisStreamSource",
    "SequenceSource",
    "Source",
    "SourceContext",
    "SparkSource",
    "SseSource",
    "StdinSource",
    "WebSocketSource",
]


_MODULES = {
    "HttpSource": "operators.sources.lines.http_source",
    "KafkaSource": "operators.sources.kafka.kafka_source",
    "NatsSource": "operators.sources.nats.nats_source",
    "OutputSource": "operators.sources.outputs.output_source",
    "PostgresChanges": "operators.sources.postgres.postgres_changes",
    "RedisStreamSource": "operators.sources.redis.redis_stream_source",
    "SparkSource": "operators.spark.spark_source",
    "SseSource": "operators.sources.messages.sse_source",
    "StdinSource": "operators.sources.lines.stdin_source",
    "WebSocketSource": "operators.sources.messages.websocket_source",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
