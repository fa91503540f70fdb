"""Frames: what was packed is read, and whatever else arrives is a PeerViolation before memory is taken."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.channels import wire
from causal.determinants import LZ4_RATIO_MAX
from causal.errors import PeerViolation
from causal.logs.deltas import pack_deltas, split_deltas, unpack_deltas
from causal.logs.log import LogDelta
from causal.records.values import encode

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
        ([b"XX" + a_header().pack()[2:]], "does not belong to the protocol"),
        ([b"CL\x09" + a_header().pack()[3:]], "version 9"),
        ([a_header(job=8).pack()], "job"),
        ([a_header(kind=99).pack()], "kind 99"),
        ([a_header().pack(), b""], "2 parts"),
        ([a_header(flags=2).pack()], "unknown flags 0x02"),
        ([a_header(kind=wire.DATA).pack(), b"", bytes(wire.FRAME_BYTES_MAX)], "more than"),
        ([a_header(plain_bytes=wire.FRAME_BYTES_MAX + 1).pack()], "more than"),
    ],
)
def test_a_frame_that_does_not_belong_here_is_refused(parts: list[bytes], why: str) -> None:
    with pytest.raises(PeerViolation, match=why):
        wire.read_header(parts, 7)


@given(deltas, extents)
def test_deltas_and_dependencies_read_back(logs: list[LogDelta], depends: list[tuple[int, int, int]]) -> None:
    assert unpack_deltas(pack_deltas(logs, depends)) == (logs, depends)


@given(deltas, st.integers(1, 40))
def test_deltas_split_are_the_same_byte_ranges(logs: list[LogDelta], bytes_max: int) -> None:
    groups = split_deltas(logs, bytes_max)
    assert all(sum(len(delta.bytes) for delta in group) <= bytes_max for group in groups)
    joined: list[LogDelta] = []
    for delta in (delta for group in groups for delta in group):
        last = joined[-1] if joined else None
        if last and (last.task, last.epoch, last.offset + len(last.bytes)) == (delta.task, delta.epoch, delta.offset):
            joined[-1] = LogDelta(last.task, last.epoch, last.offset, last.bytes + delta.bytes)
        else:
            joined.append(delta)
    wanted: list[LogDelta] = []
    for delta in logs:
        last = wanted[-1] if wanted else None
        if last and (last.task, last.epoch, last.offset + len(last.bytes)) == (delta.task, delta.epoch, delta.offset):
            wanted[-1] = LogDelta(last.task, last.epoch, last.offset, last.bytes + delta.bytes)
        else:
            wanted.append(delta)
    assert joined == wanted


def test_nothing_to_split_is_one_empty_group() -> None:
    assert split_deltas([], 10) == [[]]


def test_nothing_to_say_costs_no_bytes() -> None:
    assert pack_deltas([], []) == b""


@given(u64, u64, u64, extents, deltas, extents, u64)
def test_a_welcome_reads_back(
    attempt: int, following: int, digest: int, holdings: list[tuple[int, int, int]], logs: list[LogDelta],
    depends: list[tuple[int, int, int]], delivered: int,
) -> None:  # fmt: skip
    welcome = wire.Welcome(attempt, following, digest, holdings, logs, depends, delivered)
    assert wire.read_welcome(welcome.pack()) == welcome


@given(u64, u64, u64, u64, st.booleans())
def test_a_hello_reads_back(attempt: int, low: int, high: int, digest: int, collect: bool) -> None:
    hello = wire.Hello(attempt, low, high, digest, collect)
    assert wire.read_hello(hello.pack()) == hello


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
    with pytest.raises(PeerViolation, match="header states"):
        wire.unpack_payload(header, b"abc")


@pytest.mark.parametrize("claimed", [5 * LZ4_RATIO_MAX + 1, 1 << 20, wire.FRAME_BYTES_MAX])
def test_a_payload_that_claims_more_than_lz4_can_say_is_refused_before_memory_is_taken(claimed: int) -> None:
    header = a_header(kind=wire.DATA, flags=1, plain_bytes=claimed)
    tracemalloc.start()
    tracemalloc.reset_peak()  # tracing may be on already
    before, _ = tracemalloc.get_traced_memory()
    try:
        with pytest.raises(PeerViolation, match="header states"):
            wire.unpack_payload(header, bytes(5))
        assert tracemalloc.get_traced_memory()[1] - before < 100_000
    finally:
        tracemalloc.stop()


def test_what_lz4_packs_best_is_within_the_bound() -> None:
    header = a_header(kind=wire.DATA)
    _, packed = wire.pack_payload(header, bytes(wire.FRAME_BYTES_MAX), True)
    assert header.flags and bytes(wire.unpack_payload(header, packed)) == bytes(wire.FRAME_BYTES_MAX)


@pytest.mark.parametrize(
    ("read", "value"),
    [
        (wire.read_hello, [1, 2, 3, 4]),
        (wire.read_hello, [1, 2, 3, -4, True]),
        (wire.read_hello, [1, 2, 3, 4, 1]),
        (wire.read_hello, {"attempt": 1}),
        (wire.read_welcome, [1, 2, 3, [], [], []]),
        (wire.read_welcome, [1, 2, 3, [[1, 2]], [], [], 0]),
        (wire.read_welcome, [1, 2, 3, [], [[1, 2, 3, "text"]], [], 0]),
        (wire.read_welcome, [1, 2, 3, [], [], [[1, 2, 1 << 64]], 0]),
        (wire.read_welcome, [1, 2, 3, [], [], [], None]),
        (wire.read_welcome, [True, 2, 3, [], [], [], 0]),
    ],
)
def test_a_control_body_with_other_fields_is_refused(read: Callable[[bytes], object], value: object) -> None:
    with pytest.raises(PeerViolation):
        read(encode(value))


def test_a_control_body_of_a_later_version_may_say_more() -> None:
    assert wire.read_hello(encode([1, 2, 3, 4, False, "news"])) == wire.Hello(1, 2, 3, 4, False)
