"""Merging determinant logs is "take the longer prefix": idempotent, free of order, and never a guess."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from causal.errors import InvariantViolation, PeerViolation
from causal.logs.log import DeterminantLog, LogDelta


def truth(epoch: int, start: int, end: int) -> bytes:
    """Return what the owner has logged from `start` to `end`; the only bytes there are."""
    return bytes((epoch * 37 + place * 11) % 256 for place in range(start, end))


def delta(epoch: int, start: int, end: int) -> LogDelta:
    return LogDelta(4, epoch, start, truth(epoch, start, end))


def contents(log: DeterminantLog) -> tuple[int, dict[int, bytes]]:
    return log.first_epoch, {epoch: log.bytes_of(epoch) for epoch in log.extents()}


ranges = st.tuples(st.integers(0, 3), st.integers(0, 12), st.integers(0, 12)).map(
    lambda drawn: delta(drawn[0], min(drawn[1:]), max(drawn[1:]) + 1)
)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12)), max_size=12), st.randoms(use_true_random=False))
def test_whole_prefixes_may_come_in_any_order_and_twice(ends: list[tuple[int, int]], order: object) -> None:
    sent = [delta(epoch, 0, end) for epoch, end in ends]
    mixed = [each for each in sent if each.bytes] * 2
    order.shuffle(mixed)  # type: ignore[attr-defined]
    log = DeterminantLog(4)
    taken = sum(map(log.merge, mixed))
    longest = {epoch: max(end for e, end in ends if e == epoch) for epoch, _ in ends}
    assert log.extents() == {epoch: end for epoch, end in sorted(longest.items()) if end}
    assert taken == log.size == sum(longest.values())


class Holder(RuleBasedStateMachine):
    """A log against a model: how many bytes of each epoch are held."""

    def __init__(self) -> None:
        super().__init__()
        self.log = DeterminantLog(4)
        self.extents: dict[int, int] = {}
        self.first_epoch = 0

    @rule(sent=ranges)
    def merge(self, sent: LogDelta) -> None:
        before = contents(self.log)
        extent = self.extents.get(sent.epoch, 0)
        end = sent.offset + len(sent.bytes)
        if sent.epoch < self.first_epoch:
            assert self.log.merge(sent) == 0
            assert contents(self.log) == before
        elif sent.offset > extent:
            with pytest.raises(PeerViolation, match=f"epoch {sent.epoch}: a delta begins at byte {sent.offset}"):
                self.log.merge(sent)
            assert contents(self.log) == before
        else:
            assert self.log.merge(sent) == max(0, end - extent)
            assert self.log.merge(sent) == 0
            self.extents[sent.epoch] = max(end, extent)

    @rule(sent=ranges, place=st.integers(0, 11), longer=st.binary(max_size=4))
    def contradict(self, sent: LogDelta, place: int, longer: bytes) -> None:
        shared = min(self.extents.get(sent.epoch, 0) - sent.offset, len(sent.bytes))
        if sent.epoch < self.first_epoch or shared <= place:
            return
        wrong = bytearray(sent.bytes + longer)
        wrong[place] ^= 0x55
        before = contents(self.log)
        with pytest.raises(PeerViolation, match="contradicts"):
            self.log.merge(LogDelta(4, sent.epoch, sent.offset, bytes(wrong)))
        assert contents(self.log) == before

    @rule(count=st.integers(1, 5))
    def append(self, count: int) -> None:
        epoch = max([self.first_epoch, *self.extents])
        start = self.extents.get(epoch, 0)
        self.log.append(epoch, truth(epoch, start, start + count))
        self.extents[epoch] = start + count

    @rule(epoch=st.integers(0, 4))
    def append_out_of_turn(self, epoch: int) -> None:
        if epoch < self.first_epoch or (epoch not in self.extents and any(later > epoch for later in self.extents)):
            before = contents(self.log)
            with pytest.raises(InvariantViolation):
                self.log.append(epoch, b"x")
            assert contents(self.log) == before

    @rule(epoch=st.integers(0, 3))
    def truncate(self, epoch: int) -> None:
        self.log.truncate(epoch)
        self.first_epoch = max(self.first_epoch, epoch)
        self.extents = {e: extent for e, extent in self.extents.items() if e >= epoch}

    @rule(known=st.dictionaries(st.integers(0, 3), st.integers(0, 12), max_size=4))
    def catch_up(self, known: dict[int, int]) -> None:
        """A holder that has some prefix, and gets what it lacks, holds the same."""
        other = DeterminantLog(4, self.first_epoch)
        for epoch, extent in known.items():
            if min(extent, self.extents.get(epoch, 0)):
                other.merge(delta(epoch, 0, min(extent, self.extents.get(epoch, 0))))
        for lacking in self.log.deltas(other.extents()):
            assert lacking.offset == other.extent(lacking.epoch)
            other.merge(lacking)
        assert contents(other) == contents(self.log)
        assert self.log.deltas(other.extents()) == []

    @invariant()
    def holds_what_the_model_says(self) -> None:
        expected = {epoch: truth(epoch, 0, extent) for epoch, extent in sorted(self.extents.items()) if extent}
        assert contents(self.log) == (self.first_epoch, expected)
        assert list(self.log.extents()) == sorted(expected)
        assert self.log.size == sum(map(len, expected.values()))
        for epoch, whole in expected.items():
            assert self.log.extent(epoch) == len(whole)
            assert self.log.bytes_of(epoch, 3) == whole[3:]


TestHolder = Holder.TestCase
