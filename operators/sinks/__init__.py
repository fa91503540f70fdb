"""Sinks, which write every row exactly once and make it visible immediately.

Those that few jobs use are imported only when they are accessed, so no worker loads the others, and `ParquetSink` needs
pyarrow only then.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from operators.sinks.contract.sink import Sink
from operators.sinks.delivery.console import ConsoleSink
from operators.sinks.files.jsonlines import JsonLinesSink
from operators.sinks.sqlite.sqlite_sink import SqliteSink

if TYPE_CHECKING:
    from operators.sinks.delivery.callback import CallbackSink
    from operators.sinks.delivery.webhook import WebhookSink
    from operators.sinks.kafka.kafka_sink import KafkaSink
    from operators.sinks.lake.delta_sink import DeltaSink
    from operators.sinks.lake.iceberg_sink import IcebergSink
    from operators.sinks.nats.nats_sink import NatsSink
    from operators.sinks.parquet.parquet_sink import ParquetSink
    from operators.sinks.postgres.postgres_sink import PostgresSink
    from operators.sinks.redis.redis_streams import RedisSink

__all__ = [
    "CallbackSink",
    "ConsoleSink",
    "DeltaSink",
    "IcebergSink",
    "JsonLinesSink",
    "KafkaSink",
    "NatsSink",
    "ParquetSink",
    "PostgresSink",
    "RedisSink",
    "Sink",
    "SqliteSink",
    "WebhookSink",
]

_MODULES = {
    "CallbackSink": "operators.sinks.delivery.callback",
    "KafkaSink": "operators.sinks.kafka.kafka_sink",
    "DeltaSink": "operators.sinks.lake.delta_sink",
    "IcebergSink": "operators.sinks.lake.iceberg_sink",
    "NatsSink": "operators.sinks.nats.nats_sink",
    "ParquetSink": "operators.sinks.parquet.parquet_sink",
    "PostgresSink": "operators.sinks.postgres.postgres_sink",
    "RedisSink": "operators.sinks.redis.redis_streams",
    "WebhookSink": "operators.sinks.delivery.webhook",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "ParquetSink":
        from causal.records.vectors import require_arrow

        require_arrow(name)
    return getattr(import_module(_MODULES[name]), name)
