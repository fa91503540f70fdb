"""Server-sent events: the examples of the HTML standard, however their bytes are divided, and a bound on their size."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.sources.messages.event_stream import ID_BYTES_MAX, Event, EventParser

STREAMS: dict[str, tuple[bytes, list[tuple[bytes, str, str]]]] = {
    "several lines": (b"data: YHOO\ndata: +2\ndata: 10\n\n", [(b"YHOO\n+2\n10", "0", "message")]),
    "comments and ids": (
        b": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n",
        [(b"first event", "1", "message"), (b"second event", "", "message"), (b" third event", "", "message")],
    ),
    "empty data": (b"data\n\ndata\ndata\n\ndata:", [(b"", "0", "message"), (b"\n", "0", "message")]),
    "a space": (b"data:test\n\ndata: test\n\n", [(b"test", "0", "message")] * 2),
    "types": (
        b"event: add\ndata: 73857293\n\nevent: remove\ndata: 2153\n\ndata: x\n\n",
        [(b"73857293", "0", "add"), (b"2153", "0", "remove"), (b"x", "0", "message")],
    ),
    "an id stays": (
        b"id: 7\n\ndata: a\n\ndata: b\nid: 8\x00\n\ndata: c\nid: 9\n\ndata: d\n\n",
        [(b"a", "7", "message"), (b"b", "7", "message"), (b"c", "9", "message"), (b"d", "9", "message")],
    ),
    "no data is no event": (b"event: x\n\nid: 5\n\ndata: a\n\n", [(b"a", "5", "message")]),
    "line ends": (
        b"data: a\rdata: b\r\ndata: c\n\r\ndata: d\r\rdata: e\r\n\r\n",
        [(b"a\nb\nc", "0", "message"), (b"d", "0", "message"), (b"e", "0", "message")],
    ),
    "unknown fields": (b" data: no\ndatas: no\nfoo\ndata : no\ndata: yes: no\n\n", [(b"yes: no", "0", "message")]),
    "byte order mark": (b"\xef\xbb\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\n", [(b"a", "0", "message")]),
    "not complete": (b"data: a\n\ndata: b\nid: 3\n", [(b"a", "0", "message")]),
    "a large id": (b"id: " + b"9" * 5000 + b"\ndata: a\n\n", [(b"a", "0", "message")]),
}


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_has_these_events(name: str) -> None:
    data, events = STREAMS[name]
    for step in (len(data), 1, 2, 3):
        parser = EventParser("0", 10_000)
        came = [event for begin in range(0, len(data), step) for event in parser.add(data[begin : begin + step])]
        assert [(event.data, event.id, event.type) for event in came] == events, step
        assert not any(event.bytes_left_out for event in came)


@pytest.mark.parametrize(
    ("line", "pause"), [(b"retry: 2500", 2500), (b"retry: 1.5", None), (b"retry", None), (b"retry: -1", None)]
)
def test_a_server_can_ask_for_a_pause(line: bytes, pause: int | None) -> None:
    parser = EventParser("", 100)
    assert parser.add(line + b"\n\n") == [] and parser.retry_ms == pause


LINES = st.sampled_from([
    b"data: x", b"data", b"data:" + b"y" * 30, b"", b"", b"id: 1", b"id", b"event: e", b": c", b"retry: 9", b"z" * 40,
])  # fmt: skip
ENDS = st.sampled_from([b"\n", b"\r", b"\r\n"])


@given(st.lists(st.tuples(LINES, ENDS), max_size=30), st.lists(st.integers(0, 2000)), st.integers(1, 60))
def test_events_do_not_depend_on_how_bytes_were_divided(
    lines: list[tuple[bytes, bytes]], cuts: list[int], most: int
) -> None:
    data = b"".join(line + end for line, end in lines)
    whole = EventParser("", most)
    expected = whole.add(data)
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    parts = EventParser("", most)
    assert [event for begin, end in pairwise(places) for event in parts.add(data[begin:end])] == expected
    assert all(len(event.data) <= most for event in expected)


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_an_event_that_is_too_large_keeps_its_place_and_its_beginning(step: int) -> None:
    data = b"".join(b"data: %s\nid: %d\n\n" % (b"x" * size, size) for size in (10, 11, 9000, 3))
    data += b"data: 12345\ndata: 1234\n\ndata: 12345\ndata: 12345\n\n" + b"data\n" * 14 + b"\n"
    parser = EventParser("", 10)
    came = [event for begin in range(0, len(data), step) for event in parser.add(data[begin : begin + step])]
    assert came == [
        Event(b"x" * 10, "10", "message"),
        Event(b"x" * 10, "11", "message", 1),
        Event(b"x" * 10, "9000", "message", 8990),
        Event(b"xxx", "3", "message"),
        Event(b"12345\n1234", "3", "message"),
        Event(b"12345\n1234", "3", "message", 1),
        Event(b"\n" * 10, "3", "message", 3),
    ]


def test_memory_is_bounded() -> None:
    parser = EventParser("", 10)
    for _ in range(1000):
        parser.add(b"x" * 1000)
        assert len(parser._rest) <= ID_BYTES_MAX + 6
    for _ in range(1000):
        parser.add(b"\ndata\ndata")
        assert len(parser._lines) <= 11
