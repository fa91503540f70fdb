"""The keys on which a task spends most of its time, estimated from samples in a Space-Saving table of limited size.

Metwally, Agrawal, El Abbadi: Efficient Computation of Frequent and Top-k Elements in Data Streams (2005). A key that
accounts for more than one in `KEPT_MAX` samples is never absent from the table for long, regardless of the number of
other keys.
"""

from __future__ import annotations

KEPT_MAX = 32
"""The maximum number of keys in the table."""
REPORTED_MAX = 8
"""The maximum number of keys that are reported."""
TEXT_MAX = 100
"""The maximum number of characters of each key."""
HALVED_EVERY_NS = 60_000_000_000
"""The time after which a sample counts only half, so that a key that is no longer hot leaves the table."""
_HALVINGS_MAX = 64

Share = tuple[str, float]
"""(key as displayed, share of the samples from 0 to 1)."""


class HotKeys:
    """The keys that were sampled most often in the last few minutes."""

    def __init__(self) -> None:
        self._samples = 0.0
        self._counts: dict[str, tuple[float, float]] = {}
        """Key → (count, the part of the count that may belong to keys that this key has replaced)."""
        self._halved_ns: int | None = None

    def __len__(self) -> int:
        return len(self._counts)

    def add(self, key: str | None, now_ns: int) -> None:
        """Count one sample; `key` is the key on which the task was working, or None if there was none."""
        self._age(now_ns)
        self._samples += 1
        if key is None:
            return
        if len(key) > TEXT_MAX:
            key = key[: TEXT_MAX - 1] + "…"
        known = self._counts.get(key)
        if known is None and len(self._counts) == KEPT_MAX:
            least = min(self._counts, key=lambda each: self._counts[each][0])
            replaced, _ = self._counts.pop(least)
            known = replaced, replaced
        count, error = known or (0.0, 0.0)
        self._counts[key] = count + 1, error

    def _age(self, now_ns: int) -> None:
        """Halve all counts once per elapsed `HALVED_EVERY_NS`, and drop the keys whose counts fall below one."""
        if self._halved_ns is None:
            self._halved_ns = now_ns
        times = (now_ns - self._halved_ns) // HALVED_EVERY_NS
        if times <= 0:
            return
        self._halved_ns += times * HALVED_EVERY_NS
        part = 0.5 ** min(times, _HALVINGS_MAX)
        self._samples *= part
        halved = {key: (count * part, error * part) for key, (count, error) in self._counts.items()}
        self._counts = {key: (count, error) for key, (count, error) in halved.items() if count >= 1}

    def shares(self) -> tuple[Share, ...]:
        """Return the keys with the most samples, each with a lower bound on its share, in descending order."""
        if not self._samples:
            return ()
        certain = {key: count - error for key, (count, error) in self._counts.items()}
        leading = sorted(certain, key=lambda key: (-certain[key], key))[:REPORTED_MAX]
        return tuple((key, round(min(1.0, certain[key] / self._samples), 4)) for key in leading)
