"""The interfaces that the core uses: operators, live values and a sink's store.

The core calls only these interfaces. A worker implements them with real systems, and the tests and the simulator
implement them with seeded replacements. The core never sees a record, because chains accept and return chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from causal.errors import PeerViolation
from causal.logs.log import LogDelta
from causal.logs.rollback import Extent
from causal.records.batch import Chunk


class Environment(Protocol):
    """The source of live values, which are not in any log yet."""

    def wall_ns(self) -> int: ...

    def entropy(self) -> bytes:
        """Return 16 fresh random bytes."""
        ...


class Services(Protocol):
    """The causal services that a chain may use during an event: recorded live, and read from the log in a replay."""

    def now_ns(self) -> int: ...

    def seed(self) -> bytes:
        """Return 16 random bytes that are the same throughout the epoch."""
        ...

    def epoch(self) -> int: ...

    def replaying(self) -> bool: ...

    def call(self, ask: Callable[[], bytes]) -> bytes:
        """Return the bytes that `ask` returned in the live run; a replay does not call `ask` again."""
        ...

    def user(self, kind: str, ask: Callable[[], bytes]) -> bytes:
        """Do the same as `call`, for a determinant kind registered by a user."""
        ...

    def window(self, operator: int, end_ns: int, intervals: Sequence[tuple[int, int]]) -> None:
        """Record which elements (start, length) a window contains when it fires; a replay compares them instead."""
        ...


MergeRules = Mapping[str, Mapping[str, str]] | None
"""Subtask -> table -> how the values of the table are merged; the only subtask of a task may have the name ""."""


class SnapshotJob(Protocol):
    """The state at a barrier, which is encoded in small steps while the task continues (copy on write)."""

    def step(self, keys_max: int) -> bool:
        """Encode up to `keys_max` more keys; return whether all keys have been encoded."""
        ...

    def parts(self, *before: bytes) -> Sequence[bytes]:
        """Return `before` and then the opaque parts for `Chain.restore`, in the order in which to store them.

        Call this only after `step` has returned true. Another thread may read the parts, and a part may be assembled
        only when it is read.
        """
        ...

    full: bool
    """Whether the parts are complete rather than an extension of earlier snapshots."""


Output = tuple[int, Chunk]
"""An output: (ordinal of the channel in `Topology.outputs(task)`, chunk); outputs to one channel are in element order.
For a sink's channel, the chunk is of kind ROWS, in the sink's own encoding."""


@dataclass(frozen=True, slots=True)
class Request:
    """A question to the outside world, which is part of the chain's state until it is answered."""

    operator: int
    """The ordinal of the operator in the chain."""
    number: int
    """The number of the request, which is never reused by the same operator of a task."""
    body: bytes


