"""Joins of streams, with tables, and rules that all tasks are told."""

from __future__ import annotations

from operators.streams.base import StreamBase, T


class Joining(StreamBase[T]):
    """Joins of streams, with tables, and rules that all tasks are told."""
