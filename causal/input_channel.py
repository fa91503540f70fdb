"""The receiving end of a channel: drops what it has, asks again for what it lacks, queues the rest until delivered.

Every element is accepted once, in order of position, from the youngest incarnation of its sender only
(D2, D6).  The far end of a source's partition is a reader; its elements arrive as lists, not as bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from causal.batch import (
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
from causal.deltas import DeltaReader
from causal.errors import PeerViolation, invariant
from causal.ids import OUTSIDE
from causal.log import LogDelta
from causal.rollback import Extent
from causal.rolling import RollingDigest
from causal.wire import Header, Hello, Welcome

ALLOWANCE_BYTES_MIN = 1 << 16
"""What a sender may have under way at first, and at least."""
ALLOWANCE_NS = 1_000_000_000
"""How long what is under way should take to be delivered: a barrier waits behind it."""
_MEASURED_NS = 200_000_000


@dataclass(frozen=True, slots=True)
class EarlyHello:
    """A HELLO of an incarnation that the supervisor has not announced yet.

    Attributes:
        link: where its sender is answered.
    """

    incarnation: int
    link: bytes
    hello: Hello


class InputChannel:
    """One input of a task.

    Args:
        position, digest: where it stood at the barrier that was restored.
        hoard_bytes_max: up to here, what waits is credited as it comes, not as it is delivered: an ordered task
            must be able to wait for one input while others fill, or a graph that forks and joins would stand still.
    """

    def __init__(
        self, id: int, ordinal: int, source: int, position: int, digest: int, ended: bool, hoard_bytes_max: int = 0
    ) -> None:
        self.id = id
        self.ordinal = ordinal
        self.source = source
        self.ended = ended
        self.next = position
        """Position wanted next; everything below has been accepted."""
        self.delivered = position
        """Position delivered next; everything below has been through the chain."""
        self.link: bytes | None = None
        """Where answers to the sender go."""
        self.peer_incarnation = 0
        self._session = self._sequence = 0
        self.deltas = DeltaReader()
        self.staged: list[LogDelta] = []
        """Deltas that travelled ahead of the frame whose elements depend on them."""
        self.held_hello: Hello | None = None
        self._early_hello: EarlyHello | None = None
        self.marking = False
        """On below full sharing depth: frames can be given back that nothing of has been delivered (D9)."""
        self.verifying = True
        """Off where senders may go on in the middle of what was never received here (guarantee none)."""
        self.fresh = True
        """Nothing has been accepted since the restore."""
        self.blocked = False
        """A barrier has been delivered here and not yet on all other channels."""
        self.resync_at_ns = 0
        self.uncredited_bytes = 0
        self.credit_due_ns = 0
        self.queued_bytes = 0
        self.corrupt_frames = 0
        """Frames in a row that were next in line and could not be taken."""
        self.received_bytes = 0
        self.allowance_bytes = ALLOWANCE_BYTES_MIN
        """What the sender may have under way: much where delivery is fast, little where it is slow."""
        self.short = False
        """A replay waits for elements of one event, which may be more than the sender may have under way."""
        self.grant_due_ns = 0
        self._measured_from_ns = 0
        self._measured_bytes = 0
        self.mark: int | None = None
        """The time of the last watermark that was delivered, of those that say one."""
        self.idle = False
        """The sender has said that nobody should wait for it, and nothing has been delivered since."""
        self._hoard_bytes_max = hoard_bytes_max
        self._cut_bytes = 0
        """What the chunk took on the wire of which a part has been delivered, and the rest waits as a list."""
        self._queue: deque[Chunk] = deque()
        self._depends: deque[tuple[int, list[Extent]]] = deque()
        self._frames: deque[tuple[int, RollingDigest]] = deque()
        """Where each frame begins that waits, and the digest there."""
        self._digest = RollingDigest(digest)
        self._digest_at_barrier: dict[int, int] = {}

    # -- frames ------------------------------------------------------------------------------------------

    def introduce(self, incarnation: int) -> None:
        """The sender is that incarnation; a new one numbers its sessions anew."""
        if incarnation != self.peer_incarnation:
            self.peer_incarnation = incarnation
            self._session = self._sequence = 0

    def keep_early(self, early: EarlyHello) -> None:
        """Keep a HELLO until its incarnation is announced; of several the lowest, which is the next to be announced."""
        if self._early_hello is None or early.incarnation <= self._early_hello.incarnation:
            self._early_hello = early

    def take_early(self) -> EarlyHello | None:
        """The HELLO that was kept, unless its incarnation is still higher than the one that was announced."""
        early = self._early_hello
        if early is None or early.incarnation > self.peer_incarnation:
            return None
        self._early_hello = None
        return early

    def follows(self, session: int, sequence: int) -> bool | None:
        """Whether a frame is the next one: true, false if frames before it are missing, None if it is an old one.

        Positions alone cannot tell: a frame that was lost may have repeated elements that are here already, and
        yet have carried determinants that are not (found by the rough world, seed 117).
        """
        if session < self._session or (session == self._session and sequence < self._sequence):
            return None
        if session == self._session:
            return sequence == self._sequence
        return sequence == 0

    def followed(self, session: int, sequence: int) -> None:
        """The deltas of that frame, which were read last, are stored."""
        self.deltas.commit()
        self._session, self._sequence = session, sequence + 1

    # -- in ------------------------------------------------------------------------------------------

    def accept(self, header: Header, payload: bytes | memoryview) -> bool:
        """Queue what is new in a frame's plain payload; false when there is a gap before it.

        Raises:
            PeerViolation: the frame contradicts itself or what was received before; nothing was taken.
        """
        if header.position > self.next:
            return False
        if header.position + header.count <= self.next:
            return True
        chunks = unpack_chunks(payload, header.origin_ns)
        if sum([chunk.count for chunk in chunks]) != header.count:
            raise PeerViolation(
                f"channel {self.id}: a frame's chunks do not hold the {header.count} elements it states"
            )
        if BARRIER in [chunk.kind for chunk in chunks[:-1]]:
            raise PeerViolation(f"channel {self.id}: a barrier in the middle of a frame")
        if header.position < self.next:
            chunks = self._unseen(chunks, header.position)
            payload = pack_chunks(chunks)
        before = (self.next, self._digest.copy()) if self.marking else None
        if not self.verifying:
            self._digest.adopt(header.digest)
        elif not self._digest.feed_if(payload, header.digest):
            raise PeerViolation(
                f"channel {self.id}, position {header.position}: a frame's digest does not follow from what came before"
            )
        self._take(chunks, header.position + header.count, len(payload))
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

    def _take(self, chunks: Sequence[Chunk], following: int, size: int) -> None:
        self.fresh = False
        self._queue.extend(chunks)
        self.next = following
        self.queued_bytes += size
        self.received_bytes += size
        if self._hoard_bytes_max:
            self.uncredited_bytes += size

    def accept_read(self, first: int, chunks: Sequence[Chunk]) -> None:
        """Queue what a source's reader gave for the position it was asked for."""
        invariant(
            first == self.next, "a reader answers what it was asked", channel=self.id, first=first, next=self.next
        )
        self._queue.extend(chunks)
        self.next += sum(chunk.count for chunk in chunks)

    def restart(self, position: int, digest: int) -> None:
        """Take up where the sender can begin (guarantees without determinants)."""
        invariant(self.fresh, "restarted before anything was accepted")
        self.next = self.delivered = position
        self._digest = RollingDigest(digest)

    def rebase(self) -> None:
        """A new sender continues from the digest so far, not from the bytes behind it."""
        self._digest = RollingDigest(self._digest.value)

    # -- handshake -----------------------------------------------------------------------------------

    def welcome(self, attempt: int) -> Welcome:
        return Welcome(attempt, self.next, self._digest.value, [], [], [], self.credited)

    @property
    def credited(self) -> int:
        """The position up to which the sender need not hold anything back."""
        return self.next if 0 < self._hoard_bytes_max >= self.queued_bytes else self.delivered

    # -- out -----------------------------------------------------------------------------------------

    @property
    def queued(self) -> int:
        """Elements accepted and not yet delivered."""
        return self.next - self.delivered

    @property
    def deliverable(self) -> bool:
        """Whether there is an element that no barrier holds back."""
        return bool(self._queue) and not self.blocked

    def head_count(self, elements_max: int, bytes_max: int, cutting: bool = False) -> int:
        """How many elements a live event should take: whole chunks up to the bounds and a watermark behind them, or
        one punctuation; 0 if none.

        Args:
            cutting: a chunk that alone is more than `elements_max` is not taken whole.
        """
        if not self._queue or self.blocked:
            return 0
        head = self._queue[0]
        if head.kind == LISTED and self.source != OUTSIDE:  # what a cut has left: an event of its own
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
        """How many elements the next chunk has; 0 if there is none to deliver."""
        return self._queue[0].count if self._queue and not self.blocked else 0

    @property
    def head_kind(self) -> int:
        """What comes next, where something is queued."""
        return self._queue[0].kind

    def take(self, count: int) -> list[Chunk]:
        """Remove the next `count` elements, which are there.  Where they end inside a chunk, it is cut.

        Raises:
            PeerViolation: a chunk to be cut cannot be read.
        """
        head = self._queue[0]
        if head.count == count and head.kind != LISTED:
            taken, size = [self._queue.popleft()], CHUNK_HEAD_BYTES + head.size
        else:
            taken, size = self._taken(count)
        self.delivered += count
        self.queued_bytes -= size
        self.uncredited_bytes += size
        self._measured_bytes += size
        if taken[-1].kind == END:
            self.ended = True
        self._note_progress(taken)
        while self._frames and self._frames[0][0] < self.delivered:
            self._frames.popleft()
        return taken

    def _taken(self, count: int) -> tuple[list[Chunk], int]:
        """Several chunks or a part of one, and the bytes to give credit for: of a cut chunk with its last part."""
        taken: list[Chunk] = []
        size, left = 0, count
        while left:
            chunk = self._queue.popleft()
            if chunk.count > left:
                body = chunk.body
                if chunk.kind == RECORDS:
                    body, self._cut_bytes = decode_records(body), CHUNK_HEAD_BYTES + chunk.size
                self._queue.appendleft(Chunk(LISTED, chunk.count - left, body[left:], chunk.origin_ns))
                chunk = Chunk(LISTED, left, body[:left], chunk.origin_ns)
            elif chunk.kind == LISTED:
                size, self._cut_bytes = size + self._cut_bytes, 0
            else:
                size += CHUNK_HEAD_BYTES + chunk.size
            taken.append(chunk)
            left -= chunk.count
        return taken, size

    def _note_progress(self, taken: Sequence[Chunk]) -> None:
        if taken[0].kind != BARRIER:
            self.idle = False
        if taken[-1].kind == WATERMARK:
            stamp_ns = stamp_of(taken[-1])
            self.idle = stamp_ns == IDLE_NS
            if not self.idle:
                self.mark = stamp_ns

    def resize(self, bytes_max: int, now_ns: int) -> None:
        """Fit the allowance to the pace of delivery: what is under way should be done with in `ALLOWANCE_NS`.

        While nothing waits, the sender is the slower one and the allowance doubles.
        """
        took_ns = now_ns - self._measured_from_ns
        if not self.queued_bytes or self._hoard_bytes_max:
            self.allowance_bytes = min(bytes_max, 2 * self.allowance_bytes)
        elif took_ns < _MEASURED_NS:
            return
        else:
            fitting = self._measured_bytes * ALLOWANCE_NS // took_ns
            self.allowance_bytes = max(ALLOWANCE_BYTES_MIN, min(bytes_max, fitting))
        self._measured_from_ns, self._measured_bytes = now_ns, 0

    def give_back(self) -> None:
        """The sender goes back and may not send the same again: forget the frames of which nothing was delivered."""
        self.staged.clear()
        self.held_hello = None
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

    def note_depends(self, position: int, extents: list[Extent]) -> None:
        """Elements from `position` on depend on so much of these logs (D9); counts once one of them is delivered."""
        if extents and position >= self.delivered:
            self._depends.append((position, extents))

    def delivered_depends(self) -> list[Extent]:
        """What has come to count since the last call."""
        due: list[Extent] = []
        while self._depends and self._depends[0][0] < self.delivered:
            due += self._depends.popleft()[1]
        return due

    def queued_depends(self) -> list[Extent]:
        """What elements depend on that were accepted and not yet delivered: their sender must regenerate them."""
        return [extent for _, extents in self._depends for extent in extents]

    def digest_at_barrier(self, epoch: int) -> int:
        """The digest behind a barrier that was delivered; asked for once."""
        return self._digest_at_barrier.pop(epoch, 0)
