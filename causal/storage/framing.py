"""A small file of framed, checksummed records that is only appended to or replaced as a whole.

A killed process leaves a prefix of the bytes that it was writing, so each record is either complete or a torn tail,
which is removed. Any other record that does not match its checksum is damaged and is refused.
"""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path

from causal.errors import CorruptData, invariant
from causal.storage.files import sync_directory
from causal.storage.modes import opened

_HEAD = struct.Struct("<4sII")  # mark, body length, body checksum
_CHECK = struct.Struct("<I")  # checksum of the head, because a damaged length must not look like a torn tail
_MARK = b"CJ1\n"
HEAD_BYTES = _HEAD.size + _CHECK.size
RECORD_BYTES_MAX = 1 << 30


def framed(body: bytes) -> bytes:
    """Return the record from which `bodies` restores `body`."""
    invariant(len(body) <= RECORD_BYTES_MAX, "a journal's record has a bound", bytes=len(body))
    head = _HEAD.pack(_MARK, len(body), zlib.crc32(body))
    return b"".join((head, _CHECK.pack(zlib.crc32(head)), body))


def bodies(stored: bytes, where: object) -> tuple[list[bytes], int]:
    """Return the bodies of the complete records, and their total size; any bytes after that are a torn tail.

    Raises:
        CorruptData: a complete record does not match its checksum and is not the last record.
    """
    records: list[bytes] = []
    place = 0
    while len(stored) - place >= HEAD_BYTES:
        head = stored[place : place + _HEAD.size]
        mark, length, checksum = _HEAD.unpack(head)
        if mark != _MARK or _CHECK.unpack_from(stored, place + _HEAD.size)[0] != zlib.crc32(head):
            if not any(stored[place:]):
                break  # the machine lost power while the file grew; the zeros replace data that was never acknowledged
            raise CorruptData(f"{where}: the record at byte {place} has a damaged header; restore the file")
        start = place + HEAD_BYTES
        body = stored[start : start + length]
        if len(body) < length:
            break
        if zlib.crc32(body) != checksum:
            if start + length == len(stored):
                break
            raise CorruptData(f"{where}: the record at byte {place} does not match its checksum; restore the file")
        records.append(body)
        place = start + length
    return records, place


def write_whole(descriptor: int, data: bytes) -> None:
    """Append all of `data`; an `OSError` may leave a torn tail."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def pwrite_whole(descriptor: int, data: bytes, offset: int) -> None:
    """Write `data` at `offset`, replacing whatever is there; repeating the call is harmless."""
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written


def replace_file(path: Path, data: bytes, sync: bool, mode: int = 0o600) -> int:
    """Create or replace the file at `path` with `data` in one step; return a descriptor that appends to it."""
    fresh = path.with_name(path.name + ".new")
    descriptor = opened(fresh, os.O_RDWR | os.O_TRUNC | os.O_APPEND, mode)
    try:
        write_whole(descriptor, data)
        if sync:
            os.fsync(descriptor)
        os.replace(fresh, path)
        if sync:
            sync_directory(path.parent)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
