"""Chance as programs spell it, inside an operator: drawn from the operator's own streams, so the same in a replay.

Not for secrets: who holds the determinants can compute all that is drawn here.
"""

from __future__ import annotations

import os
import random
import secrets
import tempfile
import uuid
from collections.abc import Callable
from random import Random
from typing import Any

from operators.capture.replacing import Replacement
from operators.capture.scope import RUNNING, Active, Streams, inside

MEND = "use ctx.random"
MEND_UUID = "use ctx.uuid()"
INTERVALS_TO_1970 = 0x01B21DD213814000
"""Of 100 ns, from the beginning of the Gregorian calendar, from which UUIDs of versions 1 and 6 count."""


def of_random() -> list[Replacement]:
    """The functions of module `random`, and the clean ground under them: generators that nobody has seeded."""
    hidden: Any = random._inst
    names = [name for name, value in vars(random).items() if getattr(value, "__self__", None) is hidden]
    replacements = [Replacement(random, name, getattr(random, name), _drawing(name)) for name in names]
    hidden.__class__ = Unseeded
    Random.seed = _seed  # type: ignore[method-assign]
    vars(tempfile)["_Random"] = Private  # made once per process, when first used: it must not shift an operator's draws
    return replacements


def _drawing(name: str) -> Callable[..., Any]:
    """`random.<name>`: of the operator's stream inside of one, of the process's generator otherwise."""
    real, spelling = getattr(random, name), f"random.{name}()"

    def draw(*given: Any, **named: Any) -> Any:
        active = RUNNING.active and inside(spelling, MEND)
        if active is None:
            return real(*given, **named)
        return getattr(_streams(active).random, name)(*given, **named)

    draw.__name__ = name
    return draw


def _streams(active: Active) -> Streams:
    return active.streams(active.operator)


def _drawn() -> Random | None:
    active = RUNNING.active and inside("a Random() that nobody seeded", MEND)
    return None if active is None else _streams(active).random


class Unseeded(Random):
    """A generator that was seeded by the kernel, before or outside of any operator: the one behind `random.random`
    and those of libraries that make `Random()` of their own.  Inside an operator it is that operator's stream."""

    def random(self) -> float:
        stream = _drawn()
        return super().random() if stream is None else stream.random()

    def getrandbits(self, k: int, /) -> int:
        stream = _drawn()
        return super().getrandbits(k) if stream is None else stream.getrandbits(k)

    def getstate(self) -> Any:
        stream = _drawn()
        return super().getstate() if stream is None else stream.getstate()

    def setstate(self, state: Any) -> None:
        generator: Any = self
        generator.__class__ = Random  # what is set is known: the generator is its owner's from now on
        generator.setstate(state)

    @property
    def gauss_next(self) -> Any:
        """The second of a pair that `gauss` has drawn."""
        stream = _drawn()
        return self.__dict__.get("gauss_next") if stream is None else stream.gauss_next  # type: ignore[attr-defined]

    @gauss_next.setter
    def gauss_next(self, value: Any) -> None:
        stream = _drawn()
        if stream is None:
            self.__dict__["gauss_next"] = value
        else:
            stream.gauss_next = value  # type: ignore[attr-defined]


class Private(Random):
    """A generator whose draws are no result, as of names for temporary files: always the process's own."""


_real_seed = Random.seed


def _seed(self: Random, a: Any = None, version: int = 2) -> None:
    """As `Random.seed`; without a value inside an operator the seed is drawn from that operator's stream."""
    kind = type(self)
    if a is None and kind in (Random, Unseeded):
        active = RUNNING.active and inside("random.Random() without a seed", MEND)
        if active is not None:
            a = _streams(active).bits.getrandbits(256)
        else:
            self.__class__ = Unseeded
    if a is not None and kind is Unseeded:
        self.__class__ = Random
    _real_seed(self, a, version)