class Chain(Protocol):
    """The fused operators of one task; the same calls with the same answers from the services return the same bytes.

    Attributes:
        commutes: whether records of different inputs can be reordered between two outputs without changing the state.
    """

    @property
    def commutes(self) -> bool: ...

    def deliver(self, input: int, chunks: Sequence[Chunk], first: int, services: Services) -> list[Output]:
        """Run all records of the chunks (RECORDS, LISTED or WATERMARK) through the chain as one batch.

        Args:
            input: the ordinal of the channel in `Topology.inputs(task)`.
            first: the position of the first element in that channel, for error messages.
        """
        ...

    def next_timer_ns(self) -> int | None:
        """Return the wall-clock time of the earliest timer or processing-time window, or None if there is none."""
        ...

    def fire(self, due_ns: int, services: Services) -> list[Output]:
        """Fire every timer and window due at or before `due_ns` in a fixed order; timers set meanwhile fire later."""
        ...

    def ended(self, input: int, services: Services) -> list[Output]:
        """Process the end of one input; other inputs may continue."""
        ...

    def finish(self, services: Services) -> list[Output]:
        """Fire open windows, but not timers, once all inputs have ended and no request is outstanding."""
        ...

    def answer(self, operator: int, number: int, body: bytes, services: Services) -> list[Output]:
        """Process the response to a request; each request is answered exactly once."""
        ...

    def asked(self) -> list[Request]:
        """Return the requests made since the last call."""
        ...

    def outstanding(self) -> list[Request]:
        """Return all requests without a response, which are part of the state, in the order in which they were sent."""
        ...

    def waiting(self) -> bool:
        """Return whether any request has no response yet."""
        ...

    def full(self) -> bool:
        """Return whether so many requests are waiting that no more records should be delivered."""
        ...

    def ended_outputs(self) -> frozenset[int]:
        """Return the ordinals of the outputs whose END the chain itself has returned, before all inputs have ended."""
        ...

    def mark_ns(self, input: int) -> int | None:
        """Return the event time that the records of an input from a partition have reached, or None if it is unknown.

        A task with several partitions reads from the one whose event time is lowest.
        """
        ...

    def counts(self) -> dict[str, dict[str, int]]:
        """Return operator → reason → the number of elements dropped, held back or revised since the job began."""
        ...

    def inspect(self, operator: str, key: Any) -> dict[str, Any]:
        """Return the state that an operator keeps for a key, by table; empty if the operator is not in this chain."""
        ...

    def snapshot(self, full: bool, behind: str = "") -> SnapshotJob:
        """Freeze the current state and return the job that encodes it; if `full` is set, the job's parts are complete.

        Args:
            behind: the digest of the previous snapshot's file, if the complete parts should also contain the changes
                since that snapshot. A process that has loaded that file then needs to read only the changes.
        """
        ...

    def merge_rules(self) -> MergeRules:
        """Return how snapshots of this chain are merged; None if they cannot be."""
        ...

    def restore(self, parts: Iterable[bytes]) -> None:
        """Load the parts of a full snapshot and then of each later one, in order; may be called once per snapshot."""
        ...

    def restoring(self, parts: Iterable[bytes]) -> Iterator[None]:
        """Do the same as `restore`, in small steps, one for each item of the iterator."""
        ...

    def release(self) -> None:
        """Free the state and its files; no other method may be called afterwards."""
        ...


class PlainChain:
    """The base class for chains without state, requests, counters or tables."""

    commutes = False

    def merge_rules(self) -> MergeRules:
        return None

    def release(self) -> None:
        """Do nothing, because there is no state."""

    def restore(self, parts: Iterable[bytes]) -> None:
        """Do nothing, because there is no state."""

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

    def ended_outputs(self) -> frozenset[int]:
        return frozenset()

    def mark_ns(self, input: int) -> int | None:
        return None

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
    """The concatenated bodies of the ROWS chunks."""
    digest: int
    """The rolling digest of the row bytes after this bundle, as an unsigned 64-bit number."""
    epoch: int
    incarnation: int
    logs: tuple[LogDelta, ...]
    """The determinants on which the rows depend and that the store does not hold yet."""
    ended: bool = False
    """Whether the job has ended, so that no rows follow and no row is withdrawn; such a bundle contains no rows."""
    depends: tuple[Extent, ...] | None = None
    """The extents of the logs on which the rows depend, below full sharing depth, if they have grown since the previous
    bundle. None if the store holds all logs on which its rows depend."""
    rollback: int = 0
    """The number of the last rollback decision known to the writer."""
    refused: tuple[tuple[int, str], ...] = ()
    """The refused rows as (position, reason), in ascending order. `rows` contains them, but they must not be stored.
    They keep their positions, because a replay regenerates these rows."""


@dataclass(frozen=True, slots=True)
class WithdrawPoint:
    """The end of a bundle with dependencies, back to which rows can be withdrawn (D9)."""

    next: int
    digest: int
    epoch: int
    rollback: int
    depends: tuple[Extent, ...]


