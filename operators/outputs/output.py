"""The contract of every reader of a sink's output."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

Piece = tuple[Any, Any]
"""Positions, ascending, and the rows there: a list of JSON texts, or an Arrow record batch (positions as an array)."""


class Output(Protocol):
    """A reader of the rows of all tasks of one sink.  Reading locks no writer out and changes nothing."""

    @property
    def run(self) -> str:
        """The identity of the job's run that wrote them; positions of another run mean nothing."""
        ...

    def look(self) -> None:
        """Read the present output.

        Raises:
            PipelineError: no sink has written there.
            Unavailable: it cannot be read at the moment.
            CorruptData: the output is damaged.
        """
        ...

    def ends(self, uncovered: bool) -> dict[str, int]:
        """Return the end of the rows that can be read, by task, as of the last look.

        Args:
            uncovered: also rows that may still be taken back: below full sharing depth, until a checkpoint that covers
                them is complete, or the job has ended.
        """
        ...

    def hint(self, task: str, position: int) -> Any:
        """Return a value that makes a later `rows` from that position on faster, also in another process."""
        ...

    def rows(self, task: str, start: int, stop: int, hint: Any = None) -> Iterator[Piece]:
        """Return the rows from position `start` up to `stop`, both at or below what `ends` returned; always the same
        ones.

        A position whose row was refused is left out.
        """
        ...
