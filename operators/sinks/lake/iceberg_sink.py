"""A sink that writes an Iceberg table, each row exactly once, in few and large commits.

It works as `DeltaSink` does. The directory of the table and the place of the journals is the one that the catalog
gives it; the position of a task is a property of the table, which changes in the commit of the rows.

Durability. Written rows survive the death of any process with either setting; "os" also waits for the disk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from causal.errors import PipelineError, Unavailable
from operators.sinks.lake.lake_sink import LakeSink

if TYPE_CHECKING:
    import pyarrow as pa

    from operators.sinks.lake.lake_table import LakeTable


class IcebergSink(LakeSink):
    """A sink that writes an Iceberg table of its own.

    Records, columns and refused rows are as for `DeltaSink`. The catalog may be any of pyiceberg's; the directory of
    the table is local, or in S3.

    Needs: extra `iceberg`; `hosts` for a table in S3.
    Readers: an Iceberg table, some seconds late; immediately by our readers.
    Step: as `DeltaSink`.
    Fence: as `DeltaSink`; a commit is made only on the snapshot that was looked at.
    Server: the promise of the catalog.
    Power: as `JsonLinesSink`.
    Limits: as `DeltaSink`; the table's library does not repeat commits of others either (`commit.retry.num-retries=0`).

    Args:
        table: the namespace, which must exist, and the name of the table: "shop.orders". A table that is missing is
            created.
        catalog: the name of a catalog in `.pyiceberg.yaml` or in the environment (`PYICEBERG_CATALOG__NAME__URI`),
            which is the place for credentials; or a dict of the properties of a catalog.
        schema: a `pyarrow.Schema`, or a dict that maps each column name to its Arrow type ("int64", "string").
        columns: the column names for tuples, if no schema is given.
        new_columns: what to do with a key that has no column: "refuse" the row, or "add" the column to the table.
        file_bytes: the number of bytes of rows, before compression, that are collected into one file and snapshot.
        publish_s: the longest time that rows wait for others before they become a snapshot.
        compression: the compression of the files: "snappy", "zstd", "gzip" or "none".
        existing: what to do with rows of an earlier run: "refuse" to start, or "replace" them; earlier snapshots
            remain.
        durability: "process" or "os" (see the module); by default, the job's.
        busy_ms: how long to wait for another process that is writing to the same table before raising `Unavailable`.
    """

    kind = "iceberg"
    library = "pyiceberg"

    def __init__(
        self,
        table: str,
        catalog: str | Mapping[str, str],
        schema: pa.Schema | Mapping[str, Any] | None = None,
        columns: Sequence[str] | None = None,
        *,
        new_columns: str = "refuse",
        file_bytes: int = 32 << 20,
        publish_s: float = 10.0,
        compression: str = "zstd",
        existing: str = "refuse",
        durability: str | None = None,
        busy_ms: int = 2000,
    ) -> None:
        super().__init__(
            schema, columns, new_columns, file_bytes, publish_s, compression, existing, durability, busy_ms
        )
        parts = table.split(".") if isinstance(table, str) else []
        if len(parts) < 2 or not all(parts):
            raise PipelineError(f"IcebergSink: table is {table!r}; use a namespace and a name, such as 'shop.orders'")
        if isinstance(catalog, str):
            wrong = not catalog
        else:
            wrong = not isinstance(catalog, Mapping) or not all(type(each) is str for each in catalog.values())
        if wrong:
            raise PipelineError("IcebergSink: catalog is neither a name nor a dict from text to text; pass one of them")
        self._identifier = table
        self._catalog = catalog if isinstance(catalog, str) else dict(catalog)
        warehouse = "" if isinstance(self._catalog, str) else self._catalog.get("warehouse", "")
        self.everywhere = warehouse.startswith("s3:")
        self.place = f"Iceberg table {table}"

    def table(self) -> LakeTable:
        """Return a client of the table, which is not connected yet."""
        from operators.sinks.lake.iceberg_table import IcebergLake

        return IcebergLake(self._identifier, self._catalog)

    def check(self) -> None:
        """Raise `PipelineError` if the catalog does not answer, or lacks the namespace."""
        from operators.sinks.lake.iceberg_table import IcebergLake

        try:
            IcebergLake(self._identifier, self._catalog).check()
        except Unavailable as problem:
            raise PipelineError(f"IcebergSink: {problem}") from None
