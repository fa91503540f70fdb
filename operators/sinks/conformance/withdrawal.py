"""Checks of withdrawals, in addition to `operators.sinks.conformance`, for stores that have `withdraw`.

Below full sharing depth, visible rows may depend on determinants that are lost when more tasks fail simultaneously than
the sharing depth covers (D9).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from unittest import SkipTest

from causal.errors import Fenced, InvariantViolation
from causal.ports import Bundle, SinkStore, StoreState, WithdrawingStore, WithdrawPoint
from operators.sinks.conformance import (
    EPOCH_ROWS,
    OWNERS,
    NotConforming,
    Subject,
    after,
    bundle_at,
    expect,
    expect_agreement,
    expect_error,
    expect_held,
    log_at,
)
from operators.sinks.conformance.dying import begun, killed_writers


def marked(bundle: Bundle) -> Bundle:
    """Return the bundle with the dependencies of its rows, as written below full sharing depth."""
    epoch, rows = bundle.epoch, bundle.first + bundle.count - bundle.epoch * EPOCH_ROWS
    return replace(bundle, depends=tuple((owner, epoch, len(log_at(owner, epoch, rows))) for owner in OWNERS))


def fill_marked(subject: Subject, store: SinkStore, state: StoreState, rows: int, incarnation: int = 1) -> StoreState:
    """Write marked bundles of up to 7 rows until the store contains `rows` rows."""
    while state.next < rows:
        bundle = marked(bundle_at(subject, state, min(7, rows - state.next), incarnation))
        store.write(bundle)
        state = after(state, bundle)
    return state


def _opened(subject: Subject, incarnation: int = 1) -> tuple[WithdrawingStore, StoreState]:
    store, state = subject.opened(incarnation)
    if not isinstance(store, WithdrawingStore):
        raise NotConforming(f"rows can be taken back: {type(store).__name__} has no withdraw")
    return store, state


def _mark_at(state: StoreState, position: int) -> WithdrawPoint:
    """Return the last mark at or before `position`."""
    return [mark for mark in state.marks if mark.next <= position][-1]


def remembers_where_bundles_ended(subject: Subject) -> None:
    """Check that the store returns marks with their dependencies, and that truncation keeps the last mark it covers."""
    store, state = _opened(subject)
    fill_marked(subject, store, state, EPOCH_ROWS + 14)
    store.close()
    store, state = _opened(subject, 2)
    ends = [mark.next for mark in state.marks]
    expect(ends == [0, 7, 14, 21, 28, 35, 40, 47, 54], "every bundle's end is marked", repr(ends))
    expect(state.marks[1].depends == marked_depends(0, 7), "a mark keeps its dependencies", repr(state.marks[1]))
    store.truncate(1)
    store.close()
    store, state = _opened(subject, 3)
    expect(
        [m.next for m in state.marks] == [40, 47, 54], "a checkpoint leaves what rows can go back to", repr(state.marks)
    )
    store.close()


def marked_depends(epoch: int, rows: int) -> tuple[tuple[int, int, int], ...]:
    """Return the determinants on which the first `rows` rows of one of the kit's epochs depend."""
    return tuple((owner, epoch, len(log_at(owner, epoch, rows))) for owner in OWNERS)


def takes_rows_back(subject: Subject) -> None:
    """Check that rows and determinants after a mark are removed permanently, and that other rows may replace them."""
    store, state = _opened(subject)
    fill_marked(subject, store, state, 30)
    store.close()
    store, state = _opened(subject, 2)
    left = store.withdraw(_mark_at(state, 21))
    expect(left.next == 21, "the answer reports the rest", repr(left.next))
    expect(left.withdrawn == 9, "the answer reports the total of withdrawn rows", repr(left.withdrawn))
    subject.expect_rows(21, "rows after the mark are gone")
    expect_held(subject, left, "determinants after the mark are gone with their rows")
    fill_marked(subject, store, left, 33, 2)
    subject.expect_rows(33, "rows follow those that were left")
    store.close()
    store, state = _opened(subject, 3)
    expect_held(subject, state, "what was taken back leaves no trace")
    store.withdraw(_mark_at(state, 0))
    store.close()
    subject.expect_rows(0, "all rows can be taken back")
    store, state = _opened(subject, 4)
    expect(
        (state.next, state.digest, state.logs) == (0, 0, ()),
        "a store taken back to its beginning is empty",
        repr(state),
    )
    store.close()


