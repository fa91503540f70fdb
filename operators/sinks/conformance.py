"""Does a sink keep its promises?  Checks that the author of any sink can run from pytest.

    @pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__)
    def test_my_sink(check, tmp_path):
        check(conformance.Subject(MySink(tmp_path / "out"), read=lambda task: rows_seen_by_a_user(task)))

Each check takes a fresh, empty sink and raises `NotConforming`, which names the promise, or returns.  Everything that
a store is given (rows, digest, determinants) is a function of the position alone, so after any accident the kit can
say what must be held from the position that is held.  The last checks fork processes and kill or stop them (Linux).
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from xxhash import xxh3_64_intdigest

from causal.errors import CausalError, Fenced, InvariantViolation, PeerViolation, PipelineError, Unavailable
from causal.log import LogDelta
from causal.ports import Bundle, Held, SinkStore
from operators.sinks.base import Sink

EPOCH_ROWS = 40
"""Rows of each epoch of the kit."""
OWNERS = {0: 2, 3: 1}
"""Task whose determinants are stored: bytes that it logs per row."""
_FENCED_STATUS, _FAILED_STATUS = 3, 4


class NotConforming(AssertionError):
    """A sink broke a promise; the message says which."""


@dataclass(slots=True)
class Subject:
    """A sink under test and the eyes of a user.

    Args:
        sink: empty and fresh.
        read: what a user sees of a task's rows now, in order; called at any moment.
        seen: what `read` is expected to give when these records were written; the records themselves by default.
    """

    sink: Sink
    read: Callable[[str], Any]
    seen: Callable[[Sequence[Any]], Any] = list
    job_directory: Path = field(default_factory=Path)

    def opened(self, incarnation: int = 1, run: str = "run-1", task: str = "out/0") -> tuple[SinkStore, Held]:
        """A new store object, as a new process would have it, and what it holds."""
        store = self.sink.open_store(task, self.job_directory)
        return store, store.open(task, run, incarnation)

    def expect_rows(self, count: int, promise: str, task: str = "out/0") -> None:
        """A user must see exactly the first `count` rows."""
        expected = self.seen([record_at(task, position) for position in range(count)])
        expect(self.read(task) == expected, promise, f"of {task}, {count} rows should be there")


def record_at(task: str, position: int) -> Any:
    """The record that the kit writes at that position."""
    return {"task": task, "n": position, "text": "zwölf" * (position % 5)}


def log_at(owner: int, epoch: int, rows: int) -> bytes:
    """The determinants that `owner` has logged in `epoch` when `rows` of its rows are out."""
    return bytes((owner * 31 + epoch * 7 + place) % 251 for place in range(rows * OWNERS[owner]))


def bundle_at(subject: Subject, held: Held, count: int, incarnation: int = 1, task: str = "out/0") -> Bundle:
    """The bundle that follows `held`: up to `count` rows, all of one epoch."""
    first = held.next
    epoch, offset = divmod(first, EPOCH_ROWS)
    count = min(count, EPOCH_ROWS - offset)
    rows, digest = b"", held.digest
    for position in range(first, first + count):
        row = subject.sink.encode([record_at(task, position)])
        rows, digest = rows + row, xxh3_64_intdigest(row, digest)
    logs = []
    for owner in OWNERS:
        start = len(log_at(owner, epoch, offset))
        logs.append(LogDelta(owner, epoch, start, log_at(owner, epoch, offset + count)[start:]))
    return Bundle(first, count, rows, digest, epoch, incarnation, tuple(logs))


def after(held: Held, bundle: Bundle) -> Held:
    """What a store that held `held` must hold when it has taken `bundle`; the logs follow from the position."""
    return Held(bundle.first + bundle.count, bundle.digest, held.logs)


def fill(subject: Subject, store: SinkStore, held: Held, rows: int, incarnation: int = 1, task: str = "out/0") -> Held:
    """Write bundles of 7 rows until `rows` rows are there."""
    while held.next < rows:
        bundle = bundle_at(subject, held, min(7, rows - held.next), incarnation, task)
        store.write(bundle)
        held = after(held, bundle)
    return held


def expect_held(subject: Subject, held: Held, promise: str, task: str = "out/0", kept_from: int | None = 0) -> None:
    """Digest and determinants must be those of the position; `kept_from` None: of some epochs up to the last."""
    digest = 0
    for position in range(held.next):
        digest = xxh3_64_intdigest(subject.sink.encode([record_at(task, position)]), digest)
    expect(held.digest == digest, promise, f"digest at {held.next}")
    found = {(delta.task, delta.epoch): delta for delta in held.logs}
    expect(len(found) == len(held.logs), promise, "one whole log per task and epoch")
    last = -(-held.next // EPOCH_ROWS)
    lowest = min((epoch for _, epoch in found), default=last) if kept_from is None else kept_from
    expected = {(owner, epoch) for owner in OWNERS for epoch in range(lowest, last)}
    expect(found.keys() == expected, promise, f"logs of {sorted(found)}, expected {sorted(expected)}")
    for (owner, epoch), delta in found.items():
        whole = log_at(owner, epoch, min(EPOCH_ROWS, held.next - epoch * EPOCH_ROWS))
        expect((delta.offset, delta.bytes) == (0, whole), promise, f"log of task {owner}, epoch {epoch}")


def expect(holds: bool, promise: str, detail: str) -> None:
    """Raise `NotConforming` unless it holds."""
    if not holds:
        raise NotConforming(f"{promise}: not so ({detail})")


def expect_error(kind: type[CausalError], promise: str, step: Callable[[], object]) -> None:
    """Raise `NotConforming` unless `step` raises just that."""
    try:
        step()
    except kind:
        return
    except CausalError as problem:
        raise NotConforming(
            f"{promise}: expected {kind.__name__}, got {type(problem).__name__}: {problem}"
        ) from problem
    raise NotConforming(f"{promise}: expected {kind.__name__}, nothing was raised")


def holds_what_was_written(subject: Subject) -> None:
    """An empty store holds nothing; rows are visible at once; a new store gives everything back."""
    store, held = subject.opened()
    expect(held == Held(0, 0, ()), "an empty store holds nothing", repr(held))
    for rows in (1, 5, EPOCH_ROWS, EPOCH_ROWS + 30):
        held = fill(subject, store, held, rows)
        subject.expect_rows(rows, "rows are visible as soon as write returns")
    store.close()
    again, found = subject.opened()
    expect(found.next == held.next, "a closed store gives its position back", f"{found.next}, not {held.next}")
    expect_held(subject, found, "a closed store gives everything back")
    again.close()
    subject.expect_rows(held.next, "opening changes no rows")


def survives_being_abandoned(subject: Subject) -> None:
    """A store object that is just forgotten, as when its process dies, loses nothing."""
    abandoned = []
    for incarnation in range(1, 6):
        store, held = subject.opened(incarnation)
        abandoned.append(store)
        expect_held(subject, held, "a new store holds what the abandoned one had written")
        fill(subject, store, held, held.next + 11, incarnation)
        subject.expect_rows(held.next + 11, "rows go on where they ended")
    for store in abandoned:
        store.close()


def refuses_gaps(subject: Subject) -> None:
    """A bundle begins where the last one ended, and carries what it says; refused ones change nothing."""
    store, held = subject.opened()
    held = fill(subject, store, held, 10)
    good = bundle_at(subject, held, 4)
    wrong = {
        "a gap between bundles": replace(good, first=11),
        "an overlap of bundles": replace(good, first=9),
        "rows without a count": replace(good, count=0),
        "a count without rows": replace(good, rows=b""),
    }
    for name, bundle in wrong.items():
        expect_error(InvariantViolation, f"{name} is refused", lambda bundle=bundle: store.write(bundle))  # type: ignore[misc]
        subject.expect_rows(10, f"{name} changes nothing")
    store.write(good)
    subject.expect_rows(14, "a good bundle is taken after refused ones")
    store.close()


def refuses_broken_logs(subject: Subject) -> None:
    """Determinants are appended without gap or contradiction; an equal overlap is trimmed."""
    store, held = subject.opened()
    held = fill(subject, store, held, 10)
    good = bundle_at(subject, held, 4)
    delta = good.logs[0]
    gap = replace(good, logs=(replace(delta, offset=delta.offset + 1),))
    other = replace(good, logs=(*good.logs[1:], LogDelta(delta.task, delta.epoch, 0, b"\xff" * (delta.offset + 8))))
    for name, bundle in (("a gap in a log", gap), ("a contradiction in a log", other)):
        expect_error(PeerViolation, f"{name} is refused", lambda bundle=bundle: store.write(bundle))  # type: ignore[misc]
        subject.expect_rows(10, f"{name} changes nothing")
    store.close()
    store, held = subject.opened()
    expect_held(subject, held, "refused determinants leave no trace")
    overlap = LogDelta(delta.task, delta.epoch, 0, log_at(delta.task, delta.epoch, 14))
    store.write(replace(good, logs=(overlap, *good.logs[1:])))
    store.close()
    store, held = subject.opened()
    expect_held(subject, held, "an equal overlap of determinants is trimmed")
    store.close()


def takes_a_lost_acknowledgement(subject: Subject) -> None:
    """The last bundle, written again, is a no-op; anything that differs from it is refused."""
    store, held = subject.opened()
    held = fill(subject, store, held, 12)
    bundle = bundle_at(subject, held, 5)
    for _ in range(3):
        store.write(bundle)
        subject.expect_rows(17, "the last bundle written again changes nothing")
    differing = replace(bundle, rows=bundle.rows[::-1])
    expect_error(InvariantViolation, "other rows in its place are refused", lambda: store.write(differing))
    store.write(bundle)
    held = fill(subject, store, after(held, bundle), 30)
    subject.expect_rows(30, "bundles go on behind a repeated one")
    expect_error(InvariantViolation, "a bundle before the last one is refused", lambda: store.write(bundle))
    store.close()
    again, held = subject.opened()
    expect_held(subject, held, "repeated bundles leave no trace")
    again.close()


def takes_bundles_without_rows(subject: Subject) -> None:
    """A bundle may carry determinants only, and the end."""
    store, held = subject.opened()
    ahead = tuple(LogDelta(owner, 0, 0, log_at(owner, 0, 3)) for owner in OWNERS)
    empty = Bundle(0, 0, b"", 0, 0, 1, ahead)
    store.write(empty)
    store.write(empty)
    store.close()
    store, held = subject.opened()
    found = {delta.task: delta.bytes for delta in held.logs}
    expect(held.next == 0 and found == {o: log_at(o, 0, 3) for o in OWNERS}, "determinants come alone", repr(held))
    bundle = replace(bundle_at(subject, held, 5), ended=True)
    store.write(bundle)
    subject.expect_rows(5, "rows follow a bundle without rows")
    late = bundle_at(subject, after(held, bundle), 1)
    expect_error(InvariantViolation, "no rows follow the end", lambda: store.write(late))
    store.close()


def truncates(subject: Subject) -> None:
    """Determinants of covered epochs are forgotten for good, rows never."""
    store, held = subject.opened()
    held = fill(subject, store, held, 2 * EPOCH_ROWS + 5)
    store.truncate(1)
    store.truncate(0)
    store.close()
    store, held = subject.opened()
    expect_held(subject, held, "truncate forgets the epochs below, and keeps the others", kept_from=1)
    late = LogDelta(0, 0, 0, log_at(0, 0, EPOCH_ROWS))
    bundle = bundle_at(subject, held, 5)
    store.write(replace(bundle, logs=(late, *bundle.logs)))
    store.truncate(3)
    store.close()
    store, held = subject.opened()
    expect_held(subject, held, "what arrives late of a truncated epoch is ignored", kept_from=3)
    held = fill(subject, store, held, 3 * EPOCH_ROWS + 1)
    subject.expect_rows(held.next, "truncate takes no rows")
    store.close()


def fences_zombies(subject: Subject) -> None:
    """After a younger incarnation has opened the store, an older one changes nothing."""
    old, held = subject.opened(1)
    held = fill(subject, old, held, 9, 1)
    young, found = subject.opened(3)
    expect(found.next == 9, "a successor finds the position", repr(found.next))
    own = bundle_at(subject, held, 5, 1)
    repeated = bundle_at(subject, Held(7, 0, ()), 2, 1)
    for bundle in (own, repeated, own):
        expect_error(Fenced, "a zombie's bundle is refused", lambda bundle=bundle: old.write(bundle))  # type: ignore[misc]
    expect_error(Fenced, "a zombie cannot truncate", lambda: old.truncate(1))
    subject.expect_rows(9, "a zombie changes nothing")
    expect_error(Fenced, "an older incarnation cannot open", lambda: subject.opened(2))
    fill(subject, young, found, 20, 3)
    subject.expect_rows(20, "an attempt to open does not disturb the writer")
    young.close()
    same, held = subject.opened(3)
    expect_held(subject, held, "an incarnation may open again")
    same.close()
    old.close()


def keeps_tasks_and_runs_apart(subject: Subject) -> None:
    """Each task has its own positions; rows of another run are refused, with one line."""
    one, held_one = subject.opened()
    two, held_two = subject.opened(5, task="out/1")
    fill(subject, one, held_one, 12)
    fill(subject, two, held_two, 30, 5, "out/1")
    subject.expect_rows(12, "tasks do not mix")
    subject.expect_rows(30, "tasks do not mix", "out/1")
    one.close()
    two.close()
    expect_error(PipelineError, "rows of another run are refused", lambda: subject.opened(9, run="run-2"))
    again, held = subject.opened(5, task="out/1")
    expect_held(subject, held, "a refused run changes nothing", "out/1")
    again.close()


def survives_kills(subject: Subject, kills: int = 20, seed: int = 1) -> None:
    """A process that writes is killed at random moments, again and again: nothing is lost, doubled or half done."""
    chance = Random(seed)
    for incarnation in range(1, kills + 1):
        pid = _writer(subject, incarnation)
        time.sleep(chance.uniform(0.0, 0.02))
        os.kill(pid, signal.SIGKILL)
        expect(os.waitpid(pid, 0)[1] == signal.SIGKILL, "a writer goes on until it is killed", "it ended by itself")
        store, held = subject.opened(incarnation)
        subject.expect_rows(held.next, "after a kill, rows and position agree")
        expect_held(subject, held, "after a kill, determinants and position agree", kept_from=None)
        store.close()
    store, held = subject.opened(kills + 1)
    held = fill(subject, store, held, held.next + 25, kills + 1)
    subject.expect_rows(held.next, "after many kills, every row is there once")
    store.close()


def stops_zombies_that_wake_up(subject: Subject, stops: int = 8, seed: int = 1) -> None:
    """A writer is stopped at a random moment, replaced, and wakes up: it is fenced and has changed nothing since."""
    chance = Random(seed)
    for incarnation in range(1, 2 * stops, 2):
        pid = _writer(subject, incarnation)
        time.sleep(chance.uniform(0.0, 0.01))
        os.kill(pid, signal.SIGSTOP)
        os.waitpid(pid, os.WUNTRACED)
        store, held = _opened_beside(subject, incarnation + 1, pid)
        held = fill(subject, store, held, held.next + 10, incarnation + 1)
        os.kill(pid, signal.SIGCONT)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        expect(status == _FENCED_STATUS, "a zombie that wakes up is fenced", f"it ended with status {status}")
        subject.expect_rows(held.next, "a zombie that wakes up changes nothing")
        fill(subject, store, held, held.next + 10, incarnation + 1)
        subject.expect_rows(held.next + 10, "a zombie does not disturb its successor")
        store.close()


def _opened_beside(subject: Subject, incarnation: int, stopped: int) -> tuple[SinkStore, Held]:
    """Open while another process is stopped, perhaps with the lock in its hands: then let it run a little first."""
    while True:
        with suppress(Unavailable):
            return subject.opened(incarnation)
        os.kill(stopped, signal.SIGCONT)
        time.sleep(0.001)
        os.kill(stopped, signal.SIGSTOP)
        os.waitpid(stopped, os.WUNTRACED)


def _writer(subject: Subject, incarnation: int) -> int:
    """Fork a process that writes bundles and truncates until it is killed or fenced; returns once it has begun."""
    began, beginning = os.pipe()
    pid = os.fork()
    if pid:
        os.close(beginning)
        os.read(began, 1)
        os.close(began)
        return pid
    status = _FAILED_STATUS
    try:
        store, held = subject.opened(incarnation)
        os.write(beginning, b"!")
        while True:
            bundle = bundle_at(subject, held, 1 + held.next % 5, incarnation)
            store.write(bundle)
            held = after(held, bundle)
            store.truncate(held.next // EPOCH_ROWS - 1)
    except Fenced:
        status = _FENCED_STATUS
    except CausalError:
        traceback.print_exc(file=sys.stderr)
    finally:
        os._exit(status)


CHECKS: tuple[Callable[[Subject], None], ...] = (
    holds_what_was_written,
    survives_being_abandoned,
    refuses_gaps,
    refuses_broken_logs,
    takes_a_lost_acknowledgement,
    takes_bundles_without_rows,
    truncates,
    fences_zombies,
    keeps_tasks_and_runs_apart,
    survives_kills,
    stops_zombies_that_wake_up,
)
"""Every check; each takes a fresh subject."""
