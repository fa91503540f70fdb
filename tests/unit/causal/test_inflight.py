"""The in-flight log against a plain list: replay from any position, truncation, and what memory and disk hold."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from causal.errors import InvariantViolation
from causal.inflight import ORIGINS_APART_NS_MAX, Entry, InflightLog


class AgainstAList(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.log = InflightLog(0, 0)
        self.model: list[Entry] = []
        self.position = self.epoch = self.segment = 0
        self.on_disk: dict[int, dict[int, bytes]] = {}

    @rule(count=st.integers(1, 5), size=st.integers(1, 50))
    def append(self, count: int, size: int) -> None:
        payload = bytes((self.position % 256,)) * size
        entry = Entry(self.position, count, self.epoch, payload, size, self.position, self.position + count, 0)
        self.log.append(entry)
        self.model.append(entry)
        self.position += count

    @rule()
    def next_epoch(self) -> None:
        self.epoch += 1

    @rule(back=st.integers(0, 2))
    def truncate(self, back: int) -> None:
        epoch = max(0, self.epoch - back)
        gone = self.log.truncate(epoch)
        self.model = [entry for entry in self.model if entry.epoch >= epoch]
        still = {entry.segment for entry in self.model}
        assert not gone & still
        for segment in gone:
            del self.on_disk[segment]

    @rule(before=st.integers(0, 6))
    def spill(self, before: int) -> None:
        run = self.log.spillable(self.log.first_place + before)
        if not run:
            return
        self.segment += 1
        self.on_disk[self.segment] = {entry.first: bytes(entry.payload or b"") for entry in run}
        self.log.spilled(self.segment, run[0].first, run[-1].next - run[0].first)
        assert all(entry.payload is None and entry.segment == self.segment for entry in run)

    @rule(data=st.data(), bytes_max=st.integers(0, 200))
    def frame(self, data: st.DataObject, bytes_max: int) -> None:
        """A frame from any place has as many neighbours as fit, of one epoch, in memory, and at least one entry."""
        if not self.model:
            return
        at = data.draw(st.integers(0, len(self.model) - 1))
        frame = self.log.frame_at(self.log.first_place + at, bytes_max)
        joined = self.model[at : at + 1]
        if joined[0].payload is not None:
            for entry in self.model[at + 1 :]:
                size = sum(each.size for each in joined) + entry.size
                if entry.payload is None or entry.epoch != joined[0].epoch or size > bytes_max:
                    break
                joined.append(entry)
        assert (frame.first, frame.next, frame.epoch) == (joined[0].first, joined[-1].next, joined[0].epoch)
        assert (frame.digest_before, frame.digest) == (joined[0].digest_before, joined[-1].digest)
        assert frame.size == sum(entry.size for entry in joined)
        payloads = [entry.payload for entry in joined]
        assert frame.payload == (None if payloads[0] is None else b"".join(payload or b"" for payload in payloads))

    @rule(data=st.data(), entries=st.integers(0, 5))
    def send(self, data: st.DataObject, entries: int) -> None:
        """An entry that was sent gives up its memory if it is on disk."""
        at = data.draw(st.integers(0, len(self.model)))
        behind = self.model[at : at + entries]
        position = behind[-1].next if behind else self.log.start
        place = self.log.release_sent(self.log.first_place + at, position)
        assert place == self.log.first_place + at + len(behind)
        assert all(entry.payload is None for entry in behind if entry.segment)

    @rule(data=st.data())
    def load_and_release(self, data: st.DataObject) -> None:
        away = [entry for entry in self.model if entry.payload is None]
        if away:
            entry = data.draw(st.sampled_from(away))
            self.log.loaded(entry.segment, self.on_disk[entry.segment], 0)
            assert entry.payload is not None
            self.log.release(entry)
            assert entry.payload is None

    @invariant()
    def every_position_has_its_entry(self) -> None:
        for entry in self.model:
            for position in range(entry.first, entry.next):
                place = self.log.place_of(position)
                assert place is not None and self.log.at(place) is entry
        start = self.model[0].first if self.model else self.position
        assert (self.log.start, self.log.end) == (start, self.position)
        assert self.log.place_of(start - 1) is None and self.log.place_of(self.position + 1) is None
        assert self.log.place_of(self.position) == self.log.end_place

    @invariant()
    def bytes_are_counted(self) -> None:
        assert self.log.memory_bytes == sum(entry.size for entry in self.model if entry.payload is not None)
        assert self.log.disk_bytes == sum(entry.size for entry in self.model if entry.segment)


AgainstAList.TestCase.settings = settings(stateful_step_count=40)
TestAgainstAList = AgainstAList.TestCase


def test_a_gap_is_our_own_bug() -> None:
    with pytest.raises(InvariantViolation, match="no gaps"):
        InflightLog(0, 0).append(Entry(3, 1, 0, b"x", 1, 0, 0, 0))


@pytest.mark.parametrize(
    ("origins_ns", "together"),
    [
        ((5, 5 + ORIGINS_APART_NS_MAX, 6), 3),
        ((5, 6 + ORIGINS_APART_NS_MAX, 6), 1),
        ((5, 0, 0), 3),  # timers and barriers have none
        ((0, 9, 5), 3),
        ((0, 9, 10 + ORIGINS_APART_NS_MAX), 2),
        ((5 + ORIGINS_APART_NS_MAX, 4, 4), 1),
    ],
)
def test_records_that_entered_long_after_each_other_do_not_share_a_frame(
    origins_ns: tuple[int, ...], together: int
) -> None:
    """A frame carries one origin for all of it: latencies would look longer than they were."""
    log = InflightLog(0, 0)
    for position, origin_ns in enumerate(origins_ns):
        log.append(Entry(position, 1, 0, b"x", 1, 0, 0, origin_ns))
    frame = log.frame_at(0, 100)
    assert frame.count == together
    assert frame.origin_ns == min((each for each in origins_ns[:together] if each), default=0)
