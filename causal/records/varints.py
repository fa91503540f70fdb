"""The encoding of integers in as few bytes as possible: LEB128, with zigzag for signed integers."""

from __future__ import annotations

from causal.errors import PeerViolation


def varint(number: int) -> bytes:
    """Encode a non-negative integer in LEB128."""
    if number < 0x80:
        return bytes((number,))
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def read_varint(data: bytes | bytearray | memoryview, place: int) -> tuple[int, int]:
    """Return (number, place after the number).

    Raises:
        PeerViolation: the bytes end inside the number, or the number has more than 64 bits.
    """
    if place < len(data) and data[place] < 0x80:
        return data[place], place + 1
    number = shift = 0
    while True:
        if place >= len(data) or shift > 63:
            raise PeerViolation(f"the varint at byte {place} does not end")
        byte = data[place]
        place += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            if number >= 1 << 64:
                raise PeerViolation(f"the varint that ends at byte {place} exceeds 64 bits")
            return number, place
        shift += 7


def zigzag(number: int) -> int:
    return number << 1 if number >= 0 else ((-number) << 1) - 1


def unzigzag(number: int) -> int:
    return number >> 1 if not number & 1 else -((number + 1) >> 1)
