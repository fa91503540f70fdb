"""The contract of every reader of a sink's output."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

Piece = tuple[Any, Any]
"""Positions, ascending, and the rows there: a list of JSON texts, or an Arrow record batch (positions as an array)."""


class Output(Protocol):
    """A reader of the rows of all tasks of one sink. Reading blocks no writer and changes nothing."""

    @property
    def run(self) -> str:
        """The identity of the run that wrote the rows; positions of another run are meaningless."""
        ...

    def look(self) -> None:
        """Read the present output.

        Raises:
            PipelineError: no sink has written there.
            Unavailable: the output cannot be read at the moment.
            CorruptData: the output is damaged.
        """
        ...

    def ends(self, uncovered: bool) -> dict[str, int]:
        """Return the end of the readable rows, by task, as of the last call of `look`.

        Args:
            uncovered: whether to include rows that may still be withdrawn: below full sharing depth, rows can be
                withdrawn until a checkpoint that covers them is complete or the job has ended.
        """
        ...

    def hint(self, task: str, position: int) -> Any:
        """Return a value that makes a later `rows` call from `position` faster, even in another process."""
        ...

    def rows(self, task: str, start: int, stop: int, hint: Any = None) -> Iterator[Piece]:
        """Return the rows from position `start` up to `stop`; the result is always the same.

        Neither position may be above the end that `ends` returned.

        Positions whose rows were refused are left out.
        """
        ...
