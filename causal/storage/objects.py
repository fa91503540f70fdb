"""The interface of a store of objects, which are created once and never changed (D17, D21).

It is implemented by a store that several hosts share (`causal.storage.shared`) and by a directory on one machine
(`causal.storage.directory`). The only possible race is between two creations of the same name: one succeeds, and the
other is informed. Logs and journals need only this interface, so they can be tested in memory, including lost answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from causal.errors import CorruptData

OBJECT_BYTES_MAX = 64 << 30
"""The maximum size of an object that is created or read; the size is known before memory is allocated for it."""


class Missing(CorruptData):
    """An object that does not exist."""


class Objects(Protocol):
    """One job's objects, identified by names that may contain folders; a name never begins with a dot.

    Each method raises `Unavailable` if the store does not answer. A creation or removal may nevertheless have been
    performed.

    Attributes:
        url: the location of the store, as shown in errors.
    """

    url: str

    def where(self, name: str) -> str:
        """Return the location of an object or folder, as shown in errors."""
        return f"{self.url}: {name}"

    def create(self, name: str, data: bytes | memoryview, durable: bool = True) -> bool:
        """Create an object and return whether it is new; an existing object is not changed.

        Args:
            durable: whether the object must survive a power failure; a store may make every object durable.
        """
        ...

    def read(self, name: str) -> bytes:
        """Return the content of an object.

        Raises:
            Missing: the object does not exist.
        """
        ...

    def read_all(self, names: Sequence[str]) -> list[bytes]:
        """Return the contents of objects in the order of their names; the errors are those of `read`."""
        return [self.read(name) for name in names]

    def names(self, folder: str) -> list[str]:
        """Return the names below a folder in sorted order, in the form that `read` accepts."""
        return sorted(self.sizes(folder))

    def sizes(self, folder: str, after: str = "") -> dict[str, int]:
        """Return the size in bytes of each object below a folder, by name.

        Args:
            after: only objects whose name within the folder is greater are listed, which costs less than all of them.
        """
        ...

    def remove(self, names: Iterable[str]) -> None:
        """Remove objects; an object that cannot be removed only takes up space."""
        ...

    @contextmanager
    def exclusive(self, folder: str) -> Iterator[bool]:
        """Exclude all other processes from an `exclusive` block for the same folder, if the store supports this.

        Yield whether other processes are excluded. Decisions made by creating an object are correct without this
        exclusion. The exclusion allows its holder to remove objects that no other process can still need.
        """
        yield False

    def remove_unfinished(self, folder: str) -> None:
        """Remove the remains of interrupted creations in a folder; call this inside `exclusive`."""
        return
