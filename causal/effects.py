"""The effects: every action that a task requests from its surroundings.

The law of order (D4): the effects of one `handle` call are performed in the order of the list, and before the effects
of any later call. The determinants in a message are stored inside `handle`, before any element of the message can be
delivered. A frame carries the determinants on which its elements depend. A bundle carries rows and determinants in one
atomic write. Therefore no externally visible output depends on a determinant that only dead processes held.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from causal.cut import Cut
from causal.inflight import Entry
from causal.logs.log import LogDelta
from causal.logs.rollback import OrphanAnswer
from causal.ports import Bundle, MergeRules, Request, WithdrawPoint
from causal.snapshot_files import SnapshotFile


@dataclass(slots=True)
class Send:
    """Send a frame to a downstream task."""

    target: int
    parts: list[bytes]


@dataclass(slots=True)
class Reply:
    """Send a control frame back along a link to an upstream task."""

    link: bytes
    parts: list[bytes]


@dataclass(slots=True)
class OpenSink:
    """Fence the store for this incarnation; the answer is `SinkOpened`.

    `restored` is the epoch of the restored state: staged rows of epochs below it are made visible, and staged rows of
    later epochs are discarded (guarantee `epoch`). `expected` means that the store was open when a checkpoint was
    completed, so it must exist. `counted` means that this checkpoint counts rows of the task in the store.
    """

    channel: int
    restored: int | None = None
    expected: bool = False
    counted: bool = False


@dataclass(slots=True)
class WriteBundle:
    """Write a bundle atomically; until it is written or the task fails, only answers to neighbours may be performed."""

    channel: int
    bundle: Bundle
    origins: list[tuple[int, int]]


@dataclass(slots=True)
class StageRows:
    """Make the rows of epochs below `epoch` as durable as promised before any later effect is performed."""

    channel: int
    epoch: int


@dataclass(slots=True)
class CommitRows:
    """Make staged rows of epochs below `epoch` visible, because checkpoint `epoch` is complete.

    The answer is `RowsCommitted`.
    """

    channel: int
    epoch: int


@dataclass(slots=True)
class TruncateSink:
    """Allow the store to drop the determinants of epochs below `epoch`."""

    channel: int
    epoch: int


@dataclass(slots=True)
class WithdrawRows:
    """Withdraw the rows after `mark` in one step; the answer is `SinkOpened`."""

    channel: int
    mark: WithdrawPoint


@dataclass(slots=True)
class OrphanReport:
    """Report the task's answer to an inquiry."""

    number: int
    finding: OrphanAnswer


@dataclass(slots=True)
class ReadSource:
    """Read up to `count_max` records from `position`; one `SourceRead` answers when records are available."""

    channel: int
    position: int
    count_max: int


@dataclass(slots=True)
class SourceCompleted:
    """Allow the source to drop the elements below `position`, which are never read again."""

    channel: int
    position: int


@dataclass(slots=True)
class WriteSnapshot:
    """Make the state at barrier `epoch` durable; the answer is `SnapshotWritten`."""

    epoch: int
    parts: Sequence[bytes]


@dataclass(slots=True)
class MergeSnapshots:
    """Merge consecutive snapshot files of the task into one, in the background; the answer is `SnapshotsMerged`.

    `first` and `last` are the first and last barrier whose changes the file will contain; `first` is 0 for the whole
    state. `waiting` is the number of files that follow these.
    """

    sources: list[SnapshotFile]
    first: int
    last: int
    rules: MergeRules
    waiting: int


@dataclass(slots=True)
class ReadStable:
    """Read the log file of the highest incarnation of this task that began a log file; the answer is `StableRead`."""


@dataclass(slots=True)
class BeginStable:
    """Begin the log file of this incarnation with `logs`, in one atomic step, and drop older files.

    The answer is `StableWritten`.
    """

    logs: list[LogDelta]


@dataclass(slots=True)
class AppendStable:
    """Append bytes of the task's own log to those already written; answered by `StableWritten` or `StableFailed`."""

    logs: list[LogDelta]


@dataclass(slots=True)
class TruncateStable:
    """Drop the written logs of epochs below `epoch`, which are no longer needed."""

    epoch: int


@dataclass(slots=True)
class WriteRecording:
    """Keep the recording of the epoch that barrier `epoch` ended, for a rehearsal; the recording may be lost."""

    epoch: int
    parts: list[bytes]


@dataclass(slots=True)
class WriteEpochLog:
    """Keep the task's own log of an epoch for later replays (`causal run --record`); the log may be lost.

    `reached` is the cut at the barrier that ended the epoch. If the process ends in the middle of the epoch, it is the
    task's position then, with the epoch's own number; `failure` is the exception that ended it. The task replayed the
    first `replayed` bytes of the log, which an earlier incarnation had written.
    """

    epoch: int
    log: bytes
    reached: Cut
    replayed: int
    failure: str = ""


@dataclass(slots=True)
class ReportSnapshot:
    """Report that the task's snapshot for checkpoint `epoch` is on disk; `files` restore it, oldest first."""

    epoch: int
    files: list[tuple[str, int, str]]


@dataclass(slots=True)
class SpillSegment:
    """Write in-flight entries to disk; the answer is `SegmentWritten` or `SegmentFailed`."""

    channel: int
    segment: int
    entries: Sequence[Entry]


@dataclass(slots=True)
class ReadSegment:
    """Read a segment from disk; the answer is `SegmentRead`."""

    channel: int
    segment: int


@dataclass(slots=True)
class RemoveSegments:
    """Remove spilled segments that are no longer needed."""

    segments: list[int]


@dataclass(slots=True)
class SendRequests:
    """Send requests to the outside world in order; each request is answered by `ResponseReceived`.

    A later incarnation may send a request again as long as no log contains its answer. This effect follows the
    `WriteBundle` that stores the dependencies of the requests (D4).
    """

    requests: list[Request]


@dataclass(slots=True)
class StateReply:
    """Answer a `StateQuery` with the task's state, epoch, incarnation and, while the task is running, its tables."""

    request: int
    facts: dict[str, Any]


@dataclass(slots=True)
class Phase:
    """Report that the task has reached a new phase; for `replayed`, `detail` is the number of replayed elements."""

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
    | MergeSnapshots
    | ReadStable
    | BeginStable
    | AppendStable
    | TruncateStable
    | WriteRecording
    | WriteEpochLog
    | ReportSnapshot
    | SpillSegment
    | ReadSegment
    | RemoveSegments
    | SendRequests
    | StateReply
    | Phase
)
