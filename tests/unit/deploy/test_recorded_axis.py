"""The time axis of a recording: its size is bounded, nothing is left out or counted twice, and changes are named."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.recorded_files import Entry, EpochEntry, FailureEntry, KeptEntry, VersionEntry
from causal.recorded_index import Index, Interval
from deploy.ui.recorded_axis import BARS_MAX, FAILURES_MAX, VERSIONS_MAX, axis, change, performed

SECOND_NS = 1_000_000_000
BEGAN_NS = 1_795_837_337_000_000_001


def version(
    number: int, code: str = "a", tasks: tuple[str, ...] = ("read/0", "count/0"), **settings: str
) -> VersionEntry:
    return VersionEntry(number, 0, {"code": code, "settings": settings}, tasks)


def epoch(number: int, of: int = 1, at_s: float | None = None, *failed: str) -> EpochEntry:
    at_ns = BEGAN_NS + int((number + 1 if at_s is None else at_s) * SECOND_NS)
    failures = tuple(FailureEntry(task, 2, at_ns, "standby", 7, "silent") for task in failed)
    return EpochEntry(number, of, at_ns, {"read/0": (1, 10), "count/0": (2, 30)}, failures)


def interval(first: int, last: int, of: int = 1, *failed: str) -> Interval:
    kept = KeptEntry(first, of, BEGAN_NS + first * SECOND_NS, {})
    return Interval(kept, [epoch(number, of, None, *failed) for number in range(first, last + 1)])


def test_a_short_interval_has_a_bar_for_each_epoch() -> None:
    shown = axis(performed([interval(0, 2), interval(3, 4, 1, "count/0")]), {1: version(1)}, None, None)
    assert [(bar["first"], bar["last"], bar["bytes"], bar["kept"]) for bar in shown["bars"]] == [
        (0, 0, 40, 1), (1, 1, 40, 0), (2, 2, 40, 0), (3, 3, 40, 1), (4, 4, 40, 0)
    ]  # fmt: skip
    assert [bar["failures"] for bar in shown["bars"]] == [0, 0, 0, 1, 1]
    assert [(each["epoch"], each["task"]) for each in shown["failed"]] == [(4, "count/0"), (3, "count/0")]
    assert shown["failed"][0]["why"] == "its process was silent for too long and was killed"
    assert (shown["since_s"], shown["until_s"]) == (BEGAN_NS // SECOND_NS, BEGAN_NS // SECOND_NS + 5)


def test_an_interval_of_time_has_the_epochs_that_overlap_it() -> None:
    epochs, began_s = performed([interval(0, 99)]), BEGAN_NS / SECOND_NS
    shown = axis(epochs, {1: version(1)}, began_s + 10.5, began_s + 12.5)
    assert (shown["first"], shown["last"], shown["epochs"]) == (10, 12, 3)
    assert axis(epochs, {1: version(1)}, 0.0, 9e10)["epochs"] == 100
    for since_s, until_s in ((0.0, 1.0), (9e10, 9e10), (began_s + 50, began_s), (began_s + 7, began_s + 7)):
        assert axis(epochs, {1: version(1)}, since_s, until_s)["epochs"] >= 1, "an empty interval shows what is nearest"


def test_without_an_epoch_there_is_an_empty_axis() -> None:
    assert axis([], {}, None, None)["epochs"] == 0
    assert axis(performed([Interval(KeptEntry(0, 1, 5, {}))]), {}, 1.0, 2.0)["bars"] == []


@given(st.lists(st.tuples(st.integers(1, 60), st.sampled_from(["next", "gap", "version"])), min_size=1, max_size=60))
def test_each_epoch_is_in_one_bar_and_no_bar_spans_a_change(parts: list[tuple[int, str]]) -> None:
    intervals: list[Interval] = []
    first, number = 0, 1
    for length, border in parts:
        intervals.append(interval(first, first + length - 1, number, *(["count/0"] if length % 3 == 0 else [])))
        first += length + (5 if border == "gap" else 0)
        number += border == "version"
    shown = axis(performed(intervals), {n: version(n) for n in range(1, number + 1)}, None, None)
    counted = [each for one in intervals for each in one.epochs]
    assert shown["epochs"] == len(counted)
    assert sum(bar["bytes"] for bar in shown["bars"]) == sum(each.bytes for each in counted)
    assert sum(bar["kept"] for bar in shown["bars"]) == len(intervals)
    assert sum(bar["failures"] for bar in shown["bars"]) == sum(len(each.failures) for each in counted)
    versions = {each.epoch: each.version for each in counted}
    for bar in shown["bars"]:
        assert set(range(bar["first"], bar["last"] + 1)) <= versions.keys(), "no bar spans a gap"
        assert versions[bar["first"]] == versions[bar["last"]]
    assert len(shown["bars"]) <= 2 * BARS_MAX + 60


def test_the_answer_is_bounded_however_long_the_recording_is() -> None:
    intervals = [interval(first, first + 9, 1 + first // 100, "count/0", "read/0") for first in range(0, 20_000, 10)]
    versions = {number: version(number, str(number)) for number in range(1, 202)}
    shown = axis(performed(intervals), versions, None, None)
    assert len(shown["bars"]) <= 2 * BARS_MAX + 1 and len(shown["versions"]) <= VERSIONS_MAX
    assert len(shown["failed"]) == FAILURES_MAX and shown["earlier_failures"] == 40_000 - FAILURES_MAX
    assert shown["failed"][0]["epoch"] == 19_999
    assert len(json.dumps(shown)) < 200_000
    everything = [interval(0, 9_999)]
    assert len(axis(performed(everything), {1: version(1)}, None, None)["bars"]) <= BARS_MAX + 1


def test_a_clock_that_goes_back_does_not_make_epochs_overlap() -> None:
    entries: list[Entry] = [
        KeptEntry(0, 1, BEGAN_NS + 5 * SECOND_NS, {}),
        epoch(0, 1, 6),
        epoch(1, 1, 2),
        epoch(2, 1, 7),
    ]
    epochs = performed(Index([version(1), *entries]).intervals)
    assert all(each.since_ns <= each.until_ns for each in epochs)
    assert [one.until_ns for one in epochs[:-1]] == [other.since_ns for other in epochs[1:]]


@pytest.mark.parametrize(
    ("after", "stretch", "words"),
    [
        (version(3, "b"), 0, "the code of version 1 again"),
        (version(3, "d"), 1, "other code; nothing can be replayed across this point"),
        (version(3, "c"), 1, "a gap: some epochs were not recorded"),
        (version(3, "c", ("read/0", "count/0", "count/1")), 0, "count: 2 tasks, before 1"),
        (version(3, "c", ("read/0", "sum/0")), 0, "without count; with sum"),
        (version(3, "c", rate="7"), 0, "other settings"),
        (version(3, "c"), 0, "the same code again"),
    ],
)
def test_a_change_is_named(after: VersionEntry, stretch: int, words: str) -> None:
    versions = {1: version(1, "b"), 2: version(2, "c"), 3: after}
    assert change((2, 0), (3, stretch), versions) == words
    assert change((9, 0), (3, 0), versions) == "a version whose settings are missing"
