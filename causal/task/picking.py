"""The choice of the next input: by arrival, in turn, or by content (`delivery="ordered"`, 0009.5).

By arrival, an input that lags in event time may be chosen before its turn. The elements of a faster input then wait in
transit, where credit limits their size, rather than in the state of a join or in windows that cannot close.

An *ordered* task considers the inputs that are neither blocked nor idle, and delivers one chunk from the input whose
last delivered watermark is lowest. Ended inputs are considered last. Chunks are regenerated unchanged, so the choice is
a function of earlier deliveries. Nothing has to be logged, and the order of arrival has no influence.
"""

from __future__ import annotations

from collections.abc import Sequence

from causal.channels.queue import InputQueue
from causal.records.batch import BARRIER
from causal.task.batch_sizer import BatchSizer

Pick = tuple[InputQueue, int]
"""An input, and the number of its elements that form the next event."""


PASSES_MAX = 4
"""The maximum number of consecutive events from lagging inputs before the input whose turn it is must be chosen."""


class ByArrival:
    """Chooses among the inputs with elements in turn; each choice has to be logged."""

    def __init__(self, inputs: Sequence[InputQueue], pace: BatchSizer, bytes_max: int) -> None:
        self._inputs = inputs
        self._pace = pace
        self._bytes_max = bytes_max
        self._next = 0
        self._passes = 0
        """The number of events chosen since the input whose turn it is was first passed over."""

    def pick(self, full: bool) -> Pick | None:
        """Return the next input in turn with elements, or one that is earlier in event time; None if all are empty.

        Args:
            full: whether only barriers may be delivered now, and no records.
        """
        inputs = self._inputs
        turn: InputQueue | None = None
        picked: Pick | None = None
        for step in range(len(inputs)):
            channel = inputs[(self._next + step) % len(inputs)]
            if picked is not None and not _is_behind(channel, picked[0]):
                continue
            count = channel.head_count(self._pace.elements, self._bytes_max, self._pace.reduced)
            if not count or (full and channel.head_kind != BARRIER):
                continue
            turn, picked = turn or channel, (channel, count)
            if self._passes >= PASSES_MAX:
                break
        if turn is not None and picked is not None:
            passed = picked[0] is not turn
            self._passes = self._passes + 1 if passed else 0
            self._next = turn.ordinal if passed else (turn.ordinal + 1) % len(inputs)
        return picked


def _is_behind(one: InputQueue, other: InputQueue) -> bool:
    return one.mark is not None and other.mark is not None and one.mark < other.mark


class ByContent:
    """The rule by which an ordered task chooses its next input."""

    def __init__(self, inputs: Sequence[InputQueue]) -> None:
        self._inputs = inputs

    def ruled(self, full: bool) -> Pick | None:
        """Return the input that the rule selects and the size of its next chunk, or None until that chunk arrives."""
        candidates = [each for each in self._inputs if not (each.blocked or each.idle)]
        if not candidates:
            return None
        return _whole(min(candidates, key=_progress), full)

    def arrived(self, full: bool) -> Pick | None:
        """Return a pick from an idle input with elements; this is a choice, because the rule does not wait for it."""
        for channel in self._inputs:
            if channel.idle and not channel.blocked:
                picked = _whole(channel, full)
                if picked is not None:
                    return picked
        return None

    @property
    def choice(self) -> bool:
        """Whether elements may arrive on an input that the rule does not consider."""
        return any(channel.idle for channel in self._inputs)


def _progress(channel: InputQueue) -> tuple[bool, bool, int, int]:
    """Return the sort key: the lowest watermark first, and ended inputs last, because only barriers follow on them."""

    mark = channel.mark
    return channel.ended, mark is not None, mark or 0, channel.ordinal


def _whole(channel: InputQueue, full: bool) -> Pick | None:
    count = channel.head_chunk_count
    return (channel, count) if count and not (full and channel.head_kind != BARRIER) else None
