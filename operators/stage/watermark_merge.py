"""Merging of the watermarks of several inputs; the result is the lowest among inputs that are neither idle nor ended.

The merged watermark never decreases. A watermark m means that no record with a time below m will arrive.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

END_NS = (1 << 63) - 1
"""The watermark after the last record; it is never sent, because the end of a channel implies it."""
IDLE_NS = -(1 << 63)
"""The watermark of an idle input; the merge does not wait for such an input until its next element arrives."""

_NEVER_NS = 1 << 64
"""A time after the end of every window; windows may end after END_NS."""

Origins = Sequence[Sequence[tuple[int, int]]]
"""The inputs that each input of a task continues after a change of the job graph.

Each of the latter is a pair (index among the tasks that this task continues, input of that task). An input that
continues none carries records from operators that sent nothing to the task before."""


def least(times_ns: Iterable[int | None]) -> int | None:
    """Return the lowest of these times, or None if there are no times or one of them is unknown."""
    listed = list(times_ns)
    return None if None in listed else min((time_ns for time_ns in listed if time_ns is not None), default=None)


def over_until(mark_ns: int) -> int:
    """Return the time up to which windows and records are over at a watermark; at the end, all of them are over."""
    return _NEVER_NS if mark_ns == END_NS else mark_ns


class Merge:
    """The watermarks of the inputs of one task.

    Attributes:
        marks: the most recent watermark of each input; None before the first.
        merged: the most recent merged watermark; None before the first.
        dozing: whether at least one input is idle.
    """

    def __init__(self, inputs: int) -> None:
        self.merged: int | None = None
        self.marks: list[int | None] = [None] * inputs
        self.dozing = False
        self._idle = [False] * inputs
        self._ended = [False] * inputs
        self._waiting = True
        """Whether any input was neither idle nor ended when the last result was returned."""

    def update(self, input: int, stamp_ns: int) -> int | None:
        """Record a watermark of an input; return the merged watermark if it rose, or IDLE_NS if all became idle."""
        self._idle[input] = stamp_ns == IDLE_NS
        self.dozing = True in self._idle
        if stamp_ns != IDLE_NS:
            known = self.marks[input]
            self.marks[input] = stamp_ns if known is None else max(known, stamp_ns)
        return self._rose()

    def active(self, input: int) -> None:
        """Record that a record arrived from an input, which is therefore not idle."""
        if self._idle[input]:
            self._idle[input] = False
            self.dozing = True in self._idle
            self._waiting = True

    def begin(self, marks: Sequence[int | None]) -> None:
        """Start each input without a watermark from this one, which its sender passed on before the merge began.

        The result takes these watermarks into account when it next rises.
        """
        self.marks = [begun if known is None else known for known, begun in zip(self.marks, marks, strict=True)]

    def ended_before(self, input: int) -> None:
        """Record that an input ended before this merge began; the next watermark takes this into account."""
        self._ended[input] = True

    def ended(self, input: int) -> int | None:
        """Record the end of an input; return the result as `update` does, or END_NS if all inputs have ended."""
        self._ended[input] = True
        return self._rose()

    def _rose(self) -> int | None:
        open_inputs = [input for input, ended in enumerate(self._ended) if not ended]
        awake = [input for input in open_inputs if not self._idle[input]]
        waited, self._waiting = self._waiting, bool(awake)
        if open_inputs and not awake:
            return IDLE_NS if waited else None
        lowest = END_NS
        for input in awake:
            mark = self.marks[input]
            if mark is None:
                return None
            lowest = min(lowest, mark)
        if self.merged is not None and lowest <= self.merged:
            return None
        self.merged = lowest
        return lowest

    def behind(self) -> bool:
        """Return whether every open input is ahead of the merged watermark, which the graph of another job computed."""
        marks = [mark for mark, ended in zip(self.marks, self._ended, strict=True) if not ended]
        lowest = least(marks)
        return lowest is not None and (self.merged is None or lowest > self.merged)

    def caught_up(self) -> int | None:
        """Return the merged watermark if it is higher than the last one although no input has changed."""
        return self._rose() if self.behind() else None

    def furthest(self) -> int | None:
        """Return the highest watermark of all inputs if it exceeds the merged one; it is used once all have ended.

        The event time before the end therefore does not depend on which input ended first.
        """
        known = [mark for mark in self.marks if mark is not None]
        mark = max(known, default=None)
        if mark is None or (self.merged is not None and self.merged != END_NS and mark <= self.merged):
            return None
        return mark

    def header(self) -> dict[str, Any]:
        """Return the complete state, for a snapshot."""
        return {
            "marks": list(self.marks),
            "idle": list(self._idle),
            "ended": list(self._ended),
            "merged": self.merged,
            "waiting": self._waiting,
        }

    @staticmethod
    def rewired(headers: Sequence[dict[str, Any]], origins: Origins) -> dict[str, Any]:
        """Return the header of a task that continues several tasks, computed from their headers.

        No input is marked idle, because idle inputs report their idleness again and new operators after them then learn
        of it.
        """
        marks = [least(headers[place]["marks"][input] for place, input in each) for each in origins]
        ended = [bool(each) and all(headers[place]["ended"][input] for place, input in each) for each in origins]
        return {
            "marks": marks,
            "idle": [False] * len(origins),
            "ended": ended,
            "merged": least(header["merged"] for header in headers),
            "waiting": not all(ended),
        }

    def load(self, header: dict[str, Any]) -> None:
        """Restore the state that `header` returned."""
        self.marks, self._idle, self._ended = list(header["marks"]), list(header["idle"]), list(header["ended"])
        self.merged, self._waiting = header["merged"], header["waiting"]
        self.dozing = True in self._idle
