"""The in-flight log of one channel: the encoded elements that were sent since the last complete checkpoint.

The log can replay from any element position, and it joins small adjacent entries into one frame. It drops whole epochs
when a checkpoint completes, and spills runs of entries to disk to free memory. An entry on disk keeps its place in the
log and loses only its payload.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import islice

from causal.errors import invariant

SEGMENT_BYTES = 4 << 20
"""The number of payload bytes that are spilled together."""
ORIGINS_APART_NS_MAX = 25_000_000
"""The longest time between two origins in one frame; it is limited because a frame carries only the oldest origin."""


@dataclass(slots=True)
class Entry:
    """One frame's payload: whole chunks of one epoch, with the digests before and after them."""

    first: int
    count: int
    epoch: int
    payload: bytes | memoryview | None
    size: int
    digest_before: int
    digest: int
    origin_ns: int
    segment: int = 0
    """The number of the segment on disk that also contains the entry; 0 if there is none."""

    @property
    def next(self) -> int:
        return self.first + self.count


class InflightLog:
    """Entries in order of position, without gaps; the *place* of an entry is constant while the log contains it."""

    __slots__ = ("_entries", "_dropped", "_firsts", "memory_bytes", "disk_bytes", "start", "start_digest")

    def __init__(self, start: int, digest: int) -> None:
        self.start = start
        """The lowest position that can be replayed."""
        self.start_digest = digest
        self._entries: list[Entry] = []
        self._firsts: list[int] = []
        self._dropped = 0
        self.memory_bytes = 0
        self.disk_bytes = 0

    @property
    def end_place(self) -> int:
        return self._dropped + len(self._entries)

    @property
    def first_place(self) -> int:
        return self._dropped

    @property
    def end(self) -> int:
        """The position after the last entry."""
        return self._entries[-1].next if self._entries else self.start

    def append(self, entry: Entry) -> None:
        invariant(entry.first == self.end, "in-flight entries have no gaps", first=entry.first, end=self.end)
        self._entries.append(entry)
        self._firsts.append(entry.first)
        self.memory_bytes += entry.size

    def at(self, place: int) -> Entry:
        return self._entries[place - self._dropped]

    def place_of(self, position: int) -> int | None:
        """Return the place of the entry that contains `position`.

        Return the end place if `position` is the end of the log, and None if it is outside the log.
        """
        if position < self.start or position > self.end:
            return None
        if position == self.end:
            return self.end_place
        return self._dropped + bisect_right(self._firsts, position) - 1

    def frame_at(self, place: int, bytes_max: int) -> Entry:
        """Return the entry at `place`, joined with later entries that may be sent in the same frame.

        Chunks do not depend on their framing, and the digest after the last chunk covers all of them, so a replay may
        frame them differently. A frame ends at the end of an epoch and before an entry on disk.
        """
        place -= self._dropped
        head = self._entries[place]
        if head.payload is None or place + 1 == len(self._entries):
            return head
        size, oldest_ns, latest_ns = head.size, head.origin_ns, head.origin_ns
        payloads = [head.payload]
        last = head
        for entry in islice(self._entries, place + 1, None):
            size += entry.size
            if entry.payload is None or size > bytes_max or entry.epoch != head.epoch:
                break
            if entry.origin_ns:
                oldest_ns = min(oldest_ns or entry.origin_ns, entry.origin_ns)
                latest_ns = max(latest_ns, entry.origin_ns)
                if latest_ns - oldest_ns > ORIGINS_APART_NS_MAX:
                    break
            payloads.append(entry.payload)
            last = entry
        if last is head:
            return head
        payload = b"".join(payloads)
        count = last.next - head.first
        return Entry(head.first, count, head.epoch, payload, len(payload), head.digest_before, last.digest, oldest_ns)

    def truncate(self, epoch: int) -> set[int]:
        """Drop the entries of epochs below `epoch`; return the segments on disk that are no longer needed."""
        keep = 0
        while keep < len(self._entries) and self._entries[keep].epoch < epoch:
            keep += 1
        return self._drop(keep)

    def drop_before(self, place: int) -> None:
        """Drop the entries before `place` immediately, for guarantees that replay nothing."""
        self._drop(place - self._dropped)

    def _drop(self, count: int) -> set[int]:
        if count <= 0:
            return set()
        gone, self._entries = self._entries[:count], self._entries[count:]
        del self._firsts[:count]
        self._dropped += count
        self.start, self.start_digest = gone[-1].next, gone[-1].digest
        for entry in gone:
            if entry.payload is not None:
                self.memory_bytes -= entry.size
            if entry.segment:
                self.disk_bytes -= entry.size
        kept = {entry.segment for entry in self._entries[:1]}
        return {entry.segment for entry in gone} - kept - {0}

    # -- disk ------------------------------------------------------------------------------------

    def spillable(self, before_place: int) -> list[Entry]:
        """Return the oldest run of entries before `before_place` that are not on disk yet, up to one segment."""
        run: list[Entry] = []
        size = 0
        for entry in self._entries[: max(0, before_place - self._dropped)]:
            if entry.segment:
                if run:
                    break
                continue
            run.append(entry)
            size += entry.size
            if size >= SEGMENT_BYTES:
                break
        return run

    def spilled(self, segment: int, first: int, count: int) -> None:
        """Drop the payloads of the entries at positions `first` to `first + count`, which are now on disk."""
        for entry in self._entries:
            if first <= entry.first < first + count and entry.payload is not None:
                entry.segment = segment
                self.disk_bytes += entry.size
                self.release(entry)

    def release(self, entry: Entry) -> None:
        """Drop the payload of an entry that is also on disk."""
        if entry.segment and entry.payload is not None:
            entry.payload = None
            self.memory_bytes -= entry.size

    def release_sent(self, place: int, position: int) -> int:
        """Drop the payloads from `place` to `position` that are on disk; return the place after these entries."""
        place -= self._dropped
        while place < len(self._entries) and self._firsts[place] < position:
            self.release(self._entries[place])
            place += 1
        return self._dropped + place

    def release_all(self) -> None:
        """Drop every payload that is also on disk, because the loaded entries may not be the next ones to send."""

        for entry in self._entries:
            self.release(entry)

    def loaded(self, segment: int, payloads: dict[int, bytes], from_place: int) -> None:
        """Store payloads loaded from disk, keyed by first position; those before `from_place` are not needed."""
        for entry in self._entries[max(0, from_place - self._dropped) :]:
            if entry.segment == segment and entry.payload is None and entry.first in payloads:
                entry.payload = payloads[entry.first]
                invariant(
                    len(entry.payload) == entry.size,
                    ("a segment returns the bytes that were written"),
                    first=entry.first,
                )
                self.memory_bytes += entry.size
