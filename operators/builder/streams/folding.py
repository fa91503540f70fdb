"""Operators that fold the records of each key into one value: `reduce`, `count`, and sums and extremes of vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from causal.errors import PipelineError
from causal.records.values import NotCarried, encode
from operators import graph
from operators.builder.streams.stream_base import K, StreamBase, T, kind_of
from operators.kinds.process.accumulating import NO_INITIAL

if TYPE_CHECKING:
    from operators.builder.streams.stream import Stream

A = TypeVar("A")
"""Type of the accumulated value."""


class Folding(StreamBase[T], Generic[K, T]):
    """The methods `reduce`, `count`, `sum`, `min` and `max`."""

    @overload
    def reduce(
        self, name: str, fn: Callable[[T, T], T], *, parallelism: int | None = None, delivery: str = "arrival"
    ) -> Stream[tuple[K, T]]: ...

    @overload
    def reduce(
        self,
        name: str,
        fn: Callable[[A, T], A],
        initial: Callable[[], A],
        parallelism: int | None = None,
        delivery: str = "arrival",
    ) -> Stream[tuple[K, A]]: ...

    @overload
    def reduce(
        self,
        name: str,
        fn: Callable[[A, T], A],
        initial: A,
        parallelism: int | None = None,
        delivery: str = "arrival",
    ) -> Stream[tuple[K, A]]: ...

    def reduce(
        self,
        name: str,
        fn: Callable[[Any, T], Any],
        initial: Any = NO_INITIAL,
        parallelism: int | None = None,
        delivery: str = "arrival",
    ) -> Stream[Any]:
        """Emit `(key, accumulated)` for each record after key_by, where accumulated is `fn(accumulated, record)`.

        State: the accumulated value per key.

        The accumulated value of a key starts as a copy of `initial`, or as `initial()` if `initial` is callable
        (`initial=list`). Without `initial`, it starts as the first record of the key. `delivery` is as for `process`.
        """
        where = graph.caller()
        self._callable(where, f"reduce {name!r}", fn, ("accumulated", "record"))
        if callable(initial):
            self._callable(where, f"initial of reduce {name!r}", initial, ())
        elif initial is not NO_INITIAL:
            try:
                encode(initial)
            except NotCarried as problem:
                raise PipelineError(f"{where}: initial of reduce {name!r}: {problem}") from None
        options = self._delivery(where, f"reduce {name!r}", delivery)
        return self._node(where, name, "reduce", fn, parallelism, initial=initial, **options)

    def count(self, name: str, parallelism: int | None = None, delivery: str = "arrival") -> Stream[tuple[K, int]]:
        """Emit `(key, n)` for each record after key_by, where n is the number of records of its key so far.

        State: n per key.

        `delivery` is as for `process`.
        """
        where = graph.caller()
        return self._node(where, name, "count", None, parallelism, **self._delivery(where, f"count {name!r}", delivery))

    def sum(self, name: str, column: str, parallelism: int | None = None) -> Stream[Any]:
        """Emit, for each row of vectors after key_by, its key and the `sum` of a column over that key so far."""
        return self._fold("sum", name, column, parallelism)

    def min(self, name: str, column: str, parallelism: int | None = None) -> Stream[Any]:
        """Emit the smallest value so far, in the same way as `sum`."""
        return self._fold("min", name, column, parallelism)

    def max(self, name: str, column: str, parallelism: int | None = None) -> Stream[Any]:
        """Emit the largest value so far, in the same way as `sum`."""
        return self._fold("max", name, column, parallelism)

    def _fold(self, kind: str, name: str, column: str, parallelism: int | None) -> Stream[Any]:
        where = graph.caller()
        if not isinstance(column, str):
            raise PipelineError(f"{where}: {kind} {name!r} is given {kind_of(column)}; give the name of a column")
        return self._node(where, name, kind, column, parallelism)
