"""The records of an ingest log: micro-batches that one query publishes exactly once, in order.

Spark's tasks write segments; the commit of a batch publishes one manifest that names them. A published batch never
changes and cannot be published twice; an unpublished batch does not exist for readers. Nothing in this module depends
on Spark or Arrow.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import xxhash

from causal.errors import CorruptData, PipelineError

FORMAT = 1
RESTORE = "restore it, or use a new --state-dir"
SEGMENT_BYTES_MIN = 1 << 16
"""The least bytes that a segment counts as, where unread ones are bounded: many small files are a burden too."""
_SEGMENT = re.compile(r"(\d{10})-(\d{5})-")


@dataclass(frozen=True, slots=True)
class Segment:
    """A file with rows of one Spark partition of a batch; `part` numbers that partition's files."""

    file: str
    partition: int
    part: int
    rows: int
    digest: str


@dataclass(frozen=True, slots=True)
class Backlog:
    """The published bytes that readers still need when another batch is about to be published.

    `since_ns` is the `time.monotonic_ns()` at which that batch began to wait for room, or 0 if it is not waiting.
    """

    unread_bytes: int
    bytes_max: int
    batch: int
    since_ns: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """A published batch.

    `before[c]` is the number of rows that channel c received from all earlier batches. `segments` are ordered by
    (partition, part), which is the order of the rows. `offsets` is the digest of Spark's own record of the batch's
    contents, or "" if that record cannot be read. `published_ns` is the `time.monotonic_ns()` at the commit.

    In a shared store, `checkpoint` names the object with Spark's checkpoint as of this batch. A manifest with `ended`
    set is not a batch: it states that the query finished with the previous batch.
    """

    query: str
    batch: int
    token: int
    offsets: str
    published_ns: int
    before: tuple[int, ...]
    segments: tuple[Segment, ...]
    checkpoint: str = ""
    ended: bool = False

    def of_channel(self, channel: int) -> list[Segment]:
        """Return the segments of one channel in order.

        Spark partition i belongs to channel i modulo the number of channels.
        """
        return [segment for segment in self.segments if segment.partition % len(self.before) == channel]

    def after(self) -> tuple[int, ...]:
        """Return the number of rows that each channel has received up to and including this batch."""
        return tuple(
            rows + sum(segment.rows for segment in self.of_channel(channel)) for channel, rows in enumerate(self.before)
        )

    def packed(self) -> bytes:
        """Return the content of the manifest file, which omits the last two fields if they are not set."""
        body = asdict(self)
        return seal({name: value for name, value in body.items() if value or name not in ("checkpoint", "ended")})


class ReadableLog(Protocol):
    """The part of a log that the reader of one channel uses."""

    channels: int
    name: str
    """The name of the source."""

    segments_ahead: int
    """The segments after the one that is read which `supply` should hear of, to fetch them meanwhile."""

    @property
    def caught_up(self) -> bool:
        """Whether `first` and `manifest` have returned everything that is published."""
        ...

    @property
    def unavailable_s(self) -> float | None:
        """The time for which the log's store has been unreachable; 0 if reachable, None for a log without a store."""
        ...

    @property
    def where(self) -> str:
        """The location of the log, for error messages."""
        ...

    def label(self, segment: Segment) -> str:
        """Return the location of a segment, for error messages."""
        ...

    def first(self) -> Manifest | None:
        """Return the lowest batch that some channel may still need, or None if nothing is published yet."""
        ...

    def manifest(self, batch: int) -> Manifest | None:
        """Return a published batch, or None if it is not published or was removed.

        Raises:
            CorruptData: the manifest does not match its digest.
        """
        ...

    def supply(self, wanted: Sequence[Segment]) -> bytes | None:
        """Return the bytes of the first of these segments, or None while they are being fetched.

        The other segments may be requested soon, so the log may fetch them in advance.

        Raises:
            CorruptData: the bytes are missing, or do not match the digest in the manifest.
        """
        ...

    def check_follows(self, batch: int) -> None:
        """Raise `CorruptData` if the batch is missing although a later batch exists."""
        ...

    def release(self, channel: int, batch: int, done: int | None = None) -> None:
        """Record that `channel` does not need batches before `batch`, and remove batches that no channel needs.

        A reader never releases the last published batch, because the row counts continue from it.

        Args:
            done: the batch before which no batch counts as unread any longer; by default, `batch`.
        """
        ...

    def backlog(self) -> Backlog | None:
        """Return the backlog that the last publisher stored, or None if there is none or it is incomplete."""
        ...

    def close(self) -> None: ...


def digest_of(data: bytes | memoryview) -> str:
    """Return the digest that is stored with segments and sealed files."""
    return xxhash.xxh3_128_hexdigest(data)


def segment_name(batch: int, partition: int, token: int, attempt: int, part: int) -> str:
    """Return the name of a segment, which is unique among the task attempts of all runs."""
    return f"{batch:010d}-{partition:05d}-{token}-{attempt}-{part}.arrow"


def batch_of(segment: str) -> int:
    """Return the batch of the segment with the given name."""
    return int(segment[:10])


def unread(sizes: Iterable[tuple[str, int]], done: Sequence[int], before: int) -> int:
    """Return the size of the given segments (name, size) of batches below `before` that their channels still need.

    A segment counts as at least `SEGMENT_BYTES_MIN`.
    """
    total = 0
    for name, size in sizes:
        match = _SEGMENT.match(name)
        if match is not None and done[int(match[2]) % len(done)] <= int(match[1]) < before:
            total += max(size, SEGMENT_BYTES_MIN)
    return total


def seal(body: Mapping[str, Any]) -> bytes:
    """Return `body` as a line of JSON, preceded by a line with the digest of that JSON."""
    text = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
    return digest_of(text).encode() + b"\n" + text + b"\n"


def unseal(data: bytes, where: str) -> dict[str, Any]:
    """Return the content of sealed JSON.

    Raises:
        CorruptData: the content does not match its digest; the message calls it `where`.
    """
    digest, _, text = data.partition(b"\n")
    text = text.removesuffix(b"\n")
    if digest_of(text).encode() != digest:
        raise CorruptData(f"{where} does not match its digest; {RESTORE}")
    try:
        return dict(json.loads(text))
    except (RecursionError, TypeError, ValueError) as problem:
        raise CorruptData(f"{where} has missing or unexpected fields ({problem}); {RESTORE}") from None


def check_header(header: Mapping[str, Any], channels: int, where: str) -> None:
    """Raise `PipelineError` unless the header is of this format and the log was created for `channels` channels."""
    if header.get("format") != FORMAT:
        raise PipelineError(f"{where}: format {header.get('format')}, not {FORMAT}; use a new --state-dir")
    if header.get("channels") != channels:
        raise PipelineError(
            f"{where} was written with partitions={header.get('channels')}, but the source has {channels}; set "
            f"partitions={header.get('channels')}, or use a new --state-dir"
        )


def manifest_of(data: bytes, where: str) -> Manifest:
    """Return the manifest that the content of a manifest file describes.

    Raises:
        CorruptData: the content is damaged; the message calls it `where`.
    """
    body = unseal(data, where)
    try:
        body["before"] = tuple(body["before"])
        body["segments"] = tuple(Segment(**segment) for segment in body["segments"])
        return Manifest(**body)
    except (KeyError, TypeError, ValueError) as problem:
        raise CorruptData(f"{where}: {problem}; {RESTORE}") from None
