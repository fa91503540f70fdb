"""The port of a place that keeps objects: they are created once and never changed (D17, D21).

A shared store of several hosts is such a place (`causal.storage.shared`).  The only race is two creations of one name:
one wins, and the other learns of it.  Logs and journals need this and no more of a place, so each of them is tested in
memory, with answers that are lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from causal.errors import CorruptData


class Missing(CorruptData):
    """An object that does not exist."""


class Objects(Protocol):
    """One job's objects, by names with folders.

    Each method raises `Unavailable` where the place does not answer; a creation or a removal may have happened all the
    same.

    Attributes:
        url: the place, as errors name it.
    """

    url: str

    def create(self, name: str, data: bytes) -> bool:
        """Create an object, and return whether it is new; one that exists stays as it is."""
        ...

    def read(self, name: str) -> bytes:
        """Return the content of an object.

        Raises:
            Missing: it does not exist.
        """
        ...

    def read_all(self, names: Sequence[str]) -> list[bytes]:
        """Return the content of objects, in the order of their names; raises as `read`."""
        ...

    def names(self, folder: str) -> list[str]:
        """Return the names below a folder, sorted, as `read` takes them."""
        ...

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the bytes of each object below a folder, by name."""
        ...

    def remove(self, names: Iterable[str]) -> None:
        """Remove objects; one that cannot be removed only costs space."""
        ...
