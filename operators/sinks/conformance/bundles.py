"""Checks of a store's promises about bundles, determinants and incarnations while all processes stay alive."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from causal.errors import Fenced, InvariantViolation, PeerViolation, PipelineError
from causal.logs.log import LogDelta
from causal.ports import Bundle, StoreState
from operators.sinks.conformance.subject import (
    EPOCH_ROWS,
    OWNERS,
    Subject,
    after,
    bundle_at,
    expect,
    expect_error,
    expect_held,
    fill,
    log_at,
)


def holds_what_was_written(subject: Subject) -> None:
    """Check that a new store is empty, that rows are visible immediately, and that reopening returns everything."""
    store, state = subject.opened()
    expect(state == StoreState(0, 0, ()), "an empty store holds nothing", repr(state))
    for rows in (1, 5, EPOCH_ROWS, EPOCH_ROWS + 30):
        state = fill(subject, store, state, rows)
        subject.expect_rows(rows, "rows are visible as soon as write returns")
    expect_held(subject, store.last_bundle(), "an open store returns the held bundle")
    store.close()
    again, reopened = subject.opened()
    expect(reopened.next == state.next, "a closed store gives its position back", f"{reopened.next}, not {state.next}")
    expect_held(subject, reopened, "a closed store gives everything back")
    again.close()
    subject.expect_rows(state.next, "opening changes no rows")


def survives_being_abandoned(subject: Subject) -> None:
    """Check that nothing is lost if a store object is abandoned without being closed, as when its process dies."""
    abandoned = []
    for incarnation in range(1, 6):
        store, state = subject.opened(incarnation)
        abandoned.append(store)
        expect_held(subject, state, "a new store holds what the abandoned one had written")
        fill(subject, store, state, state.next + 11, incarnation)
        subject.expect_rows(state.next + 11, "rows continue where they ended")
    for store in abandoned:
        store.close()


def refuses_gaps(subject: Subject) -> None:
    """Check that each bundle must begin where the last one ended, and that refused bundles change nothing."""
    store, state = subject.opened()
    state = fill(subject, store, state, 10)
    good = bundle_at(subject, state, 4)
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
    """Check that determinants must be appended without gaps or contradictions; an identical overlap is trimmed."""
    store, state = subject.opened()
    state = fill(subject, store, state, 10)
    good = bundle_at(subject, state, 4)
    delta = good.logs[0]
    gap = replace(good, logs=(delta._replace(offset=delta.offset + 1),))
    other = replace(good, logs=(*good.logs[1:], LogDelta(delta.task, delta.epoch, 0, b"\xff" * (delta.offset + 8))))
    for name, bundle in (("a gap in a log", gap), ("a contradiction in a log", other)):
        expect_error(PeerViolation, f"{name} is refused", lambda bundle=bundle: store.write(bundle))  # type: ignore[misc]
        subject.expect_rows(10, f"{name} changes nothing")
    store.close()
    store, state = subject.opened()
    expect_held(subject, state, "refused determinants leave no trace")
    overlap = LogDelta(delta.task, delta.epoch, 0, log_at(delta.task, delta.epoch, 14))
    store.write(replace(good, logs=(overlap, *good.logs[1:])))
    store.close()
    store, state = subject.opened()
    expect_held(subject, state, "an equal overlap of determinants is trimmed")
    store.close()


def keeps_what_is_stable(subject: Subject) -> None:
    """Check that a delta without bytes marks all earlier bytes as stable, so that the store may discard them."""
    store, state = subject.opened()
    state = fill(subject, store, state, 10)
    bundle = bundle_at(subject, state, 4)
    owner, mark = bundle.logs[0].task, len(log_at(bundle.logs[0].task, 0, 13))
    rest = log_at(owner, 0, 14)[mark:]
    bundle = replace(bundle, logs=(LogDelta(owner, 0, mark, b""), LogDelta(owner, 0, mark, rest), *bundle.logs[1:]))
    store.write(bundle)
    store.close()
    for incarnation in (1, 2):
        store, state = subject.opened(incarnation)
        own_logs = [delta for delta in state.logs if delta.task == owner]
        kept = [LogDelta(owner, 0, mark, b""), LogDelta(owner, 0, mark, rest)]
        expect(own_logs == kept, "determinants begin where the stable ones end", repr(own_logs))
        store.close()
    store, state = subject.opened(2)
    fill(subject, store, state, 20, incarnation=2)
    store.close()
    store, state = subject.opened(3)
    own_logs = [delta for delta in state.logs if delta.task == owner]
    whole = LogDelta(owner, 0, mark, log_at(owner, 0, 20)[mark:])
    expect(own_logs == [LogDelta(owner, 0, mark, b""), whole], "determinants follow stable ones", repr(own_logs))
    store.close()


def takes_a_lost_acknowledgement(subject: Subject) -> None:
    """Check that writing the last bundle again has no effect, and that a different bundle in its place is refused."""
    store, state = subject.opened()
    state = fill(subject, store, state, 12)
    bundle = bundle_at(subject, state, 5)
    for _ in range(3):
        store.write(bundle)
        subject.expect_rows(17, "the last bundle written again changes nothing")
    differing = replace(bundle, rows=bundle.rows[::-1])
    expect_error(InvariantViolation, "other rows in its place are refused", lambda: store.write(differing))
    store.write(bundle)
    state = fill(subject, store, after(state, bundle), 30)
    subject.expect_rows(30, "bundles follow a repeated one")
    expect_error(InvariantViolation, "a bundle before the last one is refused", lambda: store.write(bundle))
    store.close()
    again, state = subject.opened()
    expect_held(subject, state, "repeated bundles leave no trace")
    again.close()


def takes_bundles_without_rows(subject: Subject) -> None:
    """Check that a bundle may contain only determinants, and that no rows are accepted after the end marker."""
    store, state = subject.opened()
    ahead = tuple(LogDelta(owner, 0, 0, log_at(owner, 0, 3)) for owner in OWNERS)
    empty = Bundle(0, 0, b"", 0, 0, 1, ahead)
    store.write(empty)
    store.write(empty)
    store.close()
    store, state = subject.opened()
    logs = {delta.task: delta.bytes for delta in state.logs}
    expect(state.next == 0 and logs == {o: log_at(o, 0, 3) for o in OWNERS}, "determinants come alone", repr(state))
    bundle = replace(bundle_at(subject, state, 5), ended=True)
    store.write(bundle)
    subject.expect_rows(5, "rows follow a bundle without rows")
    late = bundle_at(subject, after(state, bundle), 1)
    expect_error(InvariantViolation, "no rows follow the end", lambda: store.write(late))
    store.close()


def truncates(subject: Subject) -> None:
    """Check that the store permanently discards the determinants of truncated epochs, but never discards rows."""
    store, state = subject.opened()
    state = fill(subject, store, state, 2 * EPOCH_ROWS + 5)
    store.truncate(1)
    store.truncate(0)
    store.close()
    store, state = subject.opened()
    expect_held(subject, state, "truncate forgets the epochs below, and keeps the others", kept_from=1)
    late = LogDelta(0, 0, 0, log_at(0, 0, EPOCH_ROWS))
    bundle = bundle_at(subject, state, 5)
    store.write(replace(bundle, logs=(late, *bundle.logs)))
    store.truncate(3)
    store.close()
    store, state = subject.opened()
    expect_held(subject, state, "what arrives late of a truncated epoch is ignored", kept_from=3)
    state = fill(subject, store, state, 3 * EPOCH_ROWS + 1)
    subject.expect_rows(state.next, "truncate takes no rows")
    store.close()


def fences_zombies(subject: Subject) -> None:
    """Check that an incarnation can change nothing after a newer one has opened the store."""
    old, state = subject.opened(1)
    state = fill(subject, old, state, 9, 1)
    young, young_state = subject.opened(3)
    expect(young_state.next == 9, "a successor finds the position", repr(young_state.next))
    own = bundle_at(subject, state, 5, 1)
    repeated = bundle_at(subject, StoreState(7, 0, ()), 2, 1)
    for bundle in (own, repeated, own):
        expect_error(Fenced, "a zombie's bundle is refused", lambda bundle=bundle: old.write(bundle))  # type: ignore[misc]
    expect_error(Fenced, "a zombie cannot truncate", lambda: old.truncate(1))
    expect_error(Fenced, "a zombie cannot read the held bundle", old.last_bundle)
    subject.expect_rows(9, "a zombie changes nothing")
    expect_error(Fenced, "an older incarnation cannot open", lambda: subject.opened(2))
    fill(subject, young, young_state, 20, 3)
    subject.expect_rows(20, "an attempt to open does not disturb the writer")
    young.close()
    same, state = subject.opened(3)
    expect_held(subject, state, "an incarnation may open again")
    same.close()
    old.close()


def keeps_tasks_and_runs_apart(subject: Subject) -> None:
    """Check that each task has its own positions, and that a store with rows of another run refuses to open."""
    one, state_one = subject.opened()
    two, state_two = subject.opened(5, task="out/1")
    fill(subject, one, state_one, 12)
    fill(subject, two, state_two, 30, 5, "out/1")
    subject.expect_rows(12, "tasks do not mix")
    subject.expect_rows(30, "tasks do not mix", "out/1")
    one.close()
    two.close()
    expect_error(PipelineError, "rows of another run are refused", lambda: subject.opened(9, run="run-2"))
    again, state = subject.opened(5, task="out/1")
    expect_held(subject, state, "a refused run changes nothing", "out/1")
    again.close()


CHECKS: tuple[Callable[[Subject], None], ...] = (
    holds_what_was_written,
    survives_being_abandoned,
    refuses_gaps,
    refuses_broken_logs,
    keeps_what_is_stable,
    takes_a_lost_acknowledgement,
    takes_bundles_without_rows,
    truncates,
    fences_zombies,
    keeps_tasks_and_runs_apart,
)
"""The checks of this module; each takes a fresh subject."""
