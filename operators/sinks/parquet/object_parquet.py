"""Parquet in objects of a shared store; see `operators.sinks.objects.object_rows`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from causal.errors import PipelineError
from operators.sinks.journaled.ledger import Entry
from operators.sinks.objects.object_rows import Cutting, ObjectRows
from operators.sinks.parquet.bundle_columns import FittedColumns, batches_of
from operators.sinks.parquet.parquet_file import packed
from operators.sinks.parquet.stored_schema import agreed_schema, stored_schema

if TYPE_CHECKING:
    from operators.sinks.parquet.parquet_sink import ParquetSink

SUFFIX = "parquet"


class ObjectParquet(FittedColumns, ObjectRows):
    """The outside world of one sink task, in Parquet objects."""

    def __init__(self, sink: ParquetSink, task: str) -> None:
        self._sink, self._names = sink, sink.columns
        super().__init__(task, Cutting(sink.url, SUFFIX, sink.existing, sink.file_bytes, sink.publish_s, "ParquetSink"))

    @contextmanager
    def _room(self) -> Iterator[None]:
        with super()._room():
            wanted, self._schema = self._sink.schema, stored_schema(self._store, self._run)
            if wanted is not None:
                self._schema = self._schema or self._agreed(wanted)
                if self._schema != wanted:
                    raise PipelineError(
                        f"{self._sink.url}: its objects have other columns or types than ParquetSink's schema (columns "
                        f"{', '.join(self._schema.names)}); give the schema of these objects, or another URL"
                    )
            yield

    def _agreed(self, schema: pa.Schema) -> pa.Schema:
        return agreed_schema(self._store, self._run, schema)

    def _packed(self, entries: Sequence[Entry], first: int, next_: int) -> bytes:
        batches: list[pa.RecordBatch] = []
        refused: list[int] = []
        for entry in entries:
            columns = entry.columns
            if columns is None:
                columns = batches_of(entry.bundle.rows, entry.first, entry.refused, self._schema)
            batches += columns
            refused += entry.refused
        description = {"run": self._run, "task": self._task, "first": first, "next": next_, "refused": refused}
        schema = pa.schema([]) if self._schema is None else self._schema
        return packed(batches, schema, self._sink.compression, description)
