"""Objects of stores: those that match patterns now, and the bytes of a listed one, read in ranges."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

from operators.sources.files.listed import Listed
from operators.sources.files.listing import Fresh
from operators.sources.files.object_client import Entry, ObjectClient, changed
from operators.sources.files.object_patterns import ObjectPattern

RANGE_BYTES = 4 << 20
"""The size of the ranges in which an object is read."""


@dataclass(frozen=True, slots=True)
class ListedObject(Listed):
    """An object as it was when it was listed."""

    client: ObjectClient = field(repr=False, compare=False)
    entry: Entry

    def open(self) -> BinaryIO:
        """Return the content; each range of it is checked when it is read."""
        return io.BufferedReader(_Ranges(self.client, self.entry), RANGE_BYTES)

    def verify(self) -> None:
        """Ask the store whether the object is still there, with its ETag."""
        now = self.client.look_at(self.entry.key)
        if now != self.entry:
            raise changed(self.shown, self.entry, now)

    def check_read(self) -> None:
        """Do nothing, because each request has demanded the ETag."""

    def check_end(self, position: int) -> None:
        """Do nothing, because each answer has had the size of its range."""


class _Ranges(io.RawIOBase):
    """The bytes of an object; each read is one request."""

    def __init__(self, client: ObjectClient, entry: Entry) -> None:
        self._client = client
        self._entry = entry
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._entry.size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        start = self._position
        stop = min(start + min(len(buffer), RANGE_BYTES), self._entry.size)
        if start >= stop:
            return 0
        data = self._client.read(self._entry, start, stop)
        buffer[: len(data)] = data
        self._position = stop
        return len(data)


class StoredObjects:
    """A `Finder` of objects.

    Args:
        options: settings of the clients that take precedence over the environment.
    """

    def __init__(self, patterns: Sequence[ObjectPattern], options: Mapping[str, str]) -> None:
        self.patterns: Sequence[str] = [pattern.text for pattern in patterns]
        self.written: Sequence[str] = self.patterns
        self._objects = patterns
        self._options = options
        self._clients: dict[str, ObjectClient] = {}

    def fresh(self, is_known: Callable[[str], bool]) -> Iterator[Fresh]:
        """Yield the objects that match and are not known."""
        for pattern in self._objects:
            for entry in self.matching(pattern):
                url = f"{pattern.store}/{entry.key}"
                if not is_known(url):
                    yield Fresh(url, entry.size, entry.etag, url)

    def matching(self, pattern: ObjectPattern) -> Iterator[Entry]:
        """Yield the objects that match a pattern; the errors are those of `ObjectClient.below`."""
        client = self.client(pattern.store)
        if pattern.is_exact:
            entry = client.look_at(pattern.key)
            if entry is not None:
                yield entry
            return
        matches = pattern.matcher()
        for entry in client.below(pattern.folder):
            if matches(entry.key):
                yield entry

    def listed(self, path: str, size: int, version: int | str, number: int) -> ListedObject:
        """Return an entry of a listing."""
        client, key = self._client_of(path)
        return ListedObject(path, size, version, number, client, Entry(key, size, str(version)))

    def _client_of(self, url: str) -> tuple[ObjectClient, str]:
        """Return the client of an object's bucket, and its key."""
        scheme, _, rest = url.partition("://")
        bucket, _, key = rest.partition("/")
        return self.client(f"{scheme}://{bucket}"), key

    def client(self, store: str) -> ObjectClient:
        """Return the client of a bucket."""
        if store not in self._clients:
            self._clients[store] = ObjectClient(store, self._options)
        return self._clients[store]
