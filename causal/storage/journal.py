"""The interface of the journal of one sink task: a file on one host, or objects in a shared store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol


class Journal(Protocol):
    """The journal of one sink task, to which at most one process at a time appends.

    State: `forget` is called after any error except a refused row, because the data in memory may no longer be valid.
    """

    forget: Callable[[], None]

    @property
    def where(self) -> object:
        """The name of the journal in errors."""
        ...

    def prepare(self) -> None:
        """Create the journal's directory or prefix."""
        ...

    def locked(self) -> AbstractContextManager[None]:
        """Exclude changes by other processes inside the context, or detect them before a step counts."""
        ...

    def is_ours(self, incarnation: int) -> bool:
        """Return whether the journal contains only what this process has read or written.

        Some implementations detect a foreign change only in the next step.
        """
        ...

    @property
    def is_there(self) -> bool:
        """Whether a journal exists, regardless of which process created it."""
        ...

    @property
    def has_grown(self) -> bool:
        """Whether the journal contains anything besides its state."""
        ...

    def is_due(self, spare: int = 0) -> bool:
        """Return whether the journal should be rewritten; `spare` is the number of bytes that a rewrite would keep."""
        ...

    def read(self) -> Sequence[bytes]:
        """Return the current records, the first of which is a state."""
        ...

    def seize(self) -> bool:
        """End the journal after the last record read; return false if more records exist and must be read first."""
        ...

    def cut(self) -> None:
        """Remove the incomplete end that a writer left when it died."""
        ...

    def append(self, body: bytes) -> None:
        """Add a record in one step."""
        ...

    def renew(self, body: bytes) -> None:
        """Replace the entire content with this record, which is a state."""
        ...

    def close(self) -> None:
        """Release all open resources."""
        ...
