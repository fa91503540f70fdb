"""Calls of the outside world."""

from __future__ import annotations

from operators.streams.base import StreamBase, T


class Asking(StreamBase[T]):
    """Calls of the outside world."""
