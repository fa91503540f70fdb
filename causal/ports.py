"""The interfaces that the core uses: operators, live values, a sink's store.

The core calls these and nothing else.  In a worker they are real; in tests and in the simulator
they are seeded.  The core never sees a record: chains take chunks and return chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from causal.errors import PeerViolation
from causal.logs.log import LogDelta
from causal.logs.rollback import Extent
from causal.records.batch import Chunk


class Environment(Protocol):
    """The source of live values, which no log has yet."""

    def wall_ns(self) -> int: ...

    def entropy(self) -> bytes:
        """Return 16 fresh random bytes."""
        ...


class Services(Protocol):
    """The causal services a chain may use during an event: recorded when live, returned when replaying."""

    def now_ns(self) -> int: ...

    def seed(self) -> bytes:
        """Return 16 bytes, the same for the whole epoch."""
        ...

    def epoch(self) -> int: ...

    def replaying(self) -> bool: ...

    def call(self, ask: Callable[[], bytes]) -> bytes:
        """Return the bytes that `ask` returned when it ran live; it does not run again in a replay."""
        ...

    def user(self, kind: str, ask: Callable[[], bytes]) -> bytes:
        """Do the same as `call` for a kind registered by a user."""
        ...

    def window(self, operator: int, end_ns: int, intervals: Sequence[tuple[int, int]]) -> None:
        """Record, or check against the record, which elements (start, length) a window holds as it fires."""
        ...


class SnapshotJob(Protocol):
    """The state at a barrier, encoded little by little while the task continues (copy on write)."""

    def step(self, keys_max: int) -> bool:
        """Encode up to `keys_max` more keys; true when all are encoded."""
        ...

    def parts(self, *before: bytes) -> Sequence[bytes]:
        """Return, after `step` returned true, `before` and opaque parts for `Chain.restore`, stored in this order.

        Another thread may read them, and a part may be put together when it is read.
        """
        ...

    full: bool
    """Whether the parts are complete, or extend what earlier snapshots hold."""


Output = tuple[int, Chunk]
"""An output: (ordinal of the channel in `Topology.outputs(task)`, chunk), in the order of the elements of a channel.
For a sink's channel the chunk is ROWS, in the sink's own encoding."""


@dataclass(frozen=True, slots=True)
class Request:
    """A question to the outside world, which is part of the chain's state until it is answered."""

    operator: int
    """The ordinal of the operator in the chain."""
    number: int
    """The number of the request, never used twice by one operator of one task."""
    body: bytes


class Chain(Protocol):
    """The fused operators of one task.  The same calls and the same service answers give the same bytes.

    Attributes:
        commutes: records of different inputs may change places, between two outputs: the state is the same.
    """

    @property
    def commutes(self) -> bool: ...

    def deliver(self, input: int, chunks: Sequence[Chunk], first: int, services: Services) -> list[Output]:
        """Run all records of the chunks (RECORDS, LISTED or WATERMARK) through the chain as one batch.

        Args:
            input: the ordinal of the channel in `Topology.inputs(task)`.
            first: the position of the first element in that channel; for error messages.
        """
        ...

    def next_timer_ns(self) -> int | None:
        """Return the wall-clock time of the earliest timer or processing-time window; None if there is none."""
        ...

    def fire(self, due_ns: int, services: Services) -> list[Output]:
        """Fire every timer and window due at or before `due_ns`, in a defined order; ones set meanwhile wait."""
        ...

    def ended(self, input: int, services: Services) -> list[Output]:
        """Process the end of one input; others may continue."""
        ...

    def finish(self, services: Services) -> list[Output]:
        """Fire open windows, not timers, once all inputs have ended and no request is outstanding."""
        ...

    def answer(self, operator: int, number: int, body: bytes, services: Services) -> list[Output]:
        """Process the response to a request; each request is answered once."""
        ...

    def asked(self) -> list[Request]:
        """Return the requests that are new since the last call."""
        ...

    def outstanding(self) -> list[Request]:
        """Return all requests without a response, in the order in which they were sent; part of the state."""
        ...

    def waiting(self) -> bool:
        """Return whether some request has no response yet."""
        ...

    def full(self) -> bool:
        """Return whether so many requests wait that no more records should be delivered."""
        ...

    def counts(self) -> dict[str, dict[str, int]]:
        """Return operator → reason → the elements it has dropped, held back or revised, since the job began."""
        ...

    def inspect(self, operator: str, key: Any) -> dict[str, Any]:
        """Return what the operator of that name keeps for a key, by table; empty if it is not in this chain."""
        ...

    def snapshot(self, full: bool, behind: str = "") -> SnapshotJob:
        """Freeze the current state, for the job to encode. With `full` the parts are complete.

        Args:
            behind: the digest of the file that holds the snapshot before this one, where the parts, which are complete,
                should also hold the changes since: a process that has loaded that file needs nothing else.
        """
        ...

    def restore(self, parts: Iterable[bytes]) -> None:
        """Load parts of a full snapshot, then of each later one, in order; may be called once per snapshot."""
        ...

    def restoring(self, parts: Iterable[bytes]) -> Iterator[None]:
        """Do what `restore` does, in small steps: one for each item of the iterator."""
        ...

    def release(self) -> None:
        """Free the state and its files; nothing else is called after it."""
        ...


