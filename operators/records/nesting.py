"""Makes room on the interpreter's stack for values that are nested as deeply as they are carried."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from causal.records.values import NESTING_MAX

_CALLS_PER_LEVEL = 3
"""The calls of the interpreter for a list or dict within another one."""


@contextmanager
def room_for_nesting() -> Iterator[None]:
    """Allow calls as deep as lists and dicts are carried, however deep the stack is already."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(before + _CALLS_PER_LEVEL * NESTING_MAX)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
