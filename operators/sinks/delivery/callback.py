"""A sink that passes rows to a user's function, for systems without a sink of their own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from causal.errors import CausalError, OperatorFailed, PipelineError, Unavailable
from causal.ports import SinkStore
from causal.storage.modes import public
from operators.functions import check_function
from operators.sinks.contract.options import check_durability, check_range
from operators.sinks.contract.sink import Sink
from operators.sinks.delivery.outward import Delivery, OutwardStore
from operators.tracebacks import described

DELIVERIES = "deliveries"
"""The directory, in that of the job, of the journals of its outward sinks."""
BATCH_ROWS_MAX = 100_000


class CallbackSink(Sink):
    """A sink that calls `fn(delivery)` with up to `batch_rows` rows at a time, in order, from one thread per task.

    When `fn` returns, its rows count as accepted. It should raise `causal.errors.Unavailable`, or one of the exceptions
    in `retried`, if it may be called again with the same delivery. It should raise `RowRefused(position, reason)`,
    without having accepted any row, if the row at that position will never be accepted. Any other exception ends the
    job.

    Each row is delivered at least once, and always with the same key (`delivery.keys`, `delivery.positions`). Rows take
    effect exactly once if `fn` ignores keys that it has seen, for example by storing the highest position of each task
    together with its effects. A row is delivered again only if a process died or was cut off after `fn` accepted the
    row but before the journal recorded this.

    Needs: nothing.
    Readers: what your function does with rows.
    Step: none: a journal records accepted rows.
    Fence: none: a zombie repeats rows with the same keys.
    Server: the service's promise.
    Power: `durability="os"` for the journal.
    Limits: after a kill a row may arrive again, with the same key: exactly once only where keys are honoured; rows
    cannot be withdrawn.

    Args:
        durability: "process", or "os", which writes the journal to disk before rows are sent; by default, the job's.
    """

    def __init__(
        self,
        fn: Callable[[Delivery], object],
        batch_rows: int = 500,
        retried: tuple[type[Exception], ...] = (ConnectionError, TimeoutError),
        durability: str | None = None,
    ) -> None:
        if not callable(fn):
            raise PipelineError(f"CallbackSink: {fn!r:.80} cannot be called; use a function of one argument")
        check_function("CallbackSink was given", fn, ("delivery",))
        check_range("CallbackSink", "batch_rows", batch_rows, 1, BATCH_ROWS_MAX)
        check_durability("CallbackSink", durability)
        self._fn = fn
        self._retried = retried
        self.batch_rows = batch_rows
        self.durability = durability

    def open_store(self, task: str, job_directory: Path) -> SinkStore:
        """Return the store of one sink task, with a journal in the job directory."""
        carry = partial(self._carry, task)
        sync = self.durability == "os"
        return OutwardStore(task, job_directory / DELIVERIES, carry, _nothing, self.batch_rows, sync)

    def _carry(self, task: str, delivery: Delivery) -> None:
        try:
            with public():
                self._fn(delivery)
        except CausalError:
            raise
        except self._retried as problem:
            raise Unavailable(described(problem)) from problem
        except Exception as problem:
            raise OperatorFailed(
                f"sink task {task}, positions {delivery.positions[0]} to {delivery.positions[-1]}: its function raised "
                f"{described(problem)}; correct the function, or let it raise RowRefused for a row that is never "
                "accepted, or Unavailable to be called again"
            ) from problem


def _nothing() -> None:
    """Do nothing, because a function has no resources to release."""
