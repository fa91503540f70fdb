"""A sink whose rows are blocks of unchanged records, which its stores convert to columns; see `blocks`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from causal.records.rows import Rows, listed
from causal.records.values import NotCarried
from causal.records.vectors import Vectors
from operators.sinks.contract.sink import Sink, encode_json
from operators.sinks.parquet.blocks import block, records_in


class BlockRows(Sink):
    """The encoding that sinks of columns share."""

    def encode(self, records: Sequence[Any]) -> bytes:
        """Return a block that contains the unchanged records; they become columns when they are written."""
        return block(records)

    def encode_rows(self, rows: Rows) -> bytes:
        """Return the same block that `encode` returns for these tuples."""
        return block(rows)

    def encode_vectors(self, vectors: Vectors) -> bytes:
        """Return a block with the Arrow buffers of the vectors; no value is ever converted to a Python object."""
        return block(vectors)

    def shown_row(self, rows: bytes, index: int) -> Any:
        """Return one of the rows that `encode` returned, as a JSON-compatible value."""
        for records in records_in(rows):
            if index < len(records):
                record = listed(records)[index]
                try:
                    return json.loads(encode_json(record))
                except NotCarried:
                    return repr(record)
            index -= len(records)
        raise IndexError(index)
