"""Event time: where it is in the records, watermarks, and records that came too late."""

from __future__ import annotations

from operators.streams.base import StreamBase, T


class Timing(StreamBase[T]):
    """Event time: where it is in the records, watermarks, and records that came too late."""
