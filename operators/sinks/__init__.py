"""Sinks, which write every row exactly once and make it visible immediately.

`ParquetSink` is imported only when it is accessed, so that users of the other sinks do not need pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from operators.sinks.contract.sink import Sink
from operators.sinks.delivery.callback import CallbackSink
from operators.sinks.delivery.console import ConsoleSink
from operators.sinks.delivery.webhook import WebhookSink
from operators.sinks.files.jsonlines import JsonLinesSink
from operators.sinks.postgres.postgres_sink import PostgresSink
from operators.sinks.redis.redis_streams import RedisSink
from operators.sinks.sqlite.sqlite_sink import SqliteSink

if TYPE_CHECKING:
    from operators.sinks.parquet.parquet_sink import ParquetSink

__all__ = [
    "CallbackSink",
    "ConsoleSink",
    "JsonLinesSink",
    "ParquetSink",
    "PostgresSink",
    "RedisSink",
    "Sink",
    "SqliteSink",
    "WebhookSink",
]


def __getattr__(name: str) -> Any:
    if name == "ParquetSink":
        from causal.records.vectors import require_arrow

        require_arrow("ParquetSink")
        from operators.sinks.parquet.parquet_sink import ParquetSink

        return ParquetSink
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
