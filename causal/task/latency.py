"""The latency of records from source to visible rows, in buckets; staged rows are counted once they become visible."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

_BOUNDS_MS = tuple(round(0.1 * 1.25**step, 4) for step in range(70))
"""The upper bounds of the buckets, from 0.1 ms to about 490 s, each 25 % above the previous one."""
STAGED_MAX = 1 << 16
"""The maximum number of origins kept per channel until their rows are visible; further rows are not counted."""


class Latencies:
    """The latencies of all rows that one task has made visible."""

    def __init__(self) -> None:
        self.buckets_ms: Counter[float] = Counter()
        self.max_ms = 0.0
        self.sum_ms = 0.0
        self._staged: dict[int, list[tuple[int, int, int]]] = {}

    def seen(self, origins: Sequence[tuple[int, int]], now_ns: int) -> None:
        """Count rows that have just become visible, given as pairs (origin, number of rows)."""
        for origin_ns, rows in origins:
            if origin_ns:
                took_ms = (now_ns - origin_ns) / 1e6
                self.max_ms = max(self.max_ms, took_ms)
                self.sum_ms += took_ms * rows
                self.buckets_ms[_BOUNDS_MS[min(bisect_left(_BOUNDS_MS, took_ms), len(_BOUNDS_MS) - 1)]] += rows

    def staged(self, channel: int, epoch: int, origins: Sequence[tuple[int, int]]) -> None:
        """Keep the origins of rows staged in `epoch` until a checkpoint covers these rows."""
        waiting = self._staged.setdefault(channel, [])
        waiting += [(epoch, *origin) for origin in origins[: STAGED_MAX - len(waiting)]]

    def committed(self, channel: int, epoch: int, now_ns: int) -> None:
        """Count the rows staged in epochs below `epoch`, which have just become visible."""
        waiting = self._staged.pop(channel, [])
        self.seen([(origin_ns, rows) for at, origin_ns, rows in waiting if at < epoch], now_ns)
        self._staged[channel] = [entry for entry in waiting if entry[0] >= epoch]
