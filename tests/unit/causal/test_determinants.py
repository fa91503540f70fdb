"""Every kind comes back as it went in; arbitrary bytes are a determinant or a PeerViolation, never anything else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.determinants import (
    ANSWER_BYTES_MAX,
    Barrier,
    Call,
    Clock,
    Determinant,
    DeterminantCodec,
    Order,
    Random,
    Timer,
    User,
    Window,
    read_varint,
    register_kind,
    unzigzag,
    varint,
    zigzag,
)
from causal.errors import PeerViolation

register_kind("test-kind", 100)

counts = st.integers(0, 2**40)
times = st.integers(-(2**60), 2**60)
intervals = st.lists(st.tuples(counts, counts), max_size=5).map(tuple)
determinants = st.one_of(
    st.builds(Order, st.integers(0, 70_000), counts),
    st.builds(Clock, times),
    st.builds(Random, st.binary(min_size=16, max_size=16)),
    st.builds(Window, st.integers(0, 300), times, intervals),
    st.builds(Timer, times),
    st.builds(Call, st.one_of(st.binary(max_size=40), st.binary(min_size=1, max_size=4).map(lambda b: b * 500))),
    st.builds(Barrier, counts),
    st.builds(User, st.just("test-kind"), st.binary(max_size=40)),
)


@given(st.lists(determinants, max_size=12))
def test_a_log_of_all_kinds_reads_back(told: list[Determinant]) -> None:
    writer, reader = DeterminantCodec(), DeterminantCodec()
    log = b"".join(writer.encode(each) for each in told)
    place, found = 0, []
    while place < len(log):
        each, place = reader.decode(log, place)
        found.append(each)
    assert found == told


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_read_or_refused(log: bytes) -> None:
    codec, place = DeterminantCodec(), 0
    try:
        while place < len(log):
            _, behind = codec.decode(log, place)
            assert place < behind <= len(log)
            place = behind
    except PeerViolation:
        return


@given(st.lists(determinants, min_size=1, max_size=4), st.data())
def test_a_log_cut_anywhere_is_never_misread_beyond_its_end(told: list[Determinant], data: st.DataObject) -> None:
    codec = DeterminantCodec()
    log = b"".join(codec.encode(each) for each in told)
    cut = log[: data.draw(st.integers(0, len(log) - 1))]
    reader, place, found = DeterminantCodec(), 0, []
    try:
        while place < len(cut):
            each, place = reader.decode(cut, place)
            found.append(each)
    except PeerViolation:
        pass
    assert found == told[: len(found)]


@pytest.mark.parametrize("number", [0, 1, 127, 128, 16_383, 16_384, 65_535, 65_536, 2**64 - 1])
def test_varints_at_their_boundaries(number: int) -> None:
    assert read_varint(varint(number), 0) == (number, len(varint(number)))


@given(times)
def test_zigzag(number: int) -> None:
    assert unzigzag(zigzag(number)) == number


def test_a_varint_of_more_than_64_bits_is_refused() -> None:
    with pytest.raises(PeerViolation):
        read_varint(b"\xff" * 9 + b"\x02", 0)
    with pytest.raises(PeerViolation):
        read_varint(b"\xff" * 20, 0)


@pytest.mark.parametrize(
    ("told", "size"),
    [
        (Order(0, 1), 2),
        (Order(126, 127), 2),
        (Order(126, 128), 3),
        (Order(127, 1), 3),
        (Random(b"x" * 16), 17),
        (Barrier(5), 2),
    ],
)
def test_sizes_are_as_documented(told: Determinant, size: int) -> None:
    assert len(DeterminantCodec().encode(told)) == size


def test_a_second_reading_of_the_clock_costs_the_difference() -> None:
    codec = DeterminantCodec()
    codec.encode(Clock(1_800_000_000_000_000_000))
    assert len(codec.encode(Clock(1_800_000_000_000_001_000))) == 3


def test_a_large_answer_is_compressed_and_a_lying_one_refused() -> None:
    entry = DeterminantCodec().encode(Call(b"abc" * 10_000))
    assert len(entry) < 1_000
    lie = bytes((8,)) + varint(12) + varint(ANSWER_BYTES_MAX + 1) + b"x" * 8
    with pytest.raises(PeerViolation, match="claims"):
        DeterminantCodec().decode(lie, 0)


def test_kinds_do_not_clash() -> None:
    register_kind("test-kind", 100)
    with pytest.raises(ValueError, match="clashes"):
        register_kind("other", 100)
    with pytest.raises(ValueError, match="clashes"):
        register_kind("test-kind", 101)
    with pytest.raises(ValueError, match="64 to 127"):
        register_kind("low", 5)
