"""Deltas on the wire: what one end of a session packed the other reads, in few bytes, and nothing else is believed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.errors import PeerViolation
from causal.logs.deltas import DeltaReader, DeltaWriter, pack_deltas, unpack_deltas
from causal.logs.log import LogDelta

few = st.integers(0, 3)
deltas = st.lists(st.builds(LogDelta, st.integers(0, 11), few, few, st.text("ab", max_size=20).map(str.encode)))
depends = st.lists(st.tuples(few, few, st.integers(0, 2**40)), max_size=4)
frames = st.lists(st.tuples(deltas, depends, st.sampled_from(["taken", "refused", "new session"])))


@given(frames)
def test_a_session_reads_as_it_was_packed(session: list[Any]) -> None:
    writer, reader, begins = DeltaWriter(), DeltaReader(), True
    for logs, extents, fate in session:
        data = writer.pack(logs, extents)
        assert reader.read(data, begins) == (logs, extents)
        begins = fate != "taken"
        if begins:  # a frame that was not taken, or another WELCOME: the sender begins again
            writer.begin()
        else:
            reader.commit()


def growing(task: int, piece: bytes, pieces: int) -> list[LogDelta]:
    return [LogDelta(task, 2, 1000 + place * len(piece), piece) for place in range(pieces)]


@pytest.mark.parametrize(
    ("piece", "size"),
    [
        (b"\x01", 1),
        (b"\x01" * 14, 1),
        (b"\x01" * 15, 16),
        (b"\x02\x03", 3),
        (b"\x02\x03" * 8, 17),
        (b"\x02\x03" * 9, 21),
    ],
)
def test_what_a_log_grows_by_costs_little_more_than_its_bytes(piece: bytes, size: int) -> None:
    writer = DeltaWriter()
    sizes = [len(writer.pack([delta], [])) for delta in growing(7, piece, 5)]
    assert sizes[1:] == [size] * 4


def test_a_byte_that_alternates_costs_one() -> None:
    writer, reader, sizes = DeltaWriter(), DeltaReader(), []
    for offset, byte in enumerate(b"abbabab" + b"c"):
        deltas = [LogDelta(7, 0, offset, bytes((byte,)))]
        data = writer.pack(deltas, [])
        assert reader.read(data, begins=not offset) == (deltas, [])
        reader.commit()
        sizes.append(len(data))
    assert sizes == [6, 2, 1, 2, 1, 1, 1, 2]


def test_a_log_with_a_high_number_is_told_of_by_number_and_length() -> None:
    writer, reader = DeltaWriter(), DeltaReader()
    first = [LogDelta(task, 0, 0, b"x") for task in range(300)]
    assert reader.read(writer.pack(first, []), True) == (first, [])
    reader.commit()
    more = [LogDelta(task, 0, 1, b"y") for task in range(300)]
    data = writer.pack(more, [])
    assert reader.read(data, False) == (more, [])
    assert len(data) == 8 * 2 + 120 * 4 + 172 * 5


def test_a_dependency_that_grows_tells_by_how_much() -> None:
    writer = DeltaWriter()
    sizes = [len(writer.pack([], [(3, 77, extent)])) for extent in (100_000, 100_001, 100_001, 99_999)]
    assert sizes == [6, 3, 3, 6]


def test_a_frame_that_was_not_taken_changes_nothing() -> None:
    writer, reader = DeltaWriter(), DeltaReader()
    reader.read(writer.pack([LogDelta(0, 0, 0, b"a")], [(1, 0, 5)]), True)
    reader.commit()
    frame = writer.pack([LogDelta(0, 0, 1, b"a"), LogDelta(1, 0, 0, b"b")], [(1, 0, 6)])
    once = reader.read(frame, False)
    assert reader.read(frame, False) == once
    with pytest.raises(PeerViolation):
        reader.read(frame + b"\x10", False)
    with pytest.raises(PeerViolation):
        reader.read(b"\xf4\x00", False)
    assert reader.read(frame, False) == once


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x00a", "log 0 of its session, which has named only 0 logs"),
        (b"\xff", "log 7 of its session, which has named only 0 logs"),
        (b"\xf0\x01\x00\x00\x00\xf8", "claims 1 bytes, but only 0 follow"),
        (b"\x80", "log 0 of its session, which has named only 0 logs"),
        (b"\xf1\x00\x01a", "log 0 of its session, which has named only 0 logs"),
        (b"\xf0\x01\x00\x00\x01a\x01bc\x10d", "log 1 of its session, which has named only 1 logs"),
        (b"\xf0\x01\x00\x00\x02a", "claims 2 bytes, but only 1 follow"),
        (b"\xf0\x01\x00\x00\x01a\x03bc", "claims 4 bytes, but only 2 follow"),
        (b"\xf0\x01\x00\x00\x00\x80", "claims 1 bytes, but only 0 follow"),
        (b"\xf3\x01\x01", "task 1 grows before its session has named it"),
        (b"\xf4\x01\x01", "missing byte of its session: 1 before the end of log 1"),
        (b"\xf5\x01\x01", "kind 245"),
        (b"\xf0\x01", "varint"),
    ],
)
def test_what_cannot_be_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(PeerViolation, match=why):
        unpack_deltas(data)


@pytest.mark.parametrize("one", [b"\x80", b"\x00\x80", b"\xf3\x00\x01"])
def test_a_frame_has_so_many_deltas_and_no_more(one: bytes) -> None:
    named = pack_deltas([LogDelta(0, 0, 0, b"\x80")], [(0, 0, 1)])
    with pytest.raises(PeerViolation, match="more than 65536 deltas"):
        unpack_deltas(named + one * (1 << 16))


def test_what_is_stable_costs_three_bytes_and_moves_nothing() -> None:
    writer, reader = DeltaWriter(), DeltaReader()
    first, second = LogDelta(7, 2, 900, b"a" * 100), LogDelta(7, 2, 1000, b"b")
    stable, beyond = LogDelta(7, 2, 940, b""), LogDelta(7, 2, 5000, b"")
    data = writer.pack([first, stable], [])
    assert len(data) == len(DeltaWriter().pack([first], [])) + 3
    assert reader.read(data, True) == ([first, stable], [])
    reader.commit()
    data = writer.pack([second, beyond, LogDelta(7, 2, 5000, b"c")], [])
    assert data[:2] == b"\x00b" and data[-2:] == b"\x00c"
    assert reader.read(data, False) == ([second, beyond, LogDelta(7, 2, 5000, b"c")], [])
