"""What the core asks of the world it is plugged into: operators, live values, a sink's store.

The core calls these and nothing else.  Under ZeroMQ they are real; in tests and in the simulator
they are seeded.  The core never sees a record: chains take chunks and give chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from causal.batch import Chunk
from causal.errors import PeerViolation
from causal.log import LogDelta
from causal.rollback import Extent


class Live(Protocol):
    """Where values come from that no log has yet."""

    def wall_ns(self) -> int: ...

    def entropy(self) -> bytes:
        """16 fresh random bytes."""
        ...


class Services(Protocol):
    """The causal services a chain may use during an event: recorded when live, returned when replaying."""

    def now_ns(self) -> int: ...

    def seed(self) -> bytes:
        """16 bytes; the same for the whole epoch."""
        ...

    def epoch(self) -> int: ...

    def replaying(self) -> bool: ...

    def call(self, ask: Callable[[], bytes]) -> bytes:
        """The bytes `ask` gave when it ran live; it does not run again in a replay."""
        ...

    def user(self, kind: str, ask: Callable[[], bytes]) -> bytes:
        """The same for a kind registered by a user."""
        ...

    def window(self, operator: int, end_ns: int, intervals: Sequence[tuple[int, int]]) -> None:
        """Record, or check against the record, which elements (start, length) a window holds as it fires."""
        ...


class SnapshotJob(Protocol):
    """The state at a barrier, encoded little by little while the task goes on (copy on write)."""

    def step(self, keys_max: int) -> bool:
        """Encode up to `keys_max` more keys; true when all is encoded."""
        ...

    def parts(self) -> list[bytes]:
        """After `step` returned true: opaque parts for `Chain.restore`, to be stored in this order."""
        ...

    full: bool
    """Whether the parts stand alone, or extend what earlier snapshots hold."""


Output = tuple[int, Chunk]
"""(ordinal of the output channel in `Topology.outputs(task)`, chunk), in the order of the elements of a channel.
For a sink's channel the chunk is ROWS, in the sink's own encoding."""


@dataclass(frozen=True, slots=True)
class Request:
    """A question to the outside world that a chain waits for: part of its state until it is answered."""

    operator: int
    """Ordinal of the operator in the chain."""
    number: int
    """Never used twice by one operator of one task."""
    body: bytes


class Chain(Protocol):
    """The fused operators of one task.  Given the same calls and the same service answers it gives the same bytes."""

    def deliver(self, input: int, chunks: Sequence[Chunk], first: int, services: Services) -> list[Output]:
        """Run all records of the chunks (RECORDS, LISTED or WATERMARK) through the chain as one batch.

        Args:
            input: ordinal of the channel in `Topology.inputs(task)`.
            first: position of the first element in that channel; for error messages.
        """
        ...

    def next_timer_ns(self) -> int | None:
        """Wall-clock time of the earliest timer or processing-time window that is set; None if there is none."""
        ...

    def fire(self, due_ns: int, services: Services) -> list[Output]:
        """Fire every timer and window due at or before `due_ns`, in a defined order; ones set meanwhile wait."""
        ...

    def ended(self, input: int, services: Services) -> list[Output]:
        """That input has ended: nothing more comes from it, others may go on."""
        ...

    def finish(self, services: Services) -> list[Output]:
        """All inputs have ended and nothing is waited for: fire what is still owed (open windows, not timers)."""
        ...

    def answer(self, operator: int, number: int, body: bytes, services: Services) -> list[Output]:
        """The outside world's answer to a request; each request is answered once."""
        ...

    def asked(self) -> list[Request]:
        """The requests that are new since the last call."""
        ...

    def outstanding(self) -> list[Request]:
        """All requests that have no answer yet, in the order in which they were asked; part of the state."""
        ...

    def waiting(self) -> bool:
        """Whether some request has no answer yet."""
        ...

    def full(self) -> bool:
        """Whether so many requests wait that no more records are to be delivered."""
        ...

    def counts(self) -> dict[str, dict[str, int]]:
        """operator -> reason -> how many elements it has dropped, held back or revised, since the job began."""
        ...

    def inspect(self, operator: str, key: Any) -> dict[str, Any]:
        """What the operator of that name keeps for a key, by table; empty when there is no such operator here."""
        ...

    def snapshot(self, full: bool) -> SnapshotJob:
        """Freeze the state now; the job encodes it.  `full` asks for parts that stand alone."""
        ...

    def restore(self, parts: Iterable[bytes]) -> None:
        """Load parts of a full snapshot, then of each later one, in order; may be called once per snapshot."""
        ...

    def restoring(self, parts: Iterable[bytes]) -> Iterator[None]:
        """Do what `restore` does, in small steps: one each time that the next item is asked for."""
        ...


