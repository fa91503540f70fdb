"""The interface of the place where a supervisor keeps its decisions: a file of one machine, or the shared store."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from typing import Protocol

from standby.supervision.effects import Record


class Decisions(Protocol):
    """A journal.  An effect may be performed once `written` has reached the number of decisions made before it."""

    written: int
    """The number of decisions that were appended to this object and are written."""
    problem: str
    """The reason for which decisions wait to be written; empty while they do not."""

    @property
    def wake(self) -> socket.socket | None:
        """Readable when something was written or has failed; None where `append` itself writes."""

    def append(self, records: Iterable[Record]) -> None:
        """Add decisions, which are written in their order.

        Raises:
            Unavailable: they could not be written; nothing was.
        """

    def check(self) -> None:
        """Clear the signals of `wake`.

        Raises:
            Fenced: another supervisor leads the job: pending decisions are never written.
            CausalError: something else has ended the writing.
        """

    def close(self) -> None:
        """End the writing; what is not written yet is lost."""
