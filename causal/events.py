"""The events: everything that can happen to a task. Read this file and `effects.py` first.

Only `TaskProtocol.handle(event, now_ns)` changes a task, and events are the task's only input.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from causal.cut import Mark
from causal.logs.log import LogDelta
from causal.logs.rollback import Extent, Rollback
from causal.ports import StoreState

if TYPE_CHECKING:
    from causal.channels.wire import Header


@dataclass(slots=True)
class Started:
    """The state has been restored and the sockets are open, so the task begins."""


@dataclass(slots=True)
class FrameReceived:
    """A multipart frame has arrived; `link` leads back to its sender (empty for answers on a dialled connection)."""

    link: bytes
    parts: Sequence[bytes]


@dataclass(slots=True)
class PeerUp:
    """A neighbour is running; if it is downstream, a new connection to it has been dialled."""

    task: int
    incarnation: int
    compress: bool = False


@dataclass(slots=True)
class PeerDown:
    """An incarnation of a neighbour is dead and has no successor yet."""

    task: int
    incarnation: int


@dataclass(slots=True)
class HotStandbyUp:
    """The task has a hot standby, to which a new connection has been dialled, so the task begins to echo."""


@dataclass(slots=True)
class HotStandbyDown:
    """The task no longer has a hot standby."""


@dataclass(slots=True)
class Shadowed:
    """This process is a hot standby, and its task's echo continues from the restored state."""


@dataclass(slots=True)
class Echoed:
    """Part of the task's echo has arrived at a hot standby: logs, and the frames that the task has accepted."""

    logs: list[LogDelta]
    depends: list[Extent]
    frames: list[tuple[Header, bytes | memoryview]]


@dataclass(slots=True)
class GreetAhead:
    """The next incarnation of a hot standby's task is to be announced to its downstream neighbours in advance.

    A new connection to each of them has been dialled.

    Attributes:
        incarnation: the incarnation as which the standby would take over.
        peers: downstream task → its incarnation.
    """

    incarnation: int
    peers: dict[int, int]


@dataclass(slots=True)
class Promoted:
    """The hot standby becomes the task; checkpoint `epoch`, which `files` restore, is complete.

    The next event is `Started`.
    """

    incarnation: int
    epoch: int
    files: list[tuple[str, int, str]]
    rollback: Rollback


@dataclass(slots=True)
class SourceRead:
    """A reader's answer to `ReadSource`: records starting at position `first`."""

    channel: int
    first: int
    records: list[Any]
    origin_ns: int
    ended: bool
    marks: Sequence[Mark] = ()


@dataclass(slots=True)
class SinkOpened:
    """A store's answer to `OpenSink`."""

    channel: int
    state: StoreState


@dataclass(slots=True)
class RowsCommitted:
    """A store's answer to `CommitRows`: the staged rows of epochs below `epoch` are visible."""

    channel: int
    epoch: int


@dataclass(slots=True)
class CheckpointRequested:
    """A source must emit barrier `epoch`; no task performs anything after a final barrier.

    If `hold` is set, the source delivers no more records until checkpoint `epoch` is complete.
    """

    epoch: int
    final: bool = False
    hold: bool = False


@dataclass(slots=True)
class CheckpointCompleted:
    """Checkpoint `epoch` is complete for all tasks."""

    epoch: int


@dataclass(slots=True)
class OrphanQuery:
    """Determinants are lost, so the task pauses and reports whether it depends on them (D9); see `OrphanReport`."""

    number: int
    lost: list[Extent]


@dataclass(slots=True)
class InquiryResolved:
    """The inquiry has been decided, and this task does not roll back.

    It drops the log bytes whose owners roll back beyond them, and resumes.
    """

    rollback: Rollback


@dataclass(slots=True)
class SnapshotWritten:
    """The file of a snapshot is durable."""

    epoch: int
    file: tuple[str, int, str]


@dataclass(slots=True)
class SnapshotsMerged:
    """A merge of snapshot files has ended; `file` is durable, or None if the merge has failed."""

    sources: Sequence[tuple[str, int, str]]
    file: tuple[str, int, str] | None


@dataclass(slots=True)
class StableRead:
    """The part of the task's own log on stable storage has been read, as one delta from offset 0 per epoch."""

    logs: Sequence[LogDelta]


@dataclass(slots=True)
class StableWritten:
    """The listed extents of the task's own log are on stable storage."""

    extents: Sequence[Extent]


@dataclass(slots=True)
class StableFailed:
    """The task's own log could not be written; bytes that were already stable remain stable."""


@dataclass(slots=True)
class SegmentWritten:
    """`count` in-flight elements, starting at `first`, are on disk."""

    channel: int
    segment: int
    first: int
    count: int


@dataclass(slots=True)
class SegmentFailed:
    """A segment could not be written; its entries are still in memory."""

    channel: int
    segment: int


@dataclass(slots=True)
class SegmentRead:
    """The payloads of a segment have been read, keyed by first position."""

    channel: int
    segment: int
    payloads: Mapping[int, bytes]


@dataclass(slots=True)
class ResponseReceived:
    """The outside world's answer to a request sent by `SendRequests`."""

    operator: int
    number: int
    body: bytes


@dataclass(slots=True)
class StateQuery:
    """A query for an operator's state of a key; answered by `StateReply` between two events of the task."""

    request: int
    operator: str
    key: Any


@dataclass(slots=True)
class JobEnded:
    """Every sink has finished, so no visible row will be withdrawn any more."""


@dataclass(slots=True)
class Turn:
    """The task performs the next event of its schedule, if there is one, and all timers that are due."""

    took_ns: int = 0
    """The duration of the previous turn, including its effects; 0 if no clock was read."""


Event = (
    Started
    | HotStandbyUp
    | HotStandbyDown
    | Shadowed
    | Echoed
    | GreetAhead
    | Promoted
    | FrameReceived
    | PeerUp
    | PeerDown
    | SourceRead
    | SinkOpened
    | RowsCommitted
    | CheckpointRequested
    | CheckpointCompleted
    | OrphanQuery
    | InquiryResolved
    | SnapshotWritten
    | SnapshotsMerged
    | StableRead
    | StableWritten
    | StableFailed
    | SegmentWritten
    | SegmentFailed
    | SegmentRead
    | ResponseReceived
    | StateQuery
    | JobEnded
    | Turn
)