class PlainChain:
    """The base of a chain without state, requests, counters and tables."""

    commutes = False

    def release(self) -> None:
        """Release nothing."""

    def restore(self, parts: Iterable[bytes]) -> None:
        """Restore nothing."""

    def restoring(self, parts: Iterable[bytes]) -> Iterator[None]:
        self.restore(parts)
        yield

    def ended(self, input: int, services: Services) -> list[Output]:
        return []

    def answer(self, operator: int, number: int, body: bytes, services: Services) -> list[Output]:
        raise PeerViolation(f"an answer to operator {operator}, which sends no requests")

    def asked(self) -> list[Request]:
        return []

    def outstanding(self) -> list[Request]:
        return []

    def waiting(self) -> bool:
        return False

    def full(self) -> bool:
        return False

    def counts(self) -> dict[str, dict[str, int]]:
        return {}

    def inspect(self, operator: str, key: Any) -> dict[str, Any]:
        return {}


@dataclass(frozen=True, slots=True)
class Bundle:
    """The rows and determinants that a sink writes in one atomic step (D8)."""

    first: int
    """The position of the first row; rows are numbered from 0 without gaps, forever."""
    count: int
    rows: bytes
    """The bodies of the ROWS chunks, concatenated."""
    digest: int
    """The rolling digest of the row bytes after this bundle (64 bits, unsigned)."""
    epoch: int
    incarnation: int
    logs: tuple[LogDelta, ...]
    """The determinants that the rows depend on and that the store does not hold yet."""
    ended: bool = False
    """Whether the job has ended: no rows follow, and none is ever withdrawn.  Such a bundle has no rows itself."""
    depends: tuple[Extent, ...] | None = None
    """The extents, below full sharing depth, of every log that the rows depend on, if it has grown since the bundle
    before.  None where the store holds all logs that its rows depend on."""
    rollback: int = 0
    """The number of rollbacks that the writer knew to be decided."""
    refused: tuple[tuple[int, str], ...] = ()
    """The refused rows, as (position, reason), ascending.  Their text is in `rows`, and must not be stored; their
    positions count, because a replay regenerates these rows."""


@dataclass(frozen=True, slots=True)
class WithdrawPoint:
    """The end of a bundle with dependencies, up to which rows can be withdrawn (D9)."""

    next: int
    digest: int
    epoch: int
    rollback: int
    depends: tuple[Extent, ...]


