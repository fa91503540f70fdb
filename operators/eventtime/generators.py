"""Who says how far event time has come on one input: a bound on disorder, or what a user writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class WatermarkGenerator:
    """Base of generators of one's own, for `.watermarks(name, time, generator=MyGenerator)`; one per input channel.

    Pure: told the same it gives the same.  What it must remember is in `state`, which is checkpointed and can hold
    whatever a record can; other attributes are not.
    """

    def __init__(self) -> None:
        self.state: dict[Any, Any] = {}

    def on_batch(self, times_ns: Sequence[int]) -> int | None:
        """Called with the event times of each batch, in order: the watermark behind it in ns, or None for no new one.

        A watermark m says that no record with a time below m will come on this input.  One that falls is not passed
        on, and counted as `watermark_fell`.  How many records a batch has varies between runs (never between a run
        and its replay).
        """
        raise NotImplementedError(f"{type(self).__name__} defines no on_batch(self, times_ns)")