def of_entropy() -> list[Replacement]:
    """The kernel's random bytes, UUIDs and `secrets`."""
    replacements = [
        Replacement(os, "urandom", os.urandom, _bytes(os.urandom, "urandom")),
        Replacement(os, "getrandom", os.getrandom, _bytes(os.getrandom, "getrandom")),
        *(_named(secrets, name, MEND) for name in secrets.__all__ if name not in ("SystemRandom", "compare_digest")),
    ]
    for name, make in (("uuid1", uuid1), ("uuid4", uuid4), ("uuid6", uuid6), ("uuid7", uuid7)):
        if hasattr(uuid, name):  # 6 and 7 came with Python 3.14
            replacements.append(Replacement(uuid, name, getattr(uuid, name), _uuid(getattr(uuid, name), name, make)))
    return replacements


def _bytes(real: Callable[..., bytes], name: str) -> Callable[..., bytes]:
    def draw(size: int, *given: Any, **named: Any) -> bytes:
        active = RUNNING.active and inside(f"os.{name}()", MEND)
        return real(size, *given, **named) if active is None else _streams(active).bits.randbytes(size)

    return draw


def _named(module: Any, name: str, mend: str) -> Replacement:
    """Only so that a refusal names it: what it draws comes from `os.urandom`."""
    real = getattr(module, name)
    spelling = f"{module.__name__}.{name}()"

    def draw(*given: Any, **named: Any) -> Any:
        inside(spelling, mend)
        return real(*given, **named)

    draw.__name__ = name
    return Replacement(module, name, real, draw)


def _uuid(real: Callable[..., uuid.UUID], name: str, make: Callable[..., uuid.UUID]) -> Callable[..., uuid.UUID]:
    def draw(*given: Any, **named: Any) -> uuid.UUID:
        active = RUNNING.active and inside(f"uuid.{name}()", MEND_UUID)
        return real(*given, **named) if active is None else make(active, *given, **named)

    draw.__name__ = name
    return draw


def uuid1(active: Active, node: int | None = None, clock_seq: int | None = None) -> uuid.UUID:
    """From the causal clock, and chance for what the process would remember: its address and its last time."""
    since = active.now_ns() // 100 + INTERVALS_TO_1970
    node, clock_seq = _place(active, node, clock_seq)
    low, middle, high = since & 0xFFFFFFFF, since >> 32 & 0xFFFF, since >> 48 & 0x0FFF
    return uuid.UUID(fields=(low, middle, high, clock_seq >> 8 & 0x3F, clock_seq & 0xFF, node), version=1)


def uuid4(active: Active) -> uuid.UUID:
    """Of chance alone."""
    return uuid.UUID(int=_streams(active).bits.getrandbits(128), version=4)


def uuid6(active: Active, node: int | None = None, clock_seq: int | None = None) -> uuid.UUID:
    """As `uuid1`, in an order that sorts by time."""
    since = active.now_ns() // 100 + INTERVALS_TO_1970
    node, clock_seq = _place(active, node, clock_seq)
    whole = (since >> 12) << 80 | 6 << 76 | (since & 0x0FFF) << 64 | 0b10 << 62 | (clock_seq & 0x3FFF) << 48 | node
    return uuid.UUID(int=whole)


def uuid7(active: Active) -> uuid.UUID:
    """Milliseconds since 1970, then chance."""
    chance = _streams(active).bits.getrandbits(74)
    since_ms = active.now_ns() // 1_000_000 & (1 << 48) - 1
    return uuid.UUID(int=since_ms << 80 | 7 << 76 | (chance >> 62) << 64 | 0b10 << 62 | chance & (1 << 62) - 1)


def _place(active: Active, node: int | None, clock_seq: int | None) -> tuple[int, int]:
    bits = _streams(active).bits
    drawn_node, drawn_seq = bits.getrandbits(48) | 1 << 40, bits.getrandbits(14)  # bit 40: no network card's address
    return drawn_node if node is None else node, drawn_seq if clock_seq is None else clock_seq
