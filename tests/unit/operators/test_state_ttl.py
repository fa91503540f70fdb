"""What has a time to live is there for that long, gone an eighth later, and as old after a restore as before."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from operators.keyed.ttl import Expiry

TTL_NS = 800
steps = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 300)), min_size=1, max_size=40)


@given(steps)
def test_nothing_goes_before_its_time_and_everything_goes_by_nine_eighths(steps: list[tuple[str, int]]) -> None:
    expiry, now_ns, written = Expiry(TTL_NS), 10_000, dict[str, int]()
    expiry.advance(now_ns)
    for place, later in steps:
        now_ns += later
        for gone in expiry.advance(now_ns):
            assert now_ns - written.pop(gone) >= TTL_NS
            expiry.removed(gone)
        assert all(now_ns - at_ns < TTL_NS * 9 / 8 for at_ns in written.values())
        expiry.wrote(place)
        written[place] = now_ns
        assert set(expiry.ticks) == set(written)


@given(steps, st.integers(0, 39))
def test_a_restored_one_goes_on_alike(steps: list[tuple[str, int]], cut: int) -> None:
    live, now_ns = Expiry(TTL_NS), 10_000
    restored: Expiry | None = None
    for number, (place, later) in enumerate(steps):
        if number == cut:
            restored = Expiry(TTL_NS)
            restored.load_header(live.header())
            for held, tick in live.ticks.items():
                restored.load(held, tick)
        now_ns += later
        gone = live.advance(now_ns)
        if restored is not None:
            assert sorted(restored.advance(now_ns)) == sorted(gone)
        for expiry in (live, restored):
            if expiry is not None:
                for each in gone:
                    expiry.removed(each)
                expiry.wrote(place)


def test_what_was_written_before_the_first_watermark_lives_from_there() -> None:
    expiry = Expiry(TTL_NS)
    expiry.wrote("early")
    assert expiry.advance(1_000_000) == []
    assert expiry.advance(1_000_000 + TTL_NS) == []
    assert expiry.advance(1_000_000 + TTL_NS * 9 // 8) == ["early"]


def test_what_a_record_ahead_of_the_watermark_writes_is_as_young_as_the_record() -> None:
    times: list[int | None] = [5_000, None, 100]
    expiry = Expiry(TTL_NS, event_ns=lambda: times.pop(0))
    expiry.wrote("ahead")
    expiry.advance(1_000)
    expiry.wrote("at the watermark")
    expiry.wrote("late")
    assert sorted(expiry.advance(1_900)) == ["at the watermark", "late"]
    assert expiry.advance(5_799) == []
    assert expiry.advance(5_900) == ["ahead"]


def test_the_wall_clock_is_asked_once_and_again_when_nothing_is_left() -> None:
    asked: list[int] = []

    def now() -> int:
        asked.append(5_000 + 1_000 * len(asked))
        return asked[-1]

    expiry = Expiry(TTL_NS, now)
    assert expiry.next_ns() is None
    expiry.wrote("a")
    expiry.wrote("b")
    assert asked == [5_000] and expiry.next_ns() == 5_100
    expiry.removed("a")
    expiry.removed("b")
    assert expiry.next_ns() is None
    expiry.wrote("a")
    assert asked == [5_000, 6_000] and expiry.next_ns() == 6_100


def test_another_time_to_live_reads_the_ages_that_were_written() -> None:
    short, long = Expiry(800), Expiry(1600)
    short.advance(100_000)
    short.wrote("a")
    long.load_header(short.header())
    long.load("a", short.ticks["a"])
    assert long.advance(100_000 + 1_599) == []
    assert long.advance(100_000 + 1_800) == ["a"]


def test_ages_of_several_tasks_are_counted_from_the_furthest() -> None:
    assert Expiry.merged([[100, 7, 3], [100, None, None], [100, 9, 4]]) == [100, 9, 3]
    assert Expiry.merged([[100, None, None]]) == [100, None, None]
