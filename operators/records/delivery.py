"""Joining of the chunks of one delivery into one batch: a list of records, `Rows`, `Counted` or `Vectors`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from causal.errors import OperatorFailed, invariant
from causal.records.batch import LISTED, RECORDS, WATERMARK, Chunk, decode_rows, stamp_of
from causal.records.rows import Counted, Rows, listed
from causal.records.values import NotCarried
from causal.records.vectors import Vectors, join


def unite(chunks: Sequence[Chunk]) -> tuple[Any, int, int | None]:
    """Return (all records, smallest known origin, highest watermark) of the chunks of one delivery.

    Records are a list, `Rows`, `Counted` or `Vectors`.

    Raises:
        OperatorFailed: vectors have different columns, or some records are `Counted` and others are not.
    """
    if len(chunks) == 1 and chunks[0].kind == RECORDS:
        return decode_rows(chunks[0].body), chunks[0].origin_ns, None
    pieces: list[Any] = []
    origin_ns, mark = 0, None
    for chunk in chunks:
        if chunk.kind == RECORDS:
            pieces.append(decode_rows(chunk.body))
        elif chunk.kind == LISTED:
            # Copied, so that an operator that changes the batch does not change the list of the source.
            pieces.append(chunk.body if isinstance(chunk.body, (Vectors, Counted)) else list(chunk.body))
        else:
            invariant(chunk.kind == WATERMARK, "a chain receives only records and watermarks", kind=chunk.kind)
            stamp = stamp_of(chunk)
            mark = stamp if mark is None else max(mark, stamp)
            continue
        if chunk.origin_ns and (not origin_ns or chunk.origin_ns < origin_ns):
            origin_ns = chunk.origin_ns
    return _joined(pieces), origin_ns, mark


def _joined(pieces: list[Any]) -> Any:
    if len(pieces) == 1:
        return pieces[0]
    if pieces and isinstance(pieces[0], Vectors):
        try:
            return join(pieces)
        except NotCarried as problem:
            raise OperatorFailed(f"a stream cannot be read: {problem}") from None
    if any(isinstance(piece, Counted) for piece in pieces):
        if not all(isinstance(piece, Counted) for piece in pieces):
            raise OperatorFailed("a stream cannot be read: its sender counts records, and did not before")
        return Counted(
            [key for piece in pieces for key in piece.keys], [count for piece in pieces for count in piece.counts]
        )
    if pieces and all(type(piece) is Rows and len(piece.columns) == len(pieces[0].columns) for piece in pieces):
        columns: list[list[Any]] = [list(column) for column in pieces[0].columns]
        for piece in pieces[1:]:
            for column, more in zip(columns, piece.columns, strict=True):
                column += more
        return Rows(columns)
    records: list[Any] = []
    for piece in pieces:
        records += listed(piece)
    return records
