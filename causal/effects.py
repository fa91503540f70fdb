"""Everything a task asks of the world.

The law of order (D4): the effects of one `handle` are performed in the order given, and none of a later
`handle` before them.  Determinants that came with a message are stored inside `handle`, before an element
of it can be delivered; a frame carries the determinants its elements depend on; a bundle carries rows
and determinants in one atomic write.  So nothing that anybody can see depends on a determinant that only
the dead knew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from causal.inflight import Entry
from causal.log import LogDelta
from causal.ports import Bundle, Mark, Request
from causal.rollback import Finding


@dataclass(slots=True)
class Send:
    """A frame to the task downstream."""

    target: int
    parts: list[bytes]


@dataclass(slots=True)
class Reply:
    """A control frame back along a link to upstream."""

    link: bytes
    parts: list[bytes]


@dataclass(slots=True)
class OpenSink:
    """Fence the store for this incarnation; answered by `SinkOpened`.

    With `restored`, the epoch of the state that the task has, staged rows of epochs below it are made visible, and
    those from there on are forgotten (guarantee `epoch`).
    """

    channel: int
    restored: int | None = None


@dataclass(slots=True)
class WriteBundle:
    """Write atomically; must be done, or the task must fail, before any effect behind it but answers to neighbours."""

    channel: int
    bundle: Bundle
    origins: list[tuple[int, int]]


@dataclass(slots=True)
class StageRows:
    """Rows of epochs below `epoch` must be as durable as is promised before anything else."""

    channel: int
    epoch: int


@dataclass(slots=True)
class CommitRows:
    """Checkpoint `epoch` is complete: make staged rows of epochs below it visible; answered by `RowsCommitted`."""

    channel: int
    epoch: int


@dataclass(slots=True)
class TruncateSink:
    """The store may forget determinants of epochs below `epoch`."""

    channel: int
    epoch: int


@dataclass(slots=True)
class WithdrawRows:
    """Take back, in one step, what came after `mark`; answered by `SinkOpened`."""

    channel: int
    mark: Mark


@dataclass(slots=True)
class Found:
    """The answer to an inquiry."""

    number: int
    finding: Finding


@dataclass(slots=True)
class ReadSource:
    """Read up to `count_max` records from `position`; answered by `SourceRead`, once, when there are some."""

    channel: int
    position: int
    count_max: int


@dataclass(slots=True)
class SourceCompleted:
    """Nobody will ask for elements below `position` again."""

    channel: int
    position: int


@dataclass(slots=True)
class WriteSnapshot:
    """Make the state at barrier `epoch` durable; answered by `SnapshotWritten`."""

    epoch: int
    parts: list[bytes]


@dataclass(slots=True)
class ReadStable:
    """Read what the youngest incarnation that began a file of this task's log has written; answered by `StableRead`."""


@dataclass(slots=True)
class BeginStable:
    """Begin the file of this incarnation with these bytes, in one step, and forget older ones; `StableWritten`."""

    logs: list[LogDelta]


@dataclass(slots=True)
class AppendStable:
    """Write these bytes of the own log behind what is written; answered by `StableWritten` or `StableFailed`."""

    logs: list[LogDelta]


@dataclass(slots=True)
class TruncateStable:
    """What was written of epochs below `epoch` is not needed any more."""

    epoch: int


@dataclass(slots=True)
class WriteRecording:
    """Keep what the task was told in the epoch that barrier `epoch` ended, for a rehearsal; may be lost."""

    epoch: int
    parts: list[bytes]


@dataclass(slots=True)
class SnapshotReady:
    """This checkpoint of the task is on disk: `files` restore it, oldest first."""

    epoch: int
    files: list[tuple[str, int, str]]


@dataclass(slots=True)
class SpillSegment:
    """Write these in-flight entries to disk; answered by `SegmentWritten` or `SegmentFailed`."""

    channel: int
    segment: int
    entries: Sequence[Entry]


@dataclass(slots=True)
class ReadSegment:
    """Answered by `SegmentRead`."""

    channel: int
    segment: int


@dataclass(slots=True)
class RemoveSegments:
    """Nobody needs these segments any more."""

    segments: list[int]


@dataclass(slots=True)
class Ask:
    """Put these requests to the outside world, in this order as far as it takes them; each answered by `Answered`.

    A request may be put again, by a later incarnation, as long as no answer of it is in a log.  It stands behind the
    `WriteBundle` that stores what it depends on (D4).
    """

    requests: list[Request]


@dataclass(slots=True)
class Inspected:
    """What was asked for: state of the task, epoch, incarnation and, while it performs events, the tables."""

    request: int
    facts: dict[str, Any]


@dataclass(slots=True)
class Phase:
    """The task has come to a new phase; `detail` is the number of replayed elements for `replayed`."""

    name: str
    detail: int = 0


Effect = (
    Send
    | Reply
    | OpenSink
    | WriteBundle
    | StageRows
    | CommitRows
    | TruncateSink
    | WithdrawRows
    | Found
    | ReadSource
    | SourceCompleted
    | WriteSnapshot
    | ReadStable
    | BeginStable
    | AppendStable
    | TruncateStable
    | WriteRecording
    | SnapshotReady
    | SpillSegment
    | ReadSegment
    | RemoveSegments
    | Ask
    | Inspected
    | Phase
)
