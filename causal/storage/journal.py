"""The interface of the journal of one sink task: a file on one host, or objects in a shared store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol


class Journal(Protocol):
    """The journal of one sink task, to which at most one process at a time appends.

    State: `forget` is called after any error except a refused row, because the data in memory may then be invalid.
    """

    forget: Callable[[], None]

    @property
    def where(self) -> object:
        """The journal, as errors name it."""
        ...

    def prepare(self) -> None:
        """Create the directory or prefix of the journal."""
        ...

    def locked(self) -> AbstractContextManager[None]:
        """Inside the context other processes change nothing, or it is known before a step counts."""
        ...

    def is_ours(self, incarnation: int) -> bool:
        """Return whether nothing is in it but what was read and written here, as far as that is known before a step."""
        ...

    @property
    def is_there(self) -> bool:
        """Whether there is a journal, by any process."""
        ...

    @property
    def has_grown(self) -> bool:
        """Whether the journal contains anything but its state."""
        ...

    def is_due(self, spare: int = 0) -> bool:
        """Return whether it should be rewritten; `spare` are bytes that would not go away by that."""
        ...

    def read(self) -> Sequence[bytes]:
        """Return the records that are there now, the first of them a state."""
        ...

    def seize(self) -> bool:
        """End the journal right after the last record read; false if there is more, which must be read first."""
        ...

    def cut(self) -> None:
        """Cut off the incomplete end that a dead writer left."""
        ...

    def append(self, body: bytes) -> None:
        """Add a record, in one step."""
        ...

    def renew(self, body: bytes) -> None:
        """Replace everything by this record, a state."""
        ...

    def close(self) -> None:
        """Release what is open."""
        ...
