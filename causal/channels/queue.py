"""The elements of a receiving end: accepted in order of position, and delivered when the task requests them.

Every element is accepted exactly once (D2). The session (`causal.channels.receiver`) determines which process sends and
which frame is next. Flow control determines how many bytes may be outstanding.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from causal.channels.flow import Allowance
from causal.channels.rolling import RollingDigest
from causal.channels.wire import Header
from causal.errors import PeerViolation, invariant
from causal.logs.rollback import Extent
from causal.records.batch import (
    BARRIER,
    CHUNK_HEAD_BYTES,
    END,
    IDLE_NS,
    LISTED,
    RECORDS,
    WATERMARK,
    Chunk,
    decode_records,
    pack_chunks,
    stamp_of,
    unpack_chunks,
)


class InputQueue:
    """One input of a task: chunks in order of position, delivered when the task requests elements.

    Args:
        source: the task at the far end.
        position: the position of the first element at the restored barrier.
    """

    cuts_stand_alone = False
    """Whether the remainder of a chunk that was cut forms an event of its own."""
    read_out = False
    """Whether the queue already contains all remaining elements, so that no more can arrive."""

    def __init__(self, id: int, ordinal: int, source: int, position: int, ended: bool) -> None:
        self.id = id
        self.ordinal = ordinal
        self.source = source
        self.ended = ended
        self.next = position
        """The next position to accept; all elements below it have been accepted."""
        self.delivered = position
        """The next position to deliver; the chain has processed all elements below it."""
        self.blocked = False
        """Whether a barrier has been delivered on this channel but not yet on all others."""
        self.starved = False
        """Whether a replay is waiting for the elements of one event, whose size may exceed the sender's allowance."""
        self.mark: int | None = None
        """The event time of the last delivered watermark that carries one."""
        self.idle = False
        """Whether the sender has reported itself idle, so that no task waits for it; any later delivery resets this."""
        self._queue: deque[Chunk] = deque()

    def accept_chunks(self, first: int, chunks: Sequence[Chunk]) -> None:
        """Queue requested chunks, starting at position `first`."""
        invariant(first == self.next, "what arrives was asked for", channel=self.id, first=first, next=self.next)
        self._queue.extend(chunks)
        self.next += sum(chunk.count for chunk in chunks)

    # -- elements in the queue -----------------------------------------------------------------------------

    @property
    def queued(self) -> int:
        """The number of elements that have been accepted but not delivered yet."""
        return self.next - self.delivered

    @property
    def deliverable(self) -> bool:
        """Whether an element is queued and no barrier blocks its delivery."""
        return bool(self._queue) and not self.blocked

    def head_count(self, elements_max: int, bytes_max: int, cutting: bool = False) -> int:
        """Return the number of elements that a live event should contain, or 0 if none is deliverable.

        An event consists of whole chunks within the limits and of a watermark that follows them, or of one punctuation.

        Args:
            cutting: whether to cut a chunk that alone exceeds `elements_max`.
        """
        if not self._queue or self.blocked:
            return 0
        head = self._queue[0]
        if head.kind == LISTED and self.cuts_stand_alone:
            return min(head.count, elements_max) if cutting else head.count
        if cutting and head.kind in (RECORDS, LISTED) and head.count > elements_max:
            return elements_max
        count = size = 0
        for chunk in self._queue:
            if chunk.kind not in (RECORDS, LISTED):
                return count + 1 if not count or chunk.kind == WATERMARK else count
            if count and (count + chunk.count > elements_max or size + chunk.size > bytes_max):
                return count
            count += chunk.count
            size += chunk.size
            if count >= elements_max or size >= bytes_max:
                return count
        return count

    @property
    def head_chunk_count(self) -> int:
        """The number of elements in the next chunk; 0 if no chunk is deliverable."""
        return self._queue[0].count if self._queue and not self.blocked else 0

    @property
    def head_kind(self) -> int:
        """The kind of the next chunk; valid only if a chunk is queued."""
        return self._queue[0].kind

    def has_records_only(self, count: int) -> bool:
        """Return whether the next `count` elements, which have all arrived, are encoded records without punctuation."""
        for chunk in self._queue:
            if chunk.kind != RECORDS:
                return False
            count -= chunk.count
            if count <= 0:
                break
        return True

    def head_bytes(self, count: int) -> int:
        """Return the total size in bytes of the chunks that contain the next `count` elements."""
        size = 0
        for chunk in self._queue:
            if count <= 0:
                break
            count -= chunk.count
            size += chunk.size
        return size

    # -- delivery ------------------------------------------------------------------------------------------

    def take(self, count: int) -> list[Chunk]:
        """Remove and return the next `count` elements, which must have arrived; cut the last chunk if necessary.

        Raises:
            PeerViolation: a chunk to be cut cannot be decoded.
        """
        taken: list[Chunk] = []
        left = count
        while left:
            chunk = self._queue.popleft()
            if chunk.count > left:
                chunk = self._cut(chunk, left)
            taken.append(chunk)
            left -= chunk.count
        self._note_delivery(taken, count)
        return taken

    def _cut(self, chunk: Chunk, count: int) -> Chunk:
        """Return the first `count` elements of a chunk, and put the rest back into the queue as a list."""
        body = decode_records(chunk.body) if chunk.kind == RECORDS else chunk.body
        self._queue.appendleft(Chunk(LISTED, chunk.count - count, body[count:], chunk.origin_ns))
        return Chunk(LISTED, count, body[:count], chunk.origin_ns)

    def _note_delivery(self, taken: Sequence[Chunk], count: int) -> None:
        self.delivered += count
        last = taken[-1]
        if last.kind == END:
            self.ended = True
        if taken[0].kind != BARRIER:
            self.idle = False
        if last.kind == WATERMARK:
            stamp_ns = stamp_of(last)
            self.idle = stamp_ns == IDLE_NS
            if not self.idle:
                self.mark = stamp_ns

    def delivered_depends(self) -> list[Extent]:
        """Return the dependencies of the elements that were delivered since the last call (D9)."""
        return []

    def digest_at_barrier(self, epoch: int) -> int:
        """Return the digest after a delivered barrier; call this once per barrier."""
        return 0