@dataclass(frozen=True, slots=True)
class StoreState:
    """The state that a sink's store returns when it is opened: the outside world's WELCOME."""

    next: int
    digest: int
    logs: tuple[LogDelta, ...]
    """The held logs, each complete: from offset 0, or from the first byte after the stable part (then a delta without
    bytes precedes it)."""
    marks: tuple[WithdrawPoint, ...] = ()
    """The ends of the bundles that no complete checkpoint covers, and the one before them, oldest first; empty
    where bundles came without dependencies."""
    withdrawn: int = 0
    """The number of rows ever withdrawn, by any incarnation."""
    refused: int = 0
    """The number of rows below `next` that were left out because the store refused them."""
    place: str = ""
    """The place of the rows, for messages; empty where the store does not say it."""


class SinkStore(Protocol):
    """The store of one sink task."""

    def open(self, task: str, run: str, incarnation: int) -> StoreState:
        """Fence every lower incarnation and return the store's state, in one step: no zombie can write in between.

        Args:
            run: the identity of the job's run; a store that holds rows of another run raises PipelineError.

        Raises:
            Fenced: a higher incarnation has opened it.
            Unavailable: it cannot be reached or written.
            PipelineError: a person must change something first, e.g. a permission.
            CorruptData: the stored rows do not match their digest.
        """
        ...

    def last_bundle(self) -> StoreState:
        """Read from the store where the last bundle ended and all determinants that are held.

        Only the incarnation that has opened it calls this.

        Raises:
            Fenced: a higher incarnation has opened it.
            Unavailable: it cannot be reached.
        """
        ...

    def write(self, bundle: Bundle) -> None:
        """Write rows (except the refused ones), position, digest and determinants, and check the incarnation,
        atomically.

        The rows are visible immediately.  Writing the last bundle again does nothing: its acknowledgement was lost.

        Raises:
            Fenced: a higher incarnation has opened it; nothing was written.
            Unavailable: nothing was written, or the same bundle may be written again without harm.
            RowRefused: it will never accept one of the rows; nothing was written.  The bundle is written again with
                that row
                in `refused`, if the job is configured to continue.
        """
        ...

    def truncate(self, epoch: int) -> None:
        """Forget determinants of epochs below `epoch`: a complete checkpoint covers them."""
        ...

    def close(self) -> None:
        """Release resources; nothing is lost without this call."""
        ...


@runtime_checkable
class LastingStore(SinkStore, Protocol):
    """A store that `open` makes where it is not there, unless it was open when a complete checkpoint was taken."""

    def expect(self, counted: bool) -> None:
        """Make `open` raise `Unavailable` where the store is missing: it was moved, and will be put back.

        Args:
            counted: the checkpoint counts rows of this task; if not, only the place that tasks share must be there.
        """
        ...


@runtime_checkable
class WithdrawingStore(SinkStore, Protocol):
    """A store that can withdraw rows whose determinants are lost (D9); with another store such a job stops."""

    def withdraw(self, mark: WithdrawPoint) -> StoreState:
        """Withdraw atomically the rows and determinants of every bundle after `mark`, one of `StoreState.marks`.

        These rows depend on determinants that are lost, which can happen below full sharing depth only. At the first of
        the marks there are no dependencies: its own dependencies and all determinants are removed too.

        Raises: as `write`.
        """
        ...


@runtime_checkable
class StagingStore(SinkStore, Protocol):
    """A store that withholds rows until the checkpoint that covers them is complete (guarantee `epoch`).

    `write` stages rows; `StoreState` counts the staged rows after the visible ones.
    """

    def stage(self, epoch: int) -> None:
        """Make the writes of epochs below `epoch` as durable as promised: the snapshot may follow."""
        ...

    def commit(self, epoch: int) -> bool:
        """Make staged rows of epochs below `epoch` visible, in one atomic step; true while more of them remain."""
        ...

    def staged(self) -> tuple[int, int]:
        """Return (rows, bytes) that wait for their checkpoint, as far as is known without reading the disk."""
        ...

    def discard(self, epoch: int) -> StoreState:
        """Forget the staged rows of epochs from `epoch` on, and return the state without them."""
        ...


Encode = Callable[[Sequence[Any]], bytes]
