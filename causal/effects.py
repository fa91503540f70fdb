"""The effects: everything that a task has others do for it.

The law of order (D4): the effects of one `handle` are performed in the order given, and none of a later
`handle` before them.  Determinants that came with a message are stored inside `handle`, before an element
of it can be delivered; a frame carries the determinants its elements depend on; a bundle carries rows
and determinants in one atomic write.  So nothing that is visible outside depends on a determinant that only
dead processes held.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from causal.inflight import Entry
from causal.logs.log import LogDelta
from causal.logs.rollback import OrphanAnswer
from causal.ports import Bundle, Request, WithdrawPoint


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
    those from there on are forgotten (guarantee `epoch`).  With `expected` the store was open when a checkpoint became
    complete, so its place is there; with `counted` that checkpoint counts rows of the task in it.
    """

    channel: int
    restored: int | None = None
    expected: bool = False
    counted: bool = False


@dataclass(slots=True)
class WriteBundle:
    """Write a bundle atomically; only answers to neighbours may be performed before it is done or the task fails."""

    channel: int
    bundle: Bundle
    origins: list[tuple[int, int]]


@dataclass(slots=True)
class StageRows:
    """Make rows of epochs below `epoch` as durable as is promised, before any later effect."""

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
    """Withdraw, in one step, the rows after `mark`; answered by `SinkOpened`."""

    channel: int
    mark: WithdrawPoint


@dataclass(slots=True)
class OrphanReport:
    """The answer to an inquiry."""

    number: int
    finding: OrphanAnswer


@dataclass(slots=True)
class ReadSource:
    """Read up to `count_max` records from `position`; answered by `SourceRead`, once, when there are some."""

    channel: int
    position: int
    count_max: int


@dataclass(slots=True)
class SourceCompleted:
    """The source may forget elements below `position`: they are never read again."""

    channel: int
    position: int


@dataclass(slots=True)
class WriteSnapshot:
    """Make the state at barrier `epoch` durable; answered by `SnapshotWritten`."""

    epoch: int
    parts: Sequence[bytes]


@dataclass(slots=True)
class ReadStable:
    """Read what the highest incarnation that began a file of this task's log has written; answered by `StableRead`."""


@dataclass(slots=True)
class BeginStable:
    """Begin the file of this incarnation with these bytes, in one step, and forget older ones; answered by
    `StableWritten`."""

    logs: list[LogDelta]


@dataclass(slots=True)
class AppendStable:
    """Write these bytes of the own log after those that are written; answered by `StableWritten` or `StableFailed`."""

    logs: list[LogDelta]


@dataclass(slots=True)
class TruncateStable:
    """Forget the written logs of epochs below `epoch`: they are no longer needed."""

    epoch: int


@dataclass(slots=True)
class WriteRecording:
    """Keep the recording of the epoch that barrier `epoch` ended, for a rehearsal; it may be lost."""

    epoch: int
    parts: list[bytes]


@dataclass(slots=True)
class ReportSnapshot:
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
    """Read a segment from disk; answered by `SegmentRead`."""

    channel: int
    segment: int


@dataclass(slots=True)
class RemoveSegments:
    """Remove segments that are not needed any more."""

    segments: list[int]


@dataclass(slots=True)
class SendRequests:
    """Send these requests to the outside world, in this order as far as it accepts them; each answered by
    `ResponseReceived`.

    A request may be sent again, by a later incarnation, as long as its answer is in no log. It follows the
    `WriteBundle` that stores its dependencies (D4).
    """

    requests: list[Request]


@dataclass(slots=True)
class StateReply:
    """The answer to a `StateQuery`: state of the task, epoch, incarnation and, while it performs events, the tables."""

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
    | OrphanReport
    | ReadSource
    | SourceCompleted
    | WriteSnapshot
    | ReadStable
    | BeginStable
    | AppendStable
    | TruncateStable
    | WriteRecording
    | ReportSnapshot
    | SpillSegment
    | ReadSegment
    | RemoveSegments
    | SendRequests
    | StateReply
    | Phase
)
