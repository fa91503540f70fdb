"""The base class of users' operators, which have state per key and nothing to do with logs or recovery."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from operators.stage.context import Context


class Operator:
    """The base of all stateful operators; only `process` must be written.

    Everything that must survive a failure belongs in `ctx.state`, or in state that the class declares
    (`ListState` and its like): attributes of the operator are not checkpointed.  Clocks, random numbers
    and the outside world are asked through `ctx`, so that a recovery can repeat what was done.

    A record that raises stops the job, or goes to the dead letters, as the job is set. Effects from before the
    exception remain either way: state that was changed, records that were yielded, timers that were set.

    An operator may also define `process_batch(records, keys, ctx)`, which is then called instead of `process` with all
    records that arrived together, and `ctx.states(keys)` returns their states. It must return one iterable of records.
    How many records arrive together varies between runs (never between a run and its replay); an exception in it always
    stops the job, because no record can be blamed.
    """

    commutes: ClassVar[bool] = False
    """Whether two records of different inputs, neither of which leaves a record, have the same effect in either order.

    Then their order is not logged (`docs/guide/order.md`).  `operators.testing.run` tries it, and names two records for
    which it is not so.
    """

    def open(self, ctx: Context) -> None:
        """Prepare, before the first record: load models, compile patterns, connect.

        Only `ctx.task` and `ctx.log` are there: it runs again in each standby, and on a fresh copy of the operator
        where a process goes back to a checkpoint, so nothing of it is replayed.
        """

    def process(self, record: Any, ctx: Context, /) -> Iterable[Any] | None:
        """Process a record, in delivery order; yields records, returns an iterable of them, or None."""
        raise NotImplementedError(f"{type(self).__name__} defines no process(self, record, ctx)")

    def on_timer(self, name: str, ctx: Context, /) -> Iterable[Any] | None:
        """Handle a timer of `ctx.key` that `ctx.set_timer(at_s, name)` set and that is due."""
        raise NotImplementedError(f"{type(self).__name__} defines no on_timer(self, name, ctx)")

    def finish(self, ctx: Context) -> Iterable[Any] | None:
        """Return the last records when a bounded input has ended: once per key that has state, in a defined order.

        Without key_by before it: once, with `ctx.key` None.
        """
        return None
