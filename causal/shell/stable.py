"""A task's determinants in files of the job's directory, for whoever takes its place (design 0012).

    determinants/<task>/i<incarnation>/e<epoch>.log     records, one behind the other:
    offset in the log, 8 bytes | length, 4 bytes | xxh3-64 of these and the bytes | bytes

A directory appears complete, under its name, with everything that its incarnation had collected; from then on older
ones do not count.  What a killed process or a loss of power leaves behind a complete record is not read.
"""

from __future__ import annotations

import os
import re
import shutil
import struct
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import xxhash

from causal.errors import Unavailable
from causal.log import LogDelta
from causal.rollback import Extent
from causal.shell.files import make_directory, sync_directory

DIRECTORY = "determinants"
READ_TRIES_MAX = 20
_HEAD = struct.Struct("<QI")
_CHECK = struct.Struct("<Q")
_HEAD_BYTES = _HEAD.size + _CHECK.size
_BEGUN = re.compile(r"i(\d+)")
_EPOCH = re.compile(r"e(\d+)\.log")


def framed(delta: LogDelta) -> bytes:
    """One record."""
    head = _HEAD.pack(delta.offset, len(delta.bytes))
    return b"".join((head, _CHECK.pack(xxhash.xxh3_64_intdigest(head + delta.bytes)), delta.bytes))


def prefix_of(stored: bytes) -> bytes:
    """The log from offset 0 as far as complete records that follow each other tell it."""
    told = bytearray()
    place = 0
    while len(stored) - place >= _HEAD_BYTES:
        head = stored[place : place + _HEAD.size]
        offset, length = _HEAD.unpack(head)
        start = place + _HEAD_BYTES
        body = stored[start : start + length]
        (check,) = _CHECK.unpack_from(stored, place + _HEAD.size)
        if offset != len(told) or len(body) < length or check != xxhash.xxh3_64_intdigest(head + body):
            break
        told += body
        place = start + length
    return bytes(told)


class StableLogs:
    """The files of one incarnation of one task; used by one thread.

    Args:
        sync: what is written also survives a loss of power.
    """

    def __init__(self, job_directory: Path, task: str, incarnation: int, sync: bool) -> None:
        self._folder = job_directory / DIRECTORY / task
        self._own = self._folder / f"i{incarnation}"
        self._incarnation = incarnation
        self._sync = sync
        self._files: dict[int, tuple[int, int]] = {}
        """Epoch → (descriptor, bytes that count)."""

    def read(self) -> list[LogDelta]:
        """What the youngest incarnation that has begun, up to this one, has written: one delta per epoch."""
        for _ in range(READ_TRIES_MAX):
            youngest = max((i for i in self._begun() if i <= self._incarnation), default=None)
            if youngest is None:
                return []
            try:
                return self._read(self._folder / f"i{youngest}")
            except FileNotFoundError:
                continue  # a younger one has begun meanwhile, and removed it
        raise Unavailable(f"{self._folder}: its files come and go; its task begins again")

    def _read(self, folder: Path) -> list[LogDelta]:
        found = []
        for name in os.listdir(folder):
            epoch = _EPOCH.fullmatch(name)
            if epoch is not None:
                found.append(LogDelta(-1, int(epoch[1]), 0, prefix_of((folder / name).read_bytes())))
        return sorted(found, key=lambda delta: delta.epoch)

    def begin(self, logs: Sequence[LogDelta]) -> list[Extent]:
        """Start anew with these bytes, from offset 0 of each epoch, in one step; then remove what is older.

        Raises:
            Unavailable: the disk is full or refuses; what was there is there.
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
            shutil.rmtree(self._own, ignore_errors=True)  # left where a loss of power took the decision to begin it
            os.rename(fresh, self._own)
            if self._sync:
                sync_directory(self._folder)
        except OSError as problem:
            self.close()
            shutil.rmtree(fresh, ignore_errors=True)
            raise Unavailable(
                f"{self._own}: cannot be written: {problem.strerror}; free space or mend the disk"
            ) from problem
        for older in self._begun():
            if older < self._incarnation:
                shutil.rmtree(self._folder / f"i{older}", ignore_errors=True)  # what stays does not count
        return [(delta.task, delta.epoch, len(delta.bytes)) for delta in logs]

    def append(self, logs: Sequence[LogDelta]) -> list[Extent]:
        """Write these bytes; true of each that is answered, also where a later one could not be written.

        Raises:
            Unavailable: none could be.
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
        """Remove what was written of earlier epochs."""
        for old in [each for each in self._files if each < epoch]:
            os.close(self._files.pop(old)[0])
        try:
            names = os.listdir(self._own)
        except FileNotFoundError:
            return  # a younger incarnation has begun
        for name in names:
            found = _EPOCH.fullmatch(name)
            if found is not None and int(found[1]) < epoch:
                with suppress(OSError):  # what stays costs space, and goes with the directory
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
        """Behind what counts, so that what a failed write has left is written over."""
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