@dataclass(frozen=True, slots=True)
class StoreState:
    """The state that a sink's store returns when it is opened; it corresponds to a WELCOME from the outside world."""

    next: int
    digest: int
    logs: tuple[LogDelta, ...]
    """The complete logs that the store holds. Each begins at offset 0 or, preceded by a delta without bytes, at the
    first byte after its stable part."""
    marks: tuple[WithdrawPoint, ...] = ()
    """The ends of the bundles that no complete checkpoint covers, and of the bundle before them, oldest first; empty if
    bundles have no dependencies."""
    withdrawn: int = 0
    """The total number of rows that any incarnation has withdrawn."""
    refused: int = 0
    """The number of rows below `next` that were omitted because the store refused them."""
    place: str = ""
    """The location of the rows, for messages; empty if the store does not report one."""


class SinkStore(Protocol):
    """The store of one sink task."""

    def open(self, task: str, run: str, incarnation: int) -> StoreState:
        """Fence all lower incarnations and return the store's state in one step, so that no zombie writes in between.

        Args:
            run: the identifier of the job's run; if the store contains rows of another run, PipelineError is raised.

        Raises:
            Fenced: a higher incarnation has opened the store.
            Unavailable: the store cannot be reached or written.
            PipelineError: a person must first change something, for example a permission.
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
            Unavailable: nothing was written, or the same bundle may safely be written again.
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
    """A store that `open` creates if it is missing, unless it was already open at a complete checkpoint."""

    def expect(self, counted: bool) -> None:
        """Make `open` raise `Unavailable` if the store is missing, because it then has to be restored first.

        Args:
            counted: whether the checkpoint counts rows of this task; if not, only the location that the tasks share
                must exist.
        """
        ...


@runtime_checkable
class PreparedStore(SinkStore, Protocol):
    """A store whose connections take time, which a standby makes in advance."""

    def prepare(self) -> None:
        """Begin to connect, without waiting for an answer; nothing is fenced, read or written before `open`."""
        ...


@runtime_checkable
class WithdrawingStore(SinkStore, Protocol):
    """A store that can withdraw rows whose determinants are lost (D9); with other stores, the job ends in this case."""

    def withdraw(self, mark: WithdrawPoint) -> StoreState:
        """Atomically withdraw the rows and determinants of all bundles after `mark`, one of `StoreState.marks`.

        These rows depend on lost determinants, which is possible only below full sharing depth. If `mark` is the first
        of the marks, its own dependencies and all determinants are removed too.

        Raises: the same errors as `write`.
        """
        ...


@runtime_checkable
class ReturningStore(SinkStore, Protocol):
    """A store that can return to the position that it had at a savepoint, however many checkpoints followed."""

    def limit(self, rows: int) -> str:
        """Return why the last `rows` rows cannot be withdrawn, as far as an unopened store knows; empty if they can.

        The reason is a clause that follows the store's name.
        """
        ...

    def obstacle(self, next_: int) -> str:
        """Return why the store cannot return to `next_`, a position at or below its own; empty if it can.

        The reason is a clause that follows "the store of TASK". Nothing is changed. A store around another one reports
        the reason of that store.
        """
        ...

    def return_to(self, next_: int, digest: int) -> StoreState:
        """Atomically withdraw all rows from position `next_` on, and discard all determinants, marks and the end.

        Repeating the call has no effect.

        Args:
            digest: the rolling digest of the rows below `next_`, which the savepoint contains.

        Raises: the same errors as `write`.
        """
        ...


@runtime_checkable
class StagingStore(SinkStore, Protocol):
    """A store that withholds rows until the checkpoint that covers them is complete (guarantee `epoch`).

    `write` stages rows, and `StoreState` counts the staged rows after the visible ones.
    """

    def stage(self, epoch: int) -> None:
        """Make the writes of epochs below `epoch` as durable as promised, before the snapshot is written."""
        ...

    def commit(self, epoch: int) -> bool:
        """Make staged rows of epochs below `epoch` visible in one atomic step; return whether any remain staged."""
        ...

    def staged(self) -> tuple[int, int]:
        """Return (rows, bytes) waiting for their checkpoint, as far as known without reading from disk."""
        ...

    def discard(self, epoch: int) -> StoreState:
        """Discard the staged rows of epochs from `epoch` on, and return the state without them."""
        ...


Encode = Callable[[Sequence[Any]], bytes]
