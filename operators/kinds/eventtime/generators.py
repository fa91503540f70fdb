"""The base class of watermark generators that a user writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class WatermarkGenerator:
    """Base of the user's generators, for `.watermarks(name, time, generator=MyGenerator)`; one per input channel.

    It is deterministic: equal calls return equal results.  Its memory is `state`, which is checkpointed and can hold
    whatever a record can; other attributes are not checkpointed.
    """

    def __init__(self) -> None:
        self.state: dict[Any, Any] = {}

    def on_batch(self, times_ns: Sequence[int]) -> int | None:
        """Returns the watermark after a batch with these event times in ns, or None for no new one.

        A watermark m says that no record with a time below m will arrive on this input.  A watermark that falls is not
        passed on, and counted as `watermark_fell`.  How many records a batch has varies between runs (never between a
        run and its replay).
        """
        raise NotImplementedError(f"{type(self).__name__} defines no on_batch(self, times_ns)")
