"""Replacements for the standard library's random generators; each operator draws from its own streams.

A replay repeats these streams. They must not be used for secrets: anyone who has the determinants can compute every
draw.
"""

from __future__ import annotations

import _random
import os
import random
import secrets
import tempfile
import uuid
from collections.abc import Callable
from random import Random
from typing import Any

from operators.capture.active import RUNNING, Active, Stream, Streams, inside, operating
from operators.capture.replacing import Replacement

REMEDY = "use ctx.random"
REMEDY_UUID = "use ctx.uuid()"
INTERVALS_TO_1970 = 0x01B21DD213814000
"""The number of 100-ns intervals from the start of the Gregorian calendar to 1970, for UUID versions 1 and 6."""


def of_random() -> list[Replacement]:
    """Patch all `Random` generators, and return replacements for the functions of module `random`."""
    hidden: Any = random._inst
    names = [name for name, value in vars(random).items() if getattr(value, "__self__", None) is hidden]
    replacements = [Replacement(random, name, getattr(random, name), _drawing(name)) for name in names]
    _patch_generators()
    vars(tempfile)["_Random"] = _OfProcess
    return replacements


class _OfProcess(Stream):
    """The generator of `tempfile`, created on first use once per process; it must not shift an operator's draws."""


def _drawing(name: str) -> Callable[..., Any]:
    """Return the replacement for `random.<name>`.

    It draws from the running operator's stream, or from the process's generator if no operator is running.
    """
    real, spelling = getattr(random, name), f"random.{name}()"

    def draw(*args: Any, **kwargs: Any) -> Any:
        active = RUNNING.active and inside(spelling, REMEDY)
        if active is None:
            return real(*args, **kwargs)
        return getattr(_streams(active).random, name)(*args, **kwargs)

    draw.__name__ = name
    return draw


def _streams(active: Active) -> Streams:
    return active.streams(active.operator)


_FROM_OUTSIDE = "a Random() created outside the operator"
_OWN = "_seeded_by_operator"
"""The mark in the `__dict__` of a generator that an operator has seeded; its state follows from the records."""


def _drawn(generator: Random) -> Random | None:
    """Return the generator to use instead of `generator` inside an operator, or None if `generator` is not replaced.

    A generator that no operator has seeded belongs to the process. No checkpoint contains its state, so the generator
    would start over after a recovery, whether it was seeded by the kernel or with a number.
    """
    if RUNNING.active is None or not operating() or _OWN in generator.__dict__:
        return None
    active = inside(_FROM_OUTSIDE, REMEDY)
    return None if active is None else _streams(active).random


_real_random = _random.Random.random
_real_getrandbits = _random.Random.getrandbits
_real_getstate = Random.getstate
_real_setstate = Random.setstate
_real_seed = Random.seed


def _random_of(self: Random) -> float:
    """Replace `Random.random`."""
    stream = None if RUNNING.active is None else _drawn(self)
    return _real_random(self) if stream is None else stream.random()


def _getrandbits(self: Random, k: int, /) -> int:
    """Replace `Random.getrandbits`."""
    stream = None if RUNNING.active is None else _drawn(self)
    return _real_getrandbits(self, k) if stream is None else stream.getrandbits(k)


def _getstate(self: Random) -> Any:
    """Replace `Random.getstate`."""
    stream = _drawn(self)
    return _real_getstate(self if stream is None else stream)


def _setstate(self: Random, state: Any) -> None:
    """Replace `Random.setstate`."""
    _mark(self)
    _real_setstate(self, state)


def _mark(generator: Random) -> None:
    """Mark a generator as seeded by the running operator; outside operators, mark it as belonging to the process."""
    if operating():
        generator.__dict__[_OWN] = True
    else:
        generator.__dict__.pop(_OWN, None)


def _seed(self: Random, a: Any = None, version: int = 2) -> None:
    """Replace `Random.seed`; inside an operator, a missing seed is drawn from the operator's stream."""
    is_stream = isinstance(self, Stream)
    active = RUNNING.active
    if a is None and active is not None and type(self) is not _OfProcess:
        if not is_stream:
            active = inside("random.Random() without a seed", REMEDY)
        if active is not None and operating():
            a = _streams(active).bits.getrandbits(256)
    if not is_stream:
        _mark(self)
    _real_seed(self, a, version)


def _gauss_next(self: Random) -> Any:
    """Replace reads of `gauss_next`, the second value of the most recent pair that `gauss` drew."""
    stream = _drawn(self)
    return self.__dict__.get("gauss_next") if stream is None else stream.gauss_next  # type: ignore[attr-defined]


def _set_gauss_next(self: Random, value: Any) -> None:
    stream = _drawn(self)
    if stream is None:
        self.__dict__["gauss_next"] = value
    else:
        stream.gauss_next = value  # type: ignore[attr-defined]


