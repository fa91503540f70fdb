"""Checks of a store that accepts no rows because it is unavailable, or that refuses a row permanently."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any
from unittest import SkipTest

from xxhash import xxh3_64_intdigest

from causal.errors import Fenced, RowRefused, Unavailable
from causal.ports import Bundle, SinkStore, StoreState
from operators.sinks.conformance.subject import (
    Subject,
    after,
    bundle_at,
    expect,
    expect_error,
    expect_held,
    fill,
    record_at,
)

TASK = "out/0"


def waits_for_an_unavailable_store(subject: Subject) -> None:
    """Check that writes to an unavailable store raise `Unavailable`, and that a retried bundle is stored only once."""
    if subject.away is None:
        raise SkipTest("use Subject(away=…) to have a store that cannot be reached checked")
    store, state = subject.opened()
    state = fill(subject, store, state, 12)
    bundle = bundle_at(subject, state, 5)
    with subject.away():
        for _ in range(2):
            expect_error(Unavailable, "a write to an unavailable store can be retried", lambda: store.write(bundle))
    subject.expect_rows(12, "nothing was written while the store was unavailable")
    store.write(bundle)
    store.write(bundle)
    subject.expect_rows(17, "the bundle is there once when the store is back")
    state = fill(subject, store, after(state, bundle), 30)
    expect_held(subject, store.last_bundle(), "a store that was unavailable has lost nothing")
    with subject.away():
        expect_error(Unavailable, "it may be unavailable again", lambda: store.write(bundle_at(subject, state, 5)))
        store.close()
        with suppress(Unavailable):  # a store with its own journal can answer and fence without the server
            subject.opened(2)[0].close()
    store, state = subject.opened(3)
    subject.expect_rows(state.next, "the next process finds rows and position agreed")
    expect_held(subject, state, "the next process finds everything when the store is back")
    fill(subject, store, state, 40, 3)
    subject.expect_rows(40, "the next process continues")
    store.close()


def puts_refused_rows_aside(subject: Subject) -> None:
    """Check that a refused row is named and changes nothing, and that a row that is left out keeps its position."""
    store, state = subject.opened()
    state = fill(subject, store, state, 5)
    poison = _poison_of(subject)
    bundle = _poisoned(subject, state, poison, 1, 4)
    for _ in range(2):
        reasons = _refused(store, bundle)
        expect(set(reasons) <= {6, 9}, "just the rows that are refused are named", str(reasons))
        subject.expect_rows(5, "a refused row changes nothing")
    lacking = _set_aside(store, bundle)
    _expect_all_but(subject, 11, (6, 9), "all but the refused rows are there")
    store.write(lacking)
    store.close()
    store, state = subject.opened(2)
    expect(
        (state.next, state.digest, state.refused) == (11, bundle.digest, 2),
        "positions and digest count refused rows, which are counted",
        str(state),
    )
    bundle = replace(bundle_at(subject, state, 6), incarnation=2)
    store.write(bundle)
    _expect_all_but(subject, 17, (6, 9), "rows follow")
    store.close()


def leaves_out_all_rows_of_a_bundle(subject: Subject) -> None:
    """Check that a bundle whose rows are all refused advances the position, and that a zombie cannot leave out rows."""
    store, state = subject.opened()
    state = fill(subject, store, state, 5)
    bundle = _poisoned(subject, state, _poison_of(subject), *range(6))
    young, young_state = subject.opened(2)
    lacking = replace(bundle, refused=tuple((position, "a reason") for position in range(5, 11)))
    expect_error(Fenced, "a zombie leaves nothing out", lambda: store.write(lacking))
    expect(young_state == young.last_bundle(), "a zombie that leaves rows out changes nothing", str(young_state))
    _set_aside(young, replace(bundle, incarnation=2))
    subject.expect_rows(5, "none of the refused rows is there")
    young.close()
    store.close()
    store, state = subject.opened(3)
    expect((state.next, state.refused) == (11, 6), "the positions of refused rows are taken", str(state))
    store.close()


def _poison_of(subject: Subject) -> Any:
    if subject.poison is None:
        raise SkipTest("use Subject(poison=…) to have refused rows checked, if the store can refuse any")
    return subject.poison()


def _poisoned(subject: Subject, state: StoreState, poison: Any, *places: int) -> Bundle:
    """Return a bundle of the next six rows, with `poison` in the given places."""
    rows, digest = b"", state.digest
    for place in range(6):
        record = poison if place in places else record_at(TASK, state.next + place)
        row = subject.encoded(record)
        rows, digest = rows + row, xxh3_64_intdigest(row, digest)
    return replace(bundle_at(subject, state, 6), rows=rows, digest=digest)


def _refused(store: SinkStore, bundle: Bundle) -> dict[int, str]:
    """Return the store's reason for each row that it refuses, keyed by position."""
    try:
        store.write(bundle)
    except RowRefused as refused:
        expect(all(reason for _, reason in refused.rows), "the store's reason is reported", str(refused))
        return dict(refused.rows)
    expect(False, "a row that cannot be taken is refused", "nothing was raised")
    return {}


def _set_aside(store: SinkStore, bundle: Bundle) -> Bundle:
    """Write the bundle without its refused rows, as a job that sets rows aside does; return the bundle as written."""
    out = dict(bundle.refused)
    while True:
        lacking = replace(bundle, refused=tuple(sorted(out.items())))
        try:
            store.write(lacking)
        except RowRefused as refused:
            fresh = {position for position, _ in refused.rows} - set(out)
            expect(bool(fresh), "a row that is left out is not refused again", str(refused))
            out.update(refused.rows)
            continue
        return lacking


def _expect_all_but(subject: Subject, count: int, out: tuple[int, ...], promise: str) -> None:
    expected = subject.seen([record_at(TASK, position) for position in range(count) if position not in out])
    rows = subject.read(TASK)
    expect(rows == expected, promise, f"{count - len(out)} rows should be there")


CHECKS: tuple[Callable[[Subject], None], ...] = (
    waits_for_an_unavailable_store,
    puts_refused_rows_aside,
    leaves_out_all_rows_of_a_bundle,
)
"""The checks of this module; each takes a fresh subject."""
