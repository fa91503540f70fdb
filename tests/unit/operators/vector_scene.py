"""Vectors in tests: small batches, and the same pipeline over rows and over vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from causal.batch import LISTED, RECORDS, Chunk, decode_records
from causal.ports import Chain, Output
from causal.vectors import Vectors
from operators import Pipeline
from operators.pipeline import Stream
from operators.plan import Plan, plan
from operators.sources import ArrowSource
from operators.sources.arrow_rows import rows_of
from tests.unit.operators.scene import NoSink, Services, config


def vectors(rows: Sequence[dict[str, Any]], **kinds: str) -> Vectors:
    """Rows as columns of these types."""
    schema = pa.schema([(name, pa.type_for_alias(kind)) for name, kind in kinds.items()])
    return Vectors.of(pa.RecordBatch.from_pylist(list(rows), schema=schema))


def arrow_source(partitions: int = 1) -> ArrowSource:
    return ArrowSource(lambda partition, start, stop: {"k": range(start, stop)}, 10, partitions)


def planned(build: Callable[[Stream], Stream], partitions: int = 1, **settings: Any) -> Plan:
    """The plan of source `in` (column k), what `build` adds, sink `out`."""
    pipeline = Pipeline("test")
    build(pipeline.source("in", arrow_source(partitions))).sink("out", NoSink())
    return plan(pipeline, config(**settings))


def listed(given: Vectors) -> list[Chunk]:
    return [Chunk(LISTED, len(given), given)]


def packed(given: Vectors) -> list[Chunk]:
    return [Chunk(RECORDS, len(given), given.encode())]


def rows(outputs: Sequence[Output]) -> list[Any]:
    """All records of the outputs as rows hold them."""
    found: list[Any] = []
    for _, chunk in outputs:
        made = decode_records(chunk.body)
        assert chunk.count == len(made)
        found += rows_of(made.batch, 0, len(made)) if isinstance(made, Vectors) else made
    return found


def give(chain: Chain, given: Vectors, services: Services | None = None) -> list[Any]:
    return rows(chain.deliver(0, packed(given), 0, services or Services()))
