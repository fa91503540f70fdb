"""One state of a job that is being changed, as a value.

A task is a position in its input: that one version recovers exactly is shown by the other worlds, so a promoted task
continues where its last incarnation is known to have been.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from benchmarks.harness.graphs import chain_of, graph
from tests.exhaustive.frozen import digest_of

OLD, NEW = 0, 1
READ, COUNTS, OUT = "read/0", {1: ("count/0",), 2: ("count/0", "count/1")}, "out/0"
"""The tasks; those between the first and the last, by their number."""
TOPOLOGIES = {
    1: chain_of(READ, *COUNTS[1], OUT),
    2: graph((READ, *COUNTS[2], OUT), (-1, 0), (0, 1), (0, 2), (1, 3), (2, 3), (3, -1)),
}
TASKS = {width: [str(task.name) for task in topology.tasks] for width, topology in TOPOLOGIES.items()}

NONE = -1


class Process(NamedTuple):
    """One worker process.

    Attributes:
        up: whether it has reported anything; dead: whether it has ended, and the agent has not reported that.
        epoch: the last barrier that it has passed; followed: the checkpoint that it has loaded.
        at: the next record that it takes; restored: the one that its snapshot named.
        stands: whether it has passed the final barrier.
        asked: the barrier that it is to give, and whether that is the final one.
        acked: the last barrier whose snapshot is on disk, and the file.
        version: the version of the job of which it is a task.
    """

    slot: str
    up: bool = False
    dead: bool = False
    task: str = ""
    incarnation: int = 0
    epoch: int = 0
    followed: int = NONE
    at: int = 0
    restored: int = 0
    stands: bool = False
    asked: tuple[int, bool] = (0, False)
    acked: tuple[int, str] = (0, "")
    version: int = OLD


class Prepared(NamedTuple):
    """The content of `change/`."""

    epoch: int
    incarnation: int
    started: int
    files: tuple[tuple[str, str], ...]
    journal: tuple[bytes, ...]
    ready: bool = False


class State(NamedTuple):
    """One state of the whole world.

    Attributes:
        widths: how many tasks count in the old and in the new version; returns: whether the new one begins at the
            savepoint of the first checkpoint, and the rows since then are withdrawn.
        version: whether the job is the old or the new one; started: the rows that were visible when it began.
        supervisor: the number of its state; `NONE` if it is dead.
        snapshots: file → the position that it restores; manifests: epoch → the file of each task.
        rows: the records that users see, in order; opened: the highest incarnation that has opened the store.
        barrier: the last one in the input: its epoch, its position, and whether it is final.
        answers: what the command has heard, which is all that it knows; None if it was killed.
        waiting: whether a request of the command is with the supervisor.
        intent: whether only a rollback can continue the job; withdrawn: the rows that were withdrawn.
        ended: the status with which the job has ended.
    """

    widths: tuple[int, int] = (1, 2)
    returns: bool = False
    journal: tuple[bytes, ...] = ()
    version: int = OLD
    started: int = 0
    supervisor: int = NONE
    prepared: Prepared | None = None
    snapshots: tuple[tuple[str, int], ...] = ()
    manifests: tuple[tuple[int, tuple[tuple[str, str], ...]], ...] = ()
    processes: tuple[Process, ...] = ()
    rows: tuple[int, ...] = ()
    opened: int = 0
    barrier: tuple[int, int, bool] = (0, 0, False)
    answers: tuple[Any, ...] | None = ()
    waiting: bool = False
    crashes: int = 0
    ticks: int = 0
    intent: bool = False
    withdrawn: int = 0
    ended: tuple[int, str] | None = None


def owner(width: int, record: int) -> str:
    """Return the task that counts a record."""
    return COUNTS[width][record % width]


def form_of(state: State) -> bytes:
    """Return 16 bytes that are equal for equal states alone."""
    fields: dict[str, Any] = state._asdict()
    fields["processes"] = tuple(map(tuple, state.processes))  # a hash is of plain values alone
    fields["prepared"] = state.prepared and tuple(state.prepared)
    return digest_of(tuple(fields.values()))
