"""Calls of the outside world, one per record and many at a time."""

from __future__ import annotations

from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, TypeVar, overload

from causal.errors import PipelineError
from operators import graph
from operators.streams.base import StreamBase, T, U

if TYPE_CHECKING:
    from operators.pipeline import Stream

A = TypeVar("A")
"""Type of the answers."""

CONCURRENCY_MAX = 1000
RETRIES_MAX = 100


class Asking(StreamBase[T]):
    """`call`."""

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
        """Asks the outside world with each record: gives `combine(record, answer)`, by default `(record, answer)`.

        `fn(record, idempotency_key)` runs in a thread of the worker, which goes on meanwhile.  A replay gets the same
        answers without asking.  Where the task died before anybody depended on the answer it is asked again, with the
        same key: 32 hexadecimal digits that name this record in this run.

        Args:
            fn: a plain function; what it gives is anything a record can be.  It may block.
            concurrency: calls of one task that run at the same time.
            order: "input": records go on in the order in which they came; "completion": as answers come.
            timeout_s: how long one try may take; one that takes longer goes on, unheard.
            retries: how often it is tried again when it raises or is late, first after `backoff_s`, then twice that …
        """
        where, what = graph.caller(), f"call {name!r}"
        self._callable(where, what, fn)
        if iscoroutinefunction(fn):
            raise PipelineError(
                f"{where}: {what} is given a coroutine function; give a plain function, it runs in a thread"
            )
        if combine is not None:
            self._callable(where, f"combine of {what}", combine)
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
