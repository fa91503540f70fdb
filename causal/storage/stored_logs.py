"""A task's determinants in the shared store, for its next incarnation on any host (designs 0012, 0024).

    determinants/<task>/i<incarnation>/<place>          records of `causal.storage.stable`, each after 8 bytes of epoch

The first object, at place 0, contains all determinants that the incarnation has collected. Once it exists, objects of
older incarnations are ignored. Each later object contains the bytes of one write. Objects are created and never
changed. An object is removed when a checkpoint covers its entire content, except for the first object, which marks that
the incarnation has begun.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence

from causal.errors import CorruptData, Unavailable
from causal.logs.log import LogDelta
from causal.logs.rollback import Extent
from causal.storage.shared import Depot
from causal.storage.stable import DIRECTORY, READ_TRIES_MAX, framed, unframed

_EPOCH = struct.Struct("<Q")
_NAME = re.compile(r"i(\d+)/(\d+)")


class StoredLogs:
    """The objects of one incarnation of one task; used by one thread.

    Args:
        first: the lowest incarnation of this version of the job. Objects of an earlier version are never read. The
            first `begin` removes them, because until then the job may still return to that version.
    """

    def __init__(self, depot: Depot, task: str, incarnation: int, first: int = 0) -> None:
        self._depot = depot
        self._folder = f"{DIRECTORY}/{task}"
        self._incarnation = incarnation
        self._first = first
        self._next = 0
        """The place of the next object."""
        self._pending: tuple[bytes, dict[int, int]] | None = None
        """Content that may have been stored as an object, and the end of each epoch's log including it."""
        self._extents: dict[int, int] = {}
        """Epoch → the end of its log in the objects created so far."""
        self._newest: dict[int, int] = {}
        """Place → the newest epoch in the object at that place."""

    def read(self) -> list[LogDelta]:
        """Read the log of the highest incarnation, up to this one, that has begun a log; return one delta per epoch.

        Raises:
            Unavailable: the store does not answer, or newer incarnations keep beginning.
        """
        for _ in range(READ_TRIES_MAX):
            places = self._places()
            begun = [i for i, place in places if place == 0 and self._first <= i <= self._incarnation]
            if not begun:
                return []
            try:
                return self._read(max(begun), places)
            except CorruptData:
                continue  # a newer incarnation has removed the object, or a checkpoint has covered it
        raise Unavailable(f"{self._folder}: its objects change while they are listed; its task restarts")

    def _read(self, incarnation: int, places: Sequence[tuple[int, int]]) -> list[LogDelta]:
        logs: dict[int, bytearray] = {}
        for place in [place for owner, place in places if owner == incarnation]:
            for epoch, offset, body in _records(self._depot.read(self._name(incarnation, place))):
                log = logs.setdefault(epoch, bytearray())
                # The beginning of an epoch may be missing after a checkpoint has covered the epoch.
                if offset == len(log):
                    log += body
        return [LogDelta(-1, epoch, 0, bytes(log)) for epoch, log in sorted(logs.items())]

    def begin(self, logs: Sequence[LogDelta]) -> list[Extent]:
        """Begin this incarnation's objects with these bytes, from offset 0 per epoch; remove older objects.

        Raises:
            Unavailable: the store does not answer; older objects are unchanged, and the call may be repeated.
        """
        self._pending = None
        data, ends = _packed(logs)
        places = self._places()
        if not self._depot.create(self._name(self._incarnation, 0), data):
            own = [self._name(*each) for each in places if each[0] == self._incarnation]
            # An object with different content comes from a decision that was never journaled.
            if self._depot.read(self._name(self._incarnation, 0)) != data:
                self._depot.remove(own)
                self._depot.create_own(self._name(self._incarnation, 0), data)
        self._note(0, ends)
        self._depot.remove(self._name(*each) for each in places if each[0] < self._incarnation)
        return [(delta.task, delta.epoch, len(delta.bytes)) for delta in logs]

    def append(self, logs: Sequence[LogDelta]) -> list[Extent]:
        """Write these bytes as one object; return the extents that have been written.

        Raises:
            Unavailable: the store does not answer.
        """
        if self._pending is not None:
            self._create(*self._pending)  # the last answer was lost, so ensure that the object exists
        fresh = [trimmed for delta in logs if (trimmed := self._trimmed(delta)).bytes]
        if fresh:
            self._create(*_packed(fresh))
        return [(delta.task, delta.epoch, delta.offset + len(delta.bytes)) for delta in logs]

    def _trimmed(self, delta: LogDelta) -> LogDelta:
        """Return the part of a delta that no object contains yet."""
        known = max(0, self._extents.get(delta.epoch, 0) - delta.offset)
        return delta if not known else LogDelta(delta.task, delta.epoch, delta.offset + known, delta.bytes[known:])

    def _create(self, data: bytes, ends: dict[int, int]) -> None:
        self._pending = data, ends
        self._depot.create_own(self._name(self._incarnation, self._next), data)
        self._pending = None
        self._note(self._next, ends)

    def _note(self, place: int, ends: dict[int, int]) -> None:
        self._next = place + 1
        self._extents |= ends
        self._newest[place] = max(ends, default=0)

    def truncate(self, epoch: int) -> None:
        """Remove all objects, except the first, that contain nothing of `epoch` or later epochs."""
        covered = [place for place, newest in self._newest.items() if place and newest < epoch]
        self._extents = {each: end for each, end in self._extents.items() if each >= epoch}
        for place in covered:
            del self._newest[place]
        self._depot.remove(self._name(self._incarnation, place) for place in covered)

    def close(self) -> None:
        """Do nothing, because no object is kept open."""

    def _places(self) -> list[tuple[int, int]]:
        """Return (incarnation, place) of each object of the task, in order."""
        names = self._depot.names(self._folder)
        matches = [_NAME.fullmatch(name.removeprefix(f"{self._folder}/")) for name in names]
        return sorted((int(match[1]), int(match[2])) for match in matches if match)

    def _name(self, incarnation: int, place: int) -> str:
        return f"{self._folder}/i{incarnation}/{place:08d}"


def _packed(logs: Sequence[LogDelta]) -> tuple[bytes, dict[int, int]]:
    """Return the content of an object, and the end of each epoch's log including that object."""
    data = b"".join(_EPOCH.pack(delta.epoch) + framed(delta) for delta in logs)
    return data, {delta.epoch: delta.offset + len(delta.bytes) for delta in logs}


def _records(data: bytes) -> list[tuple[int, int, bytes]]:
    """Return (epoch, offset, bytes) of each complete record in an object."""
    records, place = [], 0
    while len(data) - place >= _EPOCH.size:
        (epoch,) = _EPOCH.unpack_from(data, place)
        record = unframed(data, place + _EPOCH.size)
        if record is None:
            break
        offset, body, place = record
        records.append((epoch, offset, body))
    return records
