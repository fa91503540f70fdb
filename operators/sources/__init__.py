"""Where records come from.  `SparkSource` is imported only when it is named, so that nothing else needs PySpark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from operators.sources.base import Companion, PartitionReader, Read, Source, SourceContext
from operators.sources.generated import ArrowSource, GeneratedSource, SequenceSource

if TYPE_CHECKING:
    from operators.sources.spark import SparkSource

__all__ = [
    "ArrowSource",
    "Companion",
    "GeneratedSource",
    "PartitionReader",
    "Read",
    "SequenceSource",
    "Source",
    "SourceContext",
    "SparkSource",
]


def __getattr__(name: str) -> Any:
    if name == "SparkSource":
        from operators.sources.spark import SparkSource

        return SparkSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
