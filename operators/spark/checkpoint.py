"""Spark's checkpoint in a job with a shared store: on the driver's disk and, as of each published batch, in the store.

A batch's manifest names the object that contains the checkpoint as of the batch's commit. A driver begins with the
checkpoint of the last manifest, whatever is on its disk. Spark therefore continues exactly after the published batches,
no directory has to be mounted, and Hadoop needs no client for the store.

    spark/<batch>-<token>-<chance>      the files written since the object's parent, and the names of removed ones

An object without a parent contains all files; such an object is written from time to time, and earlier ones are
removed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from uuid import uuid4

import msgpack

from causal.errors import CorruptData, PipelineError
from causal.storage.objects import Objects
from causal.storage.shared import Depot
from operators.ingest.contract import RESTORE, batch_of, digest_of, seal, unseal
from operators.ingest.place import IngestPlace

CHAIN_MAX = 50
"""The objects that a driver reads to begin; then one with all files is written."""
BYTES_MAX = 256 << 20
FOLDER, DIRECTORY = "spark", "spark-checkpoint"
"""The folder in the store, and the directory on the driver's host."""
_NOTES = "stored-checkpoint.json"


@dataclass(frozen=True, slots=True)
class Kept:
    """An object that was created from the checkpoint.

    Attributes:
        files: path → (size, modification time) of the files that the object and its parents contain.
        length: the number of the object's parents.
    """

    name: str
    data: bytes
    length: int
    files: dict[str, tuple[int, int]]


class StoredCheckpoint:
    """The checkpoint of one query, on this host's disk and in the store.

    Args:
        folder: the ingest log's folder in the store.
        directory: the ingest log's directory on this host, which contains the checkpoint.
    """

    def __init__(self, objects: Objects, folder: str, directory: Path) -> None:
        self.directory = directory / DIRECTORY
        self._objects = objects
        self._folder = f"{folder}/{FOLDER}"
        self._notes = directory / _NOTES

    def packed(self, batch: int, token: int) -> Kept:
        """Return an object that contains the current checkpoint, without storing it.

        Raises:
            PipelineError: the checkpoint is larger than an object may be.
        """
        parent, length, before = self._noted()
        if length >= CHAIN_MAX:
            parent, length, before = "", -1, {}
        files: dict[str, tuple[int, int]] = {}
        fresh: dict[str, bytes] = {}
        for path in self._paths():
            try:
                entry = path.stat()
                name = str(path.relative_to(self.directory))
                stamp = entry.st_size, entry.st_mtime_ns
                if before.get(name) != stamp:
                    fresh[name] = path.read_bytes()
                files[name] = stamp
            except FileNotFoundError:  # Spark has removed or renamed the file
                continue
        size = sum(map(len, fresh.values()))
        if size > BYTES_MAX:
            raise PipelineError(
                f"{self.directory}: Spark's checkpoint has grown by {size:,} bytes in one batch, but the store "
                f"accepts at most {BYTES_MAX:,}; keep state in the pipeline's operators, not in read()"
            )
        body: bytes = msgpack.packb([parent, fresh, sorted(before.keys() - files.keys())])
        name = f"{batch:010d}-{token:010d}-{uuid4().hex[:8]}"
        return Kept(name, digest_of(body).encode() + body, length + 1, files)

    def store(self, kept: Kept) -> None:
        """Create the object in the store; its name is unique, so the call may be repeated."""
        self._objects.create(f"{self._folder}/{kept.name}", kept.data)

    def note(self, kept: Kept) -> None:
        """Make the object, which a manifest already names, the parent of the next one.

        Objects that are no longer needed are removed.
        """
        self._save_notes(kept.name, kept.length, kept.files)
        if not kept.length:
            names = self._objects.sizes(self._folder)
            batch = batch_of(kept.name)
            self._objects.remove([name for name in names if batch_of(name.rpartition("/")[2]) < batch])

    def restore(self, name: str) -> None:
        """Replace the files on this host's disk with those of the named object and its parents; "" removes all files.

        Raises:
            CorruptData: one of the objects is missing or damaged.
        """
        shutil.rmtree(self.directory, ignore_errors=True)
        self._notes.unlink(missing_ok=True)
        files: dict[str, bytes] = {}
        gone: set[str] = set()
        parent, length = name, -1
        while parent:
            where, length = f"{self._folder}/{parent}", length + 1
            if length > CHAIN_MAX:
                raise CorruptData(f"{self._objects.url}: {where} has too many parents; {RESTORE}")
            parent, fresh, removed = _unpacked(self._objects.read(where), f"{self._objects.url}: {where}")
            for path, data in fresh.items():
                if path not in files and path not in gone:
                    files[path] = data
            gone.update(removed)
        if not name:
            return
        for path, data in files.items():
            target = self.directory / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        stamps = {str(path.relative_to(self.directory)): _stamp(path) for path in self._paths()}
        self._save_notes(name, length, stamps)

    def _paths(self) -> Iterator[Path]:
        for folder, _, names in os.walk(self.directory):
            yield from (Path(folder, name) for name in names if not name.endswith(".tmp"))

    def _noted(self) -> tuple[str, int, dict[str, tuple[int, int]]]:
        """Return the name of the last noted object, the number of its parents, and the files that they all contain."""
        try:
            notes = unseal(self._notes.read_bytes(), str(self._notes))
        except FileNotFoundError:
            return "", -1, {}
        return notes["name"], notes["length"], {path: (size, at) for path, (size, at) in notes["files"].items()}

    def _save_notes(self, name: str, length: int, files: dict[str, tuple[int, int]]) -> None:
        fresh = self._notes.with_name(f".{_NOTES}")
        fresh.write_bytes(seal({"name": name, "length": length, "files": files}))
        fresh.rename(self._notes)


def _stamp(path: Path) -> tuple[int, int]:
    entry = path.stat()
    return entry.st_size, entry.st_mtime_ns


def _unpacked(data: bytes, where: str) -> tuple[str, dict[str, bytes], list[str]]:
    """Return the parent, the files and the names of removed files from an object's content."""
    digest, body = data[:32], data[32:]
    if digest_of(body).encode() != digest:
        raise CorruptData(f"{where} does not match its digest; {RESTORE}")
    try:
        parent, files, gone = msgpack.unpackb(body)
        if any(PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts for path in files):
            raise ValueError("a path points outside its directory")
        return str(parent), dict(files), list(gone)
    except (TypeError, ValueError, msgpack.UnpackException) as problem:
        raise CorruptData(f"{where} has missing or unexpected fields ({problem}); {RESTORE}") from None


def checkpoint_of(place: IngestPlace) -> StoredCheckpoint | None:
    """Return the `StoredCheckpoint` of a log in a store, or None if Spark's checkpoint stays in the job directory."""
    if not place.store:
        return None
    return StoredCheckpoint(Depot(place.store, place.prefix, proof=""), place.folder, place.directory)
