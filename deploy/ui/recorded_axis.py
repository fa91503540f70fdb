"""The time axis of a recording, as the page draws it: bars of epochs, ticks, versions and failures. Pure.

However long the recording is, the answer has a bounded size: consecutive epochs share a bar, which never spans two
versions or a gap. All times are in seconds since 1970, because a browser would round nanoseconds.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

from causal.recorded_files import EpochEntry, FailureEntry, VersionEntry
from causal.recorded_index import Interval
from deploy.ui.models import WHY_MAX, because

BARS_MAX = 200
"""The number of equal parts into which an interval of time is divided."""
VERSIONS_MAX = 50
"""The number of version bands, newest first, that are drawn; more versions share a bar."""
FAILURES_MAX = 50
"""The number of failures that are listed, newest first."""
TASKS_MAX = 5
"""The number of tasks that are named at the failures of one bar."""
SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Performed:
    """An epoch, and the time in which it was performed.

    Attributes:
        stretch: the number of the group of epochs that a replay can pass through.
        kept: whether the checkpoint at its beginning is kept.
    """

    entry: EpochEntry
    since_ns: int
    until_ns: int
    stretch: int
    kept: bool


def performed(intervals: Sequence[Interval]) -> list[Performed]:
    """Return the epochs of a recording in order; a clock that went back does not make them overlap."""
    epochs: list[Performed] = []
    stretch, latest_ns = 0, 0
    for place, interval in enumerate(intervals):
        stretch += bool(place) and not intervals[place - 1].is_followed_by(interval)
        latest_ns = max(latest_ns, interval.kept.at_ns)
        for entry in interval.epochs:
            since_ns, latest_ns = latest_ns, max(latest_ns, entry.at_ns)
            epochs.append(Performed(entry, since_ns, latest_ns, stretch, entry is interval.epochs[0]))
    return epochs


def axis(
    epochs: Sequence[Performed], versions: Mapping[int, VersionEntry], since_s: float | None, until_s: float | None
) -> dict[str, Any]:
    """Return the axis of an interval of time; of the whole recording, if no bounds are given.

    Args:
        epochs: all epochs of the recording.
        versions: the versions by number.
    """
    if not epochs:
        return {"epochs": 0, "bars": [], "versions": [], "failures": [], "failed": [], "earlier_failures": 0}
    first_ns, last_ns = epochs[0].since_ns, epochs[-1].until_ns
    since_ns = first_ns if since_s is None else min(max(int(since_s * SECOND_NS), first_ns), last_ns)
    until_ns = last_ns if until_s is None else max(min(int(until_s * SECOND_NS), last_ns), since_ns)
    until_ns = max(until_ns, since_ns + 1)
    low = bisect_right(epochs, since_ns, key=lambda each: each.until_ns)
    high = bisect_left(epochs, until_ns, key=lambda each: each.since_ns)
    shown = epochs[min(low, len(epochs) - 1) : max(high, low + 1)]
    failures = [(each, failure) for each in shown for failure in each.entry.failures]
    return {
        "epochs": len(shown),
        "whole": [_s(first_ns), _s(last_ns)],
        "since_s": _s(since_ns),
        "until_s": _s(until_ns),
        "first": shown[0].entry.epoch,
        "last": shown[-1].entry.epoch,
        "bars": list(_bars(shown, since_ns, until_ns)),
        "versions": list(_versions(epochs, shown, versions))[-VERSIONS_MAX:],
        "failed": [_failure(each, failure) for each, failure in failures[: -FAILURES_MAX - 1 : -1]],
        "earlier_failures": max(0, len(failures) - FAILURES_MAX),
    }


def _bars(shown: Sequence[Performed], since_ns: int, until_ns: int) -> Iterator[dict[str, Any]]:
    breaks = sum(_segment(one) != _segment(other) for one, other in pairwise(shown))
    apart = len(shown) <= BARS_MAX

    def place(each: Performed) -> tuple[object, ...]:
        middle_ns = min(max((each.since_ns + each.until_ns) // 2, since_ns), until_ns - 1)
        slot = each.entry.epoch if apart else BARS_MAX * (middle_ns - since_ns) // (until_ns - since_ns)
        return slot, *(_segment(each) if breaks <= BARS_MAX else ())

    for _, group in groupby(shown, place):
        members = list(group)
        failures = [failure for each in members for failure in each.entry.failures]
        yield {
            "first": members[0].entry.epoch,
            "last": members[-1].entry.epoch,
            "since_s": _s(members[0].since_ns),
            "until_s": _s(members[-1].until_ns),
            "bytes": sum(each.entry.bytes for each in members),
            "kept": sum(each.kept for each in members),
            "failures": len(failures),
            "failed": list(dict.fromkeys(failure.task for failure in failures))[:TASKS_MAX],
        }


def _segment(each: Performed) -> tuple[int, int]:
    return each.entry.version, each.stretch


def _versions(
    epochs: Sequence[Performed], shown: Sequence[Performed], versions: Mapping[int, VersionEntry]
) -> Iterator[dict[str, Any]]:
    """Yield the parts of the interval that one version performed without a gap, and how each began."""
    begins = {segment: next(group) for segment, group in groupby(epochs, _segment)}
    before: dict[tuple[int, int], tuple[int, int] | None] = dict(zip(begins, [None, *begins]))
    for segment, group in groupby(shown, _segment):
        members = list(group)
        yield {
            "version": segment[0],
            "first": members[0].entry.epoch,
            "last": members[-1].entry.epoch,
            "since_s": _s(members[0].since_ns),
            "until_s": _s(members[-1].until_ns),
            "begins": begins[segment] is members[0] and before[segment] is not None,
            "change": change(before[segment], segment, versions),
        }


def change(before: tuple[int, int] | None, after: tuple[int, int], versions: Mapping[int, VersionEntry]) -> str:
    """Return how a version began, as a few words: `other code`, `count: 2 tasks, before 1`, `a gap` …

    Args:
        before, after: (version, stretch) of the epochs on both sides; None before the first epoch.
    """
    if before is None:
        return "the beginning of the recording"
    old, new = versions.get(before[0]), versions.get(after[0])
    if old is None or new is None:
        return "a version whose settings are missing"
    words = []
    if new.config.get("code") != old.config.get("code"):
        earlier = [v.number for v in versions.values() if v.number < old.number and _code(v) == _code(new)]
        words.append(f"the code of version {max(earlier)} again" if earlier else "other code")
    sizes, sizes_before = _sizes(new), _sizes(old)
    for name, size in sizes.items():
        if name in sizes_before and sizes_before[name] != size:
            words.append(f"{name}: {size} tasks, before {sizes_before[name]}")
    words += [f"without {name}" for name in sizes_before if name not in sizes]
    words += [f"with {name}" for name in sizes if name not in sizes_before]
    if new.config.get("settings") != old.config.get("settings"):
        words.append("other settings")
    if before[1] != after[1]:
        words.append("nothing can be replayed across this point" if words else "a gap: some epochs were not recorded")
    return "; ".join(words) or "the same code again"


def _code(version: VersionEntry) -> object:
    return version.config.get("code")


def _sizes(version: VersionEntry) -> dict[str, int]:
    """Return the number of tasks of each operator chain."""
    sizes: dict[str, int] = {}
    for task in version.tasks:
        name = task.rpartition("/")[0] or task
        sizes[name] = sizes.get(name, 0) + 1
    return sizes


def _failure(each: Performed, failure: FailureEntry) -> dict[str, Any]:
    return {
        "task": failure.task,
        "epoch": each.entry.epoch,
        "incarnation": failure.incarnation,
        "at_s": _s(failure.at_ns),
        "mode": failure.mode,
        "why": because(failure.cause)[:WHY_MAX],
    }


def _s(at_ns: int) -> float:
    return round(at_ns / SECOND_NS, 3)
