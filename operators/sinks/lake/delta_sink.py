"""A sink that writes a Delta table, each row exactly once, in few and large commits.

A bundle is first appended to a journal, in the directory of the table, with its rows, determinants, position and
digest, in one write: this is the atomic step, and `open_output` sees the bundle immediately. Rows that fill
`file_bytes`, or that have waited `publish_s`, become one Parquet file and one version of the table, in which every
reader of Delta sees them. The commit contains the position of the task as an application transaction, so it is never
repeated.

Durability. Written rows survive the death of any process with either setting; "os" also waits for the disk.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from causal.errors import PipelineError
from operators.sinks.contract.options import absolute
from operators.sinks.contract.sink import check_directory
from operators.sinks.lake.lake_sink import LakeSink
from operators.sinks.objects.object_place import check_place, shared_url

if TYPE_CHECKING:
    import pyarrow as pa

    from operators.sinks.lake.lake_table import LakeTable


class DeltaSink(LakeSink):
    """A sink that writes a Delta table of its own.

    Records are dicts, tuples (with `columns` or a `schema`) or vectors. The columns are those of an empty table that
    exists, or of `schema`, or of the first bundle. A row that does not fit them is refused, and the job's setting
    `on_error` determines what happens to the row. Other programs may compact the table, and add or delete rows of
    theirs, while the job runs.

    Needs: extra `delta`; `hosts` for a URL.
    Readers: a Delta table, some seconds late; immediately by our readers.
    Step: as `JsonLinesSink`; publishing is one commit of the table.
    Fence: as `JsonLinesSink`; a commit names the task's position, and conflicts with a newer one.
    Server: as `JsonLinesSink`.
    Power: as `JsonLinesSink`.
    Limits: as `JsonLinesSink`; no partitions of the table; rows of a version cannot be withdrawn.

    Args:
        url: a directory, which is created if it is missing; its parent must exist. Alternatively, the URL of a shared
            store, `s3://BUCKET/PREFIX`, or `file:///DIRECTORY` on storage that all hosts mount; tasks may then move
            between hosts.
        schema: a `pyarrow.Schema`, or a dict that maps each column name to its Arrow type ("int64", "string").
        columns: the column names for tuples, if no schema is given.
        new_columns: what to do with a key that has no column: "refuse" the row, or "add" the column to the table.
        file_bytes: the number of bytes of rows, before compression, that are collected into one file and version.
        publish_s: the longest time that rows wait for others before they become a version.
        compression: the compression of the files: "snappy", "zstd", "gzip" or "none".
        existing: what to do with rows of an earlier run: "refuse" to start, or "replace" them; earlier versions remain.
        options: settings of the client of the store, such as `AWS_REGION`, which take precedence over the environment.
            Credentials should come from the environment, because the file of the pipeline is archived.
        durability: "process" or "os" (see the module); by default, the job's.
        busy_ms: how long to wait for another process that is writing to the same table before raising `Unavailable`.
    """

    kind = "delta"
    library = "deltalake"

    def __init__(
        self,
        url: str | os.PathLike[str],
        schema: pa.Schema | Mapping[str, Any] | None = None,
        columns: Sequence[str] | None = None,
        *,
        new_columns: str = "refuse",
        file_bytes: int = 32 << 20,
        publish_s: float = 10.0,
        compression: str = "snappy",
        existing: str = "refuse",
        options: Mapping[str, str] | None = None,
        durability: str | None = None,
        busy_ms: int = 2000,
    ) -> None:
        super().__init__(
            schema, columns, new_columns, file_bytes, publish_s, compression, existing, durability, busy_ms
        )
        self.url = shared_url("DeltaSink", url, durability)
        self.everywhere = bool(self.url)
        self.place = self.url or str(absolute("DeltaSink", "url", url))
        self._options = dict(options or {})
        if not all(type(part) is str for pair in self._options.items() for part in pair):
            raise PipelineError("DeltaSink: options are not a dict from text to text; write numbers as text")

    def table(self) -> LakeTable:
        """Return a client of the table, which is not connected yet."""
        from operators.sinks.lake.delta_table import DeltaLake

        return DeltaLake(self.place, self._options)

    def check(self) -> None:
        """Raise `PipelineError` if the directory cannot be created or written to, or the store does not answer."""
        if self.url:
            check_place("DeltaSink", self.url, self._options)
        else:
            check_directory(Path(self.place), "DeltaSink")
