"""The workloads of `ordinary` without an engine: the user's functions and MessagePack, in one process.

Every batch is packed and unpacked where an engine would send it to the task of its keys, and once more on its way to
the sink.  There is no socket, log, checkpoint or standby, and nothing is verified but the rows.
"""

from __future__ import annotations

import heapq
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgpack

from benchmarks.peers.programs import inputs
from benchmarks.peers.programs.ordinary import user_code as code
from benchmarks.peers.programs.ordinary.joins_by_hand import AsOf, Interval
from benchmarks.peers.programs.ordinary.user_code import WORKLOADS, Record

BATCH = 4096
END_S = float("inf")
Batches = Iterator[list[Any]]


def hop(batch: list[Any]) -> list[Any]:
    """Return the batch as it is on the other side of a connection."""
    arrived: list[Any] = msgpack.unpackb(msgpack.packb(batch), strict_map_key=False)
    return arrived


def _profile(purchases: Batches) -> Batches:
    profiles: dict[str, dict[str, Any]] = {}
    for batch in purchases:
        bought = [record for record in map(code.enriched, batch) if code.is_charged(record)]
        yield [code.profiled(profiles.setdefault(record["user"], {}), record) for record in hop(bought)]


def _panes(readings: Batches, size_s: int) -> Iterator[tuple[float, dict[str, tuple[int, float]]]]:
    """(beginning, user → count and sum) of windows, each when no reading of it is expected any more."""
    windows: dict[float, dict[str, tuple[int, float]]] = {}
    back_s = range(0, size_s, code.EVERY_S)
    watermark_s = 0.0
    for batch in readings:
        for record in hop(batch):
            user, ts = record["user"], record["ts"]
            last_s = ts // code.EVERY_S * code.EVERY_S
            for each_s in back_s:
                start_s = last_s - each_s
                sums = windows.get(start_s)
                if sums is None:
                    sums = windows[start_s] = {}
                sums[user] = code.added(sums.get(user) or (0, 0.0), record)
            watermark_s = max(watermark_s, ts)
        for start_s in sorted(start_s for start_s in windows if start_s + size_s <= watermark_s - code.OUT_OF_ORDER_S):
            yield start_s, windows.pop(start_s)
    yield from sorted(windows.items())


def _windows(readings: Batches) -> Batches:
    for start_s, sums in _panes(readings, code.TUMBLING_S):
        yield [(user, n, total, start_s) for user, (n, total) in sums.items()]


def _sliding(readings: Batches) -> Batches:
    for start_s, sums in _panes(readings, code.SLIDING_S):
        yield [(user, total / n, start_s) for user, (n, total) in sums.items()]


def _by_key(sides: Sequence[Batches], key: str, logic: Callable[[], Interval | AsOf], keys: dict[str, Any]) -> Batches:
    """Yield the rows of a join, a batch of each side in turn; `keys` are filled with what each key keeps."""
    for both in zip(*sides, strict=True):
        rows: list[Record] = []
        for side, batch in enumerate(both):
            for record in hop(batch):
                of_key = keys.get(record[key])
                if of_key is None:
                    of_key = keys[record[key]] = logic()
                of_key.take(side, record, rows)
        yield rows


def _join(orders: Batches, payments: Batches) -> Batches:
    yield from _by_key((orders, payments), "user", Interval, {})


def _as_of(sales: Batches, prices: Batches) -> Batches:
    items: dict[str, AsOf] = {}
    yield from _by_key((sales, prices), "item", AsOf, items)
    rows: list[Record] = []
    for each in items.values():
        each.end(rows)
    yield rows


class Visit:
    """One session that is not over: its first and last times, and its clicks."""

    __slots__ = ("first_s", "last_s", "clicks")

    def __init__(self, click: Record) -> None:
        self.first_s = self.last_s = click["ts"]
        self.clicks = [click]


class Visits:
    """The sessions of all users that are not over; `ends` has a moment at which to look at a user again."""

    def __init__(self) -> None:
        self._users: dict[str, list[Visit]] = {}
        self._ends: list[tuple[float, str]] = []

    def take(self, click: Record) -> None:
        """Take a click into a session, which may connect two."""
        ts, user = click["ts"], click["user"]
        known = self._users.setdefault(user, [])
        near = [each for each in known if each.first_s - code.GAP_S < ts < each.last_s + code.GAP_S]
        if not near:
            known.append(Visit(click))
            heapq.heappush(self._ends, (ts + code.GAP_S, user))
            return
        one = near[0]
        one.clicks.append(click)
        for other in near[1:]:
            one.first_s, one.last_s = min(one.first_s, other.first_s), max(one.last_s, other.last_s)
            one.clicks += other.clicks
            known.remove(other)
        if ts < one.first_s:
            one.first_s = ts
        elif ts > one.last_s:
            one.last_s = ts

    def over(self, watermark_s: float) -> list[Record]:
        """Return the rows of the sessions that are over then."""
        rows: list[Record] = []
        while self._ends and self._ends[0][0] <= watermark_s:
            end_s, user = heapq.heappop(self._ends)
            for each in list(self._users[user]):
                if each.last_s + code.GAP_S <= watermark_s:
                    self._users[user].remove(each)
                    rows.append(code.visit(user, each.clicks))
                elif each.last_s + code.GAP_S > end_s:
                    heapq.heappush(self._ends, (each.last_s + code.GAP_S, user))
        return rows


def _sessions(clicks: Batches) -> Batches:
    visits, latest_s = Visits(), 0.0
    for batch in clicks:
        for click in hop(batch):
            visits.take(click)
            latest_s = max(latest_s, click["ts"])
        yield visits.over(latest_s - code.OUT_OF_ORDER_S)
    yield visits.over(END_S)


def _words(lines: Batches) -> Batches:
    counts: dict[str, int] = {}
    for batch in lines:
        for term in hop([term for line in batch for term in line.split()]):
            counts[term] = counts.get(term, 0) + 1
    counted = hop(list(counts.items()))
    yield heapq.nsmallest(code.TOP, counted, key=lambda each: (-each[1], each[0]))


def _running(lines: Batches) -> Batches:
    counts: dict[str, int] = {}
    for batch in lines:
        rows = []
        for term in hop([term for line in batch for term in line.split()]):
            n = counts[term] = counts.get(term, 0) + 1
            rows.append((term, n))
        yield rows


FLOWS: Mapping[str, Callable[..., Batches]] = {
    "profile": _profile,
    "windows": _windows,
    "sliding": _sliding,
    "join": _join,
    "sessions": _sessions,
    "words": _words,
    "running": _running,
    "as_of": _as_of,
}
"""Workload → the batches of rows that it makes of the batches of its inputs."""


def rows_of(workload: str, records: int) -> Batches:
    """Yield the batches of rows of a workload, as its sink has them."""
    every = WORKLOADS[workload].inputs
    counts = WORKLOADS[workload].counts(records)
    tenths_max = max(tenths for _, tenths in every.values())
    read = [
        iter(code.batches(maker, counts[name], BATCH * tenths // tenths_max)) for name, (maker, tenths) in every.items()
    ]
    for rows in FLOWS[workload](*read):
        if rows:
            yield hop(rows)


def main() -> int:
    """Run one workload."""
    workload, place = sys.argv[1], Path(sys.argv[2])
    asked = inputs.asked(place)
    tally = code.tally_of(workload, place)
    first_s = time.time()
    for rows in rows_of(workload, asked["records"]):
        tally.add(rows)
    tally.write()
    inputs.put(place / "outcome.json", {"first_s": first_s, "guarantee": "none", "per_record": True})
    return 0


if __name__ == "__main__":
    sys.exit(main())