class FramedQueue(InputQueue):
    """An input whose elements arrive in frames from another task, with a digest, credit and dependencies.

    Args:
        digest: the digest at the restored barrier.
        hoard_bytes_max: the size up to which waiting elements are credited on arrival rather than on delivery. An
            ordered task must be able to wait for one input while others fill up; otherwise a graph that forks and
            joins could deadlock.
    """

    cuts_stand_alone = True

    def __init__(
        self,
        id: int,
        ordinal: int,
        source: int,
        position: int,
        digest: int,
        ended: bool,
        window_bytes: int,
        hoard_bytes_max: int = 0,
    ) -> None:
        super().__init__(id, ordinal, source, position, ended)
        self.marking = False
        """Whether undelivered frames can be given back, which is the case below full sharing depth (D9)."""
        self.verifying = True
        """Whether digests are checked; false if senders may skip unreceived elements (guarantee `none`)."""
        self.flow = Allowance(window_bytes, hoard_bytes_max > 0)
        self.queued_bytes = 0
        self.received_bytes = 0
        self._hoard_bytes_max = hoard_bytes_max
        self._restored = position
        self._cut_bytes = 0
        """The encoded size of the chunk that has been delivered in part while its remainder waits as a list."""
        self._depends: deque[tuple[int, list[Extent]]] = deque()
        self._frames: deque[tuple[int, RollingDigest]] = deque()
        """The start position of each waiting frame, and the digest at that position."""
        self._digest = RollingDigest(digest)
        self._digest_at_barrier: dict[int, int] = {}

    @property
    def digest(self) -> int:
        """The digest after the last accepted element."""
        return self._digest.value

    @property
    def fresh(self) -> bool:
        """Whether nothing has been accepted since the state was restored."""
        return self.next == self._restored

    @property
    def credited(self) -> int:
        """The position below which elements no longer count against the sender's credit."""
        return self.next if 0 < self._hoard_bytes_max >= self.queued_bytes else self.delivered

    # -- frames --------------------------------------------------------------------------------------------

    def accept(self, header: Header, payload: bytes | memoryview) -> bool:
        """Queue the new elements of a frame's uncompressed payload; return false if there is a gap before the frame.

        Raises:
            PeerViolation: the frame contradicts itself or earlier frames, and none of its elements was queued.
        """
        first, following = header.position, header.position + header.count
        if first > self.next:
            return False
        if following <= self.next:
            return True
        chunks = unpack_chunks(payload, header.origin_ns)
        if sum([chunk.count for chunk in chunks]) != header.count:
            raise PeerViolation(
                f"channel {self.id}: a frame's chunks do not contain the {header.count} elements that its header states"
            )
        if BARRIER in [chunk.kind for chunk in chunks[:-1]]:
            raise PeerViolation(f"channel {self.id}: a frame has a barrier before its end")
        if first < self.next:
            chunks = self._unseen(chunks, first)
            payload = pack_chunks(chunks)
        before = (self.next, self._digest.copy()) if self.marking else None
        if not self.verifying:
            self._digest.adopt(header.digest)
        elif not self._digest.feed_if(payload, header.digest):
            raise PeerViolation(
                f"channel {self.id}, position {first}: a frame's digest does not continue the digest of the "
                "elements before it"
            )
        size = len(payload)
        self._queue.extend(chunks)
        self.next = following
        self.queued_bytes += size
        self.received_bytes += size
        if self._hoard_bytes_max:
            self.flow.uncredited_bytes += size
        if before is not None:
            self._frames.append(before)
        if chunks[-1].kind == BARRIER:
            self._digest_at_barrier[stamp_of(chunks[-1])] = self._digest.close()
        return True

    def _unseen(self, chunks: list[Chunk], position: int) -> list[Chunk]:
        for place, chunk in enumerate(chunks):
            if position == self.next:
                return chunks[place:]
            position += chunk.count
        raise PeerViolation(f"channel {self.id}: position {self.next} lies inside a chunk of a frame")

    def restart(self, position: int, digest: int) -> None:
        """Continue at the position where the sender can begin, for guarantees without determinants."""
        invariant(self.fresh, "restarted before anything was accepted")
        self.next = self.delivered = self._restored = position
        self._digest = RollingDigest(digest)

    def rebase(self) -> None:
        """Prepare for a new sender, whose digest is seeded with the current digest value."""
        self._digest = RollingDigest(self._digest.value)

    def give_back(self) -> None:
        """Drop the frames of which no element was delivered, because the sender rolls back and may send others."""
        position, digest = self._frames[0] if self._frames else (self.next, self._digest)
        while self.next > position:
            chunk = self._queue.pop()
            self.next -= chunk.count
            self.queued_bytes -= chunk.size + CHUNK_HEAD_BYTES
            if chunk.kind == BARRIER:
                self._digest_at_barrier.pop(stamp_of(chunk), None)
        invariant(self.next == position, "frames hold whole chunks", channel=self.id, next=self.next, frame=position)
        self._digest = digest
        self._frames.clear()
        self._depends = deque((at, extents) for at, extents in self._depends if at < position)

    # -- delivery ------------------------------------------------------------------------------------------

    def take(self, count: int) -> list[Chunk]:
        """Remove, return and credit the next `count` elements; a divided chunk is credited with its last part.

        Raises:
            PeerViolation: a chunk to be cut cannot be decoded.
        """
        head = self._queue[0]
        if head.count == count and head.kind != LISTED:
            self._queue.popleft()
            taken, size = [head], CHUNK_HEAD_BYTES + head.size
        else:
            taken, size = self._take_several(count)
        self.queued_bytes -= size
        self.flow.uncredited_bytes += size
        self._note_delivery(taken, count)
        while self._frames and self._frames[0][0] < self.delivered:
            self._frames.popleft()
        return taken

    def _take_several(self, count: int) -> tuple[list[Chunk], int]:
        """Return several chunks or a part of one, and the number of bytes to credit."""
        taken: list[Chunk] = []
        size, left = 0, count
        while left:
            chunk = self._queue.popleft()
            if chunk.count > left:
                if chunk.kind == RECORDS:
                    self._cut_bytes = CHUNK_HEAD_BYTES + chunk.size
                chunk = self._cut(chunk, left)
            elif chunk.kind == LISTED:
                size, self._cut_bytes = size + self._cut_bytes, 0
            else:
                size += CHUNK_HEAD_BYTES + chunk.size
            taken.append(chunk)
            left -= chunk.count
        return taken, size

    # -- dependencies --------------------------------------------------------------------------------------

    def note_depends(self, position: int, extents: list[Extent]) -> None:
        """Record that elements from `position` on depend on `extents` (D9); this takes effect on their delivery."""
        if extents and position >= self.delivered:
            self._depends.append((position, extents))

    def delivered_depends(self) -> list[Extent]:
        due: list[Extent] = []
        while self._depends and self._depends[0][0] < self.delivered:
            due += self._depends.popleft()[1]
        return due

    def queued_depends(self) -> list[Extent]:
        """Return the dependencies of the queued elements, which the sender must be able to regenerate."""
        return [extent for _, extents in self._depends for extent in extents]

    def digest_at_barrier(self, epoch: int) -> int:
        return self._digest_at_barrier.pop(epoch, 0)
