"""The steps of a recorded epoch: the order and the times of the log, and logs that cannot be true."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.determinants import Barrier, Clock, DeterminantCodec, Order, Random, Timer
from causal.errors import CorruptData
from operators.replay.input_steps import Positions
from operators.replay.performance import Step
from operators.replay.recorded_steps import JOINED_NS, Reader, recorded_steps
from tests.members import examples

SECOND_NS = 1_000_000_000


def log(*entries: object) -> bytes:
    codec = DeterminantCodec()
    return b"".join(codec.encode(entry) for entry in entries)  # type: ignore[arg-type]


def reader(name: str, *entries: object, partitions: int = 2) -> Reader:
    return Reader(f"{name}/0", log(*entries), {place: (name, place) for place in range(partitions)})


def steps(readers: list[Reader], after: Positions, before: Positions | None = None) -> list[Step]:
    return list(recorded_steps(readers, before or {}, after, SECOND_NS, 2 * SECOND_NS))


def test_steps_have_the_order_and_the_clock_of_the_log() -> None:
    entries = Order(0, 2), Random(bytes(16)), Clock(SECOND_NS + 5), Order(1, 3), Timer(SECOND_NS + 400_000_000)
    later = Clock(SECOND_NS + 600_000_000), Clock(SECOND_NS + 600_000_007)
    own = reader("in", *entries, Order(0, 1), *later, Barrier(2))
    assert steps([own], {("in", 0): (3, False), ("in", 1): (3, False)}) == [
        Step(SECOND_NS + 5, "in", 0, 0, 2),
        Step(SECOND_NS + 5 + 399_999_995 * 2 // 5, "in", 1, 0, 3),
        Step(SECOND_NS + 600_000_000, "in", 0, 2, 3),
    ]


def test_reads_of_several_tasks_are_merged_by_time() -> None:
    one = reader("a", Order(0, 1), Clock(SECOND_NS + 1), Order(0, 1), Clock(SECOND_NS + 900_000_000), partitions=1)
    two = reader("b", Order(0, 1), Clock(SECOND_NS + 500_000_000), partitions=1)
    order = [(each.source, each.start) for each in steps([one, two], {("a", 0): (2, False), ("b", 0): (1, False)})]
    assert order == [("a", 0), ("b", 0), ("a", 1)]


def test_reads_at_about_the_same_time_are_one_step_and_an_end_is_part_of_the_last() -> None:
    own = reader("in", *(Order(0, 100),) * 3, Order(0, 1), partitions=1)
    result = list(recorded_steps([own], {("in", 0): (5, False)}, {("in", 0): (305, True)}, 0, JOINED_NS))
    assert result == [Step(0, "in", 0, 5, 205), Step(result[1].at_ns, "in", 0, 205, 305, True)]
    assert steps([own], {("in", 0): (300, True)})[-1].ends


def test_reads_of_several_partitions_at_about_the_same_time_are_one_step_of_each() -> None:
    reads = [
        (0, 2, 0),
        (1, 1, 1),
        (0, 3, JOINED_NS - 1),
        (1, 4, JOINED_NS),
        (0, 1, JOINED_NS + 1),
        (1, 300, JOINED_NS + 2),
    ]
    entries = [entry for place, count, at in reads for entry in (Order(place, count), Clock(SECOND_NS + at))]
    assert steps([reader("in", *entries)], {("in", 0): (6, False), ("in", 1): (305, False)}) == [
        Step(SECOND_NS, "in", 0, 0, 5),
        Step(SECOND_NS + 1, "in", 1, 0, 1),
        Step(SECOND_NS + JOINED_NS, "in", 1, 1, 5),
        Step(SECOND_NS + JOINED_NS + 1, "in", 0, 5, 6),
        Step(SECOND_NS + JOINED_NS + 2, "in", 1, 5, 305),
    ]


def test_a_log_without_an_order_is_divided_evenly() -> None:
    result = steps([reader("in", Barrier(2), partitions=1)], {("in", 0): (1000, True)})
    assert sum(each.stop - each.start for each in result) == 1000
    assert result[-1].ends and result[-1].at_ns == 2 * SECOND_NS


@pytest.mark.parametrize(
    ("own", "why"),
    [
        (reader("in", Order(0, 5), partitions=1), "leads to position 5 of partition 0"),
        (reader("in", Order(3, 5), partitions=1), "names input 3"),
        (Reader("in/0", b"\x81", {1: ("in", 1)}), "cannot be read"),
    ],
)
def test_a_log_that_cannot_be_true_is_refused(own: Reader, why: str) -> None:
    with pytest.raises(CorruptData, match=why):
        steps([own], {("in", 0): (9, False), ("in", 1): (1, False)})


@examples(60)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(1, 300), st.one_of(st.none(), st.integers(0, 10**9))), max_size=20
    )
)
def test_every_element_is_in_one_step_in_order_and_times_never_decrease(
    reads: list[tuple[int, int, int | None]],
) -> None:
    entries: list[object] = []
    after = {("in", place): (0, False) for place in range(3)}
    for place, count, reading in reads:
        entries += [Order(place, count), *([] if reading is None else [Clock(SECOND_NS + reading)])]
        after["in", place] = after["in", place][0] + count, False
    at = dict.fromkeys(after, 0)
    last_ns = 0
    for each in steps([reader("in", *entries, partitions=3)], after):
        partition = each.source, each.partition
        assert each.start == at[partition] and each.stop > each.start and each.at_ns >= last_ns
        at[partition], last_ns = each.stop, each.at_ns
    assert at == {partition: stop for partition, (stop, _) in after.items()}
