"""The settings of a `ParquetSink`, as its stores use them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class ParquetSettings:
    """The settings of one sink; each is the argument of `ParquetSink` that has its name.

    Attributes:
        url: of the place in a shared store; empty where `directory` is meant.
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
