"""`java.util.Random`, number for number, because Nexmark seeds one with the number of each event."""

from __future__ import annotations

from typing import Final

_MULTIPLIER: Final = 0x5DEECE66D
_MASK: Final = (1 << 48) - 1


class JavaRandom:
    """The linear congruential generator of 48 bits that `java.util.Random` specifies."""

    __slots__ = ("_seed",)

    def __init__(self, seed: int) -> None:
        self._seed = (seed ^ _MULTIPLIER) & _MASK

    def bits(self, count: int) -> int:
        """Return the next `count` (at most 32) bits, as a number that is not negative."""
        self._seed = (self._seed * _MULTIPLIER + 0xB) & _MASK
        return self._seed >> (48 - count)

    def int32(self) -> int:
        """`nextInt()`: 32 bits, signed."""
        drawn = self.bits(32)
        return drawn - (1 << 32) if drawn >> 31 else drawn

    def below(self, bound: int) -> int:
        """`nextInt(bound)`: 0 to bound - 1, for bounds from 1 to 2^31 - 1."""
        if bound & -bound == bound:
            return (bound * self.bits(31)) >> 31
        while True:
            drawn = self.bits(31)
            number = drawn % bound
            if drawn - number + (bound - 1) < 1 << 31:
                return number

    def fraction(self) -> float:
        """`nextDouble()`: from 0 to below 1."""
        return float(((self.bits(26) << 27) + self.bits(27)) * 2.0**-53)
