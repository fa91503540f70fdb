"""The records of an ingest log: micro-batches that are published once each, by one query, in order.

Spark's tasks write segments, the commit of a batch publishes one manifest that names them.  What is published never
changes and cannot be published twice; what is not published does not exist for a reader.  Nothing here knows Spark or
Arrow.
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
    """A file with rows of one Spark partition of one batch; `part` counts the files of that partition."""

    file: str
    partition: int
    part: int
    rows: int
    digest: str


@dataclass(frozen=True, slots=True)
class Backlog:
    """The published bytes that readers are not done with, when a batch is about to follow.

    `since_ns` is the `time.monotonic_ns()` at which that batch began to wait for room; 0 where it did not wait.
    """

    unread_bytes: int
    bytes_max: int
    batch: int
    since_ns: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """A published batch.

    `before[c]` is the number of rows that channel c got from all earlier batches; `segments` are in the order of
    (partition, part), which is the order of the rows; `offsets` is the digest of Spark's own record of what the
    batch consists of ("" where that is not readable); `published_ns` is `time.monotonic_ns()` at the commit.

    In a shared store `checkpoint` names the object with Spark's checkpoint as of this batch, and a manifest that has
    `ended` is no batch: it says that the query has finished with the previous batch.
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
        """Return the segments of one channel, in order: Spark partition i belongs to channel i modulo their number."""
        return [segment for segment in self.segments if segment.partition % len(self.before) == channel]

    def after(self) -> tuple[int, ...]:
        """Return the number of rows of each channel up to and with this batch."""
        return tuple(
            rows + sum(segment.rows for segment in self.of_channel(channel)) for channel, rows in enumerate(self.before)
        )

    def packed(self) -> bytes:
        """Return the content of its file; a log on one machine has neither of the last two fields."""
        body = asdict(self)
        return seal({name: value for name, value in body.items() if value or name not in ("checkpoint", "ended")})


class ReadableLog(Protocol):
    """The part of a log that a reader of one of its channels uses."""

    channels: int
    name: str
    """The name of the source."""

    segments_ahead: int
    """The segments after the one that is read which `supply` should hear of, to fetch them meanwhile."""

    @property
    def caught_up(self) -> bool:
        """Whether what `first` and `manifest` return is all that is published."""
        ...

    @property
    def unavailable_s(self) -> float | None:
        """The time for which the log's store could not be reached; 0 where it can be, None for a log without one."""
        ...

    @property
    def where(self) -> str:
        """The place of the log, as errors name it."""
        ...

    def label(self, segment: Segment) -> str:
        """Return the place of a segment, as errors name it."""
        ...

    def first(self) -> Manifest | None:
        """Return the lowest batch that some channel may need; None if nothing is published yet."""
        ...

    def manifest(self, batch: int) -> Manifest | None:
        """Return a published batch; None if it is not published, or was removed.

        Raises:
            CorruptData: its file does not match its digest.
        """
        ...

    def supply(self, wanted: Sequence[Segment]) -> bytes | None:
        """Return the bytes of the first of these segments; None while they are under way. The others may follow soon.

        Raises:
            CorruptData: they are missing, or do not match the digest in the manifest.
        """
        ...

    def check_follows(self, batch: int) -> None:
        """Raise `CorruptData` if the batch is not here although a later one is."""
        ...

    def release(self, channel: int, batch: int, done: int | None = None) -> None:
        """Record that `channel` needs no batch below `batch`, and remove what no channel needs.

        The last published batch is never released by a reader, so the counts continue from it.

        Args:
            done: the batches below it count as unread no more; `batch` by default.
        """
        ...

    def backlog(self) -> Backlog | None:
        """Return the backlog that the last publisher stored; None where there is none, or it is torn."""
        ...

    def close(self) -> None: ...


def digest_of(data: bytes | memoryview) -> str:
    """Return the digest that segments and sealed files carry."""
    return xxhash.xxh3_128_hexdigest(data)


def segment_name(batch: int, partition: int, token: int, attempt: int, part: int) -> str:
    """Return the name of a segment, which no two task attempts of any run share."""
    return f"{batch:010d}-{partition:05d}-{token}-{attempt}-{part}.arrow"


def batch_of(segment: str) -> int:
    """Return the batch of a segment with that name."""
    return int(segment[:10])


def unread(sizes: Iterable[tuple[str, int]], done: Sequence[int], before: int) -> int:
    """Return the bytes that segments (name, size) of batches below `before` count as which their channel still
    needs.
    """
    total = 0
    for name, size in sizes:
        match = _SEGMENT.match(name)
        if match is not None and done[int(match[2]) % len(done)] <= int(match[1]) < before:
            total += max(size, SEGMENT_BYTES_MIN)
    return total


def seal(body: Mapping[str, Any]) -> bytes:
    """JSON whose first line is the digest of the second."""
    text = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
    return digest_of(text).encode() + b"\n" + text + b"\n"


def unseal(data: bytes, where: str) -> dict[str, Any]:
    """Return the content of sealed JSON.

    Raises:
        CorruptData: it does not match its digest; names it as `where`.
    """
    digest, _, text = data.partition(b"\n")
    text = text.removesuffix(b"\n")
    if digest_of(text).encode() != digest:
        raise CorruptData(f"{where} does not match its digest; {RESTORE}")
    try:
        return dict(json.loads(text))
    except (RecursionError, TypeError, ValueError) as problem:
        raise CorruptData(f"{where} has other fields ({problem}); {RESTORE}") from None


def check_header(header: Mapping[str, Any], channels: int, where: str) -> None:
    """Raise `PipelineError` unless a log with this header has this format and was begun for that many channels."""
    if header.get("format") != FORMAT:
        raise PipelineError(f"{where}: format {header.get('format')}, not {FORMAT}; use a new --state-dir")
    if header.get("channels") != channels:
        raise PipelineError(
            f"{where} was written with partitions={header.get('channels')}, the source says {channels}; "
            f"set partitions={header.get('channels')}, or use a new --state-dir"
        )


def manifest_of(data: bytes, where: str) -> Manifest:
    """Return the manifest in the content of its file.

    Raises:
        CorruptData: it is damaged; names it as `where`.
    """
    body = unseal(data, where)
    try:
        body["before"] = tuple(body["before"])
        body["segments"] = tuple(Segment(**segment) for segment in body["segments"])
        return Manifest(**body)
    except (KeyError, TypeError, ValueError) as problem:
        raise CorruptData(f"{where}: {problem}; {RESTORE}") from None
