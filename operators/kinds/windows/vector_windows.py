"""Tumbling processing-time windows over vectors: one call per window, with all rows of the task in arrival order.

`operators.kinds.windows.task_windows` decides when a window fires and what is logged; only the contents differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa

from causal.errors import CausalError
from causal.records.columns import common_schema
from causal.records.rows import joined
from causal.records.values import NotCarried, decode, encode
from causal.records.vectors import Vectors
from operators.graph import Node
from operators.kinds.vectors.key_index import KeyIndex, Slots, column_of
from operators.kinds.windows.task_windows import Window, WindowStage
from operators.records.arrow_rows import rows_of
from operators.records.exact_types import exact_vectors
from operators.records.keys import canonical_key, key_group
from operators.stage.scope import Scope
from operators.state.keyed_tables import FragmentJob


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows that arrived together; `arrived` is the number of the first row, `generation` is that of their arrival."""

    generation: int
    arrived: int
    vectors: Vectors


class VectorWindowStage(WindowStage):
    """`window(name, size_s, fn)` on vectors, where `fn(batch, window)` returns a batch, or None for no output."""

    traces = False

    def __init__(self, node: Node, scope: Scope) -> None:
        super().__init__(node, scope)
        self._batch_fn: Callable[[pa.RecordBatch, Window], Any] = node.subject
        self._key = node.column
        self._pieces: list[Piece] = []
        self._schema: pa.Schema | None = None
        """The schema of all pieces together; None without pieces."""
        self._parts: list[tuple[int, Slots, Vectors]] = []

    def open(self) -> None:
        pa.set_cpu_count(1)  # use one thread, as in every stage on vectors

    def run(self, records: Any, keys: list[Any] | None) -> Any:
        try:
            self._schema = common_schema(self._schema or records.batch.schema, records.batch.schema)
        except NotCarried as problem:
            self.failures.stop(self.name, None, problem)
        self._open()
        self._pieces.append(Piece(self._generation, self._arrivals, records))
        self._arrivals += len(records)
        return []

    def _emptied(self, window: Window) -> Any:
        pieces, self._pieces, self._schema = self._pieces, [], None
        self._generation += 1
        self._oldest = self._generation
        if not pieces:  # after a rescale, this task may have no rows of a window that was already open
            return []
        try:
            result = self._batch_fn(joined([piece.vectors for piece in pieces]).batch, window)
            return [] if result is None else exact_vectors(result)
        except CausalError:
            raise
        except Exception as problem:
            self.failures.stop(self.name, None, problem)

    # Snapshots.

    def inspect(self, key: Any) -> dict[str, Any]:
        """Return the key's rows in the open window."""
        rows = [row for piece in self._pieces for row in rows_of(piece.vectors.batch, 0, len(piece.vectors))]
        kept = rows if self._key is None else [row for row in rows if row[self._key] == key]
        return {self._table: kept} if kept else {}

    def kept_keys(self) -> Iterable[Any]:
        if self._key is None:
            return [None] if self._pieces else []
        columns = (piece.vectors.batch.column(self._key) for piece in self._pieces)
        return (canonical_key(value) for column in columns for value in column.to_pylist())

    def freeze(self, full: bool) -> tuple[dict[str, Any], list[FragmentJob]]:
        frozen = [piece for piece in self._pieces if full or piece.generation == self._generation]
        self._generation += any(piece.generation == self._generation for piece in self._pieces)
        return self.header(), [PiecesJob(self._table, frozen, self._key, self._key_groups)]

    def load_header(self, header: dict[str, Any], full: bool) -> None:
        super().load_header(header, full)
        oldest = self._generation if full else self._oldest
        self._pieces = [piece for piece in self._pieces if piece.generation >= oldest]

    def _load(self, fragment: bytes) -> None:
        generation, arrived, body = decode(fragment)
        self._parts.append((generation, np.frombuffer(arrived, "<i8"), Vectors.decode(body)))

    def restored(self) -> None:
        """Sort the loaded rows by arrival; all parts of one snapshot receive the generation of that snapshot."""
        if self._parts:
            parts, self._parts = self._parts, []
            arrived = np.concatenate([each for _, each, _ in parts])
            rows = joined([vectors for _, _, vectors in parts])
            ordered = Vectors(rows.batch.take(pa.array(np.argsort(arrived))))
            piece = Piece(max(generation for generation, _, _ in parts), int(arrived.min()), ordered)
            self._pieces = sorted([*self._pieces, piece], key=lambda piece: piece.arrived)
        schemas = [piece.vectors.batch.schema for piece in self._pieces]
        self._schema = reduce(common_schema, schemas) if schemas else None


class PiecesJob:
    """A job that encodes the rows of an open window into fragments per key group, with their arrival numbers."""

    def __init__(self, name: str, pieces: list[Piece], key: str | None, key_groups: int) -> None:
        self.name = name
        self.fragments: dict[int, list[bytes]] = {}
        self._pieces = pieces
        self._key = key
        self._key_groups = key_groups
        self._left: list[tuple[int, Slots]] | None = None
        self._rows: Vectors | None = None
        self._arrived = np.zeros(0, np.int64)

    def step(self, keys_max: int) -> int:
        """Encode whole key groups until at least `keys_max` rows are encoded, or fewer if no more remain."""
        if self._left is None:
            self._left = self._split()
        done = 0
        while self._left and done < keys_max:
            group, places = self._left.pop()
            self._encode(group, places)
            done += len(places)
        return done

    def _split(self) -> list[tuple[int, Slots]]:
        if not self._pieces:
            return []
        rows = self._rows = joined([piece.vectors for piece in self._pieces])
        self._arrived = np.concatenate(
            [np.arange(piece.arrived, piece.arrived + len(piece.vectors)) for piece in self._pieces]
        )
        if self._key is None:
            return [(key_group(None, self._key_groups), np.arange(len(rows)))]
        index = KeyIndex()
        slots = index.slots_of(column_of(rows, self._key))
        groups = np.array([key_group(key, self._key_groups) for key in index.keys_at(np.arange(len(index)))])[slots]
        order = np.argsort(groups, kind="stable")
        ordered = groups[order]
        parts = np.split(order, np.flatnonzero(ordered[1:] != ordered[:-1]) + 1)
        return [(int(groups[part[0]]), part) for part in parts]

    def _encode(self, group: int, places: Slots) -> None:
        if self._rows is not None:
            body = Vectors(self._rows.batch.take(pa.array(places))).encode()
            entry = [self._pieces[0].generation, self._arrived[places].astype("<i8").tobytes(), body]
            self.fragments.setdefault(group, []).append(encode(entry))
