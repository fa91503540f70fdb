"""The base class of user-defined operators, which keep state per key and need not deal with logs or recovery."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from operators.stage.context import Context


class Operator:
    """The base class of all stateful operators; a subclass must define only `process`.

    Everything that must survive a failure belongs in `ctx.state`, or in state that the class declares (`ListState` and
    the other state types), because attributes of the operator are not checkpointed. Use `ctx` for clocks, random
    numbers and the outside world, so that a recovery can repeat the same results.

    A record on which `process` raises stops the job or becomes a dead letter, depending on the job's settings. If it
    becomes a dead letter, everything that the call did before it raised is undone: changes of state, yielded records,
    and timers.

    An operator may also define `process_batch(records, keys, ctx)`, which is then called instead of `process` with all
    records that arrived together; `ctx.states(keys)` returns their states. It must return one iterable of records. The
    number of records that arrive together varies between runs, but a replay uses the same batches as the run that it
    replays. An exception in `process_batch` always stops the job, because it cannot be attributed to one record.
    """

    commutes: ClassVar[bool] = False
    """Whether two records of different inputs have the same effect in either order if neither causes output.

    If so, their order is not logged (`docs/guide/order.md`). `operators.testing.run` tests this property, and reports
    two records that violate it.
    """

    def open(self, ctx: Context) -> None:
        """Prepare the operator before the first record: load models, compile patterns, connect.

        Only `ctx.task` and `ctx.log` are available. This method also runs in each standby, and it runs on a new copy of
        the operator when a process returns to a checkpoint, so nothing that it does is replayed.
        """

    def process(self, record: Any, ctx: Context, /) -> Iterable[Any] | None:
        """Process a record, in delivery order; yield records, or return an iterable of records or None."""
        raise NotImplementedError(f"{type(self).__name__} defines no process(self, record, ctx)")

    def on_timer(self, name: str, ctx: Context, /) -> Iterable[Any] | None:
        """Handle a due timer of `ctx.key` that was set by `ctx.set_timer(at_s, name)`."""
        raise NotImplementedError(f"{type(self).__name__} defines no on_timer(self, name, ctx)")

    def finish(self, ctx: Context) -> Iterable[Any] | None:
        """Return the last records of a bounded input; called once per key with state, in a defined order.

        Without `key_by` before the operator, it is called only once, and `ctx.key` is None.
        """
        return None
