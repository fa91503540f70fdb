"""The material of all checks: a sink under test, bundles to write, and the expected determinants and rows.

Everything that a check writes to a store (rows, digest, determinants) is a function of the position alone. Whatever
happens to a store, the kit can therefore derive the expected contents from the position that the store reports.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xxhash import xxh3_64_intdigest

from causal.errors import CausalError
from causal.logs.log import LogDelta
from causal.ports import Bundle, SinkStore, StoreState
from operators.sinks.contract.sink import Sink

EPOCH_ROWS = 40
"""The number of rows of each epoch of the kit."""
OWNERS = {0: 2, 3: 1}
"""The bytes that a task logs per row, by task whose determinants are stored."""


class NotConforming(AssertionError):
    """The error raised when a sink breaks a promise; the message names the promise."""


@dataclass(slots=True)
class Subject:
    """A sink under test, and how a user reads its rows.

    Args:
        sink: the sink, which must be new and empty.
        read: returns the rows of a task that a user can see now, in order; it may be called at any moment.
        seen: returns the result expected from `read` after the given records were written; by default, the records.
        away: a context in which no process can reach or write to the store, for example because its server is stopped
            or its file is locked.
        tears: functions that each change a task's stored data to a state that a writer may leave if it dies while
            writing the last bundle, which has 5 rows; for example, by cutting off the end of a file. None are needed if
            one transaction of the store covers the whole bundle.
        replacing: the same sink, configured to let a newer run replace an older one; by default, a copy of `sink` with
            `existing="replace"`, if `sink` has that option.
        reads: returns what a user reads for a written value, if that is not the value's JSON
            (`conformance.values.as_json`).
        row: returns what the sink is given for a record; by default the record. `conformance.upserting` has the
            revisions for a sink with `upsert=True`.
        poison: returns a record that can be encoded but that the store refuses permanently from now on; the function
            may first add a constraint to the store, which already contains rows of the kit.
    """

    sink: Sink
    read: Callable[[str], Any]
    seen: Callable[[Sequence[Any]], Any] = list
    job_directory: Path = field(default_factory=Path)
    away: Callable[[], AbstractContextManager[object]] | None = None
    tears: Sequence[Callable[[str], None]] = ()
    row: Callable[[Any], Any] = field(default=lambda record: record)
    poison: Callable[[], Any] | None = None
    replacing: Sink | None = None
    reads: Callable[[Any], Any] | None = None

    def __post_init__(self) -> None:
        if self.replacing is None and self.sink.existing == "refuse":
            self.replacing = copy(self.sink)
            self.replacing.existing = "replace"

    def encoded(self, record: Any) -> bytes:
        """Return the row that the sink writes for a record."""
        return self.sink.encode([self.row(record)])

    def opened(self, incarnation: int = 1, run: str = "run-1", task: str = "out/0") -> tuple[SinkStore, StoreState]:
        """Open a new store object as a new process would, and return the object and its state."""
        store = self.sink.open_store(task, self.job_directory)
        return store, store.open(task, run, incarnation)

    def expect_rows(self, count: int, promise: str, task: str = "out/0") -> None:
        """Require that a user sees exactly the first `count` rows."""
        expected = self.seen([record_at(task, position) for position in range(count)])
        expect(self.read(task) == expected, promise, f"of {task}, {count} rows should be there")


def record_at(task: str, position: int) -> Any:
    """Return the record that the kit writes at the given position of a task."""
    return {"task": task, "n": position, "text": "zwölf" * (position % 5)}


def log_at(owner: int, epoch: int, rows: int) -> bytes:
    """Return the determinants that `owner` has logged in `epoch` once it has emitted `rows` rows of that epoch."""
    return bytes((owner * 31 + epoch * 7 + place) % 251 for place in range(rows * OWNERS[owner]))


def bundle_at(subject: Subject, state: StoreState, count: int, incarnation: int = 1, task: str = "out/0") -> Bundle:
    """Return the bundle that follows `state`, with up to `count` rows of a single epoch."""
    first = state.next
    epoch, offset = divmod(first, EPOCH_ROWS)
    count = min(count, EPOCH_ROWS - offset)
    rows, digest = b"", state.digest
    for position in range(first, first + count):
        row = subject.encoded(record_at(task, position))
        rows, digest = rows + row, xxh3_64_intdigest(row, digest)
    logs = []
    for owner in OWNERS:
        start = len(log_at(owner, epoch, offset))
        logs.append(LogDelta(owner, epoch, start, log_at(owner, epoch, offset + count)[start:]))
    return Bundle(first, count, rows, digest, epoch, incarnation, tuple(logs))


def after(state: StoreState, bundle: Bundle) -> StoreState:
    """Return the state of the store after it has accepted `bundle`, with the logs of the old state."""
    return StoreState(bundle.first + bundle.count, bundle.digest, state.logs)


def fill(
    subject: Subject, store: SinkStore, state: StoreState, rows: int, incarnation: int = 1, task: str = "out/0"
) -> StoreState:
    """Write bundles of up to 7 rows until `rows` rows are stored."""
    while state.next < rows:
        bundle = bundle_at(subject, state, min(7, rows - state.next), incarnation, task)
        store.write(bundle)
        state = after(state, bundle)
    return state


def expect_held(
    subject: Subject, state: StoreState, promise: str, task: str = "out/0", kept_from: int | None = 0
) -> None:
    """Require the digest and determinants that belong to the position.

    Args:
        kept_from: the first epoch whose determinants the store must still have; None if it may be any epoch.
    """
    digest = 0
    for position in range(state.next):
        digest = xxh3_64_intdigest(subject.encoded(record_at(task, position)), digest)
    expect(state.digest == digest, promise, f"digest at {state.next}")
    by_epoch = {(delta.task, delta.epoch): delta for delta in state.logs}
    expect(len(by_epoch) == len(state.logs), promise, "one whole log per task and epoch")
    last = -(-state.next // EPOCH_ROWS)
    lowest = min((epoch for _, epoch in by_epoch), default=last) if kept_from is None else kept_from
    expected = {(owner, epoch) for owner in OWNERS for epoch in range(lowest, last)}
    expect(by_epoch.keys() == expected, promise, f"logs of {sorted(by_epoch)}, expected {sorted(expected)}")
    for (owner, epoch), delta in by_epoch.items():
        whole = log_at(owner, epoch, min(EPOCH_ROWS, state.next - epoch * EPOCH_ROWS))
        expect((delta.offset, delta.bytes) == (0, whole), promise, f"log of task {owner}, epoch {epoch}")


def expect_agreement(
    subject: Subject, state: StoreState, promise: str, task: str = "out/0", kept_from: int | None = 0
) -> None:
    """Require the rows, digest and determinants that belong to the position; see `expect_held`."""
    subject.expect_rows(state.next, f"{promise}, rows and position agree", task)
    expect_held(subject, state, f"{promise}, determinants and position agree", task, kept_from)


def expect(holds: bool, promise: str, detail: str) -> None:
    """Raise `NotConforming` unless `holds` is true."""
    if not holds:
        raise NotConforming(f"{promise}: not so ({detail})")


def expect_error(kind: type[CausalError], promise: str, step: Callable[[], object], *others: type[CausalError]) -> None:
    """Raise `NotConforming` unless `step` raises an error of type `kind` or of one of the other given types."""
    expected = " or ".join(each.__name__ for each in (kind, *others))
    try:
        step()
    except (kind, *others):
        return
    except CausalError as problem:
        raise NotConforming(f"{promise}: expected {expected}, got {type(problem).__name__}: {problem}") from problem
    raise NotConforming(f"{promise}: expected {expected}, nothing was raised")
