"""Aggregates, which keep an accumulator in place of the records of a window or of a table row.

They have the form of Flink's AggregateFunction and Beam's CombineFn; Kafka Streams calls `subtract` a subtractor.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Any, Generic, TypeVar

from causal.errors import PipelineError, invariant
from operators import graph
from operators.functions import check_function
from operators.records.arithmetic import checked, extreme, is_nan, same_spelling, settled, shifted, spelling, total_of
from operators.records.ownership import copy_containers

T = TypeVar("T")
"""The type of the records."""
A = TypeVar("A")
"""The type of the accumulator, which can be anything that a record can be."""

_NOTHING: Any = object()
_PARAMETERS = {
    "initial": (),
    "add": ("accumulated", "record"),
    "result": ("accumulated",),
    "merge": ("first", "second"),
    "subtract": ("accumulated", "record"),
}
"""The parameters of an aggregate's functions."""


class Aggregate(Generic[T, A]):
    """The functions that reduce records to a value.

    Attributes:
        initial: returns the accumulator for no records.
        add: returns the accumulator with one record added; it may change and return its argument.
        result: returns the result for an accumulator; if None, the accumulator itself is the result.
        merge: returns the combination of two accumulators, of which the first is the earlier; sessions require it.
        subtract: returns the accumulator with one record subtracted; operators that read a table require it.
        defined_at: file:line of the call that creates the aggregate.
    """

    def __init__(
        self,
        initial: Callable[[], A],
        add: Callable[[A, T], A],
        result: Callable[[A], Any] | None = None,
        merge: Callable[[A, A], A] | None = None,
        subtract: Callable[[A, T], A] | None = None,
    ) -> None:
        """Create an aggregate from these functions.

        Raises:
            PipelineError: one of the arguments is not a function.
        """
        self.defined_at = graph.caller()
        functions = {"initial": initial, "add": add, "result": result, "merge": merge, "subtract": subtract}
        for what, function in functions.items():
            if not callable(function) and (what in ("initial", "add") or function is not None):
                raise PipelineError(
                    f"{self.defined_at}: {what} of an aggregate is {function!r}, not a function; pass a function"
                )
            if function is not None:
                check_function(f"{self.defined_at}: {what} of an aggregate is", function, _PARAMETERS[what])
        self.initial = initial
        self.add = add
        self.result = result
        self.merge = merge
        self.subtract = subtract

    def retracting(self) -> Aggregate[T, Any]:
        """Return the form of this aggregate that has `subtract`, if there is one, for operators that read a table."""
        return self


class Reduce(Aggregate[T, T]):
    """The reduction of records by `fn(accumulated, record)`, starting with the first; `fn` must be associative."""

    def __init__(self, fn: Callable[[T, T], T]) -> None:
        _check(fn, "fn", "Reduce", _PARAMETERS["add"])

        def add(accumulated: T, record: T) -> T:
            return copy_containers(record) if accumulated is _NOTHING else fn(accumulated, record)

        super().__init__(lambda: _NOTHING, add, merge=fn)


class Count(Aggregate[Any, int]):
    """The number of records."""

    def __init__(self) -> None:
        super().__init__(
            int,
            lambda count, record: count + 1,
            merge=lambda first, second: first + second,
            subtract=lambda count, record: count - 1,
        )


class Sum(Aggregate[T, Any]):
    """The sum of `of(record)`, starting at 0; `operators.records.arithmetic` defines the treatment of NaN and zero."""

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
        """Return a sum with an exact total, on which a subtracted value has no lasting effect."""
        of = self._of
        return Aggregate(
            int,
            lambda total, record: shifted(total, of(record), 1),
            total_of,
            subtract=lambda total, record: shifted(total, of(record), -1),
        )


