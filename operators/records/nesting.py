"""Room on the interpreter's stack for values that are nested as deeply as a record may be."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from causal.records.values import NESTING_MAX

_CALLS_PER_LEVEL = 3
"""The number of nested interpreter calls for one level of lists or dicts."""


@contextmanager
def room_for_nesting() -> Iterator[None]:
    """Allow calls as deep as lists and dicts may be nested, however deep the stack already is."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(before + _CALLS_PER_LEVEL * NESTING_MAX)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
