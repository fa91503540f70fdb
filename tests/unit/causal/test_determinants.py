"""Every kind comes back as it went in; arbitrary bytes are a determinant or a PeerViolation, never anything else."""

from __future__ import annotations

import random
import tracemalloc

import lz4.block
import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.determinants import (
    ANSWER_BYTES_MAX,
    Answer,
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
    register_kind,
    registered,
)
from causal.errors import InvariantViolation, PeerViolation
from causal.records.batch import FINAL
from causal.records.varints import read_varint, unzigzag, varint, zigzag

register_kind("test-kind", 100)

edges = st.sampled_from((127, 128, 16_383, 16_384, 65_535, 65_536, 2**32, 2**63, 2**64 - 1))
counts = st.integers(0, 2**40) | edges
times = st.integers(-(2**60), 2**60) | st.sampled_from((-(2**62), 2**62 - 1))
places = st.integers(0, 2**60)
intervals = st.lists(st.tuples(places, places), max_size=5).map(tuple)
determinants = st.one_of(
    st.builds(Order, st.integers(0, 70_000) | st.sampled_from((126, 127, 128)), counts.filter(bool)),
    st.builds(Clock, times),
    st.builds(Random, st.binary(min_size=16, max_size=16)),
    st.builds(Window, st.integers(0, 300), times, intervals),
    st.builds(Timer, times),
    st.builds(Call, st.one_of(st.binary(max_size=40), st.binary(min_size=1, max_size=4).map(lambda b: b * 500))),
    st.builds(Barrier, st.integers(0, FINAL - 1), st.booleans()),
    st.builds(User, st.just("test-kind"), st.binary(max_size=40)),
)


@given(st.lists(determinants, max_size=12))
def test_a_log_of_all_kinds_reads_back(entries: list[Determinant]) -> None:
    writer, reader = DeterminantCodec(), DeterminantCodec()
    log = b"".join(writer.encode(each) for each in entries)
    place, decoded = 0, []
    while place < len(log):
        each, place = reader.decode(log, place)
        decoded.append(each)
    assert decoded == entries


@given(st.lists(determinants, min_size=1, max_size=4), st.data())
def test_a_log_cut_anywhere_is_never_misread_beyond_its_end(entries: list[Determinant], data: st.DataObject) -> None:
    codec = DeterminantCodec()
    log = b"".join(codec.encode(each) for each in entries)
    cut = log[: data.draw(st.integers(0, len(log) - 1))]
    reader, place, decoded = DeterminantCodec(), 0, []
    try:
        while place < len(cut):
            each, place = reader.decode(cut, place)
            decoded.append(each)
    except PeerViolation:
        pass
    assert decoded == entries[: len(decoded)]


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
    ("determinant", "size"),
    [
        (Order(0, 1), 1),
        (Order(31, 1), 1),
        (Order(32, 1), 2),
        (Order(0, 2), 2),
        (Order(126, 127), 2),
        (Order(126, 128), 3),
        (Order(127, 1), 3),
        (Random(b"x" * 16), 17),
        (Barrier(5), 2),
    ],
)
def test_sizes_are_as_documented(determinant: Determinant, size: int) -> None:
    assert len(DeterminantCodec().encode(determinant)) == size


def test_a_second_reading_of_the_clock_costs_the_difference() -> None:
    codec = DeterminantCodec()
    codec.encode(Clock(1_800_000_000_000_000_000))
    assert len(codec.encode(Clock(1_800_000_000_000_001_000))) == 3


@pytest.mark.parametrize("input", [0, 126, 127, 128, 16_383, 16_384, 65_535, 65_536])
@pytest.mark.parametrize("count", [1, 127, 128, 16_383, 16_384, 65_535, 65_536, 2**64 - 1])
def test_orders_at_the_boundaries_of_their_encoding(input: int, count: int) -> None:
    entry = DeterminantCodec().encode(Order(input, count))
    assert DeterminantCodec().decode(entry, 0) == (Order(input, count), len(entry))
    wide = (1 if input < 127 else 1 + len(varint(input))) + len(varint(count))
    assert len(entry) == (1 if count == 1 and input < 32 else wide)


@pytest.mark.parametrize("time_ns", [-(2**63), -1, 0, 1, 2**63 - 1])
def test_a_clock_reading_may_be_any_64_bit_time(time_ns: int) -> None:
    entry = DeterminantCodec().encode(Clock(time_ns))
    assert DeterminantCodec().decode(entry, 0) == (Clock(time_ns), len(entry))


