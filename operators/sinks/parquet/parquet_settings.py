"""The settings of a `ParquetSink` in the form that its stores use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class ParquetSettings:
    """The settings of one sink; each has the name and meaning of a `ParquetSink` argument.

    Attributes:
        url: the URL of the place in a shared store; empty if `directory` is used.
    """

    url: str
    directory: Path
    schema: pa.Schema | None
    columns: Sequence[str] | None
    file_bytes: int
    publish_s: float
    compression: str
    existing: str
    durability: str | None
    busy_ms: int
