"""The keys on which a task spends its time, from samples: a Space-Saving table, so its size is bounded.

Metwally, Agrawal, El Abbadi: Efficient Computation of Frequent and Top-k Elements in Data Streams (2005).  A key that
gets more than one sample in `KEPT_MAX` is never absent from the table for long, however many other keys there are.
"""

from __future__ import annotations

KEPT_MAX = 32
"""The most keys in the table."""
REPORTED_MAX = 8
"""The most keys that are reported."""
TEXT_MAX = 100
"""The most characters of each key."""
HALVED_EVERY_NS = 60_000_000_000
"""The time after which a sample counts for half, so that a key that was hot long ago is forgotten."""
_HALVINGS_MAX = 64

Share = tuple[str, float]
"""(key as it is shown, its share of the samples, from 0 to 1)."""


class HotKeys:
    """The keys that were sampled most, lately."""

    def __init__(self) -> None:
        self._samples = 0.0
        self._counts: dict[str, tuple[float, float]] = {}
        """key -> (count, the part of it that may be of keys whose place it took)."""
        self._halved_ns: int | None = None

    def __len__(self) -> int:
        return len(self._counts)

    def add(self, key: str | None, now_ns: int) -> None:
        """Count one sample: the key that the task worked on, or None where it worked on no key."""
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
        """Halve all counts once for each minute that is over, and forget the keys of which no whole sample is left."""
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
        """Return the keys with the most samples and the share of all samples that each had at least, the highest
        first.
        """
        if not self._samples:
            return ()
        certain = {key: count - error for key, (count, error) in self._counts.items()}
        leading = sorted(certain, key=lambda key: (-certain[key], key))[:REPORTED_MAX]
        return tuple((key, round(min(1.0, certain[key] / self._samples), 4)) for key in leading)
