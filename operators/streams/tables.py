"""Tables: streams of revisions."""

from __future__ import annotations

from operators.streams.base import StreamBase, T


class Tables(StreamBase[T]):
    """Tables: streams of revisions."""
