"""A task's determinants in files in the job directory, for its next incarnation (design 0012).

    determinants/<task>/i<incarnation>/e<epoch>.log     consecutive records, each consisting of:
    offset in the log, 8 bytes | length, 4 bytes | xxh3-64 of both and the log bytes | log bytes

A directory receives its final name only when it is complete, with all determinants that its incarnation has collected.
From then on, older directories are ignored. Bytes after the last complete record, which a killed process or a power
failure may leave, are not read.
"""

from __future__ import annotations

import os
import re
import shutil
import struct
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import xxhash

from causal.errors import Unavailable
from causal.logs.log import LogDelta
from causal.logs.rollback import Extent
from causal.storage.files import make_directory, sync_directory

DIRECTORY = "determinants"
READ_TRIES_MAX = 20
_HEAD = struct.Struct("<QI")
_CHECK = struct.Struct("<Q")
_HEAD_BYTES = _HEAD.size + _CHECK.size
_BEGUN = re.compile(r"i(\d+)")
_EPOCH = re.compile(r"e(\d+)\.log")


def framed(delta: LogDelta) -> bytes:
    """Return the record that contains a delta."""
    head = _HEAD.pack(delta.offset, len(delta.bytes))
    return b"".join((head, _CHECK.pack(xxhash.xxh3_64_intdigest(head + delta.bytes)), delta.bytes))


def unframed(stored: bytes, place: int) -> tuple[int, bytes, int] | None:
    """Return (offset, bytes, place after the record) for the record at `place`; None if it is incomplete or damaged."""
    start = place + _HEAD_BYTES
    if len(stored) < start:
        return None
    head = stored[place : place + _HEAD.size]
    offset, length = _HEAD.unpack(head)
    body = stored[start : start + length]
    (check,) = _CHECK.unpack_from(stored, place + _HEAD.size)
    if len(body) < length or check != xxhash.xxh3_64_intdigest(head + body):
        return None
    return offset, body, start + length


def prefix_of(stored: bytes) -> bytes:
    """Return the log from offset 0 to the end of the complete, consecutive records."""
    prefix = bytearray()
    place = 0
    while (record := unframed(stored, place)) is not None and record[0] == len(prefix):
        _, body, place = record
        prefix += body
    return bytes(prefix)


class StableStorage(Protocol):
    """The stored determinants of one incarnation of one task; used by one thread."""

    def read(self) -> list[LogDelta]:
        """Read the log of the highest incarnation, up to this one, that has begun a log; return one delta per epoch."""

    def begin(self, logs: Sequence[LogDelta]) -> list[Extent]:
        """Begin this incarnation's log with these bytes, from offset 0 per epoch, in one step; remove older logs.

        Raises:
            Unavailable: the log could not be written; older logs are unchanged.
        """

    def append(self, logs: Sequence[LogDelta]) -> list[Extent]:
        """Write these bytes; return the extents that were written, even if a later write failed.

        Raises:
            Unavailable: nothing could be written.
        """

    def truncate(self, epoch: int) -> None:
        """Remove the stored bytes of epochs before `epoch`."""

    def close(self) -> None:
        """Close all open files."""


