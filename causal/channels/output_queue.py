"""The elements of a sending end: added in order, kept as an in-flight log until truncated, and sent from a cursor."""

from __future__ import annotations

from typing import NamedTuple

from causal.channels.arena import Arena
from causal.channels.rolling import RollingDigest
from causal.errors import OperatorFailed, ReplayDivergence, invariant
from causal.inflight import Entry, InflightLog
from causal.records.batch import BARRIER, END, Chunk, pack_chunks

FRAME_BYTES_TARGET = 256 << 10
"""The size in bytes up to which chunks are gathered into one frame while the peer does not keep up."""
CHUNK_BYTES_MAX = 40 << 20
"""The maximum chunk size: a frame must also have room for the chunks gathered before it and the remaining deltas."""


class Expected(NamedTuple):
    """The receiver's position and digest, for comparison when the replay reaches that position."""

    position: int
    digest: int


class OutputQueue:
    """The elements of a sending end, which are gathered into entries of an in-flight log and sent from a cursor.

    While a replay regenerates elements that the receiver already has, the elements are added and kept but not sent.
    When the replay reaches the receiver's position, the digest of the regenerated elements is compared with the
    receiver's (D7).

    Args:
        name: the name of the channel: "sender to receiver".
        position, digest: the position and digest of the channel at the restored barrier.
        keeping: false for guarantees that never replay. Entries are then dropped once credited, except for the end of
            the channel, without which a successor of the receiver would never finish.
    """

    def __init__(self, name: str, position: int, digest: int, epoch: int, keeping: bool) -> None:
        self.name = name
        self.position = position
        self.epoch = epoch
        self.keeping = keeping
        self.log = InflightLog(position, digest)
        self.cursor = 0
        """The index in the log of the entry to send next."""
        self.expected: Expected | None = None
        """The receiver's position and digest if the replay has not reached that position yet, otherwise None."""
        self.loading: set[int] = set()
        """The segments that have been requested from the disk."""
        self._end: int | None = None
        """The position of the channel's end, if the end is kept although other entries are not."""
        self._arena = Arena()
        self._digest = RollingDigest(digest)
        self._gathered: list[Chunk] = []
        self._gathered_bytes = 0

    @property
    def digest(self) -> int:
        """The digest after the last sealed element."""
        return self._digest.value

    # -- incoming elements ---------------------------------------------------------------------------------

    def put(self, chunk: Chunk) -> None:
        """Add the output of one event; a barrier ends both its epoch and its frame.

        Raises:
            ReplayDivergence: the replay regenerated elements that differ from those of the receiver.
            OperatorFailed: the chunk is too large for a frame.
        """
        size = len(chunk.body)
        if size > CHUNK_BYTES_MAX:
            raise OperatorFailed(
                f"{self.name}, position {self.position}: one batch produced {chunk.count} records with {size} "
                f"bytes in total, more than the limit of {CHUNK_BYTES_MAX}; emit less per record, or lower "
                "batch_elements_max"
            )
        if chunk.kind == END and not self.keeping:
            self.seal()
            self._end = self.position
        self._gathered.append(chunk)
        self._gathered_bytes += size
        self.position += chunk.count
        expected = self.expected
        reached = expected is not None and self.position >= expected.position
        if reached or chunk.kind == BARRIER or self._gathered_bytes >= FRAME_BYTES_TARGET:
            self.seal()
        if reached:
            self._compare()

    def seal(self) -> None:
        """Turn the gathered chunks into one entry of the in-flight log."""
        if not self._gathered:
            return
        payload = pack_chunks(self._gathered)
        count = sum(chunk.count for chunk in self._gathered)
        origins = [chunk.origin_ns for chunk in self._gathered if chunk.origin_ns]
        before = self._digest.value
        after = self._digest.feed(payload)
        first = self.position - count
        kept = self._arena.keep(payload) if self.keeping else payload
        self.log.append(Entry(first, count, self.epoch, kept, len(payload), before, after, min(origins, default=0)))
        if self._gathered[-1].kind == BARRIER:
            self._digest.close()
            self.epoch += 1
        self._gathered = []
        self._gathered_bytes = 0

    def renumber(self, position: int, digest: int) -> None:
        """Continue at the receiver's position; guarantees without determinants have nothing to compare."""
        invariant(
            not self._gathered and self.log.end == self.position, ("the output is renumbered before anything is sent")
        )
        self.position = position
        self._digest = RollingDigest(digest)
        self.log = InflightLog(position, digest)
        self.cursor = 0

    # -- the elements that the receiver already has -------------------------------------------------------

    def resume(self, position: int, digest: int, replaying: bool) -> bool:
        """Set the cursor to the receiver's position; return false if the replay has not reached that position yet.

        Raises:
            ReplayDivergence: the receiver has elements that differ from those sent or regenerated.
        """
        self.seal()
        self.log.release_all()
        self.expected = None
        expected = Expected(position, digest)
        if position > self.log.end:
            if not replaying:
                raise self._divergence(expected)
            self.expected = expected
            self.cursor = self.log.end_place
            return False
        place = self.log.place_of(position)
        invariant(place is not None, "the in-flight log has no gaps", position=position)
        self._check_known(place, expected)  # type: ignore[arg-type]
        self.cursor = place  # type: ignore[assignment]
        return True

    def _check_known(self, place: int, expected: Expected) -> None:
        if place == self.log.end_place:
            known = self._digest.value
        elif self.log.at(place).first == expected.position:
            known = self.log.at(place).digest_before
        else:
            return  # an earlier incarnation framed this entry differently; the receiver checks the frames
        if known != expected.digest:
            raise self._divergence(expected)

    def _compare(self) -> None:
        expected = self.expected
        invariant(expected is not None and not self._gathered, "compared at a seal")
        if expected != (self.position, self._digest.value):
            raise self._divergence(expected)  # type: ignore[arg-type]
        self._regenerated()

    def _regenerated(self) -> None:
        """Record that the replay has reached the receiver's position."""
        self.expected = None
        self.cursor = self.log.end_place

    def _divergence(self, expected: Expected) -> ReplayDivergence:
        here, _, target = self.name.partition(" to ")
        return ReplayDivergence(
            here, f"the output up to {self.position} differs from what {target} received up to {expected.position}"
        )

    @property
    def expecting(self) -> bool:
        """Whether the receiver has elements that have not been regenerated yet."""
        return self.expected is not None

    def replayed(self) -> None:
        """Record that the replay has reached the end of the determinant log.

        Raises:
            ReplayDivergence: the receiver has more elements than were regenerated.
        """
        if self.expected is not None:
            raise self._divergence(self.expected)

    # -- outgoing elements ---------------------------------------------------------------------------------

    @property
    def cursor_position(self) -> int:
        """The position of the next element to send."""
        if self.cursor >= self.log.end_place:
            return self.log.end
        return self.log.at(max(self.cursor, self.log.first_place)).first

    def loaded(self, segment: int, payloads: dict[int, bytes]) -> None:
        """Restore payloads read from disk, keyed by first position, for the entries to send next."""
        self.loading.discard(segment)
        self.log.loaded(segment, payloads, self.cursor)

    def drop_delivered(self, position: int) -> None:
        """Drop the entries before `position`; used only for guarantees that keep nothing for a replay."""
        place = self.log.place_of(position if self._end is None else min(position, self._end))
        if place is not None and place <= self.cursor:
            self.log.drop_before(place)

    def truncate(self, epoch: int) -> set[int]:
        """Drop the entries that complete checkpoint `epoch` covers; return the segments to remove from disk."""
        dropped = self.log.truncate(epoch)
        self.cursor = max(self.cursor, self.log.first_place)
        return dropped
