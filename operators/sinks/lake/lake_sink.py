"""The base class of sinks of lakehouses: options, the encoding of records, reading and publishing rows.

The library of a table format is imported when a store is opened, in the process of the sink's task alone.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from causal.errors import PipelineError
from causal.ports import SinkStore
from causal.records.vectors import require_arrow
from operators.sinks.contract.options import (
    EXISTING,
    WAIT_MS_MAX,
    check_choice,
    check_cutting,
    check_durability,
    check_range,
)
from operators.sinks.lake.lake_settings import NEW_COLUMNS, LakeSettings
from operators.sinks.parquet.block_rows import BlockRows
from operators.sinks.parquet.given_schema import names_of, schema_of

if TYPE_CHECKING:
    import pyarrow as pa

    from operators.sinks.lake.lake_reading import LakeOutput
    from operators.sinks.lake.lake_store import LakeStore
    from operators.sinks.lake.lake_table import LakeTable

COMPRESSIONS = ("snappy", "zstd", "gzip", "none")
"""The compressions that readers of both formats have."""


class LakeSink(BlockRows):
    """A sink that writes a table of a lakehouse; a subclass adds the format and the place.

    Args: those of the subclasses.
    """

    kind: str
    library: str
    """The package of the format's library, and the name of the extra that installs it."""

    def __init__(
        self,
        schema: pa.Schema | Mapping[str, Any] | None,
        columns: Sequence[str] | None,
        new_columns: str,
        file_bytes: int,
        publish_s: float,
        compression: str,
        existing: str,
        durability: str | None,
        busy_ms: int,
    ) -> None:
        sink = type(self).__name__
        require_arrow(sink)
        self._require_library()
        check_choice(sink, "existing", existing, EXISTING)
        check_choice(sink, "new_columns", new_columns, NEW_COLUMNS)
        check_choice(sink, "compression", compression, COMPRESSIONS)
        check_durability(sink, durability)
        check_range(sink, "busy_ms", busy_ms, 1, WAIT_MS_MAX)
        check_cutting(sink, file_bytes, publish_s)
        self.schema = None if schema is None else schema_of(sink, schema)
        self.columns = None if columns is None else names_of(sink, columns)
        self.new_columns = new_columns
        self.file_bytes = file_bytes
        self.publish_s = publish_s
        self.compression = compression
        self.existing = existing
        self.durability = durability
        self.busy_ms = busy_ms
        if columns is not None and new_columns == "add":
            raise PipelineError(f"{sink}: tuples cannot have new columns; leave out columns or new_columns")
        if self.schema is not None and self.columns not in (None, self.schema.names):
            raise PipelineError(f"{sink}: columns differ from those of the schema; pass only one of the two")

    def open_store(self, task: str, job_directory: Path) -> SinkStore:
        """Return the store of one sink task; the store accesses nothing until it is opened."""
        return self.store(task)

    def store(self, task: str) -> LakeStore:
        """Return the store of one sink task."""
        from operators.sinks.lake.lake_store import LakeStore

        self.table()  # imports the library now, so that a standby has it when it is promoted
        return LakeStore(self.settings, task, self.in_store)

    @property
    def in_store(self) -> bool:
        """Whether the table and its journals are in a store that several hosts share."""
        return self.everywhere

    @property
    def settings(self) -> LakeSettings:
        """The settings in the form that the sink's stores use."""
        return LakeSettings(
            sink=type(self).__name__,
            kind=self.kind,
            place=self.place,
            table=self.table,
            schema=self.schema,
            columns=self.columns,
            new_columns=self.new_columns,
            file_bytes=self.file_bytes,
            publish_s=self.publish_s,
            compression=self.compression,
            existing=self.existing or "refuse",
            durability=self.durability,
            busy_ms=self.busy_ms,
        )

    @abstractmethod
    def table(self) -> LakeTable:
        """Return a client of the table, which is not connected yet."""

    def output(self) -> LakeOutput:
        """Return a reader of all rows, also of those that are in no version of the table yet."""
        from operators.sinks.lake.lake_reading import LakeOutput

        return LakeOutput(self.settings, self.in_store)

    def publish(self, ended: bool = False) -> None:
        """Commit all rows that wait in journals, for a job that was ended by `kill -9`.

        Args:
            ended: whether the job will not be resumed, so that rows that could be withdrawn (below full sharing depth)
                become final.
        """
        from operators.sinks.journaled.rolling_store import publish_all
        from operators.sinks.lake.lake_reading import accounts

        publish_all(accounts(self.settings, self.in_store), self.store, ended)

    def newest_run(self) -> str | None:
        """Return the newest run that has opened the table."""
        from operators.sinks.lake.lake_reading import newest_run

        return newest_run(self.settings, self.in_store)

    def _require_library(self) -> None:
        from importlib.util import find_spec

        if find_spec(self.library) is None:
            raise PipelineError(
                f"{type(self).__name__} needs {self.library}; run `pip install 'causal-streams[{self.kind}]'`"
            )
