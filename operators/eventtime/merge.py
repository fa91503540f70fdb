"""One watermark out of several inputs: the least of those that are neither idle nor ended, and it never falls.

A watermark m says: no record with a time below m will come.
"""

from __future__ import annotations

from typing import Any

END_NS = (1 << 63) - 1
"""The watermark behind the last record; never on the wire: the end of a channel says it."""
IDLE_NS = -(1 << 63)
"""As a watermark: do not wait for me until my next element."""


class Merge:
    """The marks of the inputs of one task.

    Attributes:
        marks: by input its last mark; None before the first.
        merged: the last mark of all inputs together; None before the first.
        dozing: whether some input is idle.
    """

    def __init__(self, inputs: int) -> None:
        self.merged: int | None = None
        self.marks: list[int | None] = [None] * inputs
        self.dozing = False
        self._idle = [False] * inputs
        self._ended = [False] * inputs
        self._waiting = True
        """Whether some input is neither idle nor ended, as far as was told on."""

    def told(self, input: int, stamp_ns: int) -> int | None:
        """An input's watermark, or that it is idle: the merged mark if it rose, IDLE_NS if now all are idle."""
        self._idle[input] = stamp_ns == IDLE_NS
        self.dozing = True in self._idle
        if stamp_ns != IDLE_NS:
            known = self.marks[input]
            self.marks[input] = stamp_ns if known is None else max(known, stamp_ns)
        return self._rose()

    def active(self, input: int) -> None:
        """A record has come from that input."""
        if self._idle[input]:
            self._idle[input] = False
            self.dozing = True in self._idle
            self._waiting = True

    def ended(self, input: int) -> int | None:
        """Nothing more comes from that input; told as `told`, END_NS if all have ended."""
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

    def furthest(self) -> int | None:
        """The last mark of the input that came furthest, if that is above the merged one: told once all have ended.

        So how far event time has come before the end does not depend on which input ended first.
        """
        known = [mark for mark in self.marks if mark is not None]
        mark = max(known, default=None)
        if mark is None or (self.merged is not None and self.merged != END_NS and mark <= self.merged):
            return None
        return mark

    def header(self) -> dict[str, Any]:
        """All of it, for a snapshot."""
        return {
            "marks": list(self.marks),
            "idle": list(self._idle),
            "ended": list(self._ended),
            "merged": self.merged,
            "waiting": self._waiting,
        }

    def load(self, header: dict[str, Any]) -> None:
        """Take over what `header` gave."""
        self.marks, self._idle, self._ended = list(header["marks"]), list(header["idle"]), list(header["ended"])
        self.merged, self._waiting = header["merged"], header["waiting"]
        self.dozing = True in self._idle
