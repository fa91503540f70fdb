"""A store of Parquet objects in a shared store; see `operators.sinks.objects.object_rows`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa

from causal.errors import PipelineError
from operators.sinks.journaled.ledger import Entry
from operators.sinks.objects.object_rows import Cutting, ObjectRows
from operators.sinks.parquet.bundle_columns import FittedColumns, batches_of
from operators.sinks.parquet.parquet_file import packed
from operators.sinks.parquet.parquet_settings import ParquetSettings
from operators.sinks.parquet.stored_schema import agreed_schema, stored_schema

SUFFIX = "parquet"


class ObjectParquet(FittedColumns, ObjectRows):
    """The store of one sink task's rows, in Parquet objects."""

    def __init__(self, settings: ParquetSettings, task: str) -> None:
        self._settings, self._names = settings, settings.columns
        super().__init__(
            task,
            Cutting(settings.url, SUFFIX, settings.existing, settings.file_bytes, settings.publish_s, "ParquetSink"),
        )

    @contextmanager
    def _room(self) -> Iterator[None]:
        with super()._room():
            wanted, self._schema = self._settings.schema, stored_schema(self._store, self._run)
            if wanted is not None:
                self._schema = self._schema or self._agreed(wanted)
                if self._schema != wanted:
                    raise PipelineError(
                        f"{self._settings.url}: its objects differ from ParquetSink's schema in columns or "
                        f"types (columns {', '.join(self._schema.names)}); use the schema of these objects, or "
                        "another URL"
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
        return packed(batches, schema, self._settings.compression, description)
