"""A bucket in memory with the methods of `ObjectClient`, which counts requests and fails when a test wants it."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import md5

from causal.errors import Unavailable
from operators.sources.files.object_client import Entry, changed


class Bucket:
    """The bucket `s3://bucket`."""

    store = "s3://bucket"

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.ranges: list[tuple[str, int, int]] = []
        self.is_down = False

    def put(self, key: str, data: bytes) -> None:
        self.objects[key] = data

    def below(self, folder: str) -> Iterator[Entry]:
        self._ask()
        for key in sorted(self.objects):
            if key.startswith(f"{folder}/") or not folder:
                yield entry_of(key, self.objects[key])

    def look_at(self, key: str) -> Entry | None:
        self._ask()
        return entry_of(key, self.objects[key]) if key in self.objects else None

    def read(self, entry: Entry, start: int, stop: int) -> bytes:
        self._ask()
        assert 0 <= start < stop <= entry.size
        data = self.objects.get(entry.key)
        now = None if data is None else entry_of(entry.key, data)
        if data is None or now != entry:
            raise changed(f"{self.store}/{entry.key}", entry, now)
        self.ranges.append((entry.key, start, stop))
        return data[start:stop]

    def _ask(self) -> None:
        if self.is_down:
            raise Unavailable("the bucket does not answer")


def entry_of(key: str, data: bytes) -> Entry:
    """Return what a store lists of an object."""
    return Entry(key, len(data), f'"{md5(data).hexdigest()}"')
