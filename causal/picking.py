"""Which input is next: what has arrived, in turn, or what the content says (`delivery="ordered"`, 0009.5).

An *ordered* task delivers, of the inputs that are neither blocked nor idle, one chunk of the one whose last
delivered watermark is lowest; those that have ended come last.  Chunks are regenerated as they were, so this is a
function of what was delivered before: nothing has to be logged, and no arrival can show.
"""

from __future__ import annotations

from collections.abc import Sequence

from causal.batch import BARRIER
from causal.input_channel import InputChannel
from causal.pace import Pace

Pick = tuple[InputChannel, int]
"""An input, and how many elements of it make the next event."""


class ByArrival:
    """Takes turns among the inputs that have something: a choice, to be logged."""

    def __init__(self, inputs: Sequence[InputChannel], pace: Pace, bytes_max: int) -> None:
        self._inputs = inputs
        self._pace = pace
        self._bytes_max = bytes_max
        self._next = 0

    def pick(self, full: bool) -> Pick | None:
        """The next input in turn that has something to deliver; None if none has.

        Args:
            full: no records are to be delivered now, only barriers.
        """
        inputs = self._inputs
        for step in range(len(inputs)):
            channel = inputs[(self._next + step) % len(inputs)]
            count = channel.head_count(self._pace.elements, self._bytes_max, self._pace.held)
            if count and not (full and channel.head_kind != BARRIER):
                self._next = (channel.ordinal + 1) % len(inputs)
                return channel, count
        return None


class ByContent:
    """The rule of an ordered task."""

    def __init__(self, inputs: Sequence[InputChannel]) -> None:
        self._inputs = inputs

    def ruled(self, full: bool) -> Pick | None:
        """What the rule delivers next; None while that is not there."""
        candidates = [each for each in self._inputs if not (each.blocked or each.idle)]
        if not candidates:
            return None
        return _whole(min(candidates, key=_progress), full)

    def arrived(self, full: bool) -> Pick | None:
        """What has come on an input that was idle: nobody waits for it, so this is a choice."""
        for channel in self._inputs:
            if channel.idle and not channel.blocked:
                picked = _whole(channel, full)
                if picked is not None:
                    return picked
        return None

    @property
    def choice(self) -> bool:
        """Whether something may come that the rule does not know of."""
        return any(channel.idle for channel in self._inputs)


def _progress(channel: InputChannel) -> tuple[bool, bool, int, int]:
    """Those furthest behind first; where one has ended, only barriers follow, which wait for those of the others."""
    mark = channel.mark
    return channel.ended, mark is not None, mark or 0, channel.ordinal


def _whole(channel: InputChannel, full: bool) -> Pick | None:
    count = channel.head_chunk_count
    return (channel, count) if count and not (full and channel.head_kind != BARRIER) else None
