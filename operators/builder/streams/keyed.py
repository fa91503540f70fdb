"""`key_by` and operators that keep state, per key after it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, cast, overload

from causal.errors import PipelineError
from causal.records.values import NotCarried, encode
from operators import graph
from operators.builder.streams.stream_base import K, StreamBase, T, U, kind_of
from operators.builder.streams.table import Table
from operators.graph import DELIVERIES, SPECULATIVE, ByColumn
from operators.kinds.ordering.speculative import time_of_revision
from operators.kinds.process.accumulating import NO_INITIAL
from operators.stage.operator import Operator

if TYPE_CHECKING:
    from operators.builder.pipeline import Stream
    from operators.builder.typed import KeyedStream
    from operators.stage.context import Context

T_contra = TypeVar("T_contra", contravariant=True)
U_co = TypeVar("U_co", covariant=True)


class Processes(Protocol[T_contra, U_co]):
    """An `Operator`, by the types of its input and output records."""

    def process(self, record: T_contra, ctx: Context, /) -> Iterable[U_co] | None:
        """See `Operator.process`."""
        ...


class Keyed(StreamBase[T]):
    """The methods `key_by`, `process`, `reduce`, `count`, `sum`, `min` and `max`."""

    @overload
    def key_by(self, fn: str) -> KeyedStream[Any, T]: ...

    @overload
    def key_by(self, fn: Callable[[T], K]) -> KeyedStream[K, T]: ...

    def key_by(self, fn: Callable[[T], K] | str) -> KeyedStream[K, T]:
        """Routes records with equal `fn(record)` to the same task of the next operator, which keeps state per key.

        `fn` is called on both sides of the channel, so it must depend on the record alone.  A key is a str, bytes,
        int, float, bool, None, datetime, Decimal or a tuple of these.  On vectors, the name of a column instead.
        """
        where = graph.caller()
        if self._vectors and not isinstance(fn, str):
            raise PipelineError(f"{where}: key_by on vectors is given {kind_of(fn)}; give the name of a column")
        by: Any = ByColumn(fn) if self._vectors and isinstance(fn, str) else fn
        self._callable(where, "key_by", by)
        keyed = self._stream([replace(edge, key_of=by) for edge in self._use()], where, "key_by")
        return cast("KeyedStream[K, T]", keyed)

    @overload
    def process(
        self,
        name: str,
        operator: Processes[T, U],
        parallelism: int | None = None,
        delivery: Literal["arrival", "ordered"] = "arrival",
        state: Literal["memory", "disk"] | None = None,
    ) -> Stream[U]: ...

    @overload
    def process(
        self,
        name: str,
        operator: Processes[T, U],
        parallelism: int | None = None,
        *,
        delivery: Literal["speculative"],
    ) -> Table[Any, U]: ...

    @overload
    def process(
        self, name: str, operator: Processes[T, U], parallelism: int | None = None, delivery: str = "arrival"
    ) -> Any: ...

    def process(
        self,
        name: str,
        operator: Any,
        parallelism: int | None = None,
        delivery: str = "arrival",
        state: Literal["memory", "disk"] | None = None,
    ) -> Any:
        """Runs an operator with state: per key after key_by, otherwise one state per task.

        Args:
            delivery: "arrival": in the order of arrival; "ordered": in the order of event times, the same in every
                run; records that are too late for that go to `.side("late")`.  "speculative": in the order of arrival,
                and again after an older record; returns a `Table`, whose final rows are those of "ordered".
            state: where its state is; by default the setting `state` of the job.
        """
        where = graph.caller()
        if state not in (None, "memory", "disk"):
            raise PipelineError(f"{where}: process {name!r} has state {state!r}; give 'memory' or 'disk'")
        if isinstance(operator, type):
            raise PipelineError(f"{where}: process {name!r} is given {kind_of(operator)}; give {operator.__name__}()")
        if not isinstance(operator, Operator):
            raise PipelineError(
                f"{where}: process {name!r} is given {kind_of(operator)}; give an instance of a subclass of Operator"
            )
        if type(operator).process is Operator.process and not hasattr(operator, "process_batch"):
            raise PipelineError(f"{where}: {type(operator).__name__} has no process; define process(self, record, ctx)")
        options: dict[str, Any] = self._delivery(where, f"process {name!r}", delivery, DELIVERIES)
        if delivery == SPECULATIVE:
            options["time_of"] = time_of_revision
        output: Stream[Any] = self._node(where, name, "process", operator, parallelism, state=state, **options)
        return Table(output) if delivery == SPECULATIVE else output

    def reduce(
        self,
        name: str,
        fn: Callable[[Any, T], Any],
        initial: Any = NO_INITIAL,
        parallelism: int | None = None,
        delivery: str = "arrival",
    ) -> Stream[Any]:
        """Emits `(key, accumulated)` for each record after key_by, accumulated being `fn(accumulated, record)`.

        A key begins with a copy of `initial`, or with `initial()` if it can be called (`initial=list`).  Without
        `initial`, the first record of a key is its first accumulated value.  `delivery` as for `process`.
        """
        where = graph.caller()
        self._callable(where, f"reduce {name!r}", fn)
        if initial is not NO_INITIAL and not callable(initial):
            try:
                encode(initial)
            except NotCarried as problem:
                raise PipelineError(f"{where}: initial of reduce {name!r}: {problem}") from None
        options = self._delivery(where, f"reduce {name!r}", delivery)
        return self._node(where, name, "reduce", fn, parallelism, initial=initial, **options)

    def count(self, name: str, parallelism: int | None = None, delivery: str = "arrival") -> Stream[Any]:
        """Emits `(key, n)` for each record after key_by, n being the number of records of its key so far.

        `delivery` as for `process`.
        """
        where = graph.caller()
        return self._node(where, name, "count", None, parallelism, **self._delivery(where, f"count {name!r}", delivery))

    def sum(self, name: str, column: str, parallelism: int | None = None) -> Stream[Any]:
        """Emits for each row of vectors after key_by its key and the `sum` of a column over that key so far."""
        return self._fold("sum", name, column, parallelism)

    def min(self, name: str, column: str, parallelism: int | None = None) -> Stream[Any]:
        """Emits the smallest value, `min`, as `sum` does the sum."""
        return self._fold("min", name, column, parallelism)

    def max(self, name: str, column: str, parallelism: int | None = None) -> Stream[Any]:
        """Emits the largest value, `max`, as `sum` does the sum."""
        return self._fold("max", name, column, parallelism)

    def _fold(self, kind: str, name: str, column: str, parallelism: int | None) -> Stream[Any]:
        where = graph.caller()
        if not isinstance(column, str):
            raise PipelineError(f"{where}: {kind} {name!r} is given {kind_of(column)}; give the name of a column")
        return self._node(where, name, kind, column, parallelism)
