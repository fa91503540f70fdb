"""A receiver against the stream it is sent: frames that overlap, repeat, come out of turn, damaged, or are returned.

It takes each chunk once, in order, or nothing of a frame at all; its account it wants next is the truth.
"""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from causal.channels import wire
from causal.channels.receiver import Receiver
from causal.channels.rolling import RollingDigest
from causal.channels.wire import Header
from causal.errors import PeerViolation
from causal.records import batch
from causal.records.batch import Chunk, pack_chunks

CHUNKS_PER_FRAME_MAX = 5


class Receiving(RuleBasedStateMachine):
    """One input channel and what its sender has sent so far."""

    @initialize(marking=st.booleans())
    def begin(self, marking: bool) -> None:
        self.channel = Receiver(3, 0, 1, 0, 0, False, 1 << 20)
        self.channel.announce(1)
        self.channel.marking = marking
        self.stream: list[Chunk] = []
        self.firsts = [0]
        """Position of each chunk, and the one after the last."""
        self.before = [0]
        """Digest before each chunk, as a barrier leaves it."""
        self.behind: list[int] = []
        """Digest after each chunk, as its frame states it."""
        self.digest = RollingDigest(0)
        self.epoch = 0
        self.accepted = 0
        self.taken = 0
        self.frames: list[int] = []
        """Chunk that each frame began with of which something waits."""

    def _make(self, chunk: Chunk) -> None:
        self.stream.append(chunk)
        self.firsts.append(self.firsts[-1] + chunk.count)
        self.behind.append(self.digest.feed(pack_chunks([chunk])))
        if chunk.kind == batch.BARRIER:
            self.digest.close()
        self.before.append(self.digest.value)

    @rule(bodies=st.lists(st.binary(max_size=6), min_size=1, max_size=6))
    def records_are_made(self, bodies: list[bytes]) -> None:
        for body in bodies:
            self._make(Chunk(batch.RECORDS, len(body) + 1, body))

    @rule()
    def a_barrier_is_made(self) -> None:
        self.epoch += 1
        self._make(batch.barrier(self.epoch))

    def _frame(self, first: int, last: int) -> tuple[Header, bytes]:
        """Return the chunks `first` to `last`; a barrier ends a frame."""
        ends = [place for place in range(first, last) if self.stream[place].kind == batch.BARRIER]
        last = min([last, *(place + 1 for place in ends)])
        count = self.firsts[last] - self.firsts[first]
        header = Header(wire.DATA, 0, 3, 1, 0, 0, count, self.firsts[first], self.behind[last - 1])
        return header, pack_chunks(self.stream[first:last])

    @precondition(lambda self: self.stream)
    @rule(first=st.integers(0, 40), length=st.integers(1, CHUNKS_PER_FRAME_MAX))
    def a_frame_arrives(self, first: int, length: int) -> None:
        """A frame begins anywhere: all of it, its end or nothing of it is new, or something is missing before it."""
        first = max(0, min(self.accepted + 2 - first % 8, len(self.stream) - 1))
        header, payload = self._frame(first, min(first + length, len(self.stream)))
        fits = first <= self.accepted
        assert self.channel.accept(header, payload) == fits
        last = self.firsts.index(header.position + header.count)
        if fits and last > self.accepted:
            self.frames.append(self.accepted)
            self.accepted = last

    @precondition(lambda self: self.accepted < len(self.stream))
    @rule(how=st.sampled_from(("payload", "digest", "count", "cut", "inside")), place=st.integers(0, 200))
    def a_damaged_frame_is_refused(self, how: str, place: int) -> None:
        header, packed = self._frame(self.accepted, min(self.accepted + 3, len(self.stream)))
        payload = bytearray(packed)
        if how == "payload":
            payload[place % len(payload)] ^= 1 + place % 255
        elif how == "digest":
            header.digest ^= 1 << place % 64
        elif how == "count":
            header.count += 1
        elif how == "cut":
            del payload[place % len(payload) :]
        elif self.stream[self.accepted].count > 1 and self.accepted:  # it begins inside of the received part
            header.position -= 1
        else:
            header.digest ^= 1
        with pytest.raises(PeerViolation):
            self.channel.accept(header, bytes(payload))

    @rule(elements_max=st.integers(1, 12), bytes_max=st.integers(1, 30))
    def some_are_delivered(self, elements_max: int, bytes_max: int) -> None:
        count = self.channel.head_count(elements_max, bytes_max)
        assert (count == 0) == (self.taken == self.accepted)
        if not count:
            return
        chunks = self.channel.take(count)
        assert chunks == self.stream[self.taken : self.taken + len(chunks)]
        assert len(chunks) == 1 or all(chunk.kind == batch.RECORDS for chunk in chunks)
        assert count <= elements_max or len(chunks) == 1, "whole chunks up to the bound, at least one"
        self.taken += len(chunks)
        for place in range(self.taken - len(chunks), self.taken):
            if self.stream[place].kind == batch.BARRIER:
                epoch = batch.stamp_of(self.stream[place])
                assert self.channel.digest_at_barrier(epoch) == self.before[place + 1]

    @precondition(lambda self: self.channel.marking)
    @rule()
    def the_sender_goes_back(self) -> None:
        """Frames of which nothing was delivered are forgotten; from there on the sender sends something else."""
        waiting = [first for first in self.frames if first >= self.taken]
        self.channel.give_back()
        self.accepted = waiting[0] if waiting else self.accepted
        self.frames = []
        kept, self.stream = self.stream[: self.accepted], []
        self.firsts, self.before, self.behind, self.digest = [0], [0], [], RollingDigest(0)
        for chunk in kept:
            self._make(chunk)
        self.epoch = sum(chunk.kind == batch.BARRIER for chunk in kept)

    @invariant()
    def it_says_where_it_stands(self) -> None:
        if not hasattr(self, "channel"):
            return
        welcome = self.channel.welcome(7)
        assert (welcome.next, welcome.delivered) == (self.firsts[self.accepted], self.firsts[self.taken])
        assert welcome.digest == self.before[self.accepted]
        assert self.channel.queued == self.firsts[self.accepted] - self.firsts[self.taken]
        waiting = self.stream[self.taken : self.accepted]
        assert self.channel.queued_bytes == len(pack_chunks(waiting))


TestReceiving = Receiving.TestCase
TestReceiving.settings = settings(stateful_step_count=60)
