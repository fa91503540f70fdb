"""A sink that writes rows to Parquet files, each row exactly once; no reader ever sees an incomplete file.

The directory contains files of rows, `<task>-<first>-<next>.parquet`, which never change once they exist, and
`_causal/`, which readers of Parquet directories skip. `_causal/` contains a manifest, which names the existing files,
and a journal for each task. A bundle is first appended to the journal with its rows, determinants, position and digest,
in one write: this is the atomic step, and `read` and Spark's format "causal" see the bundle immediately. Rows are moved
from the journal to a file when they fill `file_bytes`, when they have waited `publish_s`, and when the store is closed.
A file grows under a hidden name and receives its own name when it is complete.

Any other program that reads the `*.parquet` files therefore sees only complete files and no row twice. It sees rows
with a delay of up to `publish_s` and a checkpoint interval. Below full sharing depth, it sees no row that may still be
withdrawn.

All changes to a journal happen under the task's lock, and `open` appends a claim with its incarnation. A zombie that
resumes notices under the lock that the journal has grown, reads it, and changes nothing.

Durability. Written rows survive the death of any process with either setting; "os" also waits for the disk.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import pyarrow as pa

from causal.errors import PipelineError
from causal.ports import SinkStore
from causal.storage.lock import outside
from operators.sinks.contract.options import (
    EXISTING,
    WAIT_MS_MAX,
    absolute,
    check_choice,
    check_cutting,
    check_durability,
    check_range,
)
from operators.sinks.contract.sink import check_directory
from operators.sinks.journaled.ledger import ledger_in
from operators.sinks.journaled.rolling_store import publish_all
from operators.sinks.objects.object_place import accounts, check_place, connected, newest_run, shared_url
from operators.sinks.parquet.block_rows import BlockRows
from operators.sinks.parquet.given_schema import names_of, schema_of
from operators.sinks.parquet.manifest import OURS, load_manifest
from operators.sinks.parquet.object_parquet import ObjectParquet
from operators.sinks.parquet.parquet_reading import read
from operators.sinks.parquet.parquet_settings import ParquetSettings
from operators.sinks.parquet.parquet_store import ParquetStore

__all__ = ["ParquetSink", "publish", "read"]

COMPRESSIONS = ("snappy", "zstd", "lz4", "gzip", "none")


class ParquetSink(BlockRows):
    """A sink that writes Parquet files into a directory of its own.

    Records are dicts, tuples (with `columns` or a `schema`) or vectors, which are never converted to rows. All files
    have the same schema. A row that does not fit it is refused, and the job's setting `on_error` determines what
    happens to the row.

    Needs: extra `arrow`; `hosts` for a URL.
    Readers: Parquet files of a directory or URL, some seconds late; immediately by our readers.
    Step: as `JsonLinesSink`.
    Fence: a claim is appended to the journal under a lock; in a shared store as `JsonLinesSink`.
    Server: as `JsonLinesSink`.
    Power: as `JsonLinesSink`.
    Limits: as `JsonLinesSink`; a directory may also be on storage with locks that all hosts share.

    Args:
        directory: a directory, which is created if it is missing; its parent must exist. A relative path is relative to
            the working directory when the sink is created. Alternatively, the URL of a shared store,
            `s3://BUCKET/PREFIX`, or `file:///DIRECTORY` on storage that all hosts mount; tasks may then move between
            hosts.
        schema: a `pyarrow.Schema`, or a dict that maps each column name to its Arrow type ("int64", "string"). By
            default, the first bundle that is written determines the schema permanently.
        columns: the column names for tuples, if no schema is given.
        file_bytes: the number of bytes of rows, before compression, that are collected into one file.
        publish_s: the longest time that rows wait for others before they are moved to a file, which may then be small.
        compression: the compression of the files: "snappy", "zstd", "lz4", "gzip" or "none".
        existing: what to do with rows of an earlier run in that directory: "refuse" to start, or "replace" them.
        durability: "process" or "os" (see the module); by default, the job's.
        busy_ms: how long to wait for another process that is writing to the same files before raising `Unavailable`.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        schema: pa.Schema | Mapping[str, Any] | None = None,
        columns: Sequence[str] | None = None,
        *,
        file_bytes: int = 32 << 20,
        publish_s: float = 10.0,
        compression: str = "snappy",
        existing: str = "refuse",
        durability: str | None = None,
        busy_ms: int = 2000,
    ) -> None:
        check_choice("ParquetSink", "existing", existing, EXISTING)
        check_durability("ParquetSink", durability)
        check_choice("ParquetSink", "compression", compression, COMPRESSIONS)
        check_range("ParquetSink", "busy_ms", busy_ms, 1, WAIT_MS_MAX)
        check_cutting("ParquetSink", file_bytes, publish_s)
        self.url = shared_url("ParquetSink", directory, durability)
        self.everywhere = bool(self.url)
        self.directory = Path() if self.url else absolute("ParquetSink", "directory", directory)
        self.place = self.url or str(self.directory)
        self.schema = None if schema is None else schema_of("ParquetSink", schema)
        self.columns = None if columns is None else names_of("ParquetSink", columns)
        self.file_bytes = file_bytes
        self.publish_s = publish_s
        self.compression = compression
        self.existing = existing
        self.durability = durability
        self.busy_ms = busy_ms
        if self.schema is not None and self.columns not in (None, self.schema.names):
            raise PipelineError("ParquetSink: columns differ from those of the schema; pass only one of the two")

    def open_store(self, task: str, job_directory: Path) -> SinkStore:
        """Return the store of one sink task; the store accesses nothing until it is opened."""
        return ObjectParquet(self.settings, task) if self.url else ParquetStore(self.settings, task)

    @property
    def settings(self) -> ParquetSettings:
        """The settings in the form that the sink's stores use."""
        return ParquetSettings(**{each.name: getattr(self, each.name) for each in fields(ParquetSettings)})

    def check(self) -> None:
        """Raise `PipelineError` if the directory cannot be created or written to, or the store does not answer."""
        if self.url:
            check_place("ParquetSink", self.url)
            return
        check_directory(self.directory, "ParquetSink")

    def newest_run(self) -> str | None:
        """Return the newest run that has opened the directory or the place in the shared store."""
        if self.url:
            return newest_run(self.url)
        with outside(self.directory):
            manifest = load_manifest(self.directory)
        return None if manifest is None else manifest.run


def publish(directory: str | os.PathLike[str], ended: bool = False) -> None:
    """Move all rows from the journals to files, for a job that was ended by `kill -9`.

    Args:
        directory: the sink's directory, or the URL of a place in a shared store.
        ended: whether the job will not be resumed, so that rows that could be withdrawn (below full sharing depth)
            become final.
    Raises:
        PipelineError: no sink has written to the directory or place.
    """
    if url := shared_url("publish", directory, None):
        publish_all(accounts(connected(url)), lambda task: ObjectParquet(ParquetSink(url).settings, task), ended)
        return
    read(directory)
    publish_all(
        (ledger_in(path).account for path in sorted((Path(directory) / OURS).glob("*.journal"))),
        lambda task: ParquetStore(ParquetSink(directory, existing="refuse").settings, task),
        ended,
    )
