"""Merging of the chunks of one delivery into one batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from causal.errors import OperatorFailed, invariant
from causal.records.batch import LISTED, RECORDS, WATERMARK, Chunk, decode_rows, stamp_of
from causal.records.rows import copied, joined
from causal.records.values import NotCarried


def unite(chunks: Sequence[Chunk]) -> tuple[Any, int, int | None]:
    """Return (all records, smallest known origin time, highest watermark) for the chunks of one delivery.

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
            # Copy the list, so that an operator that changes the batch does not change the source's list.
            pieces.append(copied(chunk.body))
        else:
            invariant(chunk.kind == WATERMARK, "a chain receives only records and watermarks", kind=chunk.kind)
            stamp = stamp_of(chunk)
            mark = stamp if mark is None else max(mark, stamp)
            continue
        if chunk.origin_ns and (not origin_ns or chunk.origin_ns < origin_ns):
            origin_ns = chunk.origin_ns
    try:
        return joined(pieces), origin_ns, mark
    except NotCarried as problem:
        raise OperatorFailed(f"a stream cannot be read: {problem}") from None
