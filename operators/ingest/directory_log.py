"""The ingest log in a directory of one machine.

Two drivers may run for a moment: the older one's commits are refused (`Fenced`).

    log.json                      format, number of channels, query id (bound by the first commit)
    fence.json                    token of the driver that may publish
    manifests/<batch>.json        a published batch
    segments/<batch>-<partition>-<token>-<attempt>-<part>.arrow
    low-water/<channel>.json      batches below `batch` are not needed by that channel, those below `done` are done with
    backlog.json                  what was published and not done with, and since when a batch waits for room
    ended.json                    number of batches of a query that has finished
    lock                          held while anything above but segments and low-water is written

Every JSON file is sealed: its first line is the digest of the second.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from causal.errors import CorruptData, Fenced, PipelineError, Unavailable, invariant
from causal.process.forks import close, keep_from_children, lock
from causal.storage.files import sync_directory
from operators.ingest.contract import (
    FORMAT,
    RESTORE,
    SEGMENT_BYTES_MIN,
    Backlog,
    Manifest,
    Segment,
    batch_of,
    check_header,
    digest_of,
    manifest_of,
    seal,
    unread,
    unseal,
)

_MANIFEST = re.compile(r"(\d{10})\.json")
LOCK_WAIT_S = 30.0
"""The longest wait for the lock, which is held for a few file operations; after that it is reported."""
OPEN_ATTEMPTS_MAX = 100
"""The tries to open the lowest manifest, which may be removed between listing and opening it."""


def _write(path: Path, data: bytes | memoryview) -> None:
    """Write a new file, which is on disk when this returns."""
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _unseal(path: Path) -> dict[str, Any]:
    return unseal(path.read_bytes(), str(path))


class DirectoryLog:
    """The log in one directory; any number of processes may have it open.

    Args:
        directory: `<job directory>/ingest/<source name>`.
        channels: how many channels the batches are spread over; fixed for the life of the log.
    """

    look_s = 0.05
    segments_ahead = 0
    caught_up = True
    unavailable_s = None

    def __init__(self, directory: Path, channels: int) -> None:
        self.directory = directory
        self.name = directory.name
        self.channels = channels
        self.segments = directory / "segments"
        self._manifests = directory / "manifests"
        self._low_water = directory / "low-water"

    @property
    def where(self) -> str:
        """The directory, as errors name it."""
        return str(self.directory)

    def label(self, segment: Segment) -> str:
        """Return the path of a segment, as errors name it."""
        return str(self.segments / segment.file)

    def create(self) -> None:
        """Make the directory and its header unless they are there; the first process does.

        Raises:
            PipelineError: the log was written for another number of channels.
            CorruptData: the header does not match its digest.
            Unavailable: another process holds the log.
        """
        for directory in (self.directory, self.segments, self._manifests, self._low_water):
            directory.mkdir(parents=True, exist_ok=True)
        with self._locked():
            header = self._header()
            if header is None:
                if self.batches():
                    raise CorruptData(f"{self.directory / 'log.json'} is missing although there are batches; {RESTORE}")
                self._replace("log.json", {"format": FORMAT, "channels": self.channels, "query": ""})
                return
        check_header(header, self.channels, self.where)

    # -- who may publish ---------------------------------------------------------------------------------------

    def take_over(self) -> int:
        """Fence every earlier driver, remove what they left unpublished, and return the token to publish with."""
        with self._locked():
            token = self._token() + 1
            self._replace("fence.json", {"token": token})
            (self.directory / "backlog.json").unlink(missing_ok=True)
            self._sweep()
            return token

    def check_token(self, token: int) -> None:
        """Raise `Fenced` unless `token` is the youngest; cheap, and only a hint outside the lock."""
        current = self._token()
        if token != current:
            raise Fenced(f"{self.directory}: driver {token} was replaced by driver {current}; it must not publish")

    def _token(self) -> int:
        try:
            return int(_unseal(self.directory / "fence.json")["token"])
        except FileNotFoundError:
            if self.batches():
                missing = f"{self.directory / 'fence.json'} is missing although there are batches"
                raise CorruptData(f"{missing}; {RESTORE}") from None
            return 0
        except (KeyError, TypeError, ValueError) as problem:
            raise CorruptData(f"{self.directory / 'fence.json'}: {problem}; {RESTORE}") from None

    def _sweep(self) -> None:
        batches = self.batches()
        missing = sorted(set(range(batches[0], batches[-1])).difference(batches)) if batches else []
        if missing:
            raise CorruptData(self._lost_manifest(missing[0]))
        published = self._published(batches)
        for path in self.segments.iterdir():
            if path.name not in published:
                path.unlink(missing_ok=True)
        for path in self._manifests.glob(".*"):
            path.unlink(missing_ok=True)

    # -- writing -----------------------------------------------------------------------------------------------

    def write_segment(self, name: str, data: bytes | memoryview) -> str:
        """Put a segment on disk under its final name and return its digest; it counts for nothing until published."""
        temporary = self.segments / f".{name}"
        _write(temporary, data)
        temporary.rename(self.segments / name)
        return digest_of(data)

    def publish(
        self, query: str, batch: int, token: int, segments: Sequence[Segment], offsets: str = "", checkpoint: str = ""
    ) -> bool:
        """Make a batch visible: atomically, durably and once.

        Publishing a batch again is what Spark does after a crash: the first publication stands, the new segments
        are removed.

        Returns:
            True if this call published it, False if it was there already.

        Raises:
            Fenced: a younger driver has taken over.
            PipelineError: another query, a batch out of turn, other offsets than before, or the log has ended.
            CorruptData: the log's own files do not match their digests.
            Unavailable: another process holds the log.
        """
        with self._locked():
            self.check_token(token)
            self._bind(query)
            earlier = self.manifest(batch)
            if earlier is not None:
                self._check_same(earlier, offsets)
                self.discard(segments)
                return False
            if self.ended() is not None:
                raise PipelineError(f"{self.directory}: batch {batch} of a query that has ended; use a new --state-dir")
            sync_directory(self.segments)
            ordered = tuple(sorted(segments, key=lambda segment: (segment.partition, segment.part)))
            published_ns = time.monotonic_ns()
            manifest = Manifest(query, batch, token, offsets, published_ns, self._before(batch), ordered, checkpoint)
            for segment in ordered:
                there = (self.segments / segment.file).exists()
                invariant(there, "a segment is there when it is published", file=segment.file)
            self._link(f"{batch:010d}.json", manifest.packed())
            return True

    def unread_bytes(self, before: int) -> int:
        """Return the bytes of segments, in published batches below `before`, that their channel still needs."""
        done = [self._low(channel)["done"] for channel in range(self.channels)]
        return unread(self._sizes(), done, before)

    def _sizes(self) -> Iterator[tuple[str, int]]:
        for path in self.segments.iterdir():
            try:
                yield path.name, path.stat().st_size
            except FileNotFoundError:  # let go a moment ago
                continue

    def size_of(self, segments: Sequence[Segment]) -> int:
        """Return the bytes that segments count as which are written and not published."""
        return sum(max((self.segments / segment.file).stat().st_size, SEGMENT_BYTES_MIN) for segment in segments)

    def note_backlog(self, backlog: Backlog) -> None:
        """Store the backlog for reports; not synced, and lost without harm."""
        temporary = self.directory / f".backlog.json.{os.getpid()}"
        temporary.write_bytes(seal(asdict(backlog)))
        temporary.rename(self.directory / "backlog.json")

    def backlog(self) -> Backlog | None:
        """Return the backlog that the last publisher stored; None where there is none, or the file is torn."""
        try:
            return Backlog(**_unseal(self.directory / "backlog.json"))
        except (FileNotFoundError, CorruptData, TypeError):
            return None

    def discard(self, segments: Sequence[Segment]) -> None:
        """Remove segments that will not be published; those of a published batch are left alone."""
        published = self._published(sorted({batch_of(segment.file) for segment in segments}))
        for segment in segments:
            if segment.file not in published:
                (self.segments / segment.file).unlink(missing_ok=True)

    def _lost_manifest(self, batch: int) -> str:
        path = self._manifests / f"{batch:010d}.json"
        return f"{path} is missing although a later batch is published; {RESTORE}"

    def check_committed(self, batch: int) -> None:
        """Raise `CorruptData` unless the batch is here that Spark has on record as committed (-1: none yet)."""
        if batch > max(self.batches(), default=-1):
            path = self._manifests / f"{batch:010d}.json"
            raise CorruptData(f"{path} is missing although Spark has committed that batch; {RESTORE}")

    def check_follows(self, batch: int) -> None:
        """Raise `CorruptData` if the batch is not here although a later one is."""
        if max(self.batches(), default=-1) > batch and self.manifest(batch) is None:
            raise CorruptData(self._lost_manifest(batch))

    def _published(self, batches: Sequence[int]) -> set[str]:
        """Return the files that the manifests of these batches name."""
        manifests = [self.manifest(batch) for batch in batches]
        return {segment.file for manifest in manifests if manifest for segment in manifest.segments}

    def end(self, token: int) -> None:
        """Record that the query has finished; no batch will follow."""
        with self._locked():
            self.check_token(token)
            if self.ended() is None:
                self._replace("ended.json", {"batches": max(self.batches(), default=-1) + 1})

    def check_query(self, query: str) -> None:
        """Raise `PipelineError` unless the log belongs to this query, or to none yet ("" : a query not yet begun)."""
        header = self._header()
        bound = header["query"] if header else ""
        if bound and bound != query:
            raise PipelineError(
                f"{self.directory} holds the batches of query {bound}, not of {query or 'a new one'}: "
                f"its Spark checkpoint was removed or replaced; {RESTORE}"
            )

    def _bind(self, query: str) -> None:
        header = self._header()
        invariant(header is not None, "a log is created before it is written", directory=str(self.directory))
        self.check_query(query)
        if header is not None and not header["query"]:
            self._replace("log.json", {**header, "query": query})

    def _check_same(self, earlier: Manifest, offsets: str) -> None:
        if offsets and earlier.offsets and offsets != earlier.offsets:
            raise PipelineError(
                f"{self.directory}: batch {earlier.batch} is published, and Spark now takes other input for it: "
                f"its checkpoint was rolled back; {RESTORE}"
            )

    def _before(self, batch: int) -> tuple[int, ...]:
        if batch == 0:
            return (0,) * self.channels
        previous = self.manifest(batch - 1)
        if previous is None:
            raise PipelineError(
                f"{self.directory}: Spark commits batch {batch}, the last is {max(self.batches(), default='none')}: "
                "its checkpoint and this log do not belong together; restore both, or use a new --state-dir"
            )
        return previous.after()

    def _link(self, name: str, data: bytes) -> None:
        """Make a file that must not exist yet: linking fails where renaming would overwrite."""
        temporary = self._manifests / f".{name}.{os.getpid()}"
        _write(temporary, data)
        try:
            os.link(temporary, self._manifests / name)
        except FileExistsError:
            raise Fenced(f"{self._manifests / name} was published by another driver at the same time") from None
        finally:
            temporary.unlink()
        sync_directory(self._manifests)

    def _replace(self, name: str, body: Mapping[str, Any]) -> None:
        temporary = self.directory / f".{name}"
        _write(temporary, seal(body))
        temporary.rename(self.directory / name)
        sync_directory(self.directory)

    # -- reading -----------------------------------------------------------------------------------------------

    def batches(self) -> list[int]:
        """Return the numbers of the batches that are here, ascending; truncation removes the lowest first."""
        try:
            return sorted(int(match[1]) for match in map(_MANIFEST.fullmatch, os.listdir(self._manifests)) if match)
        except FileNotFoundError:
            return []

    def manifest(self, batch: int) -> Manifest | None:
        """Return a published batch; None if it is not published, or was removed.

        Raises:
            CorruptData: the file does not match its digest.
        """
        path = self._manifests / f"{batch:010d}.json"
        try:
            return manifest_of(path.read_bytes(), str(path))
        except FileNotFoundError:
            return None

    def first(self) -> Manifest | None:
        """Return the lowest batch; None if nothing is published yet.

        Raises:
            CorruptData: its file does not match its digest.
            Unavailable: it is removed repeatedly before it can be opened.
        """
        for _ in range(OPEN_ATTEMPTS_MAX):
            batches = self.batches()
            if not batches:
                return None
            manifest = self.manifest(batches[0])
            if manifest is not None:
                return manifest
        raise Unavailable(f"{self.directory} is being truncated faster than it can be opened")

    def supply(self, wanted: Sequence[Segment]) -> bytes:
        """Return the bytes of the first of these segments; raises as `read_segment`."""
        return self.read_segment(wanted[0])

    def read_segment(self, segment: Segment) -> bytes:
        """Return the bytes of a published segment.

        Raises:
            CorruptData: they are missing, or do not match the digest in the manifest.
        """
        path = self.segments / segment.file
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise CorruptData(f"{path} is missing although its batch is published; {RESTORE}") from None
        if digest_of(data) != segment.digest:
            raise CorruptData(f"{path} does not match its digest; {RESTORE}")
        return data

    def ended(self) -> int | None:
        """Return the number of batches of a query that has finished, None while it may continue."""
        try:
            return int(_unseal(self.directory / "ended.json")["batches"])
        except FileNotFoundError:
            return None

    def _header(self) -> dict[str, Any] | None:
        try:
            return _unseal(self.directory / "log.json")
        except FileNotFoundError:
            return None

    # -- truncation --------------------------------------------------------------------------------------------

    def release(self, channel: int, batch: int, done: int | None = None) -> None:
        """Record that `channel` needs no batch below `batch`, and remove what no channel needs.

        The last published batch is never released by a reader, so the counts continue from it.

        Args:
            done: the batches below it count as unread no more; `batch` by default.
        """
        temporary = self._low_water / f".{channel}.json.{os.getpid()}"
        low = {"batch": batch, "done": batch if done is None else done}
        temporary.write_bytes(seal(low))  # Not synced: what a power failure takes is written again.
        temporary.rename(self._low_water / f"{channel}.json")
        floor = min(self._low(other)["batch"] for other in range(self.channels))
        for number in self.batches():
            if number >= floor:
                break
            manifest = self.manifest(number)
            for segment in manifest.segments if manifest else ():
                (self.segments / segment.file).unlink(missing_ok=True)
            (self._manifests / f"{number:010d}.json").unlink(missing_ok=True)

    def _low(self, channel: int) -> dict[str, int]:
        try:
            low_water = _unseal(self._low_water / f"{channel}.json")
            batch = int(low_water["batch"])
            return {"batch": batch, "done": int(low_water.get("done", batch))}
        except (FileNotFoundError, CorruptData, KeyError, TypeError, ValueError):
            # Torn by a power failure: nothing is known to be released.
            return {"batch": 0, "done": 0}

    def close(self) -> None:
        """Do nothing: no file is open."""

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock, which is released when its holder dies."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        descriptor = keep_from_children(os.open(self.directory / "lock", flags, 0o600))
        try:
            if not lock(descriptor, LOCK_WAIT_S, 0.002):
                raise Unavailable(f"{self.directory / 'lock'} has been held for {LOCK_WAIT_S:g} s")
            yield
        finally:
            close(descriptor)