def test_a_large_answer_is_compressed() -> None:
    entry = DeterminantCodec().encode(Call(b"abc" * 10_000))
    assert len(entry) < 1_000
    assert DeterminantCodec().decode(entry, 0) == (Call(b"abc" * 10_000), len(entry))


@pytest.mark.parametrize("size", [0, 511, 512, 513, ANSWER_BYTES_MAX])
def test_an_answer_that_does_not_compress_costs_its_length(size: int) -> None:
    answer = random.Random(size).randbytes(size)
    entry = DeterminantCodec().encode(Call(answer))
    assert entry == bytes((5,)) + varint(size) + answer
    assert DeterminantCodec().decode(entry, 0) == (Call(answer), len(entry))


@pytest.mark.parametrize("claimed", [30_001, 29_999, 255 * 200, ANSWER_BYTES_MAX, ANSWER_BYTES_MAX + 1, 2**64 - 1])
def test_an_answer_that_lies_about_its_plain_length_is_refused(claimed: int) -> None:
    block = lz4.block.compress(b"abc" * 10_000, store_size=False)
    packed = varint(claimed) + block
    with pytest.raises(PeerViolation, match="compressed answer"):
        DeterminantCodec().decode(bytes((8,)) + varint(len(packed)) + packed, 0)


@pytest.mark.parametrize(
    "lie",
    [
        b"\x05" + varint(ANSWER_BYTES_MAX),  # an answer that is not there
        b"\x05" + varint(2**64 - 1) + b"x",
        b"\x40" + varint(1 << 40),
        b"\x03\x00\x00" + varint(1 << 62),  # so many intervals
        b"\x08\x04" + varint(1 << 20) + b"\x00",  # a compressed answer of 1 MiB in one byte
        b"\x08\x05" + varint(ANSWER_BYTES_MAX) + b"\x00",
    ],
)
def test_a_claim_is_checked_before_memory_is_taken(lie: bytes) -> None:
    tracemalloc.start()
    tracemalloc.reset_peak()  # tracing may be on already
    before, _ = tracemalloc.get_traced_memory()
    try:
        with pytest.raises(PeerViolation):
            DeterminantCodec().decode(lie, 0)
        assert tracemalloc.get_traced_memory()[1] - before < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("entry", [b"\x80\x00", b"\xff\x80\x01\x00"])
def test_an_order_that_delivers_nothing_cannot_be(entry: bytes) -> None:
    with pytest.raises(PeerViolation, match="delivers no elements"):
        DeterminantCodec().decode(entry, 0)


@pytest.mark.parametrize("tag", [0, 11, 31, 64, 127])
def test_a_tag_that_nobody_registered_is_refused(tag: int) -> None:
    with pytest.raises(PeerViolation, match=f"tag {tag}"):
        DeterminantCodec().decode(bytes((tag, 0)), 0)


def test_a_run_of_nothing_cannot_be() -> None:
    with pytest.raises(PeerViolation, match="performs no events"):
        DeterminantCodec().decode(b"\x07\x00", 0)


@pytest.mark.parametrize("body", [b"", b"short", b"long and the same again " * 100, bytes(range(256)) * 3])
def test_an_answer_reads_back_and_long_ones_are_squeezed(body: bytes) -> None:
    entry = DeterminantCodec().encode(Answer(3, 1 << 40, body))
    assert DeterminantCodec().decode(entry, 0) == (Answer(3, 1 << 40, body), len(entry))
    assert len(entry) <= len(body) + 12
    if len(body) > 1000:
        assert len(entry) < len(body) // 10


def test_a_window_of_very_many_intervals_reads_back() -> None:
    window = Window(1, 5, tuple((2 * i, 1) for i in range((1 << 20) + 1)))
    entry = DeterminantCodec().encode(window)
    assert DeterminantCodec().decode(entry, 0) == (window, len(entry))


def test_a_seed_of_another_length_is_our_own_bug() -> None:
    with pytest.raises(InvariantViolation, match="16 bytes"):
        DeterminantCodec().encode(Random(b"short"))


def test_an_answer_beyond_the_bound_is_our_own_bug() -> None:
    with pytest.raises(InvariantViolation, match="too large"):
        DeterminantCodec().encode(User("test-kind", bytes(ANSWER_BYTES_MAX + 1)))


def test_kinds_do_not_clash() -> None:
    register_kind("test-kind", 100)
    with pytest.raises(ValueError, match="clashes"):
        register_kind("other", 100)
    with pytest.raises(ValueError, match="clashes"):
        register_kind("test-kind", 101)
    for tag in (5, 63, 128):
        with pytest.raises(ValueError, match="64 to 127"):
            register_kind("elsewhere", tag)
    assert registered("test-kind") and not registered("elsewhere") and not registered("other")
