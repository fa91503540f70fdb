"""Checks of successive runs that use the same store: the newest run owns it, and no older run can return (D15).

A run's identity sorts after the identity of every run that was started before it. An older run that returns must be
refused with an error that ends its job. If the error were `Fenced`, the supervisor would promote a successor, which
would be refused as well, and so on forever.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from unittest import SkipTest

from causal.errors import Fenced, PipelineError, Superseded
from operators.sinks.conformance.steps import Prepared, Step, killed_at, steps_of
from operators.sinks.conformance.subject import Subject, bundle_at, expect, expect_error, expect_held, fill


def lets_no_older_run_come_back(subject: Subject) -> None:
    """Check that an older run can neither open nor change a newer run's store, even one without rows."""
    young, state = subject.opened(run="run-2")
    young.close()
    _expect_refused(subject, "run-1", "an older run cannot open what a newer one has opened")
    young, state = subject.opened(run="run-2")
    state = fill(subject, young, state, 12)
    _expect_refused(subject, "run-1", "an older run cannot open what a newer one has written")
    subject.expect_rows(12, "an older run that is refused changes nothing")
    state = fill(subject, young, state, 20)
    expect_held(subject, young.last_bundle(), "an older run that is refused does not disturb the newer one")
    if subject.replacing is None:
        young.close()
        return
    successor = replace(subject, sink=subject.replacing)
    old, old_state = young, state
    young, state = successor.opened(run="run-3")
    expect(state.next == 0, "a newer run takes the place of an older one", f"it holds {state.next} rows")
    successor.expect_rows(0, "a newer run begins without rows")
    state = fill(successor, young, state, 9)
    late = bundle_at(subject, old_state, 3)
    expect_error(Fenced, "a run that was replaced cannot write", lambda: old.write(late))
    expect_error(Fenced, "a run that was replaced cannot truncate", lambda: old.truncate(1))
    expect_error(Fenced, "a run that was replaced cannot read the held bundle", old.last_bundle)
    for incarnation in (1, 2):
        _expect_refused(successor, "run-2", "a run that was replaced cannot open again", incarnation)
    successor.expect_rows(9, "a run that was replaced changes nothing")
    state = fill(successor, young, state, 20)
    young.close()
    old.close()
    young, state = successor.opened(2, run="run-3")
    expect_held(successor, state, "the newest run continues")
    fill(successor, young, state, 30, 2)
    successor.expect_rows(30, "the newest run continues")
    young.close()


def dies_at_every_step_of_a_replacement(subject: Subject) -> None:
    """Check that a newer run that is killed during its takeover has changed nothing or has taken over permanently."""
    if subject.replacing is None:
        raise SkipTest("use Subject(replacing=…) if a newer run can take the place of an older one")
    replacing = replace(subject, sink=subject.replacing)
    store, state = replacing.opened(run=_run(0))
    fill(replacing, store, state, 10)
    store.close()
    for number, step in enumerate([*steps_of(_opening(replacing, _run(1))), Step(0)]):
        old, new = _run(2 * number + 2), _run(2 * number + 3)
        store, state = replacing.opened(run=old)
        fill(replacing, store, state, 10)
        store.close()
        killed_at(step, _opening(replacing, new))
        promise = f"after a newer run was killed at {step} of its open"
        try:
            store, state = replacing.opened(2, run=old)
        except (Superseded, PipelineError):
            pass
        else:
            expect(state.next == 10, f"{promise}, an older run has all of its rows or is refused", str(state.next))
            replacing.expect_rows(10, f"{promise}, an older run that is let in sees its rows")
            expect_held(replacing, state, f"{promise}, an older run that is let in has its determinants")
            fill(replacing, store, state, 12, 2)
            store.close()
        store, state = replacing.opened(2, run=new)
        expect(state.next == 0, f"{promise}, the newer run begins empty", f"it holds {state.next} rows")
        replacing.expect_rows(0, f"{promise}, the newer run begins without rows")
        fill(replacing, store, state, 5, 2)
        replacing.expect_rows(5, f"{promise}, the newer run continues")
        store.close()
        _expect_refused(replacing, old, f"{promise}, the older run is refused", 3)


def _run(number: int) -> str:
    return f"run-{number:06d}"


def _opening(subject: Subject, run: str) -> Prepared:
    def prepared() -> tuple[object, Callable[[], object]]:
        store = subject.sink.open_store("out/0", subject.job_directory)
        return store, lambda: store.open("out/0", run, 1)

    return prepared


def _expect_refused(subject: Subject, run: str, promise: str, incarnation: int = 9) -> None:
    expect_error(Superseded, promise, lambda: subject.opened(incarnation, run=run), PipelineError)


CHECKS: tuple[Callable[[Subject], None], ...] = (lets_no_older_run_come_back, dies_at_every_step_of_a_replacement)
"""The checks of this module; each takes a fresh subject."""
