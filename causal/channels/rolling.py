"""The rolling digest of a channel's element bytes, chained from epoch to epoch (D7).

The digest is computed over packed chunks, so equal chunks have equal digests regardless of their framing. At a barrier,
the digest is closed and becomes the seed for the next epoch, so one number in a snapshot covers the entire past.
"""

from __future__ import annotations

import xxhash


class RollingDigest:
    """A 64-bit digest, `value`, of all bytes processed so far."""

    __slots__ = ("_hash", "value")

    def __init__(self, seed: int = 0) -> None:
        self._hash = xxhash.xxh3_64(seed=seed)
        self.value = seed

    def feed(self, packed: bytes | memoryview) -> int:
        self._hash.update(packed)
        self.value = self._hash.intdigest()
        return self.value

    def feed_if(self, packed: bytes | memoryview, expected: int) -> bool:
        """Feed `packed` only if the resulting value is `expected`; return whether it was."""
        trial = self._hash.copy()
        trial.update(packed)
        if trial.intdigest() != expected:
            return False
        self._hash = trial
        self.value = expected
        return True

    def copy(self) -> RollingDigest:
        """Return an independent copy."""
        other = RollingDigest.__new__(RollingDigest)
        other._hash, other.value = self._hash.copy(), self.value
        return other

    def adopt(self, value: int) -> None:
        """Adopt the sender's value, which covers bytes that this end never received."""
        self._hash = xxhash.xxh3_64(seed=value)
        self.value = value

    def close(self) -> int:
        """Chain the next epoch to this one, after a barrier has been fed."""
        self._hash = xxhash.xxh3_64(seed=self.value)
        return self.value
