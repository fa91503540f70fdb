"""What is kept of the records of a window, or of a row of a table: an accumulator instead of the records.

The form is that of Flink's AggregateFunction and Beam's CombineFn; `subtract` is what Kafka Streams calls a subtractor.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from causal.errors import PipelineError, invariant
from operators import graph
from operators.ownership import own

T = TypeVar("T")
"""Type of the records."""
A = TypeVar("A")
"""Type of the accumulator: anything that a record may be."""

_NOTHING: Any = object()


class Aggregate(Generic[T, A]):
    """How records amount to a value.

    Attributes:
        initial: makes the accumulator of no records.
        add: the accumulator with one record more; it may change and return the one that it is given.
        result: what is told of an accumulator; None: the accumulator itself.
        merge: one accumulator of two, of which the first is the earlier; sessions need it.
        subtract: the accumulator with one record less; what reads a table needs it.
    """

    def __init__(
        self,
        initial: Callable[[], A],
        add: Callable[[A, T], A],
        result: Callable[[A], Any] | None = None,
        merge: Callable[[A, A], A] | None = None,
        subtract: Callable[[A, T], A] | None = None,
    ) -> None:
        """
        Raises:
            PipelineError: one of them is no function.
        """
        for what, given, needed in [
            ("initial", initial, True), ("add", add, True), ("result", result, False), ("merge", merge, False),
            ("subtract", subtract, False),
        ]:  # fmt: skip
            if not callable(given) and (needed or given is not None):
                raise PipelineError(f"{graph.caller()}: {what} of an aggregate is {given!r}; give a function")
        self.initial = initial
        self.add = add
        self.result = result
        self.merge = merge
        self.subtract = subtract

    def retracting(self) -> Aggregate[T, Any]:
        """The same with `subtract`, where there is such a form: what reads a table asks for it."""
        return self


class Reduce(Aggregate[T, T]):
    """`fn(accumulated, record)`, beginning with the first record; `fn` must not mind how the records are grouped."""

    def __init__(self, fn: Callable[[T, T], T]) -> None:
        _check(fn, "fn", "Reduce")

        def add(accumulated: T, record: T) -> T:
            return own(record) if accumulated is _NOTHING else fn(accumulated, record)

        super().__init__(lambda: _NOTHING, add, merge=fn)


class Count(Aggregate[Any, int]):
    """How many records."""

    def __init__(self) -> None:
        super().__init__(
            int,
            lambda count, record: count + 1,
            merge=lambda first, second: first + second,
            subtract=lambda count, record: count - 1,
        )


class Sum(Aggregate[T, Any]):
    """The sum of `of(record)`, from 0."""

    def __init__(self, of: Callable[[T], Any]) -> None:
        _check(of, "of", "Sum")
        super().__init__(
            int,
            lambda total, record: total + of(record),
            merge=lambda first, second: first + second,
            subtract=lambda total, record: total - of(record),
        )


class Mean(Aggregate[T, Any]):
    """The mean of `of(record)`; None of no records."""

    def __init__(self, of: Callable[[T], Any]) -> None:
        _check(of, "of", "Mean")
        super().__init__(
            lambda: (0, 0),
            lambda held, record: (held[0] + of(record), held[1] + 1),
            lambda held: held[0] / held[1] if held[1] else None,
            lambda first, second: (first[0] + second[0], first[1] + second[1]),
            lambda held, record: (held[0] - of(record), held[1] - 1),
        )


class _Extreme(Aggregate[T, Any]):
    """The first or last of `of(record)`."""

    def __init__(self, of: Callable[[T], Any], name: str, choose: Callable[[Any, Any], Any], place: int) -> None:
        _check(of, "of", name)
        self._of = of
        self._place = place

        def add(best: Any, record: T) -> Any:
            value = of(record)
            return value if best is _NOTHING else choose(best, value)

        super().__init__(lambda: _NOTHING, add, merge=choose)

    def retracting(self) -> Aggregate[T, Any]:
        """The same on a sorted list of all values, so that the best but one is there when the best is retracted."""
        of, place = self._of, self._place

        def add(held: list[Any], record: T) -> list[Any]:
            insort(held, of(record))
            return held

        def subtract(held: list[Any], record: T) -> list[Any]:
            value = of(record)
            found = bisect_left(held, value)
            invariant(found < len(held) and held[found] == value, "what is retracted was added", value=value)
            del held[found]
            return held

        return Aggregate(
            list,
            add,
            lambda held: held[place] if held else None,
            lambda first, second: sorted([*first, *second]),
            subtract,
        )


class Min(_Extreme[T]):
    """The least `of(record)`."""

    def __init__(self, of: Callable[[T], Any]) -> None:
        super().__init__(of, "Min", min, 0)


class Max(_Extreme[T]):
    """The greatest `of(record)`."""

    def __init__(self, of: Callable[[T], Any]) -> None:
        super().__init__(of, "Max", max, -1)


def _check(fn: object, what: str, name: str) -> None:
    if not callable(fn):
        raise PipelineError(f"{graph.caller()}: {what} of {name} is {fn!r}; give a function")
