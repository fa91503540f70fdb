"""The interface for storing a supervisor's decisions, in a file on one machine or in the shared store."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from typing import Protocol

from standby.supervision.effects import Record


class Decisions(Protocol):
    """A journal.  An effect may be performed once `written` has reached the number of decisions made before it."""

    written: int
    """The number of decisions that were appended to this object and have been written."""
    problem: str
    """The reason why decisions wait to be written; empty if none wait."""

    @property
    def wake(self) -> socket.socket | None:
        """A socket that is readable when a write has succeeded or failed; None if `append` itself writes."""

    def append(self, records: Iterable[Record]) -> None:
        """Add decisions, which are written in order.

        Raises:
            Unavailable: the decisions could not be written; none of them was.
        """

    def check(self) -> None:
        """Clear the signal of `wake`.

        Raises:
            Fenced: another supervisor leads the job, so pending decisions will never be written.
            CausalError: another problem has stopped the writing.
        """

    def close(self) -> None:
        """Stop writing; decisions that have not been written yet are lost."""
