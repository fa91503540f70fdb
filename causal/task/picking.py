"""The choice of the next input: by arrival, in turn, or by content (`delivery="ordered"`, 0009.5).

An *ordered* task delivers, of the inputs that are neither blocked nor idle, one chunk of the one whose last
delivered watermark is lowest; those that have ended come last.  Chunks are regenerated as they were, so this is a
function of what was delivered before: nothing has to be logged, and arrival has no influence.
"""

from __future__ import annotations

from collections.abc import Sequence

from causal.channels.queue import InputQueue
from causal.records.batch import BARRIER
from causal.task.batch_sizer import BatchSizer

Pick = tuple[InputQueue, int]
"""An input, and how many of its elements make the next event."""


class ByArrival:
    """The choice by turns among the inputs that have elements: it has to be logged."""

    def __init__(self, inputs: Sequence[InputQueue], pace: BatchSizer, bytes_max: int) -> None:
        self._inputs = inputs
        self._pace = pace
        self._bytes_max = bytes_max
        self._next = 0

    def pick(self, full: bool) -> Pick | None:
        """Returns the next input in turn that has something to deliver; None if none has.

        Args:
            full: whether only barriers, no records, are to be delivered now.
        """
        inputs = self._inputs
        for step in range(len(inputs)):
            channel = inputs[(self._next + step) % len(inputs)]
            count = channel.head_count(self._pace.elements, self._bytes_max, self._pace.reduced)
            if count and not (full and channel.head_kind != BARRIER):
                self._next = (channel.ordinal + 1) % len(inputs)
                return channel, count
        return None


class ByContent:
    """The rule of an ordered task."""

    def __init__(self, inputs: Sequence[InputQueue]) -> None:
        self._inputs = inputs

    def ruled(self, full: bool) -> Pick | None:
        """Returns what the rule delivers next; None while that has not arrived."""
        candidates = [each for each in self._inputs if not (each.blocked or each.idle)]
        if not candidates:
            return None
        return _whole(min(candidates, key=_progress), full)

    def arrived(self, full: bool) -> Pick | None:
        """Returns what has arrived on an idle input: the rule does not wait for it, so this is a choice."""
        for channel in self._inputs:
            if channel.idle and not channel.blocked:
                picked = _whole(channel, full)
                if picked is not None:
                    return picked
        return None

    @property
    def choice(self) -> bool:
        """Whether elements may arrive that the rule does not cover."""
        return any(channel.idle for channel in self._inputs)


def _progress(channel: InputQueue) -> tuple[bool, bool, int, int]:
    """The sort key: inputs furthest behind first, ended ones last, as only barriers follow there, which wait."""
    mark = channel.mark
    return channel.ended, mark is not None, mark or 0, channel.ordinal


def _whole(channel: InputQueue, full: bool) -> Pick | None:
    count = channel.head_chunk_count
    return (channel, count) if count and not (full and channel.head_kind != BARRIER) else None