class StableLogs:
    """The files of one incarnation of one task; used by one thread.

    Args:
        sync: whether written bytes must survive a power failure.
    """

    def __init__(self, job_directory: Path, task: str, incarnation: int, sync: bool) -> None:
        self._folder = job_directory / DIRECTORY / task
        self._own = self._folder / f"i{incarnation}"
        self._incarnation = incarnation
        self._sync = sync
        self._files: dict[int, tuple[int, int]] = {}
        """Epoch → (descriptor, valid bytes)."""

    def read(self) -> list[LogDelta]:
        """Read the log of the highest incarnation, up to this one, that has begun a log; return one delta per epoch."""
        for _ in range(READ_TRIES_MAX):
            youngest = max((i for i in self._begun() if i <= self._incarnation), default=None)
            if youngest is None:
                return []
            try:
                return self._read(self._folder / f"i{youngest}")
            except FileNotFoundError:
                continue  # a newer incarnation has begun in the meantime and has removed these files
        raise Unavailable(f"{self._folder}: its files change while they are listed; its task restarts")

    def _read(self, folder: Path) -> list[LogDelta]:
        deltas = []
        for name in os.listdir(folder):
            epoch = _EPOCH.fullmatch(name)
            if epoch is not None:
                deltas.append(LogDelta(-1, int(epoch[1]), 0, prefix_of((folder / name).read_bytes())))
        return sorted(deltas, key=lambda delta: delta.epoch)

    def begin(self, logs: Sequence[LogDelta]) -> list[Extent]:
        """Begin this incarnation's files with these bytes, from offset 0 per epoch, in one step; remove older files.

        Raises:
            Unavailable: the disk is full or fails; older files are unchanged.
        """
        fresh = self._own.with_name(self._own.name + ".new")
        try:
            shutil.rmtree(fresh, ignore_errors=True)
            make_directory(fresh, self._sync)
            for delta in logs:
                self._files[delta.epoch] = (self._create(fresh / _named(delta.epoch)), 0)
                self._write(delta)
            if self._sync:
                sync_directory(fresh)
            # A leftover directory exists if a power failure erased the decision to start this incarnation.
            shutil.rmtree(self._own, ignore_errors=True)
            os.rename(fresh, self._own)
            if self._sync:
                sync_directory(self._folder)
        except OSError as problem:
            self.close()
            shutil.rmtree(fresh, ignore_errors=True)
            raise Unavailable(
                f"{self._own}: cannot be written: {problem.strerror}; free space or fix the disk"
            ) from problem
        for older in self._begun():
            if older < self._incarnation:
                shutil.rmtree(self._folder / f"i{older}", ignore_errors=True)  # files that remain are ignored
        return [(delta.task, delta.epoch, len(delta.bytes)) for delta in logs]

    def append(self, logs: Sequence[LogDelta]) -> list[Extent]:
        """Write these bytes; return the extents that were written, even if a later write failed.

        Raises:
            Unavailable: nothing could be written.
        """
        written: list[Extent] = []
        try:
            for delta in logs:
                if delta.epoch not in self._files:
                    self._files[delta.epoch] = (self._create(self._own / _named(delta.epoch)), 0)
                    if self._sync:
                        sync_directory(self._own)
                self._write(delta)
                written.append((delta.task, delta.epoch, delta.offset + len(delta.bytes)))
        except OSError as problem:
            if not written:
                raise Unavailable(f"{self._own}: cannot be written: {problem.strerror}") from problem
        return written

    def truncate(self, epoch: int) -> None:
        """Remove the stored bytes of epochs before `epoch`."""
        for old in [each for each in self._files if each < epoch]:
            os.close(self._files.pop(old)[0])
        try:
            names = os.listdir(self._own)
        except FileNotFoundError:
            return  # a newer incarnation has begun and has removed the directory
        for name in names:
            match = _EPOCH.fullmatch(name)
            if match is not None and int(match[1]) < epoch:
                with suppress(OSError):  # files that remain only take up space until the directory is removed
                    (self._own / name).unlink(missing_ok=True)

    def close(self) -> None:
        for descriptor, _ in self._files.values():
            os.close(descriptor)
        self._files = {}

    def _begun(self) -> list[int]:
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return []
        return [int(begun[1]) for name in names if (begun := _BEGUN.fullmatch(name))]

    def _create(self, path: Path) -> int:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)

    def _write(self, delta: LogDelta) -> None:
        """Write a record after the valid bytes, so that it overwrites the remains of a failed write."""
        descriptor, place = self._files[delta.epoch]
        view = memoryview(framed(delta))
        while view:
            put = os.pwrite(descriptor, view, place)
            view, place = view[put:], place + put
        if self._sync:
            os.fdatasync(descriptor)
        self._files[delta.epoch] = (descriptor, place)


def _named(epoch: int) -> str:
    return f"e{epoch:08d}.log"
