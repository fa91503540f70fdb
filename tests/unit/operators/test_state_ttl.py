"""State with a time to live is there for exactly that long by event time, and is as old after a restore as before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.errors import PipelineError
from operators.state.ttl import ClockExpiry, EventExpiry, merged

TTL_NS = 800
steps = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 300)), min_size=1, max_size=40)


class Clock:
    """The clock that an `EventExpiry` asks for the event time of the current record."""

    def __init__(self, now_ns: int | None = None) -> None:
        self.now_ns = now_ns

    def __call__(self) -> int | None:
        return self.now_ns


def by_event() -> tuple[EventExpiry, Clock]:
    clock = Clock()
    return EventExpiry(TTL_NS, clock), clock


# Event time.


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(-2000, 2000), st.sampled_from(["read", "write", "mark"])),
        max_size=60,
    )
)
def test_a_place_is_gone_by_the_times_of_records_alone(drawn: list[tuple[str, int, str]]) -> None:
    expiry, clock = by_event()
    latest: dict[str, int] = {}
    mark_ns = -10_000
    for place, at_ns, what in drawn:
        if what == "mark":
            mark_ns = max(mark_ns, at_ns)
            for removed in expiry.advance(mark_ns):
                assert latest.pop(removed) + TTL_NS <= mark_ns
                expiry.removed(removed)
            assert all(mark_ns - written_ns < TTL_NS * 9 / 8 for written_ns in latest.values())
            continue
        clock.now_ns = at_ns = max(at_ns, mark_ns)  # no record is late
        if what == "write":
            if place in latest and at_ns >= latest[place] + TTL_NS:
                del latest[place]
                expiry.removed(place)
            expiry.wrote(place)
            latest[place] = max(at_ns, latest.get(place, at_ns))
        for known, written_ns in latest.items():
            assert expiry.gone(known) == (at_ns >= written_ns + TTL_NS)
        assert set(expiry.written) == set(latest)


def test_what_was_written_before_any_time_was_known_lives_from_the_first_watermark() -> None:
    expiry, clock = by_event()
    expiry.wrote("early")
    assert not expiry.gone("early")
    assert expiry.advance(1_000_000) == []
    clock.now_ns = 1_000_799
    assert not expiry.gone("early")
    clock.now_ns = 1_000_800
    assert expiry.gone("early")
    assert expiry.advance(1_000_800) == ["early"]


def test_at_the_end_what_is_too_old_is_known_to_the_nanosecond() -> None:
    expiry, clock = by_event()
    for clock.now_ns, place in ((10, "a"), (20, "b"), (None, "c")):
        expiry.wrote(place)
    expiry.advance(819)
    assert expiry.gone_by(819) == ["a"]
    assert expiry.gone_by(820) == ["a", "b"]
    assert expiry.gone_by(1619) == ["a", "b", "c"]


def copied(live: Any, fresh: Callable[[], Any], places: dict[str, Any]) -> Any:
    restored = fresh()
    restored.load_header(live.header())
    for place in places:
        restored.load(place, live.age(place))
    return restored


@given(steps, st.integers(0, 39))
def test_a_restored_one_goes_on_alike(steps: list[tuple[str, int]], cut: int) -> None:
    clock = Clock(10_000)
    live: Any = EventExpiry(TTL_NS, clock)
    restored: Any = None
    for number, (place, later) in enumerate(steps):
        if number == cut:
            restored = copied(live, lambda: EventExpiry(TTL_NS, clock), live.written)
        clock.now_ns = (clock.now_ns or 0) + later
        both = [live] if restored is None else [live, restored]
        gone = [sorted(expiry.advance(clock.now_ns)) for expiry in both]
        assert gone[0] == gone[-1]
        for expiry in both:
            for each in gone[0]:
                expiry.removed(each)
            expiry.wrote(place)
        assert live.written == both[-1].written


def test_another_time_to_live_reads_the_ages_that_were_written() -> None:
    clock = Clock(100_000)
    short, long = EventExpiry(800, clock), EventExpiry(1600, clock)
    short.wrote("a")
    long.load_header(short.header())
    long.load("a", short.age("a"))
    clock.now_ns = 101_599
    assert not long.gone("a") and short.gone("a")
    clock.now_ns = 101_600
    assert long.gone("a")


# The wall clock.


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 300), st.integers(0, 2000)), max_size=40))
def test_by_the_wall_clock_nothing_goes_before_its_time(steps: list[tuple[str, int, int]]) -> None:
    """Timers fire between events, which may outlast the time to live: only what such an event wrote lives longer."""
    now_ns = 10_000
    expiry = ClockExpiry(TTL_NS, lambda: now_ns)
    written: dict[str, tuple[int, int]] = {}
    for place, later, lasts in steps:
        until_ns = now_ns + later
        while (due_ns := expiry.next_ns()) is not None and due_ns <= until_ns:
            now_ns = max(due_ns, now_ns)
            expiry.begin()
            for gone in expiry.advance(now_ns):
                assert now_ns - written.pop(gone)[1] >= TTL_NS
                expiry.removed(gone)
            assert all(now_ns - max(at_ns) < TTL_NS * 9 / 8 + 1 for at_ns in written.values())
        began_ns = now_ns = max(now_ns, until_ns)
        expiry.begin()
        expiry.wrote(place)
        now_ns += lasts
        expiry.wrote(place)
        written[place] = began_ns, now_ns
        assert set(expiry.places) == set(written)


@given(st.integers(1, 100), st.integers(0, 10_000), st.booleans())
def test_by_the_wall_clock_what_expired_while_the_job_was_down_is_gone(writes: int, down: int, resumed: bool) -> None:
    now_ns = 10_000
    live: Any = ClockExpiry(TTL_NS, lambda: now_ns)
    for now_ns in range(10_000, 10_000 + writes):
        live.begin()
        live.wrote(now_ns)
    live.begin()  # frozen, and nothing was written since
    expiry = copied(live, lambda: ClockExpiry(TTL_NS, lambda: now_ns), live.places) if resumed else live
    now_ns = 10_100 + down
    expiry.begin()
    assert bool(expiry.advance(now_ns)) == (down >= TTL_NS)


@given(steps, st.integers(0, 39))
def test_by_the_wall_clock_a_restored_one_goes_on_alike(steps: list[tuple[str, int]], cut: int) -> None:
    now_ns = 10_000

    def now() -> int:
        return now_ns

    live: Any = ClockExpiry(TTL_NS, now)
    both = [live]
    for number, (place, later) in enumerate(steps):
        if number == cut:
            live.begin()
            both = [live, copied(live, lambda: ClockExpiry(TTL_NS, now), live.places)]
        now_ns += later
        for expiry in both:
            expiry.begin()
        gone = [sorted(expiry.advance(now_ns)) for expiry in both]
        assert gone[0] == gone[-1]
        for expiry in both:
            for each in gone[0]:
                expiry.removed(each)
            expiry.begin()
            expiry.wrote(place)
        assert both[0].next_ns() == both[-1].next_ns()
        assert both[0].places == both[-1].places


def test_a_clock_that_moves_while_nothing_is_held_makes_nothing_older() -> None:
    now_ns = 0
    expiry = ClockExpiry(TTL_NS, lambda: now_ns)
    assert expiry.advance(100) == []  # a timer of another state
    now_ns = 5_000
    expiry.wrote("a")
    assert expiry.next_ns() == 5_100
    assert [expiry.advance(at_ns) for at_ns in (5_100, 5_899)] == [[], []]
    assert expiry.advance(5_999) == ["a"]


def test_the_wall_clock_is_asked_once_and_again_when_nothing_is_left() -> None:
    asked: list[int] = []

    def now() -> int:
        asked.append(5_000 + 1_000 * len(asked))
        return asked[-1]

    expiry = ClockExpiry(TTL_NS, now)
    assert expiry.next_ns() is None
    expiry.wrote("a")
    expiry.wrote("b")
    assert asked == [5_000] and expiry.next_ns() == 5_100
    expiry.removed("a")
    expiry.removed("b")
    assert expiry.next_ns() is None
    expiry.wrote("a")
    assert asked == [5_000, 6_000] and expiry.next_ns() == 6_100


# Headers.


def test_another_clock_makes_everything_young_again() -> None:
    event, clock = by_event()
    clock.now_ns = 50
    event.wrote("a")
    wall = copied(event, lambda: ClockExpiry(TTL_NS, lambda: 7), event.written)
    assert wall.next_ns() == 0  # immediately, to find out what time it is
    assert wall.advance(9_000) == []
    assert wall.next_ns() == 9_100
    assert wall.advance(9_800) == ["a"]
    back, clock = by_event()
    back.load_header(wall.header())
    back.load("a", wall.age("a"))
    assert back.advance(70_000) == []
    assert back.advance(70_800) == ["a"]


def test_headers_of_several_tasks_are_merged_so_that_nothing_gets_older() -> None:
    assert merged([["event", 7], ["event", None], ["event", 4]]) == ["event", 4]
    assert merged([["event", None]]) == ["event", None]
    headers = [["processing", 300, [[100, 200], [200, 300]], 100], ["processing", 200, [[100, 210]], 100]]
    assert merged(headers) == ["processing", 200, [[100, 210], [200, 300]], 100]
    with pytest.raises(PipelineError, match="by different clocks: event, processing"):
        merged([["event", 7], ["processing", None, [], 100]])


@pytest.mark.parametrize("several", [False, True])
def test_a_shorter_time_to_live_counts_from_the_last_write_too(several: bool) -> None:
    """The generation of the snapshot is as long as its own timers say, not those of now."""
    now_ns = 1000
    long = ClockExpiry(800, lambda: now_ns)  # a timer each 100
    long.wrote("a")
    now_ns = 1095
    long.wrote("a")
    short = ClockExpiry(80, lambda: now_ns)  # each 10
    short.load_header(merged([long.header(), long.header()]) if several else long.header())
    short.load("a", long.age("a"))
    assert [short.advance(at_ns) for at_ns in (1110, 1175)] == [[], []]
    assert short.advance(1200) == ["a"]
