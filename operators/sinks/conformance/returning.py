"""Checks of returns to a savepoint, in addition to `operators.sinks.conformance`, for stores that have `return_to`.

A return withdraws rows that complete checkpoints cover, so nothing that the store keeps about them remains. Afterwards,
a job continues with epochs that are higher than any before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from unittest import SkipTest

from causal.errors import Fenced, InvariantViolation
from causal.ports import Bundle, ReturningStore, StoreState
from operators.sinks.conformance.steps import Prepared, Step, killed_at, steps_of
from operators.sinks.conformance.subject import (
    EPOCH_ROWS,
    NotConforming,
    Subject,
    after,
    bundle_at,
    expect,
    expect_error,
)

LATER_EPOCHS = 10
"""The difference between the epoch of a row before a return and that of the row that replaces it."""


def _opened(subject: Subject, incarnation: int = 1, run: str = "run-1") -> tuple[ReturningStore, StoreState]:
    store, state = subject.opened(incarnation, run)
    if not isinstance(store, ReturningStore):
        raise NotConforming(f"the store returns to savepoints: {type(store).__name__} has no return_to")
    return store, state


def _written(
    subject: Subject, store: ReturningStore, state: StoreState, rows: int, incarnation: int = 1, later: int = 0
) -> StoreState:
    """Write bundles of up to 7 rows until there are `rows` rows; a checkpoint covers each epoch before the last."""
    while state.next < rows:
        bundle = bundle_at(subject, state, min(7, rows - state.next), incarnation)
        bundle = replace(bundle, epoch=bundle.epoch + later, logs=()) if later else bundle
        store.write(bundle)
        state = after(state, replace(bundle, logs=()))
        store.truncate(bundle.epoch)
    return state


def _at(subject: Subject, store: ReturningStore, rows: int, more: int, incarnation: int = 1) -> StoreState:
    """Write up to a savepoint after `rows` rows and then up to `more`; return the state at the savepoint.

    Raises:
        SkipTest: the store can withdraw only some of these rows.
    """
    savepoint = _written(subject, store, store.last_bundle(), rows, incarnation)
    _written(subject, store, savepoint, more, incarnation)
    if reason := store.obstacle(savepoint.next):
        raise SkipTest(f"the store {reason}")
    return savepoint


def returns_to_a_savepoint(subject: Subject) -> None:
    """Check that rows after a savepoint are removed permanently, although checkpoints cover them, and are replaced."""
    store, _ = _opened(subject)
    savepoint = _at(subject, store, EPOCH_ROWS + 14, 3 * EPOCH_ROWS + 3)
    store.close()
    store, state = _opened(subject, 2)
    expect(store.obstacle(savepoint.next) == "", "a question changes nothing", str(store.last_bundle()))
    gone = state.next - savepoint.next
    for _ in range(2):
        left = store.return_to(savepoint.next, savepoint.digest)
        expect(
            (left.next, left.digest) == (savepoint.next, savepoint.digest), "the position is that asked for", str(left)
        )
        expect(left.withdrawn == gone, "withdrawn rows are counted once", str(left.withdrawn))
        expect((left.logs, left.marks) == ((), ()), "nothing is kept about withdrawn rows", str(left))
        subject.expect_rows(savepoint.next, "rows after the savepoint are gone")
    store.close()
    store, state = _opened(subject, 3)
    expect(state == left, "what was returned stays returned", f"{state}, not {left}")
    state = _written(subject, store, state, 4 * EPOCH_ROWS, 3, LATER_EPOCHS)
    subject.expect_rows(4 * EPOCH_ROWS, "rows follow those that were left")
    store.close()
    store, reopened = _opened(subject, 4)
    expect((reopened.next, reopened.digest) == (state.next, state.digest), "the new rows stay", str(reopened))
    left = store.return_to(0, 0)
    expect((left.next, left.withdrawn) == (0, gone + state.next), "a store can return to its beginning", str(left))
    subject.expect_rows(0, "all rows can be withdrawn")
    store.close()


def returns_after_the_end(subject: Subject) -> None:
    """Check that a store to which a job has written its end accepts rows again after a return."""
    store, _ = _opened(subject)
    savepoint = _at(subject, store, 20, 60)
    state = store.last_bundle()
    store.write(Bundle(state.next, 0, b"", state.digest, 2, 1, (), ended=True))
    if reason := store.obstacle(savepoint.next):
        raise SkipTest(f"the store {reason}")
    store.close()
    store, _ = _opened(subject, 2)
    left = store.return_to(savepoint.next, savepoint.digest)
    _written(subject, store, left, 50, 2, LATER_EPOCHS)
    subject.expect_rows(50, "a job that had ended continues from a savepoint")
    store.close()


def returns_only_below_its_position(subject: Subject) -> None:
    """Check that a return forward or with other rows is refused, and that a zombie returns nowhere."""
    store, _ = _opened(subject)
    savepoint = _at(subject, store, 20, 41)
    expect_error(InvariantViolation, "a return forward is refused", lambda: store.return_to(99, 0))
    expect_error(InvariantViolation, "a return to other rows is refused", lambda: store.return_to(41, savepoint.digest))
    subject.expect_rows(41, "refused returns change nothing")
    young, _ = _opened(subject, 2)
    expect_error(Fenced, "a zombie does not return", lambda: store.return_to(savepoint.next, savepoint.digest))
    subject.expect_rows(41, "a zombie changes nothing")
    young.close()
    store.close()


def counts_refused_rows_again(subject: Subject) -> None:
    """Check that rows that were left out after the savepoint are no longer counted, and those before it still are."""
    if subject.poison is None:
        raise SkipTest("use Subject(poison=…) to have refused rows checked, if the store can refuse any")
    store, state = _opened(subject)
    ends = []
    for count in (7, 3, 5):
        bundle = bundle_at(subject, state, count)
        store.write(replace(bundle, refused=((bundle.first + 1, "a reason"),)))
        state = after(state, replace(bundle, logs=()))
        ends.append(state)
    if reason := store.obstacle(ends[1].next):
        raise SkipTest(f"the store {reason}")
    left = store.return_to(ends[1].next, ends[1].digest)
    expect((left.next, left.refused) == (10, 2), "rows that were left out are withdrawn", repr(left))
    store.close()
    store, state = _opened(subject, 2)
    expect((state.next, state.refused) == (10, 2), "rows that were left out stay withdrawn", repr(state))
    if not store.obstacle(ends[0].next):
        left = store.return_to(ends[0].next, ends[0].digest)
        expect((left.next, left.refused) == (7, 1), "and others can be", repr(left))
    store.close()


def dies_at_every_step_of_a_return(subject: Subject) -> None:
    """Check that a return that is killed at any step is complete or absent, and can be repeated."""
    store, _ = _opened(subject)
    savepoint = _at(subject, store, 20, 41)
    store.close()
    for number, step in enumerate([*steps_of(_returning(subject, 2, savepoint)), Step(0)]):
        incarnation = 3 + 2 * number
        store, state = _opened(subject, incarnation)
        state = _written(subject, store, state, 41 + number % 3, incarnation, LATER_EPOCHS * (number + 1))
        store.close()
        killed_at(step, _returning(subject, incarnation, savepoint))
        store, now = _opened(subject, incarnation + 1)
        promise = f"after a kill at {step} of a return"
        expect(now.next in (savepoint.next, state.next), f"{promise}, all rows are gone or none", str(now.next))
        subject.expect_rows(now.next, f"{promise}, rows and position agree")
        store.return_to(savepoint.next, savepoint.digest)
        subject.expect_rows(savepoint.next, f"{promise}, it can be repeated")
        store.close()
    expect(now.next == savepoint.next, "a return that has ended is complete", str(now))


def _returning(subject: Subject, incarnation: int, savepoint: StoreState) -> Prepared:
    """Return a function that prepares to return to the savepoint in the given incarnation."""

    def prepared() -> tuple[object, Callable[[], object]]:
        store, _ = _opened(subject, incarnation)
        return store, lambda: store.return_to(savepoint.next, savepoint.digest)

    return prepared


CHECKS: tuple[Callable[[Subject], None], ...] = (
    returns_to_a_savepoint,
    returns_after_the_end,
    returns_only_below_its_position,
    counts_refused_rows_again,
    dies_at_every_step_of_a_return,
)
"""The checks of this module; each takes a fresh subject."""