class Mean(Aggregate[T, Any]):
    """The mean of `of(record)`; None if there are no records."""

    def __init__(self, of: Callable[[T], Any]) -> None:
        _check(of, "of", "Mean")
        self._of = of
        super().__init__(
            lambda: (0, 0),
            lambda sums, record: (sums[0] + of(record), sums[1] + 1),
            lambda sums: settled(sums[0] / sums[1]) if sums[1] else None,
            lambda first, second: (first[0] + second[0], first[1] + second[1]),
            lambda sums, record: (sums[0] - of(record), sums[1] - 1),
        )

    def retracting(self) -> Aggregate[T, Any]:
        """Return a mean with an exact total, on which a subtracted value has no lasting effect."""
        of = self._of
        return Aggregate(
            lambda: (0, 0),
            lambda sums, record: (shifted(sums[0], of(record), 1), sums[1] + 1),
            lambda sums: settled(total_of(sums[0]) / sums[1]) if sums[1] else None,
            subtract=lambda sums, record: (shifted(sums[0], of(record), -1), sums[1] - 1),
        )


class _Extreme(Aggregate[T, Any]):
    """The least or greatest `of(record)`, or NaN if any value is NaN.

    Which of several equal values is the result does not depend on their order of arrival.

    A subclass defines `least`: whether the result is the least value.
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
        """Return an aggregate that keeps a sorted list of all values, so that the best value can be retracted.

        NaNs are first; equal values are sorted by their spellings.
        """
        of, least, name = self._of, self.least, type(self).__name__

        def add(values: list[Any], record: T) -> list[Any]:
            value = checked(of(record), name)
            values.insert(_place(values, value)[0], value)
            return values

        def subtract(values: list[Any], record: T) -> list[Any]:
            value = checked(of(record), name)
            place, known = _place(values, value)
            if not known:  # an older version of this package did not sort equal values
                place = next((at for at, other in enumerate(values) if other == value), len(values))
            invariant(place < len(values), "a value was added before it is retracted", value=value)
            del values[place]
            return values

        def result(values: list[Any]) -> Any:
            if not values or is_nan(values[0]):
                return values[0] if values else None
            if least or len(values) == 1 or values[-2] != values[-1]:
                return values[0 if least else -1]
            return values[bisect_left(values, values[-1])]  # the first of the equal values

        return Aggregate(list, add, result, subtract=subtract)


def _place(values: list[Any], value: Any) -> tuple[int, bool]:
    """Return the place of a value in the list of an `_Extreme`, and whether the list contains it in this spelling."""
    nans = sum(1 for _ in takewhile(is_nan, values))
    if is_nan(value):
        place = bisect_left(values, spelling(value), 0, nans, key=spelling)
        return place, place < nans and spelling(values[place]) == spelling(value)
    place = bisect_left(values, value, nans)
    if place == len(values) or values[place] != value:
        return place, False
    if same_spelling(values[place], value):
        last = bisect_right(values, value, place) - 1
        if same_spelling(values[last], value):
            return place, True
    last = bisect_right(values, value, place)
    place = bisect_left(values, spelling(value), place, last, key=spelling)
    return place, place < last and spelling(values[place]) == spelling(value)


class Min(_Extreme[T]):
    """The least `of(record)`; NaN if any value is NaN."""

    least = True


class Max(_Extreme[T]):
    """The greatest `of(record)`; NaN if any value is NaN."""

    least = False


def keeps_records(aggregate: Aggregate[Any, Any]) -> bool:
    """Return whether an accumulator may contain a record or a part of a record."""
    return not isinstance(aggregate, (Count, Sum, Mean, _Extreme))


def _check(fn: object, what: str, name: str, parameters: Sequence[str] = ("record",)) -> None:
    if not callable(fn):
        raise PipelineError(f"{graph.caller()}: {what} of {name} is {fn!r}, not a function; pass a function")
    check_function(f"{graph.caller()}: {what} of {name} is", fn, parameters)


def shown_aggregate(aggregate: Aggregate[Any, Any]) -> str:
    """Return an aggregate's name as errors show it; accumulators with different aggregate names are incompatible."""
    kinds = (kind.__name__ for kind in type(aggregate).__mro__ if kind.__module__ == __name__)
    return next(kinds)
