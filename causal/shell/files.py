"""Files of parts with a digest: snapshots and in-flight segments.  Nothing half-written is ever trusted.

    "CPF1" | number of parts, 4 bytes | length of each, 8 bytes | parts | xxh3-128 of all before

A file is written under a temporary name, made durable, and renamed.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import xxhash

from causal.errors import CorruptData, Unavailable
from causal.shell.modes import opened

_MAGIC = b"CPF1"
_COUNT = struct.Struct("<I")
_LENGTH = struct.Struct("<Q")
_DIGEST_BYTES = 16


def write_parts(path: Path, parts: Sequence[bytes], durable: bool) -> tuple[int, str]:
    """Writes a file atomically; returns (bytes, digest in hex).

    Args:
        durable: whether it survives a loss of power (fsync of the file and its directory).

    Raises:
        Unavailable: the disk is full or fails; nothing is left behind.
    """
    body = [_MAGIC, _COUNT.pack(len(parts)), *(_LENGTH.pack(len(part)) for part in parts), *parts]
    digest = xxhash.xxh3_128()
    for piece in body:
        digest.update(piece)
    aside = path.with_name(path.name + ".tmp")
    written = aside
    try:
        make_directory(path.parent, durable)
        with open(opened(aside, os.O_WRONLY | os.O_TRUNC, 0o600), "wb") as file:
            for piece in body:
                file.write(piece)
            file.write(digest.digest())
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(aside, path)
        written = path
        if durable:
            sync_directory(path.parent)
    except OSError as problem:
        with suppress(OSError):  # what cannot be removed either is another's file
            written.unlink(missing_ok=True)
        raise Unavailable(f"{path}: cannot be written: {problem.strerror}; free space or fix the disk") from problem
    return sum(map(len, body)) + _DIGEST_BYTES, digest.hexdigest()


def read_parts(path: Path, digest: str | None = None) -> list[bytes]:
    """Reads the parts that `write_parts` wrote.

    Args:
        digest: the digest in a manifest; None checks the file's own digest only.

    Raises:
        CorruptData: the file is missing, cut short, or does not match its digest.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise CorruptData(f"{path} is missing; restore it from a copy or start a new job") from None
    except OSError as problem:
        raise Unavailable(f"{path}: cannot be read: {problem.strerror}") from problem
    return parts_of(data, str(path), digest)


def parts_of(content: bytes, where: str, digest: str | None = None) -> list[bytes]:
    """Returns the parts in the content of a file.

    Args:
        where: names the file in errors.
        digest: as for `read_parts`.

    Raises:
        CorruptData: it is cut short, or does not match its digest.
    """
    data = memoryview(content)
    body, stored = data[:-_DIGEST_BYTES], bytes(data[-_DIGEST_BYTES:])
    computed = xxhash.xxh3_128(body)
    if len(data) < 8 + _DIGEST_BYTES or bytes(data[:4]) != _MAGIC or computed.digest() != stored:
        raise CorruptData(f"{where} does not match its digest; restore it from a copy or start a new job")
    if digest is not None and computed.hexdigest() != digest:
        raise CorruptData(f"{where} is not the file that the checkpoint's manifest names; restore it from a copy")
    count = _COUNT.unpack_from(body, 4)[0]
    place, parts = 8 + 8 * count, []
    lengths = [_LENGTH.unpack_from(body, 8 + 8 * part)[0] for part in range(count)] if place <= len(body) else []
    if place + sum(lengths) != len(body):
        raise CorruptData(f"{where} holds other parts than it says; restore it from a copy or start a new job")
    for length in lengths:
        parts.append(bytes(body[place : place + length]))
        place += length
    return parts


def replace_text(path: Path, text: str) -> None:
    """Replaces a small file in one step: a reader sees the old text or the new one."""
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(text)
    os.replace(fresh, path)


def remove(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def make_directory(folder: Path, durable: bool) -> None:
    """Makes `folder` and its missing parents; `durable` syncs each parent, for a loss of power."""
    if folder.is_dir():
        return
    fresh = []
    for each in (folder, *folder.parents):
        if each.is_dir():
            break
        fresh.append(each)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for each in fresh if durable else ():
        sync_directory(each.parent)


def sync_directory(path: Path) -> None:
    """Makes the names in a directory survive a loss of power."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
