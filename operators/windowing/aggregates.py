"""What is kept of the records of a window, or of a row of a table: an accumulator instead of the records.

The form is that of Flink's AggregateFunction and Beam's CombineFn; `subtract` is what Kafka Streams calls a subtractor.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from itertools import takewhile
from typing import Any, Generic, TypeVar

from causal.errors import PipelineError, invariant
from operators import graph
from operators.arithmetic import checked, extreme, is_nan, same_spelling, settled, shifted, spelling, total_of
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
    """The sum of `of(record)`, from 0; NaN and zero as `operators.arithmetic` says."""

    def __init__(self, of: Callable[[T], Any]) -> None:
        _check(of, "of", "Sum")
        self._of = of
        super().__init__(
            int,
            lambda total, record: total + of(record),
            settled,
            merge=lambda first, second: first + second,
            subtract=lambda total, record: total - of(record),
        )

    def retracting(self) -> Aggregate[T, Any]:
        """The same on a total from which NaN and infinities can be taken back."""
        of = self._of
        return Aggregate(
            int,
            lambda total, record: shifted(total, of(record), 1),
            total_of,
            subtract=lambda total, record: shifted(total, of(record), -1),
        )


class Mean(Aggregate[T, Any]):
    """The mean of `of(record)`; None of no records."""

    def __init__(self, of: Callable[[T], Any]) -> None:
        _check(of, "of", "Mean")
        self._of = of
        super().__init__(
            lambda: (0, 0),
            lambda held, record: (held[0] + of(record), held[1] + 1),
            lambda held: settled(held[0] / held[1]) if held[1] else None,
            lambda first, second: (first[0] + second[0], first[1] + second[1]),
            lambda held, record: (held[0] - of(record), held[1] - 1),
        )

    def retracting(self) -> Aggregate[T, Any]:
        """The same on a total from which NaN and infinities can be taken back."""
        of = self._of
        return Aggregate(
            lambda: (0, 0),
            lambda held, record: (shifted(held[0], of(record), 1), held[1] + 1),
            lambda held: settled(total_of(held[0]) / held[1]) if held[1] else None,
            subtract=lambda held, record: (shifted(held[0], of(record), -1), held[1] - 1),
        )


class _Extreme(Aggregate[T, Any]):
    """The least or greatest `of(record)`; NaN if one of them is, and of equal values one that does not depend on order.

    Attributes of a subclass: `least`, whether it is the least.
    """

    least = True

    def __init__(self, of: Callable[[T], Any]) -> None:
        name, least = type(self).__name__, self.least
        _check(of, "of", name)
        self._of = of

        def add(best: Any, record: T) -> Any:
            value = checked(of(record), name)
            return value if best is _NOTHING else extreme(best, value, least)

        super().__init__(lambda: _NOTHING, add, merge=lambda first, second: extreme(first, second, least))

    def retracting(self) -> Aggregate[T, Any]:
        """The same on a sorted list of all values, so that the best but one is there when the best is retracted.

        NaN stand first, equal values in the order of their spellings.
        """
        of, least, name = self._of, self.least, type(self).__name__

        def add(held: list[Any], record: T) -> list[Any]:
            value = checked(of(record), name)
            held.insert(_place(held, value)[0], value)
            return held

        def subtract(held: list[Any], record: T) -> list[Any]:
            value = checked(of(record), name)
            place, found = _place(held, value)
            if not found:  # an older version did not put equal values in order
                place = next((at for at, other in enumerate(held) if other == value), len(held))
            invariant(place < len(held), "what is retracted was added", value=value)
            del held[place]
            return held

        def result(held: list[Any]) -> Any:
            if not held or is_nan(held[0]):
                return held[0] if held else None
            if least or len(held) == 1 or held[-2] != held[-1]:
                return held[0 if least else -1]
            return held[bisect_left(held, held[-1])]  # of equal ones the first

        return Aggregate(list, add, result, subtract=subtract)


def _place(held: list[Any], value: Any) -> tuple[int, bool]:
    """Where a value stands, or would stand, in the list of an `_Extreme`; whether it is there, written like this."""
    nans = sum(1 for _ in takewhile(is_nan, held))
    if is_nan(value):
        place = bisect_left(held, spelling(value), 0, nans, key=spelling)
        return place, place < nans and spelling(held[place]) == spelling(value)
    place = bisect_left(held, value, nans)
    if place == len(held) or held[place] != value:
        return place, False
    if same_spelling(held[place], value):
        last = bisect_right(held, value, place) - 1
        if same_spelling(held[last], value):
            return place, True
    last = bisect_right(held, value, place)
    place = bisect_left(held, spelling(value), place, last, key=spelling)
    return place, place < last and spelling(held[place]) == spelling(value)


class Min(_Extreme[T]):
    """The least `of(record)`; NaN if one of them is NaN."""

    least = True


class Max(_Extreme[T]):
    """The greatest `of(record)`; NaN if one of them is NaN."""

    least = False


def keeps_records(aggregate: Aggregate[Any, Any]) -> bool:
    """Whether an accumulator may hold a record, or a part of one."""
    return not isinstance(aggregate, (Count, Sum, Mean, _Extreme))


def _check(fn: object, what: str, name: str) -> None:
    if not callable(fn):
        raise PipelineError(f"{graph.caller()}: {what} of {name} is {fn!r}; give a function")
