"""The two joins of `ordinary` as a user writes them for one key, where the engine has none; the standard library alone.

Neither takes late records: what is forgotten follows from the times of the other side, out of order as far as they are.
"""

from __future__ import annotations

from bisect import bisect_right

from benchmarks.peers.programs.ordinary import user_code as code
from benchmarks.peers.programs.ordinary.user_code import Record


class Interval:
    """The orders (side 0) and payments (side 1) of one user that may still find a partner."""

    def __init__(self) -> None:
        self._kept: tuple[list[Record], list[Record]] = ([], [])

    def take(self, side: int, record: Record, rows: list[Record]) -> None:
        """Join it with the records kept of the other side."""
        ts, others = record["ts"], self._kept[1 - side]
        for other in others:
            if -code.WITHIN_S <= other["ts"] - ts <= code.WITHIN_S:
                rows.append(code.paired(other, record) if side else code.paired(record, other))
        self._kept[side].append(record)
        least_s = ts - code.WITHIN_S - code.OUT_OF_ORDER_S
        if others and others[0]["ts"] < least_s:
            others[:] = [other for other in others if other["ts"] >= least_s]


class AsOf:
    """The sales (side 0) of one item that wait for its prices (side 1), and the prices that a sale may still need."""

    def __init__(self) -> None:
        self._waiting: list[Record] = []
        self._times: list[float] = []
        self._prices: list[Record] = []
        self._sold_s = 0.0

    def take(self, side: int, record: Record, rows: list[Record]) -> None:
        """Keep it; a price releases the sales before which no other price will come."""
        ts = record["ts"]
        if side == 0:
            self._waiting.append(record)
            self._sold_s = max(self._sold_s, ts)
            return
        place = bisect_right(self._times, ts)
        self._times.insert(place, ts)
        self._prices.insert(place, record)
        until_s = self._times[-1] - code.OUT_OF_ORDER_S
        ready = [sale for sale in self._waiting if sale["ts"] < until_s]
        if ready:
            self._waiting = [sale for sale in self._waiting if sale["ts"] >= until_s]
            self._sell(ready, rows)
        last = bisect_right(self._times, min(until_s, self._sold_s - code.OUT_OF_ORDER_S)) - 1
        if last > 0:
            del self._times[:last], self._prices[:last]

    def end(self, rows: list[Record]) -> None:
        """The inputs have ended: no sale waits any more."""
        self._sell(self._waiting, rows)
        self._waiting = []

    def _sell(self, sales: list[Record], rows: list[Record]) -> None:
        for sale in sales:
            place = bisect_right(self._times, sale["ts"])
            if place:
                rows.append(code.sold(sale, self._prices[place - 1]))
