"""The wait of a partition for more elements: never of a slow one, never longer than allowed, and few batches then."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from causal.task.reading import FEW_PER_S, REMEMBERED, Gathering

MS = 1_000_000
WAIT_NS = 4 * MS


def batches_at(gathering: Gathering, arrivals_ns: list[int]) -> list[int]:
    """Return the times at which batches are read of a partition whose elements arrive then, each read immediately."""
    taken_ns, now_ns = list[int](), 0
    for arrival_ns in arrivals_ns:
        if taken_ns and arrival_ns <= taken_ns[-1]:
            continue  # taken with the batch before
        now_ns = gathering.again_ns(max(now_ns, arrival_ns))
        gathering.took(1, 1000, now_ns)
        taken_ns.append(now_ns)
    return taken_ns


@given(st.lists(st.integers(1_000_000_000 // FEW_PER_S + 1, 10_000_000_000), max_size=40))
def test_none_waits_where_elements_are_seldom(gaps_ns: list[int]) -> None:
    at_ns = [sum(gaps_ns[: place + 1]) for place in range(len(gaps_ns))]
    assert batches_at(Gathering(WAIT_NS), at_ns) == at_ns


@given(st.lists(st.integers(1, 3 * MS), min_size=1, max_size=500))
def test_none_waits_longer_than_allowed_and_many_share_a_batch(gaps_ns: list[int]) -> None:
    at_ns = [sum(gaps_ns[: place + 1]) for place in range(len(gaps_ns))]
    taken_ns = batches_at(Gathering(WAIT_NS), at_ns)
    assert all(any(0 <= batch_ns - arrival_ns < WAIT_NS for batch_ns in taken_ns) for arrival_ns in at_ns)
    assert all(later - before >= WAIT_NS for before, later in zip(taken_ns[REMEMBERED:], taken_ns[REMEMBERED + 1 :]))


@given(st.integers(1, 200), st.lists(st.integers(1, 3 * MS), min_size=200, max_size=400))
def test_many_share_a_batch_however_long_the_wait_is(wait_ms: int, gaps_ns: list[int]) -> None:
    at_ns = [sum(gaps_ns[: place + 1]) for place in range(len(gaps_ns))]
    taken_ns = batches_at(Gathering(wait_ms * MS), at_ns)[REMEMBERED:]
    assert all(moment_ns % (wait_ms * MS) == 0 for moment_ns in taken_ns)
    assert len(set(taken_ns)) == len(taken_ns)


def test_partitions_give_their_batches_at_the_same_moments() -> None:
    taken_ns = [batches_at(Gathering(WAIT_NS), list(range(first, 100 * MS, MS // 2))) for first in (1, 12345)]
    assert taken_ns[0][REMEMBERED:] == taken_ns[1][REMEMBERED:]


def test_a_partition_that_gives_all_that_it_is_asked_for_never_waits() -> None:
    gathering = Gathering(WAIT_NS)
    for now_ns in range(0, 100 * MS, MS):
        assert gathering.again_ns(now_ns) == now_ns
        gathering.took(16, 16, now_ns)


def test_no_wait_is_allowed() -> None:
    assert batches_at(Gathering(0), list(range(1, 1000))) == list(range(1, 1000))
