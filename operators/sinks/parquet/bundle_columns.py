"""The rows of a bundle, in blocks, as Arrow columns; rows that do not fit the schema are refused by position."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from causal.errors import RowRefused
from causal.records.rows import listed
from causal.records.vectors import Vectors
from operators.sinks.contract.blocks import records_in
from operators.sinks.parquet.exact_types import Misfit
from operators.sinks.parquet.fitting import columns_of, inferred, misfits, without


def batches_of(rows: bytes, first: int, refused: Sequence[int], schema: pa.Schema) -> list[pa.RecordBatch]:
    """The rows from position `first` on, but those at the positions that are refused.

    Raises:
        RowRefused: some of the others do not fit the schema; it names all of them.
    """
    batches: list[pa.RecordBatch] = []
    wrong: list[tuple[int, str]] = []
    for at, records, left_out in _located(rows, first, refused):
        kept = without(records, left_out)
        if not len(kept):
            continue
        try:
            batches.append(columns_of(kept, schema))
        except Misfit:
            known = frozenset(left_out)
            wrong += [(at + index, reason) for index, reason in misfits(records, schema) if index not in known]
    if wrong:
        raise RowRefused(*wrong[0], *wrong[1:])
    return batches


def schema_of(rows: bytes, first: int, refused: Sequence[int], names: Sequence[str] | None) -> pa.Schema:
    """The schema of these rows, as far as they have one.

    Raises:
        RowRefused: none of them has columns.
    """
    records: list[Any] = []
    positions: list[int] = []
    for at, piece, left_out in _located(rows, first, refused):
        kept = without(piece, left_out)
        if isinstance(kept, Vectors) and len(kept):
            return inferred(kept, names)
        records += listed(kept)
        known = frozenset(left_out)
        positions += [at + index for index in range(len(piece)) if index not in known]
    try:
        return inferred(records, names)
    except Misfit as problem:
        raise RowRefused(positions[0], str(problem), *[(place, str(problem)) for place in positions[1:]]) from None


def _located(rows: bytes, first: int, refused: Sequence[int]) -> Iterator[tuple[int, Any, list[int]]]:
    """Yields of each block the position of its first record, its records, and the indices of those that are refused."""
    at = first
    for records in records_in(rows):
        yield at, records, [place - at for place in refused if at <= place < at + len(records)]
        at += len(records)
