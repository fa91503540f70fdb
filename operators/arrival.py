"""What is being delivered to a chain: from which input, where in it, and how far that input's event time had come."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Arrival:
    """One per chain, set before each event; operators look at it when the place of a record matters to them.

    Attributes:
        input: ordinal of the input channel; -1 where nothing is delivered.
        first: position of the first record in that channel; -1 where nothing is delivered.
        origin_ns: when the oldest of the records entered the job, 0 if nobody knows; for figures only, never in state.
        mark_ns: the last watermark of that input before this event; None where there was none.
    """

    input: int = -1
    first: int = -1
    origin_ns: int = 0
    mark_ns: int | None = None
