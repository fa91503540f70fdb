"""Entries of an in-flight log follow each other, and share a frame only if they entered at about the same time."""

from __future__ import annotations

import pytest

from causal.errors import InvariantViolation
from causal.inflight import ORIGINS_APART_NS_MAX, Entry, InflightLog


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
