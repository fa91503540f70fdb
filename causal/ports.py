"""The interfaces that the core uses: operators, live values and a sink's store.

The core calls only these interfaces. A worker implements them with real systems, and the tests and the simulator with
seeded ones. The core never sees a record, because chains accept and return chunks.
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
    """The source of live values, which no log contains yet."""

    def wall_ns(self) -> int: ...

    def entropy(self) -> bytes:
        """Return 16 fresh random bytes."""
        ...


class Services(Protocol):
    """The causal services that a chain may use during an event: recorded live, and read from the log in a replay."""

    def now_ns(self) -> int: ...

    def seed(self) -> bytes:
        """Return 16 random bytes, which are the same for the whole epoch."""
        ...

    def epoch(self) -> int: ...

    def replaying(self) -> bool: ...

    def call(self, ask: Callable[[], bytes]) -> bytes:
        """Return the bytes that `ask` returned when it ran live; a replay does not run `ask` again."""
        ...

    def user(self, kind: str, ask: Callable[[], bytes]) -> bytes:
        """Do the same as `call` for a kind registered by a user."""
        ...

    def window(self, operator: int, end_ns: int, intervals: Sequence[tuple[int, int]]) -> None:
        """Record which elements (start, length) a window contains when it fires; a replay compares them instead."""
        ...


class SnapshotJob(Protocol):
    """The state at a barrier, encoded in small steps while the task continues (copy on write)."""

    def step(self, keys_max: int) -> bool:
        """Encode up to `keys_max` more keys; return whether all keys have been encoded."""
        ...

    def parts(self, *before: bytes) -> Sequence[bytes]:
        """Return `before` and opaque parts for `Chain.restore`, to be stored in this order, after `step` was true.

        Another thread may read the parts, and a part may be assembled only when it is read.
        """
        ...

    full: bool
    """Whether the parts are complete rather than an extension of earlier snapshots."""


Output = tuple[int, Chunk]
"""An output: (ordinal of the channel in `Topology.outputs(task)`, chunk); outputs to a channel are in element order.
For a sink's channel, the chunk is ROWS in the sink's own encoding."""


@dataclass(frozen=True, slots=True)
class Request:
    """A question to the outside world; it is part of the chain's state until it is answered."""

    operator: int
    """The ordinal of the operator in the chain."""
    number: int
    """The number of the request, which an operator of a task never uses twice."""
    body: bytes


class Chain(Protocol):
    """The fused operators of one task. The same calls with the same answers of the services return the same bytes.

    Attributes:
        commutes: whether records of different inputs can be reordered between two outputs without changing the state.
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
        """Fire every timer and window due at or before `due_ns` in a defined order; timers set meanwhile wait."""
        ...

    def ended(self, input: int, services: Services) -> list[Output]:
        """Process the end of one input; other inputs may continue."""
        ...

    def finish(self, services: Services) -> list[Output]:
        """Fire open windows, not timers, once all inputs have ended and no request is outstanding."""
        ...

    def answer(self, operator: int, number: int, body: bytes, services: Services) -> list[Output]:
        """Process the response to a request; each request is answered once."""
        ...

    def asked(self) -> list[Request]:
        """Return the requests made since the last call."""
        ...

    def outstanding(self) -> list[Request]:
        """Return all requests without a response, which are part of the state, in the order of sending."""
        ...

    def waiting(self) -> bool:
        """Return whether some request has no response yet."""
        ...

    def full(self) -> bool:
        """Return whether so many requests wait that no more records should be delivered."""
        ...

    def counts(self) -> dict[str, dict[str, int]]:
        """Return operator → reason → the number of elements dropped, held back or revised since the job began."""
        ...

    def inspect(self, operator: str, key: Any) -> dict[str, Any]:
        """Return the state that an operator keeps for a key, by table; empty if the operator is not in this chain."""
        ...

    def snapshot(self, full: bool, behind: str = "") -> SnapshotJob:
        """Freeze the current state and return the job that encodes it; with `full`, its parts are complete.

        Args:
            behind: the digest of the previous snapshot's file, if the complete parts should also contain the changes
                since that snapshot, so that a process that has loaded that file can read only the changes.
        """
        ...

    def restore(self, parts: Iterable[bytes]) -> None:
        """Load the parts of a full snapshot and then of each later one, in order; may be called once per snapshot."""
        ...

    def restoring(self, parts: Iterable[bytes]) -> Iterator[None]:
        """Do what `restore` does, in small steps: one for each item of the iterator."""
        ...

    def release(self) -> None:
        """Free the state and its files; no other method is called afterwards."""
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
        raise PeerViolation(f"an answer arrived for operator {operator}, which sends no requests")

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
    """The position of the first row; rows are numbered from 0 without gaps throughout the life of the job."""
    count: int
    rows: bytes
    """The bodies of the ROWS chunks, concatenated."""
    digest: int
    """The rolling digest of the row bytes after this bundle (64 bits, unsigned)."""
    epoch: int
    incarnation: int
    logs: tuple[LogDelta, ...]
    """The determinants on which the rows depend and which the store does not hold yet."""
    ended: bool = False
    """Whether the job has ended, so that no rows follow and none is withdrawn; such a bundle itself has no rows."""
    depends: tuple[Extent, ...] | None = None
    """Below full sharing depth, the extents of the logs on which the rows depend, as far as these have grown since the
    previous bundle. None if the store holds all logs on which its rows depend."""
    rollback: int = 0
    """The number of the last rollback decision that the writer knew."""
    refused: tuple[tuple[int, str], ...] = ()
    """The refused rows as (position, reason), ascending. `rows` contains them, but they must not be stored; their
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
    """The complete logs that the store holds, each from offset 0 or from the first byte after the stable part (then a
    delta without bytes precedes it)."""
    marks: tuple[WithdrawPoint, ...] = ()
    """The ends of the bundles that no complete checkpoint covers and of the bundle before them, oldest first; empty if
    bundles have no dependencies."""
    withdrawn: int = 0
    """The number of rows ever withdrawn, by any incarnation."""
    refused: int = 0
    """The number of rows below `next` that were omitted because the store refused them."""
    place: str = ""
    """The location of the rows, for messages; empty if the store does not report it."""


