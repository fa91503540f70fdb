"""Vectors in tests: small batches, and the same pipeline over rows and over vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from causal.ports import Chain, Output
from causal.records.batch import LISTED, RECORDS, Chunk, decode_records
from causal.records.vectors import Vectors
from operators import Pipeline
from operators.builder.pipeline import Stream
from operators.engine.plan import Plan, plan
from operators.records.arrow_rows import rows_of
from operators.sources import ArrowSource
from tests.unit.operators.scene import NoSink, Services, config


def vectors(rows: Sequence[dict[str, Any]], **kinds: str) -> Vectors:
    """Return rows as columns of these types."""
    schema = pa.schema([(name, pa.type_for_alias(kind)) for name, kind in kinds.items()])
    return Vectors.of(pa.RecordBatch.from_pylist(list(rows), schema=schema))


def arrow_source(partitions: int = 1) -> ArrowSource:
    return ArrowSource(lambda partition, start, stop: {"k": range(start, stop)}, 10, partitions)


def planned(build: Callable[[Stream[Any]], Stream[Any]], partitions: int = 1, **settings: Any) -> Plan:
    """Return the plan of source `in` (column k), what `build` adds, sink `out`."""
    pipeline = Pipeline("test")
    build(pipeline.source("in", arrow_source(partitions))).sink("out", NoSink())
    return plan(pipeline, config(**settings))


def listed(vectors: Vectors) -> list[Chunk]:
    return [Chunk(LISTED, len(vectors), vectors)]


def packed(vectors: Vectors) -> list[Chunk]:
    return [Chunk(RECORDS, len(vectors), vectors.encode())]


def rows(outputs: Sequence[Output]) -> list[Any]:
    """Return all records of the outputs as rows hold them."""
    records: list[Any] = []
    for _, chunk in outputs:
        batch = decode_records(chunk.body)
        assert chunk.count == len(batch)
        records += rows_of(batch.batch, 0, len(batch)) if isinstance(batch, Vectors) else batch
    return records


def give(chain: Chain, vectors: Vectors, services: Services | None = None) -> list[Any]:
    return rows(chain.deliver(0, packed(vectors), 0, services or Services()))
