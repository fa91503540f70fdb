"""Calls to the outside world: one per record, with several outstanding at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, overload

from causal.errors import PipelineError
from operators import graph
from operators.builder.streams.stream_base import StreamBase, T, U

if TYPE_CHECKING:
    from operators.builder.streams.stream import Stream

A = TypeVar("A")
"""Type of the responses."""

CONCURRENCY_MAX = 1000
RETRIES_MAX = 100


class Asking(StreamBase[T]):
    """The method `call`."""

    @overload
    def call(
        self,
        name: str,
        fn: Callable[[T, str], A],
        *,
        combine: None = None,
        concurrency: int = 64,
        order: str = "input",
        timeout_s: float | None = None,
        retries: int = 0,
        backoff_s: float = 0.1,
        parallelism: int | None = None,
    ) -> Stream[tuple[T, A]]: ...

    @overload
    def call(
        self,
        name: str,
        fn: Callable[[T, str], A],
        *,
        combine: Callable[[T, A], U],
        concurrency: int = 64,
        order: str = "input",
        timeout_s: float | None = None,
        retries: int = 0,
        backoff_s: float = 0.1,
        parallelism: int | None = None,
    ) -> Stream[U]: ...

    def call(
        self,
        name: str,
        fn: Callable[[T, str], Any],
        *,
        combine: Callable[[T, Any], Any] | None = None,
        concurrency: int = 64,
        order: str = "input",
        timeout_s: float | None = None,
        retries: int = 0,
        backoff_s: float = 0.1,
        parallelism: int | None = None,
    ) -> Stream[Any]:
        """Call the outside world for each record; the result is `combine(record, response)`, by default the pair.

        Logs: `answer`: 4 bytes and the response, per record.
        State: requests without a response.

        `fn(record, idempotency_key)` runs in a thread of the worker, which continues in the meantime. A replay uses the
        same responses without calling `fn`. If the task dies before anything depends on the response, the call is
        repeated with the same key: 32 hexadecimal digits that identify this record in this run.

        Args:
            fn: a plain function, which may block; it returns anything that can be a record.
            concurrency: the number of calls that one task runs at the same time.
            order: "input": emit records in the order of their arrival; "completion": in the order of their responses.
            timeout_s: the time limit of one attempt; an attempt that exceeds it keeps running, but its response is
                ignored.
            retries: the number of retries after an exception or a timeout; the first waits `backoff_s`, each later one
                twice as long as the one before.
        """
        where, what = graph.caller(), f"call {name!r}"
        self._callable(where, what, fn, ("record", "key"), fix="give a plain function, it runs in a thread")
        if combine is not None:
            self._callable(where, f"combine of {what}", combine, ("record", "response"))
        if type(concurrency) is not int or not 1 <= concurrency <= CONCURRENCY_MAX:
            raise PipelineError(f"{where}: {what} has concurrency {concurrency!r}; give 1 to {CONCURRENCY_MAX}")
        if type(retries) is not int or not 0 <= retries <= RETRIES_MAX:
            raise PipelineError(f"{where}: {what} has retries {retries!r}; give 0 to {RETRIES_MAX}")
        if order not in ("input", "completion"):
            raise PipelineError(f'{where}: {what} has order {order!r}; give "input" or "completion"')
        self._seconds(where, f"{what} has backoff_s", backoff_s, 0)
        if timeout_s is not None:
            self._seconds(where, f"{what} has timeout_s", timeout_s, 0.001)
        return self._node(
            where, name, "call", fn, parallelism, combine=combine or _together, concurrency=concurrency, order=order,
            timeout_s=timeout_s, retries=retries, backoff_s=backoff_s,
        )  # fmt: skip


def _together(record: Any, answer: Any) -> Any:
    return (record, answer)
