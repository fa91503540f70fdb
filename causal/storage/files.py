"""Files of parts with a digest, for snapshots and in-flight segments; incomplete files are never used.

    "CPF1" | number of parts, 4 bytes | length of each, 8 bytes | parts | xxh3-128 of all before

A file is written under a temporary name, made durable, and then renamed.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from io import SEEK_END, BytesIO
from pathlib import Path
from typing import BinaryIO, Protocol

import xxhash

from causal.errors import CorruptData, Unavailable
from causal.storage.modes import opened

_MAGIC = b"CPF1"
_HEAD = struct.Struct("<4sI")
_LENGTH = struct.Struct("<Q")
_DIGEST_BYTES = 16
_PIECE_BYTES = 1 << 20
_PACE_BYTES = 32 << 20
ASIDE = ".tmp"
"""The end of the name under which a file is written."""


class Sized(Protocol):
    """Parts of which the number is known beforehand."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[bytes]: ...


def write_parts(path: Path, parts: Sized, durable: bool, paced: bool = False) -> tuple[int, str]:
    """Write a file atomically; return (size in bytes, digest in hexadecimal).

    Args:
        parts: the parts; they are iterated once, so parts that are assembled on iteration are in memory one at a time.
        durable: whether the file must survive a power failure (fsync of the file and its directory).
        paced: whether to pass the content to the disk as it is written, and not to keep it in the memory of the system;
            other files are then not evicted from there, and their writers do not wait for this file.

    Raises:
        Unavailable: the disk is full or fails, or a part cannot be read; nothing is left behind.
    """
    aside = path.with_name(path.name + ASIDE)
    written = aside
    try:
        make_directory(path.parent, durable)
        with open(opened(aside, os.O_RDWR | os.O_TRUNC, 0o600), "w+b") as file:
            size = file.seek(_HEAD.size + _LENGTH.size * len(parts))
            lengths, passed = [], 0
            for part in parts:
                file.write(part)
                lengths.append(len(part))
                size += len(part)
                if paced and size - passed >= _PACE_BYTES:
                    _pass_to_disk(file, passed, size)
                    passed = size
            file.seek(0)
            file.write(b"".join([_HEAD.pack(_MAGIC, len(parts)), *map(_LENGTH.pack, lengths)]))
            digest = _digest_of(file, size)
            file.write(digest.digest())
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(aside, path)
        written = path
        if durable:
            sync_directory(path.parent)
    except (OSError, Unavailable) as problem:
        with suppress(OSError):  # a file that cannot be removed belongs to another process
            written.unlink(missing_ok=True)
        if isinstance(problem, Unavailable):  # a part could not be read from disk
            raise
        raise Unavailable(f"{path}: cannot be written: {problem.strerror}; free space or fix the disk") from problem
    return size + _DIGEST_BYTES, digest.hexdigest()


def joined(parts: Sequence[bytes]) -> bytes:
    """Return the content of the file that `write_parts` would write."""
    lengths = b"".join(_LENGTH.pack(len(part)) for part in parts)
    content = b"".join([_HEAD.pack(_MAGIC, len(parts)), lengths, *parts])
    return content + xxhash.xxh3_128(content).digest()


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add a path to an `OSError` that names no file, such as that of a write to a full disk."""
    try:
        yield
    except OSError as problem:
        problem.filename = problem.filename or str(path)
        raise


def _pass_to_disk(file: BinaryIO, start: int, stop: int) -> None:
    file.flush()
    os.fdatasync(file.fileno())
    os.posix_fadvise(file.fileno(), start, stop - start, os.POSIX_FADV_DONTNEED)


def read_parts(path: Path, digest: str | None = None) -> list[bytes]:
    """Read the parts that `write_parts` wrote; the arguments and errors are those of `each_part`."""
    return list(each_part(path, digest))


def each_part(path: Path, digest: str | None = None) -> Iterator[bytes]:
    """Yield the parts that `write_parts` wrote, one in memory at a time; all are checked before the first is yielded.

    Args:
        digest: the digest from a manifest; if None, only the file's own digest is checked.

    Raises:
        CorruptData: the file is missing, is truncated, or does not match its digest.
        Unavailable: the file cannot be read.
    """
    try:
        with open(path, "rb") as file:
            yield from _parts_in(file, str(path), digest)
    except FileNotFoundError:
        raise CorruptData(f"{path} is missing; restore it from a copy or start a new job") from None
    except OSError as problem:
        raise Unavailable(f"{path}: cannot be read: {problem.strerror}") from problem


def parts_of(content: bytes, where: str, digest: str | None = None) -> Iterator[bytes]:
    """Yield the parts in the content of a file.

    Args:
        where: the name of the file in errors.
        digest: the digest, as for `each_part`.

    Raises:
        CorruptData: the content is truncated or does not match its digest.
    """
    return _parts_in(BytesIO(content), where, digest)


def packed_parts(parts: Sequence[bytes]) -> bytes:
    """Return the content of a file that `write_parts` would write, for storage that is not a file."""
    lengths = [_LENGTH.pack(len(part)) for part in parts]
    content = b"".join([_HEAD.pack(_MAGIC, len(parts)), *lengths, *parts])
    return content + xxhash.xxh3_128_digest(content)


def _parts_in(file: BinaryIO, where: str, digest: str | None) -> Iterator[bytes]:
    size = file.seek(0, SEEK_END) - _DIGEST_BYTES
    computed = _digest_of(file, size)
    stored = file.read()
    file.seek(0)
    magic, count = _HEAD.unpack(file.read(_HEAD.size)) if size >= _HEAD.size else (b"", 0)
    if magic != _MAGIC or computed.digest() != stored:
        raise CorruptData(f"{where} does not match its digest; restore it from a copy or start a new job")
    if digest is not None and computed.hexdigest() != digest:
        raise CorruptData(f"{where} is not the file that the checkpoint's manifest names; restore it from a copy")
    known = _HEAD.size + _LENGTH.size * count <= size
    lengths = [length for (length,) in _LENGTH.iter_unpack(file.read(_LENGTH.size * count))] if known else []
    if _HEAD.size + _LENGTH.size * count + sum(lengths) != size:
        raise CorruptData(
            f"{where} does not contain the parts that its header lists; restore it from a copy or start a new job"
        )
    yield from map(file.read, lengths)


def _digest_of(file: BinaryIO, size: int) -> xxhash.xxh3_128:
    """Return the digest of the first `size` bytes of a file, and leave the file position after these bytes."""
    digest, left = xxhash.xxh3_128(), size
    file.seek(0)
    while left > 0 and (piece := file.read(min(left, _PIECE_BYTES))):
        digest.update(piece)
        left -= len(piece)
    return digest


def replace_text(path: Path, text: str) -> None:
    """Replace a small file in one step, so that a reader sees either the old or the new text."""
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(text)
    os.replace(fresh, path)


def remove(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def make_directory(folder: Path, durable: bool) -> None:
    """Create `folder` and its missing parents; if `durable` is set, sync each parent against a power failure."""
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


def sync_tree(root: Path) -> None:
    """Make all files below a directory survive a power failure, and the directories that contain them."""
    for place, _, names in os.walk(root):
        for name in names:
            with open(Path(place, name), "rb") as file:
                os.fsync(file.fileno())
        sync_directory(Path(place))


def sync_directory(path: Path) -> None:
    """Make the names in a directory survive a power failure."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
