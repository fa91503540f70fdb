"""The settings of a sink of a lakehouse, in the form that its stores use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from operators.sinks.lake.lake_table import LakeTable

NEW_COLUMNS = ("refuse", "add")


@dataclass(frozen=True, slots=True)
class LakeSettings:
    """The settings of one sink; most have the name and meaning of an argument of the sink.

    Attributes:
        sink: the name of the sink for messages.
        kind: the name of the table format.
        place: the table as users know it, for messages.
        table: returns a client of the table, which is not connected yet.
    """

    sink: str
    kind: str
    place: str
    table: Callable[[], LakeTable] = field(repr=False)
    schema: pa.Schema | None
    columns: Sequence[str] | None
    new_columns: str
    file_bytes: int
    publish_s: float
    compression: str
    existing: str
    durability: str | None
    busy_ms: int
