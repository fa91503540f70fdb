"""A file or an object as it was when a source listed it; its bytes are those of then, or reading them is an error."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import BinaryIO

RESTORE = "restore the original, or start again with a new --state-dir"


@dataclass(frozen=True, slots=True)
class Listed(ABC):
    """An entry of a listing.

    Attributes:
        path: the path of a file, or the URL of an object.
        version: what differs after a change: a file's time of modification in ns, or an object's ETag.
        number: the index of the entry among all of the source's entries.
    """

    path: str
    size: int
    version: int | str
    number: int

    @property
    def shown(self) -> str:
        """The path as text that can be printed and encoded."""
        return os.fsencode(self.path).decode("utf-8", "replace")

    @abstractmethod
    def open(self) -> BinaryIO:
        """Open the content for reading.

        Raises:
            DeterminantsLost: it has changed or was removed.
            OperatorFailed: the job may not read it.
            Unavailable: it cannot be opened now.
        """

    @abstractmethod
    def verify(self) -> None:
        """Raise an error if it is not what it was when it was listed; the errors are those of `open`."""

    def check_read(self) -> None:
        """Raise an error if the bytes that were read last may be of another version."""
        self.verify()

    @abstractmethod
    def check_end(self, position: int) -> None:
        """Raise `Unavailable` if the content ends at a position before its size."""