class SinkStore(Protocol):
    """The store of one sink task."""

    def open(self, task: str, run: str, incarnation: int) -> StoreState:
        """Fence every lower incarnation and return the store's state in one step, so that no zombie can write between.

        Args:
            run: the identity of the job's run; a store that contains rows of another run raises PipelineError.

        Raises:
            Fenced: a higher incarnation has opened the store.
            Unavailable: the store cannot be reached or written.
            PipelineError: a person must change something first, for example a permission.
            CorruptData: the stored rows do not match their digest.
        """
        ...

    def last_bundle(self) -> StoreState:
        """Read the end of the last bundle, and all determinants that the store holds.

        Only the incarnation that has opened the store calls this method.

        Raises:
            Fenced: a higher incarnation has opened the store.
            Unavailable: the store cannot be reached.
        """
        ...

    def write(self, bundle: Bundle) -> None:
        """Check the incarnation and write rows (except refused ones), position, digest and determinants atomically.

        The rows are visible immediately. Writing the last bundle again has no effect; this happens if the
        acknowledgement was lost.

        Raises:
            Fenced: a higher incarnation has opened the store; nothing was written.
            Unavailable: nothing was written, or the same bundle may be written again without harm.
            RowRefused: the store will never accept one of the rows; nothing was written. If the job is configured to
                continue, the bundle is written again with that row in `refused`.
        """
        ...

    def truncate(self, epoch: int) -> None:
        """Drop the determinants of epochs below `epoch`, which a complete checkpoint covers."""
        ...

    def close(self) -> None:
        """Release resources; no data is lost if this method is not called."""
        ...


@runtime_checkable
class LastingStore(SinkStore, Protocol):
    """A store that `open` creates if it is missing, unless it was open when a complete checkpoint was taken."""

    def expect(self, counted: bool) -> None:
        """Make `open` raise `Unavailable` if the store is missing, which then was moved and has to be restored.

        Args:
            counted: whether the checkpoint counts rows of this task; if not, only the location that the tasks share
                must exist.
        """
        ...


@runtime_checkable
class WithdrawingStore(SinkStore, Protocol):
    """A store that can withdraw rows whose determinants are lost (D9); with any other store, the job stops then."""

    def withdraw(self, mark: WithdrawPoint) -> StoreState:
        """Atomically withdraw the rows and determinants of every bundle after `mark`, one of `StoreState.marks`.

        These rows depend on lost determinants, which is possible only below full sharing depth. If `mark` is the first
        of the marks, its own dependencies and all determinants are removed too.

        Raises: as in `write`.
        """
        ...


@runtime_checkable
class StagingStore(SinkStore, Protocol):
    """A store that withholds rows until the checkpoint that covers them is complete (guarantee `epoch`).

    `write` stages rows; `StoreState` counts the staged rows after the visible ones.
    """

    def stage(self, epoch: int) -> None:
        """Make the writes of epochs below `epoch` as durable as promised, before the snapshot is written."""
        ...

    def commit(self, epoch: int) -> bool:
        """Make staged rows of epochs below `epoch` visible in one atomic step; return whether more of them remain."""
        ...

    def staged(self) -> tuple[int, int]:
        """Return (rows, bytes) waiting for their checkpoint, as far as known without reading the disk."""
        ...

    def discard(self, epoch: int) -> StoreState:
        """Discard the staged rows of epochs from `epoch` on, and return the state without them."""
        ...


Encode = Callable[[Sequence[Any]], bytes]
