"""Finds the rows of a bundle that a database refuses, by asking it about ever fewer of them.

A server says that a statement failed and what the value was, not which row it came from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from causal.ports import Bundle

ROWS_MAX = 8
"""The most rows named at once; a bundle with more of them comes again without these."""


def refused_rows(
    bundle: Bundle, reason_of: Callable[[Sequence[str], Sequence[int]], str | None]
) -> list[tuple[int, str]]:
    """Returns position and reason of rows that are refused; none where all of them would be taken now.

    Args:
        reason_of: why the first lines of the bundle, without the rows of these positions, are refused; None if they
            would be taken.
    """
    lines = bundle.rows[:-1].decode().split("\n")
    out = [position for position, _ in bundle.refused]
    refused: list[tuple[int, str]] = []
    while len(refused) < ROWS_MAX and (reason := reason_of(lines, out)) is not None:
        taken, failing = 0, bundle.count
        while failing - taken > 1:
            middle = (taken + failing) // 2
            reason_then = reason_of(lines[:middle], out)
            if reason_then is None:
                taken = middle
            else:
                failing, reason = middle, reason_then
        position = bundle.first + failing - 1
        refused.append((position, reason))
        out.append(position)
    return refused
