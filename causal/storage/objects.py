"""The interface of a store of objects, which are created once and never changed (D17, D21).

It is implemented by a store that several hosts share (`causal.storage.shared`) and by a directory on one machine
(`causal.storage.directory`). The only race is between two creations of the same name: one wins, and the other is
informed. Logs and journals need only this interface, so each of them is tested in memory, including lost answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from causal.errors import CorruptData

OBJECT_BYTES_MAX = 64 << 30
"""The largest object that is created or read; its size is known before memory is reserved for it."""


class Missing(CorruptData):
    """An object that does not exist."""


class Objects(Protocol):
    """One job's objects, by names with folders; a name never begins with a dot.

    Each method raises `Unavailable` if the store does not answer; a creation or removal may have been performed
    nevertheless.

    Attributes:
        url: the place, as errors name it.
    """

    url: str

    def where(self, name: str) -> str:
        """Return the place of an object or folder, as errors name it."""
        return f"{self.url}: {name}"

    def create(self, name: str, data: bytes | memoryview, durable: bool = True) -> bool:
        """Create an object, and return whether it is new; one that exists stays as it is.

        Args:
            durable: whether it must survive a loss of power; a place may keep any object so.
        """
        ...

    def read(self, name: str) -> bytes:
        """Return the content of an object.

        Raises:
            Missing: it does not exist.
        """
        ...

    def read_all(self, names: Sequence[str]) -> list[bytes]:
        """Return the content of objects, in the order of their names; raises as `read`."""
        return [self.read(name) for name in names]

    def names(self, folder: str) -> list[str]:
        """Return the names below a folder, sorted, as `read` accepts them."""
        return sorted(self.sizes(folder))

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the bytes of each object below a folder, by name."""
        ...

    def remove(self, names: Iterable[str]) -> None:
        """Remove objects; one that cannot be removed only costs space."""
        ...

    @contextmanager
    def exclusive(self, folder: str) -> Iterator[bool]:
        """Exclude every other process from such a block of the same folder, where the place can; yield whether it does.

        What is decided by a creation is right without it.  It permits its holder to remove what no other process can
        still need.
        """
        yield False

    def remove_unfinished(self, folder: str) -> None:
        """Remove what creations that were cut short have left in a folder; call it inside `exclusive`."""
        return