class PlainChain:
    """The answers of a chain that asks nobody, counts nothing and can be asked for nothing; to inherit from."""

    def restore(self, parts: Iterable[bytes]) -> None:
        """Keep nothing."""

    def restoring(self, parts: Iterable[bytes]) -> Iterator[None]:
        self.restore(parts)
        yield

    def ended(self, input: int, services: Services) -> list[Output]:
        return []

    def answer(self, operator: int, number: int, body: bytes, services: Services) -> list[Output]:
        raise PeerViolation(f"an answer to operator {operator}, which asks nobody")

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
    """What a sink writes in one atomic step (D8)."""

    first: int
    """Position of the first row; rows are numbered from 0 without gaps, for ever."""
    count: int
    rows: bytes
    """Bodies of the ROWS chunks, concatenated."""
    digest: int
    """Rolling digest of the row bytes after this bundle (64 bits, unsigned)."""
    epoch: int
    incarnation: int
    logs: tuple[LogDelta, ...]
    """What the store does not hold yet of every determinant the rows depend on."""
    ended: bool = False
    """The job has ended: no rows follow, and none is ever taken back.  Such a bundle has no rows itself."""
    depends: tuple[Extent, ...] | None = None
    """Below full sharing depth: (task, epoch, bytes) of every log that the rows depend on, as far as it has grown
    since the bundle before.  None where the store holds all logs that its rows depend on."""
    rollback: int = 0
    """How many rollbacks the writer knew to be decided."""
    refused: tuple[tuple[int, str], ...] = ()
    """(position, reason) of rows that the store has refused, ascending.  Their text is in `rows`, and must not be
    stored; their positions count all the same, because a replay regenerates these rows."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a bundle with dependencies ended: a place to which rows can be taken back (D9)."""

    next: int
    digest: int
    epoch: int
    rollback: int
    depends: tuple[Extent, ...]


@dataclass(frozen=True, slots=True)
class Held:
    """What a sink's store gives back when it is opened: the outside world's WELCOME."""

    next: int
    digest: int
    logs: tuple[LogDelta, ...]
    """Each log that is held, whole: from offset 0, or where it begins because what lies before is stable (then a
    delta without bytes comes first)."""
    marks: tuple[Mark, ...] = ()
    """The ends of the bundles that no complete checkpoint covers, and the one before them, oldest first; empty
    where bundles came without dependencies."""
    withdrawn: int = 0
    """Rows ever taken back, by whichever incarnation."""
    refused: int = 0
    """Of the rows below `next`, those that were left out because the store refused them."""


class SinkStore(Protocol):
    """The outside world of one sink task."""

    def open(self, task: str, run: str, incarnation: int) -> Held:
        """Fence every lower incarnation, then say what is held: in one step, or a zombie could write in between.

        Args:
            run: identity of the job's run; a store that holds rows of another run refuses with PipelineError.

        Raises:
            Fenced: a higher incarnation has opened it.
            Unavailable: it cannot be reached or written.
            PipelineError: somebody must change something first, e.g. a permission.
            CorruptData: what is stored does not match its digest.
        """
        ...

    def last_bundle(self) -> Held:
        """Where the last bundle ended and all determinants that are held, read from the store.

        For the incarnation that has it open.

        Raises:
            Fenced: a higher incarnation has opened it.
            Unavailable: it cannot be reached.
        """
        ...

    def write(self, bundle: Bundle) -> None:
        """Rows but the refused ones, position, digest, determinants and the check of the incarnation, all or nothing.

        Visible at once.  The last bundle once more is a no-op: its acknowledgement was lost.

        Raises:
            Fenced: a higher incarnation has opened it; nothing was written.
            Unavailable: nothing was written, or the same bundle may be written again without harm.
            RowRefused: it will never take one of the rows; nothing was written.  The bundle comes again with that row
                in `refused`, if the job is set to go on.
        """
        ...

    def truncate(self, epoch: int) -> None:
        """Forget determinants of epochs below `epoch`: a complete checkpoint covers them."""
        ...

    def close(self) -> None:
        """Let go; nothing is lost by leaving it out."""
        ...


@runtime_checkable
class WithdrawingStore(SinkStore, Protocol):
    """A store that can take rows back, where their determinants are lost (D9); without it such a job stops."""

    def withdraw(self, mark: Mark) -> Held:
        """Take back, all or nothing, the rows and determinants of every bundle after `mark`, one of `Held.marks`.

        These rows depend on determinants that are lost, which can happen below full sharing depth only.  Back to the
        first of the marks nothing is depended on any more: its own dependencies and all determinants go too.

        Raises: as `write`.
        """
        ...


@runtime_checkable
class StagingStore(SinkStore, Protocol):
    """A store that keeps rows back until the checkpoint that covers them is complete (guarantee `epoch`).

    What `write` takes is staged; `Held` tells of the staged rows behind the visible ones.
    """

    def stage(self, epoch: int) -> None:
        """Make what was written in epochs below `epoch` as durable as is promised: its snapshot may follow."""
        ...

    def commit(self, epoch: int) -> bool:
        """Make staged rows of epochs below `epoch` visible, in one atomic step; true while more of them are left."""
        ...

    def staged(self) -> tuple[int, int]:
        """(rows, bytes) that wait for their checkpoint, as far as it is known without a look at the disk."""
        ...

    def discard(self, epoch: int) -> Held:
        """Forget what is staged of epochs from `epoch` on, and say what is held."""
        ...


Encode = Callable[[Sequence[Any]], bytes]