def _patch_generators() -> None:
    """Make every generator of type `Random` or of a subclass first check whether to draw from an operator's stream."""
    patched: Any = Random
    patched.random, patched.getrandbits, patched.seed = _random_of, _getrandbits, _seed
    patched.getstate, patched.setstate = _getstate, _setstate
    patched.gauss_next = property(_gauss_next, _set_gauss_next)


def of_entropy() -> list[Replacement]:
    """Return replacements for the functions that return the kernel's random bytes, UUIDs or secrets."""
    replacements = [
        Replacement(os, "urandom", os.urandom, _bytes(os.urandom, "urandom")),
        Replacement(os, "getrandom", os.getrandom, _bytes(os.getrandom, "getrandom")),
        *(_named(secrets, name, REMEDY) for name in secrets.__all__ if name not in ("SystemRandom", "compare_digest")),
    ]
    for name, make in (("uuid1", uuid1), ("uuid4", uuid4), ("uuid6", uuid6), ("uuid7", uuid7)):
        if hasattr(uuid, name):  # Python 3.14 introduced UUID versions 6 and 7
            replacements.append(Replacement(uuid, name, getattr(uuid, name), _uuid(getattr(uuid, name), name, make)))
    return replacements


def _bytes(real: Callable[..., bytes], name: str) -> Callable[..., bytes]:
    def draw(size: int, *args: Any, **kwargs: Any) -> bytes:
        active = RUNNING.active and inside(f"os.{name}()", REMEDY)
        return real(size, *args, **kwargs) if active is None else _streams(active).bits.randbytes(size)

    return draw


def _named(module: Any, name: str, remedy: str) -> Replacement:
    """Return a replacement for a function that draws from `os.urandom`, so that a refusal names the function called."""
    real = getattr(module, name)
    spelling = f"{module.__name__}.{name}()"

    def draw(*args: Any, **kwargs: Any) -> Any:
        inside(spelling, remedy)
        return real(*args, **kwargs)

    draw.__name__ = name
    return Replacement(module, name, real, draw)


def _uuid(real: Callable[..., uuid.UUID], name: str, make: Callable[..., uuid.UUID]) -> Callable[..., uuid.UUID]:
    def draw(*args: Any, **kwargs: Any) -> uuid.UUID:
        active = RUNNING.active and inside(f"uuid.{name}()", REMEDY_UUID)
        return real(*args, **kwargs) if active is None else make(active, *args, **kwargs)

    draw.__name__ = name
    return draw


def uuid1(active: Active, node: int | None = None, clock_seq: int | None = None) -> uuid.UUID:
    """Return a UUID with the time of the causal clock; random bits replace the host address and the clock sequence."""
    since = active.now_ns() // 100 + INTERVALS_TO_1970
    node, clock_seq = _place(active, node, clock_seq)
    low, middle, high = since & 0xFFFFFFFF, since >> 32 & 0xFFFF, since >> 48 & 0x0FFF
    return uuid.UUID(fields=(low, middle, high, clock_seq >> 8 & 0x3F, clock_seq & 0xFF, node), version=1)


def uuid4(active: Active) -> uuid.UUID:
    """Return a UUID that consists of random bits, apart from its version and variant."""
    return uuid.UUID(int=_streams(active).bits.getrandbits(128), version=4)


def uuid6(active: Active, node: int | None = None, clock_seq: int | None = None) -> uuid.UUID:
    """Return a UUID with the fields of `uuid1`, arranged so that UUIDs sort by time."""
    since = active.now_ns() // 100 + INTERVALS_TO_1970
    node, clock_seq = _place(active, node, clock_seq)
    whole = (since >> 12) << 80 | 6 << 76 | (since & 0x0FFF) << 64 | 0b10 << 62 | (clock_seq & 0x3FFF) << 48 | node
    return uuid.UUID(int=whole)


def uuid7(active: Active) -> uuid.UUID:
    """Return a UUID that contains the milliseconds since 1970, followed by random bits."""
    chance = _streams(active).bits.getrandbits(74)
    since_ms = active.now_ns() // 1_000_000 & (1 << 48) - 1
    return uuid.UUID(int=since_ms << 80 | 7 << 76 | (chance >> 62) << 64 | 0b10 << 62 | chance & (1 << 62) - 1)


def _place(active: Active, node: int | None, clock_seq: int | None) -> tuple[int, int]:
    bits = _streams(active).bits
    drawn_node, drawn_seq = (
        bits.getrandbits(48) | 1 << 40,  # bit 40 marks a node that is not a network card address
        bits.getrandbits(14),
    )
    return drawn_node if node is None else node, drawn_seq if clock_seq is None else clock_seq
