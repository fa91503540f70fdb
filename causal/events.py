"""Everything that can happen to a task.  Read this file and `effects.py` first.

`TaskProtocol.handle(event, now_ns)` is the only thing that changes a task, and an event is all it learns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from causal.log import LogDelta
from causal.ports import Held
from causal.rollback import Extent, Rollback


@dataclass(slots=True)
class Started:
    """The state is restored and sockets are open: begin."""


@dataclass(slots=True)
class FrameReceived:
    """A multipart frame came in; `link` leads back to its sender (empty for answers on a dialled connection)."""

    link: bytes
    parts: Sequence[bytes]


@dataclass(slots=True)
class PeerAt:
    """A neighbour is there now: its connection has been dialled anew if it is downstream."""

    task: int
    incarnation: int
    compress: bool = False


@dataclass(slots=True)
class PeerDown:
    """That incarnation of a neighbour is dead and has no successor yet."""

    task: int
    incarnation: int


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
    held: Held


@dataclass(slots=True)
class RowsCommitted:
    """A store's answer to `CommitRows`: staged rows of epochs below `epoch` are visible."""

    channel: int
    epoch: int


@dataclass(slots=True)
class CheckpointAsked:
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
class Inquired:
    """Determinants are lost: stand still, and say whether you depend on them (D9); answered by `Found`."""

    number: int
    lost: list[Extent]


@dataclass(slots=True)
class Kept:
    """The inquiry is decided and this task stays: forget what the others take back, and go on."""

    rollback: Rollback


@dataclass(slots=True)
class SnapshotWritten:
    """A snapshot's file is durable."""

    epoch: int
    file: tuple[str, int, str]


@dataclass(slots=True)
class StableRead:
    """What is on stable storage of the own log: one delta from offset 0 per epoch."""

    logs: Sequence[LogDelta]


@dataclass(slots=True)
class StableWritten:
    """So much of the own log is on stable storage."""

    extents: Sequence[Extent]


@dataclass(slots=True)
class StableFailed:
    """It could not be written; what was stable is."""


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
    """Payloads of a segment, by first position."""

    channel: int
    segment: int
    payloads: Mapping[int, bytes]


@dataclass(slots=True)
class Answered:
    """The outside world's answer to a request that an `Ask` put."""

    operator: int
    number: int
    body: bytes


@dataclass(slots=True)
class Inspect:
    """Somebody asks what an operator keeps for a key; answered by `Inspected`, between two events of the task."""

    request: int
    operator: str
    key: Any


@dataclass(slots=True)
class JobEnded:
    """Every sink has finished, and that is decided for good: no row that is visible will be taken back."""


@dataclass(slots=True)
class Turn:
    """Perform the next event of the schedule, if there is one, and whatever time has made due."""

    took_ns: int = 0
    """How long the turn before took, with its effects; 0 where nobody looked at a clock."""


Event = (
    Started
    | FrameReceived
    | PeerAt
    | PeerDown
    | SourceRead
    | SinkOpened
    | RowsCommitted
    | CheckpointAsked
    | CheckpointCompleted
    | Inquired
    | Kept
    | SnapshotWritten
    | StableRead
    | StableWritten
    | StableFailed
    | SegmentWritten
    | SegmentFailed
    | SegmentRead
    | Answered
    | Inspect
    | JobEnded
    | Turn
)
