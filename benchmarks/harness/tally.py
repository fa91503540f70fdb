"""A sink that counts rows instead of storing them: for benchmarks, where a disk would hide the cost of the runtime.

The protocol is that of `SqliteSink`, with nothing left out: one transaction per bundle holds the position, the
digest, the determinants and the check of the incarnation.  Only the rows are not kept.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from causal.records.rows import Rows
from causal.records.vectors import Vectors
from operators.sinks.sqlite.sqlite_sink import SqliteSink

_COUNT = struct.Struct("<I")


class TallySink(SqliteSink):
    """A sink that stores how many records each task has written: `SELECT task, rows, ended FROM tally`.

    The digest over its rows verifies in a replay how many records each event put out, not what was in them.
    """

    keeps_rows = False

    def encode(self, records: Sequence[Any]) -> bytes:
        """Return four bytes with the number of records."""
        return _COUNT.pack(len(records))

    def encode_rows(self, rows: Rows) -> bytes:
        """Return four bytes with the number of rows, unless a subclass encodes otherwise."""
        return _COUNT.pack(len(rows)) if type(self).encode is TallySink.encode else self.encode(rows.listed())

    def encode_vectors(self, vectors: Vectors) -> bytes:
        """Return four bytes with the number of rows."""
        return _COUNT.pack(len(vectors))