def takes_back_only_to_a_mark(subject: Subject) -> None:
    """Check that a withdrawal to a position without a mark changes nothing, and neither does one by a zombie."""
    store, state = _opened(subject)
    state = fill_marked(subject, store, state, 20)
    wrong = WithdrawPoint(5, 0, 0, 0, ())
    expect_error(InvariantViolation, "a place that is no mark is refused", lambda: store.withdraw(wrong))
    young, young_state = _opened(subject, 2)
    back = _mark_at(young_state, 7)
    expect_error(Fenced, "a zombie takes nothing back", lambda: store.withdraw(back))
    subject.expect_rows(20, "refused withdrawals change nothing")
    young.close()
    store.close()


def takes_back_rows_that_were_left_out(subject: Subject) -> None:
    """Check that rows refused after the mark are no longer counted, whereas rows refused before the mark still are."""
    if subject.poison is None:
        raise SkipTest("use Subject(poison=…) to have refused rows checked, if the store can refuse any")
    store, state = _opened(subject)
    for count in (7, 3, 5):
        bundle = marked(bundle_at(subject, state, count))
        store.write(replace(bundle, refused=((bundle.first + 1, "a reason"),)))
        state = after(state, bundle)
    left = store.withdraw(_mark_at(store.last_bundle(), 10))
    expect((left.next, left.refused) == (10, 2), "rows that were left out are taken back", repr(left))
    store.close()
    store, state = _opened(subject, 2)
    expect((state.next, state.refused) == (10, 2), "rows that were left out stay taken back", repr(state))
    store.withdraw(_mark_at(state, 7))
    expect(store.last_bundle().refused == 1, "and others can be", repr(store.last_bundle()))
    store.close()


def withdraws_all_or_nothing(subject: Subject, kills: int = 15, seed: int = 1) -> None:
    """Check that rows, position and determinants agree when processes that write and withdraw are repeatedly killed."""
    for number in killed_writers(lambda number: _writer(subject, 2 * number - 1), kills, seed):
        store, state = _opened(subject, 2 * number)
        expect_agreement(subject, state, "after a kill")
        store.close()


def lets_no_older_run_withdraw(subject: Subject) -> None:
    """Check that a run cannot withdraw rows of the newer run that has replaced it."""
    if subject.replacing is None:
        raise SkipTest("use Subject(replacing=…) if a newer run can take the place of an older one")
    old, state = _opened(subject)
    fill_marked(subject, old, state, 20)
    back = _mark_at(old.last_bundle(), 7)
    successor = replace(subject, sink=subject.replacing)
    young, state = successor.opened(run="run-2")
    fill_marked(successor, young, state, 20)
    expect_error(Fenced, "a run that was replaced takes nothing back", lambda: old.withdraw(back))
    successor.expect_rows(20, "a run that was replaced changes nothing")
    young.close()
    old.close()


def _writer(subject: Subject, incarnation: int) -> int:
    """Start a process that writes and withdraws rows until it is killed, and return its id."""

    def write(begin: Callable[[], object]) -> None:
        store, state = _opened(subject, incarnation)
        begin()
        while True:
            state = fill_marked(subject, store, state, state.next + 15, incarnation)
            store.close()
            store, state = _opened(subject, incarnation)
            state = store.withdraw(_mark_at(state, state.next - 8 if state.next < 3 * EPOCH_ROWS else 0))

    return begun(write)


CHECKS: tuple[Callable[[Subject], None], ...] = (
    remembers_where_bundles_ended,
    takes_rows_back,
    takes_back_only_to_a_mark,
    takes_back_rows_that_were_left_out,
    withdraws_all_or_nothing,
    lets_no_older_run_withdraw,
)
"""The checks of this module; each takes a fresh subject."""
