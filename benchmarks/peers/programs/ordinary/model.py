"""The rows of each workload of `ordinary`, found by looking at its whole input, in plain Python.

    python -m benchmarks.peers.programs.ordinary.model WORKLOAD RECORDS

prints the tally of them, which every run is compared with.
"""

from __future__ import annotations

import json
import sys
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from benchmarks.peers.programs import inputs
from benchmarks.peers.programs.ordinary import user_code as code
from benchmarks.peers.programs.ordinary.user_code import WORKLOADS, Record

Rows = Iterator[Any]


def _every(workload: str, name: str, records: int) -> Iterator[Any]:
    maker, _ = WORKLOADS[workload].inputs[name]
    for partition in range(inputs.PARTITIONS):
        for i in range(WORKLOADS[workload].counts(records)[name]):
            yield maker(partition, i)


def _by(key: str, records: Iterator[Record]) -> dict[str, list[Record]]:
    groups: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        groups[record[key]].append(record)
    return groups


def _profile(records: int) -> Rows:
    for user, bought in _by("user", _every("profile", "purchases", records)).items():
        total, large = 0.0, 0
        for n, each in enumerate(bought, 1):
            total += round(each["amount"] * 0.92, 2)
            large += each["amount"] > 700
            yield {"user": user, "n": n, "mean": total / n, "large": large, "category": each["category"]}


def _sums(workload: str, records: int, every_s: int, size_s: int) -> Iterator[tuple[str, int, float, float]]:
    """(user, readings, their sum, beginning) of every window that has a reading."""
    sums: dict[tuple[str, float], list[float]] = defaultdict(list)
    for each in _every(workload, "readings", records):
        last_s = each["ts"] // every_s * every_s
        for back_s in range(0, size_s, every_s):
            sums[each["user"], last_s - back_s].append(each["amount"])
    for (user, start_s), amounts in sums.items():
        yield user, len(amounts), sum(amounts), start_s


def _windows(records: int) -> Rows:
    yield from _sums("windows", records, code.TUMBLING_S, code.TUMBLING_S)


def _sliding(records: int) -> Rows:
    for user, n, total, start_s in _sums("sliding", records, code.EVERY_S, code.SLIDING_S):
        yield user, total / n, start_s


def _join(records: int) -> Rows:
    payments = _by("user", _every("join", "payments", records))
    for placed in _every("join", "orders", records):
        for paid in payments.get(placed["user"], ()):
            if abs(paid["ts"] - placed["ts"]) <= code.WITHIN_S:
                yield code.paired(placed, paid)


def _sessions(records: int) -> Rows:
    for user, clicks in _by("user", _every("sessions", "clicks", records)).items():
        clicks.sort(key=code.time_of)
        session: list[Record] = []
        for each in clicks:
            if session and each["ts"] - session[-1]["ts"] >= code.GAP_S:
                yield code.visit(user, session)
                session = []
            session.append(each)
        yield code.visit(user, session)


def _counted(workload: str, records: int) -> Counter[str]:
    return Counter(term for line in _every(workload, "lines", records) for term in line.split())


def _words(records: int) -> Rows:
    counts = _counted("words", records)
    yield from sorted(counts.items(), key=lambda each: (-each[1], each[0]))[: code.TOP]


def _running(records: int) -> Rows:
    for term, count in _counted("running", records).items():
        for n in range(1, count + 1):
            yield term, n


def _as_of(records: int) -> Rows:
    prices = _by("item", _every("as_of", "prices", records))
    for each in prices.values():
        each.sort(key=code.time_of)
    times = {item: [each["ts"] for each in known] for item, known in prices.items()}
    for sale in _every("as_of", "sales", records):
        place = bisect_right(times.get(sale["item"], []), sale["ts"])
        if place:
            yield code.sold(sale, prices[sale["item"]][place - 1])


ROWS: Mapping[str, Callable[[int], Rows]] = {
    "profile": _profile,
    "windows": _windows,
    "sliding": _sliding,
    "join": _join,
    "sessions": _sessions,
    "words": _words,
    "running": _running,
    "as_of": _as_of,
}
"""Workload → its rows for this many records, in the form in which the bare job has them."""


def expected(workload: str, records: int) -> dict[str, Any]:
    """Return the sum that the tallies of all sinks of a run must have."""
    verified = WORKLOADS[workload].verified
    if verified is None:
        counts = _counted(workload, records)
        total = sum(n * (n + 1) // 2 for n in counts.values())
        return {"rows": counts.total(), "total": total, "last": dict(counts)}
    hashes = [hash(verified(row)) for row in ROWS[workload](records)]
    return {"rows": len(hashes), "total": sum(hashes), "last": {}}


if __name__ == "__main__":
    print(json.dumps(expected(sys.argv[1], int(sys.argv[2]))))
