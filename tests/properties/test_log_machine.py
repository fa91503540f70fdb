"""A determinant log and its holders against plain byte strings: whatever ranges come, a holder has a prefix."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from causal.errors import InvariantViolation, PeerViolation
from causal.logs.log import DeterminantLog, LogDelta

TASK = 4
HOLDERS = range(3)
holders = st.sampled_from(HOLDERS)


class Logs(RuleBasedStateMachine):
    """One owner, three holders; the network may lose, repeat and reorder any range of bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.owner = DeterminantLog(TASK)
        self.holders = [DeterminantLog(TASK) for _ in HOLDERS]
        self.written: dict[int, bytes] = {}
        """All that the owner ever logged and has not taken back, by epoch."""
        self.epoch = 0
        self.first = [0 for _ in HOLDERS]
        self.extents: list[dict[int, int]] = [{} for _ in HOLDERS]

    def _stored(self, holder: int, epoch: int) -> int:
        return self.extents[holder].get(epoch, 0)

    @rule(entry=st.binary(min_size=1, max_size=9))
    def append(self, entry: bytes) -> None:
        self.owner.append(self.epoch, entry)
        self.written[self.epoch] = self.written.get(self.epoch, b"") + entry

    @rule()
    def next_epoch(self) -> None:
        self.epoch += 1

    @rule(holder=holders, data=st.data())
    def a_range_arrives(self, holder: int, data: st.DataObject) -> None:
        """Any range of any epoch: an overlap is skipped, a gap refused, what is truncated ignored."""
        epoch = data.draw(st.integers(0, self.epoch))
        whole = self.written.get(epoch, b"")
        if not whole:
            return
        start = data.draw(st.integers(0, len(whole) - 1))
        end = data.draw(st.integers(start + 1, len(whole)))
        delta = LogDelta(TASK, epoch, start, whole[start:end])
        stored = self._stored(holder, epoch)
        log = self.holders[holder]
        if epoch < self.first[holder]:
            assert log.check(delta) == log.merge(delta) == 0
        elif start > stored:
            with pytest.raises(PeerViolation, match="begins at"):
                log.merge(delta)
        else:
            assert log.check(delta) == max(stored, end)
            assert log.merge(delta) == max(stored, end) - stored
            if end:
                self.extents[holder][epoch] = max(stored, end)

    @rule(holder=holders, data=st.data())
    def other_bytes_arrive(self, holder: int, data: st.DataObject) -> None:
        """A delta that contradicts the log of the holder is refused, and nothing of it is taken."""
        known = [e for e in range(self.first[holder], self.epoch + 1) if self._stored(holder, e)]
        if not known:
            return
        epoch = data.draw(st.sampled_from(known))
        whole = bytearray(self.written[epoch][: self._stored(holder, epoch)])
        place = data.draw(st.integers(0, len(whole) - 1))
        whole[place] ^= data.draw(st.integers(1, 255))
        start = data.draw(st.integers(0, place))
        with pytest.raises(PeerViolation, match="contradicts"):
            self.holders[holder].merge(LogDelta(TASK, epoch, start, bytes(whole[start:]) + b"more"))

    @rule(holder=holders)
    def all_that_is_lacking_arrives(self, holder: int) -> None:
        for delta in self.owner.deltas(self.holders[holder].extents()):
            taken = self.holders[holder].merge(delta)
            if delta.epoch >= self.first[holder]:
                assert taken == len(delta.bytes), "a delta of what is lacking is all new"
                self.extents[holder][delta.epoch] = len(self.written[delta.epoch])
        assert [d for d in self.owner.deltas(self.holders[holder].extents()) if d.epoch >= self.first[holder]] == []

    @rule(holder=holders, data=st.data())
    def limits_bound_what_is_passed_on(self, holder: int, data: st.DataObject) -> None:
        limits = {e: data.draw(st.integers(0, 20)) for e in range(self.epoch + 1) if data.draw(st.booleans())}
        log = self.holders[holder]
        for delta in log.deltas({}, limits):
            assert delta.offset == 0 and delta.bytes
            assert delta.bytes == self.written[delta.epoch][: limits[delta.epoch]][: self._stored(holder, delta.epoch)]

    @rule(holder=holders, data=st.data())
    def truncate_a_holder(self, holder: int, data: st.DataObject) -> None:
        epoch = data.draw(st.integers(0, self.epoch))
        self.holders[holder].truncate(epoch)
        self.first[holder] = max(self.first[holder], epoch)
        self.extents[holder] = {e: n for e, n in self.extents[holder].items() if e >= self.first[holder]}

    @rule(data=st.data())
    def truncate_the_owner(self, data: st.DataObject) -> None:
        epoch = data.draw(st.integers(0, self.epoch))
        self.owner.truncate(epoch)
        self.written = {e: b for e, b in self.written.items() if e >= epoch} if epoch else self.written
        for holder in HOLDERS:  # a checkpoint is complete for all; a range of an older epoch exists nowhere any more
            self.holders[holder].truncate(epoch)
            self.first[holder] = max(self.first[holder], epoch)
            self.extents[holder] = {e: n for e, n in self.extents[holder].items() if e >= self.first[holder]}

    @precondition(lambda self: self.written)
    @rule(data=st.data())
    def go_back(self, data: st.DataObject) -> None:
        """A rollback: what does not stand is forgotten by all, and the owner resumes from there."""
        at = data.draw(st.sampled_from(sorted(self.written)))
        stands = {e: len(b) for e, b in self.written.items() if e < at}
        stands[at] = data.draw(st.integers(0, len(self.written[at])))
        for log in (self.owner, *self.holders):
            log.cut(stands)
        self.written = {e: b[: stands[e]] for e, b in self.written.items() if stands.get(e)}
        self.extents = [{e: min(n, stands.get(e, 0)) for e, n in extents.items()} for extents in self.extents]
        self.epoch = max(at, self.owner.first_epoch)

    @rule(epoch=st.integers(0, 4))
    def appending_behind_a_later_epoch_or_below_the_first_is_our_own_bug(self, epoch: int) -> None:
        later = epoch not in self.written and any(each > epoch for each in self.written)
        if epoch < self.owner.first_epoch or later:
            with pytest.raises(InvariantViolation):
                self.owner.append(epoch, b"x")

    @invariant()
    def the_owner_holds_what_was_written(self) -> None:
        wanted = {e: b for e, b in self.written.items() if e >= self.owner.first_epoch}
        assert {e: self.owner.bytes_of(e) for e in self.owner.extents()} == wanted
        assert self.owner.size == sum(map(len, wanted.values()))

    @invariant()
    def a_holder_holds_a_prefix(self) -> None:
        for log, extents in zip(self.holders, self.extents, strict=True):
            assert log.extents() == {e: n for e, n in sorted(extents.items()) if n}
            for epoch, extent in log.extents().items():
                assert bytes(log.view(epoch)) == log.bytes_of(epoch) == self.written[epoch][:extent]
                assert log.bytes_of(epoch, 3) == self.written[epoch][3:extent]


TestLogs = Logs.TestCase
