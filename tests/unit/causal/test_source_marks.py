"""A source's marks: the checkpoint keeps that of the next element, however the records were read and delivered."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.channels.partition import Partition
from causal.cut import Cut
from causal.errors import CorruptData, InvariantViolation
from causal.records.values import encode

BEGIN = 3


def mark_at(position: int) -> int:
    """A mark with gaps, as offsets of Kafka have them."""
    return 5 * position + position % 3


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 9)), max_size=12))
def test_the_mark_is_that_of_the_next_element(steps: list[tuple[int, int]]) -> None:
    """Each step reads a number of records, and delivers up to a number of them."""
    partition = Partition(0, 0, -1, BEGIN, False, mark_at(BEGIN))
    for read, delivered in steps:
        first = partition.next
        partition.answered(first, ["r"] * read, 0, False, [mark_at(at + 1) for at in range(first, first + read)])
        if count := min(delivered, partition.queued):
            partition.take(count)
        assert partition.place() == mark_at(partition.delivered)


def test_a_mark_without_a_record_is_that_of_the_position() -> None:
    partition = Partition(0, 0, -1, 0, False)
    assert partition.place() is None
    partition.answered(0, [], 0, False, ["first"])
    assert (partition.place(), partition.reading) == ("first", False)


def test_a_record_without_a_mark_is_refused() -> None:
    partition = Partition(0, 0, -1, 0, False)
    with pytest.raises(InvariantViolation, match="each record has a mark"):
        partition.answered(0, ["a", "b"], 0, False, [1])


def test_a_cut_keeps_places_and_one_without_is_written_as_before() -> None:
    cut = Cut(4, {7: (12, 0, False)}, {}, 11, False, {}, {7: 31, 9: "1-0"})
    assert Cut.unpack(cut.pack()) == cut
    plain = Cut(4, {7: (12, 0, False)}, {}, 11)
    assert plain.pack() == encode([4, [[7, 12, 0, False]], [], 11, False, []])
    assert Cut.unpack(plain.pack()) == plain


@pytest.mark.parametrize("places", [[[7, 1.5]], [["7", 1]], [[7]], 3, [[7, True]], [[7, None]]])
def test_other_places_are_damage(places: object) -> None:
    with pytest.raises(CorruptData):
        Cut.unpack(encode([4, [], [], 11, False, [], places]))
