"""Whatever bytes come: a decoder returns or raises its own error, and takes no more memory than it says."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.decoders import DECODERS, memory_of, refused
from tests.fuzz.seeds import seeds

SEEDS = seeds()
BYTES_MAX = 2048
every_decoder = pytest.mark.parametrize("name", DECODERS)


@st.composite
def damaged(draw: st.DrawFn, name: str) -> bytes:
    """Return a valid input after flips of bits, cuts, bytes put in, and ends exchanged with another valid input."""
    data = bytearray(draw(st.sampled_from(SEEDS[name])))
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(data)))
        act = draw(st.sampled_from(("flip", "set", "cut", "drop", "insert", "splice", "repeat")))
        if act == "flip" and place < len(data):
            data[place] ^= 1 << draw(st.integers(0, 7))
        elif act == "set" and place < len(data):
            data[place] = draw(st.sampled_from((0, 1, 0x7F, 0x80, 0xFF, 0xC1, 0xDD, 0xDF)))
        elif act == "cut":
            del data[place:]
        elif act == "drop":
            del data[place : place + draw(st.integers(1, 8))]
        elif act == "insert":
            data[place:place] = draw(st.binary(max_size=9))
        elif act == "splice":
            other = draw(st.sampled_from(SEEDS[name]))
            data[place:] = other[draw(st.integers(0, len(other))) :]
        elif act == "repeat":
            data[place:place] = data[place : place + draw(st.integers(1, 40))] * draw(st.integers(1, 20))
    return bytes(data[:BYTES_MAX])


@every_decoder
@given(data=st.data())
def test_damaged_bytes_are_read_or_refused(name: str, data: st.DataObject) -> None:
    refused(DECODERS[name], data.draw(damaged(name)))


@every_decoder
@given(data=st.binary(max_size=200))
def test_arbitrary_bytes_are_read_or_refused(name: str, data: bytes) -> None:
    refused(DECODERS[name], data)


@every_decoder
def test_no_input_takes_more_memory_than_is_allowed(name: str) -> None:
    """Damage that makes lengths lie, and nesting as deep as it goes."""
    chance = random.Random(name)
    inputs = [
        bytes(tag * 400) for tag in (b"\x91", b"\x81\x00", b"\xdd\x00\x00\x01", b"\xff", b"\x80", b"\xc7\x02\x01")
    ]
    for _ in range(60):
        data = bytearray(chance.choice(SEEDS[name]) or b"\x00")
        for _ in range(chance.randint(1, 3)):
            data[chance.randrange(len(data))] = chance.choice((0xFF, 0xDD, 0xDF, 0x7F, chance.randrange(256)))
        inputs.append(bytes(data))
    for each in inputs:
        taken, most = memory_of(DECODERS[name], each), DECODERS[name].memory_max(len(each))
        assert taken <= most, f"{taken} bytes for {each!r}, at most {most} are allowed"
