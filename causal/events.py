"""The events: everything that can happen to a task.  Read this file and `effects.py` first.

`TaskProtocol.handle(event, now_ns)` is the only thing that changes a task, and an event is all it learns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from causal.logs.log import LogDelta
from causal.logs.rollback import Extent, Rollback
from causal.ports import StoreState

if TYPE_CHECKING:
    from causal.channels.wire import Header


@dataclass(slots=True)
class Started:
    """The state is restored and sockets are open: begin."""


@dataclass(slots=True)
class FrameReceived:
    """A multipart frame came in; `link` leads back to its sender (empty for answers on a dialled connection)."""

    link: bytes
    parts: Sequence[bytes]


@dataclass(slots=True)
class PeerUp:
    """A neighbour is up: if it is downstream, a new connection to it has been dialled."""

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
    """The task has a hot standby, to which a new connection has been dialled: the task echoes its events."""


@dataclass(slots=True)
class HotStandbyDown:
    """The task has no hot standby any more."""


@dataclass(slots=True)
class Shadowed:
    """This is a hot standby, whose task's echo follows the state that is restored."""


@dataclass(slots=True)
class Echoed:
    """A part of the echo of its task has come to a hot standby: logs, and the frames that the task has taken."""

    logs: list[LogDelta]
    depends: list[Extent]
    frames: list[tuple[Header, bytes | memoryview]]


@dataclass(slots=True)
class Promoted:
    """The hot standby becomes its task: what `files` restore, of checkpoint `epoch`, is complete.

    `Started` follows.
    """

    incarnation: int
    epoch: int
    files: list[tuple[str, int, str]]
    rollback: Rollback


@dataclass(slots=True)
class SourceRead:
    """A reader's answer to `ReadSource`: records from position `first` onwards."""

    channel: int
    first: int
    records: list[Any]
    origin_ns: int
    ended: bool


@dataclass(slots=True)
class SinkOpened:
    """A store's answer to `OpenSink`."""

    channel: int
    state: StoreState


@dataclass(slots=True)
class RowsCommitted:
    """A store's answer to `CommitRows`: staged rows of epochs below `epoch` are visible."""

    channel: int
    epoch: int


@dataclass(slots=True)
class CheckpointRequested:
    """A source is to put barrier `epoch` into the stream; a final one is the last thing that any task performs.

    With `hold` the source delivers no more records until checkpoint `epoch` is complete.
    """

    epoch: int
    final: bool = False
    hold: bool = False


@dataclass(slots=True)
class CheckpointCompleted:
    """Checkpoint `epoch` is complete at every task."""

    epoch: int


@dataclass(slots=True)
class OrphanQuery:
    """Determinants are lost: the task pauses and reports whether it depends on them (D9); see `OrphanReport`."""

    number: int
    lost: list[Extent]


@dataclass(slots=True)
class InquiryResolved:
    """The inquiry is decided and this task stays: it forgets what the others roll back, and resumes."""

    rollback: Rollback


@dataclass(slots=True)
class SnapshotWritten:
    """A snapshot's file is durable."""

    epoch: int
    file: tuple[str, int, str]


@dataclass(slots=True)
class StableRead:
    """The part of the own log that is on stable storage has been read: one delta from offset 0 per epoch."""

    logs: Sequence[LogDelta]


@dataclass(slots=True)
class StableWritten:
    """The extents of the own log that are on stable storage."""

    extents: Sequence[Extent]


@dataclass(slots=True)
class StableFailed:
    """The own log could not be written; what was stable stays so."""


@dataclass(slots=True)
class SegmentWritten:
    """`count` in-flight elements from `first` are on disk."""

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
    """The payloads of a segment have been read, by first position."""

    channel: int
    segment: int
    payloads: Mapping[int, bytes]


@dataclass(slots=True)
class ResponseReceived:
    """The outside world's answer to a request of `SendRequests`."""

    operator: int
    number: int
    body: bytes


@dataclass(slots=True)
class StateQuery:
    """A query for what an operator keeps for a key; answered by `StateReply`, between two events of the task."""

    request: int
    operator: str
    key: Any


@dataclass(slots=True)
class JobEnded:
    """Every sink has finished, which is final: no visible row will be withdrawn."""


@dataclass(slots=True)
class Turn:
    """Perform the next event of the schedule, if there is one, and all timers that are due."""

    took_ns: int = 0
    """The duration of the previous turn, with its effects; 0 where no clock was read."""


Event = (
    Started
    | HotStandbyUp
    | HotStandbyDown
    | Shadowed
    | Echoed
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
