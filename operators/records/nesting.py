"""A temporarily higher recursion limit, for values that are nested as deeply as a record may be."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from causal.records.values import NESTING_MAX

_CALLS_PER_LEVEL = 3
"""The number of nested interpreter calls per level of lists or dicts."""


@contextmanager
def room_for_nesting() -> Iterator[None]:
    """Allow calls that process lists and dicts of the maximum nesting depth, however deep the stack already is."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(before + _CALLS_PER_LEVEL * NESTING_MAX)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
