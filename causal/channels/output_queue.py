"""The elements of a sending end: put in order, kept as an in-flight log until truncated, sent from a cursor."""

from __future__ import annotations

from typing import NamedTuple

from causal.channels.arena import Arena
from causal.errors import OperatorFailed, ReplayDivergence, invariant
from causal.inflight import Entry, InflightLog
from causal.records.batch import BARRIER, END, Chunk, pack_chunks
from causal.rolling import RollingDigest

FRAME_BYTES_TARGET = 256 << 10
"""Chunks gather up to here at most while the peer does not keep up."""
CHUNK_BYTES_MAX = 40 << 20
"""A frame has room for it, for what was gathered before it, and for the determinants that do not travel ahead."""


class Expected(NamedTuple):
    """The place where the receiver stands, to be compared when the replay gets there."""

    position: int
    digest: int


class OutputQueue:
    """The elements that a sending end has put: gathered to entries of an in-flight log, sent from a cursor.

    While a replay regenerates what the receiver has already, elements enter and are kept, and the cursor stands where
    the receiver does; what was regenerated is compared there (D7).

    Args:
        name: of the channel: "sender to receiver".
        position, digest: where it stood at the barrier that was restored.
        keeping: false for guarantees that never replay: entries are dropped once credited, but for the end of the
            channel, without which a successor of the receiver would never end.
    """

    def __init__(self, name: str, position: int, digest: int, epoch: int, keeping: bool) -> None:
        self.name = name
        self.position = position
        self.epoch = epoch
        self.keeping = keeping
        self.log = InflightLog(position, digest)
        self.cursor = 0
        """The place of the entry of the log that is sent next."""
        self.expected: Expected | None = None
        """The place where the receiver stands, if the replay has still to get there."""
        self.loading: set[int] = set()
        """Segments that were asked for of the disk."""
        self._end: int | None = None
        """Position of the end, where it is kept separately."""
        self._arena = Arena()
        self._digest = RollingDigest(digest)
        self._gathered: list[Chunk] = []
        self._gathered_bytes = 0

    @property
    def digest(self) -> int:
        """The digest after the last sealed element."""
        return self._digest.value

    # -- elements in ---------------------------------------------------------------------------------------

    def put(self, chunk: Chunk) -> None:
        """Add the output of one event; a barrier closes the epoch and its frame.

        Raises:
            ReplayDivergence: the replay regenerated something else than the receiver has.
            OperatorFailed: no frame could carry it.
        """
        size = len(chunk.body)
        if size > CHUNK_BYTES_MAX:
            raise OperatorFailed(
                f"{self.name}, position {self.position}: one batch was made into {chunk.count} records of together "
                f"{size} bytes, {CHUNK_BYTES_MAX} can be carried; emit less per record, "
                "or lower batch_elements_max"
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
        """Turn the gathered output into one entry of the in-flight log."""
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
        """Resume where the receiver stands: without determinants there is nothing to compare (at-least-once, none)."""
        invariant(not self._gathered and self.log.end == self.position, "renumbered before anything was sent")
        self.position = position
        self._digest = RollingDigest(digest)
        self.log = InflightLog(position, digest)
        self.cursor = 0

    # -- what the receiver has -----------------------------------------------------------------------------

    def resume(self, position: int, digest: int, replaying: bool) -> bool:
        """Set the cursor to where the receiver stands; returns false if the replay has still to get there.

        Raises:
            ReplayDivergence: the receiver has other elements than were sent or regenerated.
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
            return  # inside an entry: an earlier incarnation framed it otherwise; the receiver checks each frame
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
            here, f"output up to {self.position} is not what {target} received up to {expected.position}"
        )

    @property
    def expecting(self) -> bool:
        """Whether the receiver has elements that have not been regenerated yet."""
        return self.expected is not None

    def replayed(self) -> None:
        """Refuse a receiver that has more than was regenerated: the determinant log is at its end.

        Raises:
            ReplayDivergence: it has.
        """
        if self.expected is not None:
            raise self._divergence(self.expected)

    # -- elements out --------------------------------------------------------------------------------------

    @property
    def cursor_position(self) -> int:
        """The position that is sent next."""
        if self.cursor >= self.log.end_place:
            return self.log.end
        return self.log.at(max(self.cursor, self.log.first_place)).first

    def loaded(self, segment: int, payloads: dict[int, bytes]) -> None:
        """Payloads, by first position, have come back from disk, for those that are to be sent."""
        self.loading.discard(segment)
        self.log.loaded(segment, payloads, self.cursor)

    def drop_delivered(self, position: int) -> None:
        """Forget what lies before `position`, where nothing is kept for a replay."""
        place = self.log.place_of(position if self._end is None else min(position, self._end))
        if place is not None and place <= self.cursor:
            self.log.drop_before(place)

    def truncate(self, epoch: int) -> set[int]:
        """Checkpoint `epoch` is complete; returns segments on disk to remove."""
        dropped = self.log.truncate(epoch)
        self.cursor = max(self.cursor, self.log.first_place)
        return dropped
