"""Records and chunks come back as they were sent; hostile bodies and payloads are refused in one way."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.errors import PeerViolation
from causal.records.batch import (
    _BLOCK,
    BARRIER,
    END,
    LISTED,
    RECORDS,
    ROWS,
    WATERMARK,
    Chunk,
    barrier,
    decode_records,
    encode_records,
    end,
    pack_chunks,
    stamp_of,
    unpack_chunks,
    watermark,
)
from causal.records.values import encode, encode_loosely
from tests.unit.causal.strategies import spelled, values

rows = st.integers(0, 4).flatmap(lambda width: st.lists(st.tuples(*[values] * width), max_size=6))
batches = st.lists(values, max_size=6) | rows
stamps = st.integers(0, (1 << 63) - 1)
chunks = (
    st.builds(lambda count, body: Chunk(RECORDS, count, body), st.integers(1, 1 << 32 - 1), st.binary(max_size=30))
    | st.builds(barrier, stamps)
    | st.builds(watermark, st.integers(-(1 << 63), (1 << 63) - 1))
    | st.builds(end)
)


@given(batches)
def test_records_come_back_as_they_were_sent(records: list[Any]) -> None:
    body = encode_records(records)
    assert spelled(decode_records(body)) == spelled(records)
    assert spelled(decode_records(memoryview(body))) == spelled(records)
    assert encode_records(tuple(records)) == body


@pytest.mark.parametrize(
    "records", [[], [()], [(), ()], [(1,), (1, 2)], [(1,), [1]], [[1], [2]], [(1, "a"), (2, "b")], [None]]
)
def test_the_shapes_at_the_edge_of_columns(records: list[Any]) -> None:
    assert spelled(decode_records(encode_records(records))) == spelled(records)


@pytest.mark.parametrize("count", [_BLOCK - 1, _BLOCK, _BLOCK + 1, 2 * _BLOCK, 2 * _BLOCK + 1])
def test_many_rows_are_the_same_columns_as_few(count: int) -> None:
    rows = [(number, str(number), (number,)) for number in range(count)]
    assert encode_records(rows) == b"\x01" + encode_loosely([list(column) for column in zip(*rows, strict=True)], 1)
    for place in (0, _BLOCK - 1, _BLOCK, count - 1):
        for other in ((1, 2), (1, 2, 3, 4), ()):
            odd = [*rows[:place], other, *rows[place:]]
            assert encode_records(odd) == b"\x00" + encode_loosely(odd)
            assert decode_records(encode_records(odd)) == odd
    halves: list[Any] = rows[:_BLOCK] + [(1, 2)] * (count - _BLOCK)
    assert decode_records(encode_records(halves)) == halves


def test_rows_of_equal_length_travel_as_columns() -> None:
    assert encode_records([(1, "a"), (2, "b")]) == b"\x01" + encode([[1, 2], ["a", "b"]])


COLUMNS = [
    [[1, 2], [3]],
    [[], [1]],
    [[], []],
    [],
    [[1], 2],
    [[1], (2,)],
    [[1], "a"],
    [[1], b"a"],
    {1: [2]},
    "ab",
    None,
    [None],
    ([1], [2]),
]


@pytest.mark.parametrize("columns", COLUMNS, ids=repr)
def test_columns_that_no_sender_makes_are_a_violation(columns: Any) -> None:
    with pytest.raises(PeerViolation):
        decode_records(b"\x01" + encode(columns))


@pytest.mark.parametrize(
    "body", [b"", b"\x00", b"\x01", b"\x00\xc0", b"\x00\x81\x01\x02", b"\x02\x90", b"\xff\x91\x01"]
)
def test_bodies_that_no_sender_makes_are_a_violation(body: bytes) -> None:
    with pytest.raises(PeerViolation):
        decode_records(body)


@given(st.lists(chunks, max_size=8), st.integers(0, 1 << 62))
def test_chunks_come_back_as_they_were_packed(sent: list[Chunk], origin_ns: int) -> None:
    payload = pack_chunks(sent)
    for form in (payload, memoryview(payload)):
        unpacked = unpack_chunks(form, origin_ns)
        assert [(c.kind, c.count, c.body) for c in unpacked] == [(c.kind, c.count, c.body) for c in sent]
        assert all(c.origin_ns == origin_ns and type(c.body) is bytes for c in unpacked)


@given(st.lists(st.lists(chunks, max_size=4), max_size=4))
def test_how_chunks_are_gathered_does_not_show(frames: list[list[Chunk]]) -> None:
    assert b"".join(map(pack_chunks, frames)) == pack_chunks([chunk for frame in frames for chunk in frame])


def packed(kind: int, count: int, length: int, body: bytes) -> bytes:
    return struct.pack("<BII", kind, count, length) + body


@pytest.mark.parametrize(
    "payload",
    [
        b"\x01",
        packed(0, 1, 0, b""),
        packed(ROWS, 1, 1, b"x"),
        packed(LISTED, 1, 1, b"x"),
        packed(99, 1, 0, b""),
        packed(RECORDS, 0, 1, b"x"),
        packed(RECORDS, 1, 2, b"x"),
        packed(RECORDS, 1, 0xFFFFFFFF, b"x"),
        packed(END, 2, 0, b""),
        packed(END, 1, 1, b"x"),
        packed(BARRIER, 2, 8, bytes(8)),
        packed(BARRIER, 1, 7, bytes(7)),
        packed(BARRIER, 1, 8, b"\xff" * 8),
        packed(WATERMARK, 1, 9, bytes(9)),
        packed(END, 1, 0, b"") + b"\x01",
    ],
)
def test_payloads_that_no_sender_makes_are_a_violation(payload: bytes) -> None:
    with pytest.raises(PeerViolation):
        unpack_chunks(payload)


def test_stamps() -> None:
    assert stamp_of(barrier(7)) == 7
    assert stamp_of(watermark(-5)) == -5
    assert end().size == 0
