"""Where results go: sinks that write every row exactly once, visible at once.

`ParquetSink` is imported only when it is named, so that nothing else needs pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from operators.sinks.base import Sink
from operators.sinks.callback import CallbackSink
from operators.sinks.console import ConsoleSink
from operators.sinks.jsonlines import JsonLinesSink
from operators.sinks.postgres import PostgresSink
from operators.sinks.redis_streams import RedisSink
from operators.sinks.sqlite import SqliteSink
from operators.sinks.tally import TallySink
from operators.sinks.webhook import WebhookSink

if TYPE_CHECKING:
    from operators.sinks.parquet import ParquetSink

__all__ = [
    "CallbackSink",
    "ConsoleSink",
    "JsonLinesSink",
    "ParquetSink",
    "PostgresSink",
    "RedisSink",
    "Sink",
    "SqliteSink",
    "TallySink",
    "WebhookSink",
]


def __getattr__(name: str) -> Any:
    if name == "ParquetSink":
        from causal.vectors import require_arrow

        require_arrow("ParquetSink")
        from operators.sinks.parquet import ParquetSink

        return ParquetSink
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
