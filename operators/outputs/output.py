"""The contract of every reader of sink output."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

Piece = tuple[Any, Any]
"""Ascending positions and their rows: a list of JSON texts, or an Arrow record batch with positions as an array."""


class Output(Protocol):
    """A reader of the rows of all tasks of one sink. Reading neither blocks writers nor changes anything."""

    @property
    def run(self) -> str:
        """The identity of the run that wrote the rows; positions of another run are meaningless."""
        ...

    @property
    def ended(self) -> bool:
        """Whether every task that has opened its store has written its last row, as of the last call to `look`."""
        ...

    def look(self) -> None:
        """Read the current output.

        Raises:
            PipelineError: no sink has written there.
            Unavailable: the output cannot be read at the moment.
            CorruptData: the output is damaged.
        """
        ...

    def ends(self, uncovered: bool) -> dict[str, int]:
        """Return the end of the readable rows by task, as of the last call to `look`.

        Args:
            uncovered: whether to include rows that may still be withdrawn: below full sharing depth, rows can be
                withdrawn until a checkpoint that covers them is complete or the job has ended.
        """
        ...

    def withdrawn(self) -> dict[str, int]:
        """Return the number of rows ever withdrawn by task, as of the last call to `look`.

        As long as it stays the same, no row below `ends` has been withdrawn.
        """
        ...

    def hint(self, task: str, position: int) -> Any:
        """Return a value that makes a later `rows` call from `position` faster, even in another process."""
        ...

    def rows(self, task: str, start: int, stop: int, hint: Any = None) -> Iterator[Piece]:
        """Return the rows from position `start` up to `stop`; the result is always the same.

        Neither position may exceed the end that `ends` returned. Positions whose rows were refused are left out.
        """
        ...
