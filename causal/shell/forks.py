"""Descriptors that a forked child must not keep: a lock (`flock`) lasts until the last copy of it is closed.

User code may fork (`multiprocessing`, `os.fork`) at any moment.  O_CLOEXEC closes a descriptor only where another
program is started; a child that goes on as it is would keep the locks of its parent after the parent was killed.
"""

from __future__ import annotations

import os

_mine: set[int] = set()


def keep_from_children(descriptor: int) -> int:
    """Have a descriptor closed in every child that is forked from now on; gives it back."""
    _mine.add(descriptor)
    return descriptor


def close(descriptor: int) -> None:
    """Close a descriptor that was kept from children."""
    _mine.discard(descriptor)
    os.close(descriptor)


def _close_in_child() -> None:
    for descriptor in _mine:
        os.close(descriptor)
    _mine.clear()


os.register_at_fork(after_in_child=_close_in_child)
