"""The conversion of a bundle's rows to Arrow columns; rows that do not fit the schema are refused by position.

Unless the sink specifies a schema, the first rows determine it, for all tasks and permanently.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

from causal.errors import RowRefused, invariant
from causal.ports import Bundle
from causal.records.columns import common_schema
from causal.records.rows import listed
from causal.records.values import NotCarried
from causal.records.vectors import Vectors
from operators.records.exact_types import Misfit
from operators.sinks.journaled.ledger import Ledger
from operators.sinks.parquet.blocks import records_in
from operators.sinks.parquet.fitting import columns_of, inferred, misfits, typed, without


def batches_of(rows: bytes, first: int, refused: Sequence[int], schema: pa.Schema) -> list[pa.RecordBatch]:
    """Return the rows as batches, except those at the refused positions; the first row is at position `first`.

    Raises:
        RowRefused: some of the rows do not fit the schema; the error names all of them.
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
    """Return the schema that can be inferred from these rows.

    Raises:
        RowRefused: none of the rows has columns.
    """
    records: list[Any] = []
    positions: list[int] = []
    schema: pa.Schema | None = None
    for at, piece, left_out in _located(rows, first, refused):
        kept = without(piece, left_out)
        if isinstance(kept, Vectors) and len(kept):
            with suppress(NotCarried):  # rows with other columns are refused later, by position
                schema = common_schema(schema or kept.batch.schema, kept.batch.schema)
            continue
        records += listed(kept)
        known = frozenset(left_out)
        positions += [at + index for index in range(len(piece)) if index not in known]
    if schema is not None:
        return typed(schema)
    try:
        return inferred(records, names)
    except Misfit as problem:
        raise RowRefused(positions[0], str(problem), *[(place, str(problem)) for place in positions[1:]]) from None


class FittedColumns(ABC):
    """The part of a store that converts bundles to columns before they are accepted.

    State: `_schema` is the schema of all files, or None if it is not yet known here; `_names` are the column names for
    tuples.
    """

    _task: str
    _names: Sequence[str] | None
    _schema: pa.Schema | None = None

    def _fitted(self, ledger: Ledger, bundle: Bundle) -> list[pa.RecordBatch] | None:
        """Return the rows as columns, or None for a bundle that has no rows or was accepted before.

        Raises:
            RowRefused: some rows do not fit the schema.
        """
        refused = [position for position, _ in bundle.refused]
        if bundle.first != ledger.account.next or not bundle.rows or bundle.count == len(refused):
            return None
        if self._schema is None:
            self._schema = self._agreed(schema_of(bundle.rows, bundle.first, refused, self._names))
        batches = batches_of(bundle.rows, bundle.first, refused, self._schema)
        rows = len(refused) + sum(batch.num_rows for batch in batches)
        invariant(rows == bundle.count, "rows and their count agree", task=self._task, first=bundle.first, rows=rows)
        return batches

    @abstractmethod
    def _agreed(self, schema: pa.Schema) -> pa.Schema:
        """Make `schema` the schema of all tasks unless they already have one, and return their schema."""


def _located(rows: bytes, first: int, refused: Sequence[int]) -> Iterator[tuple[int, Any, list[int]]]:
    """Yield each block's first position, its records, and the indices of its refused records."""
    at = first
    for records in records_in(rows):
        yield at, records, [place - at for place in refused if at <= place < at + len(records)]
        at += len(records)
