"""The rolling digest of a channel's element bytes, chained from epoch to epoch (D7).

It is taken over packed chunks, so equal chunks give equal digests however they are framed.  At a
barrier it is closed and seeds the next epoch's, so one number in a snapshot carries the whole past on.
"""

from __future__ import annotations

import xxhash


class RollingDigest:
    """64 bits; `value` after everything fed so far."""

    __slots__ = ("_hash", "value")

    def __init__(self, seed: int = 0) -> None:
        self._hash = xxhash.xxh3_64(seed=seed)
        self.value = seed

    def feed(self, packed: bytes | memoryview) -> int:
        self._hash.update(packed)
        self.value = self._hash.intdigest()
        return self.value

    def feed_if(self, packed: bytes | memoryview, expected: int) -> bool:
        """Take `packed` in only if the value is `expected` behind it; says whether."""
        trial = self._hash.copy()
        trial.update(packed)
        if trial.intdigest() != expected:
            return False
        self._hash = trial
        self.value = expected
        return True

    def copy(self) -> RollingDigest:
        """One that goes its own way from here."""
        other = RollingDigest.__new__(RollingDigest)
        other._hash, other.value = self._hash.copy(), self.value
        return other

    def adopt(self, value: int) -> None:
        """Take the sender's word: it went on from bytes that this end never saw."""
        self._hash = xxhash.xxh3_64(seed=value)
        self.value = value

    def close(self) -> int:
        """A barrier has been fed: the next epoch is chained to this one."""
        self._hash = xxhash.xxh3_64(seed=self.value)
        return self.value
