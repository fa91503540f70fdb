"""Sources of records.  `SparkSource` is imported only when it is named, so that nothing else needs PySpark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from operators.sources.files.files_source import FilesSource
from operators.sources.generated import ArrowSource, GeneratedSource, SequenceSource
from operators.sources.source import Companion, PartitionReader, Read, Source, SourceContext

if TYPE_CHECKING:
    from operators.sources.spark_source import SparkSource

__all__ = [
    "ArrowSource",
    "Companion",
    "FilesSource",
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
        from operators.sources.spark_source import SparkSource

        return SparkSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
