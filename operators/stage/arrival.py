"""The origin of the records that are delivered to a chain: input channel, position and watermark."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Arrival:
    """The origin of the current records: one object per chain, set before each event.

    Attributes:
        input: ordinal of the input channel; -1 where nothing is delivered.
        first: position of the first record in that channel; -1 where nothing is delivered.
        origin_ns: when the oldest of the records entered the job, 0 if unknown; for figures only, never in state.
        mark_ns: the last watermark of that input before this event; None where there was none.
    """

    input: int = -1
    first: int = -1
    origin_ns: int = 0
    mark_ns: int | None = None
