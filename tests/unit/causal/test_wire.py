"""Frames: what was packed is read, and whatever else arrives is a PeerViolation before memory is taken."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal import wire
from causal.batch import Chunk, decode_records, encode_records, pack_chunks, unpack_chunks
from causal.errors import PeerViolation
from causal.log import LogDelta

u32, u64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
deltas = st.lists(st.builds(LogDelta, u32, u32, u32, st.binary(max_size=30)), max_size=4)
extents = st.lists(st.tuples(u32, u32, u64), max_size=4)


def a_header(**changes: int) -> wire.Header:
    return wire.Header(**{"kind": wire.CREDIT, "job": 7, "channel": 3, "incarnation": 2, **changes})


@given(channel=u32, incarnation=u32, session=u32, sequence=u32, count=u32, position=u64, digest=u64, origin_ns=u64)
def test_a_header_reads_back(**fields: int) -> None:
    header = a_header(**fields)
    assert wire.read_header([header.pack()], 7) == header


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ([], "0 bytes"),
        ([b"short"], "5 bytes"),
        ([b"XX" + a_header().pack()[2:]], "another protocol"),
        ([b"CL\x09" + a_header().pack()[3:]], "version 9"),
        ([a_header(job=8).pack()], "job"),
        ([a_header(kind=99).pack()], "kind 99"),
        ([a_header().pack(), b""], "2 parts"),
        ([a_header(plain_bytes=wire.FRAME_BYTES_MAX + 1).pack()], "more than"),
    ],
)
def test_a_frame_that_does_not_belong_here_is_refused(parts: list[bytes], why: str) -> None:
    with pytest.raises(PeerViolation, match=why):
        wire.read_header(parts, 7)


@given(deltas, extents)
def test_deltas_and_dependencies_read_back(told: list[LogDelta], depends: list[tuple[int, int, int]]) -> None:
    assert wire.unpack_deltas(wire.pack_deltas(told, depends)) == (told, depends)


def test_nothing_to_say_costs_no_bytes() -> None:
    assert wire.pack_deltas([], []) == b""


@given(u64, u64, u64, extents, deltas, extents)
def test_a_welcome_reads_back(
    attempt: int, following: int, digest: int, held: list[tuple[int, int, int]], logs: list[LogDelta],
    depends: list[tuple[int, int, int]],
) -> None:  # fmt: skip
    welcome = wire.Welcome(attempt, following, digest, held, logs, depends)
    assert wire.read_welcome(welcome.pack()) == welcome


@given(u64, u64, u64, u64, st.booleans())
def test_a_hello_reads_back(attempt: int, low: int, high: int, digest: int, collect: bool) -> None:
    hello = wire.Hello(attempt, low, high, digest, collect)
    assert wire.read_hello(hello.pack()) == hello


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_read_or_refused(data: bytes) -> None:
    for read in (wire.unpack_deltas, wire.read_hello, wire.read_welcome, unpack_chunks, decode_records):
        try:
            read(data)
        except PeerViolation:
            continue


@given(st.binary(max_size=80))
def test_an_arbitrary_header_is_read_or_refused(data: bytes) -> None:
    try:
        wire.read_header([data], 7)
    except PeerViolation:
        return


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("payload", [b"", b"x", b"abc" * 5_000])
def test_a_payload_comes_back_plain(payload: bytes, compress: bool) -> None:
    header = a_header(kind=wire.DATA)
    first, packed = wire.pack_payload(header, payload, compress)
    seen = wire.read_header([first, b"", packed], 7)
    assert bytes(wire.unpack_payload(seen, packed)) == payload
    assert not (compress and len(payload) > 10_000) or len(packed) < len(payload) // 8


def test_a_payload_that_lies_about_its_length_is_refused() -> None:
    header = a_header(kind=wire.DATA)
    _, packed = wire.pack_payload(header, b"abc" * 5_000, True)
    for lie in (1, 14_999, 15_001):
        header.plain_bytes = lie
        with pytest.raises(PeerViolation):
            wire.unpack_payload(header, packed)
    header.flags = 0
    with pytest.raises(PeerViolation, match="were stated"):
        wire.unpack_payload(header, b"abc")


records = st.lists(
    st.one_of(st.tuples(st.integers(), st.text(max_size=3)), st.dictionaries(st.text(max_size=3), st.integers()))
)


@given(st.lists(records.filter(bool), max_size=4))
def test_chunks_read_back(batches: list[list[object]]) -> None:
    chunks = [Chunk(1, len(batch), encode_records(batch)) for batch in batches]
    found = unpack_chunks(pack_chunks(chunks))
    assert [(c.kind, c.count) for c in found] == [(1, len(batch)) for batch in batches]
    assert [decode_records(c.body) for c in found] == batches
