"""`key_by` and operators that keep state, per key after it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, cast, overload

from causal.errors import PipelineError
from causal.values import NotCarried, encode
from operators import graph
from operators.accumulating import NO_INITIAL
from operators.graph import DELIVERIES, SPECULATIVE, ByColumn
from operators.operator import Operator
from operators.ordering.speculative import time_of_revision
from operators.streams.base import K, StreamBase, T, U, kind_of
from operators.streams.table import Table

if TYPE_CHECKING:
    from operators.context import Context
    from operators.pipeline import Stream
    from operators.typed import KeyedStream

T_contra = TypeVar("T_contra", contravariant=True)
U_co = TypeVar("U_co", covariant=True)


class Processes(Protocol[T_contra, U_co]):
    """An `Operator`, by the types of the records that it is given and gives."""

    def process(self, record: T_contra, ctx: Context, /) -> Iterable[U_co] | None:
        """What `Operator.process` does."""
        ...


class Keyed(StreamBase[T]):
    """`key_by`, `process`, `reduce`, `count`, `sum`, `min`, `max`."""

    @overload
    def key_by(self, fn: str) -> KeyedStream[Any, T]: ...

    @overload
    def key_by(self, fn: Callable[[T], K]) -> KeyedStream[K, T]: ...

    def key_by(self, fn: Callable[[T], K] | str) -> KeyedStream[K, T]:
        """Records with equal `fn(record)` go to the same task of the operator that follows, which keeps state per key.

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
        """An operator with state: per key after key_by, otherwise one state per task.

        Args:
            delivery: "arrival": in the order in which records come; "ordered": in that of their event times, whatever
                came when, in every run; what came too late for that goes to `.side("late")`.  "speculative": as they
                come, and those behind an older one again: gives a `Table`, whose revisions amount to the same.
            state: where its state is; by default where the job's setting `state` says.
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
        made: Stream[Any] = self._node(where, name, "process", operator, parallelism, state=state, **options)
        return Table(made) if delivery == SPECULATIVE else made

    def reduce(
        self,
        name: str,
        fn: Callable[[Any, T], Any],
        initial: Any = NO_INITIAL,
        parallelism: int | None = None,
        delivery: str = "arrival",
    ) -> Stream[Any]:
        """After key_by: emits `(key, accumulated)` for each record, accumulated being `fn(accumulated, record)`.

        A key begins with a copy of `initial`, or with `initial()` if it can be called (`initial=list`).  Without
        `initial`, the first record of a key is accumulated as it is.  `delivery` as for `process`.
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
        """After key_by: emits `(key, n)` for each record, n being how many records of its key have come.

        `delivery` as for `process`.
        """
        where = graph.caller()
        return self._node(where, name, "count", None, parallelism, **self._delivery(where, f"count {name!r}", delivery))

    def sum(self, name: str, column: str, parallelism: int | None = None) -> Stream[Any]:
        """On vectors, after key_by: for each row its key and the `sum` of the column in the rows of its key so far."""
        return self._fold("sum", name, column, parallelism)

    def min(self, name: str, column: str, parallelism: int | None = None) -> Stream[Any]:
        """The same with the smallest, `min`."""
        return self._fold("min", name, column, parallelism)

    def max(self, name: str, column: str, parallelism: int | None = None) -> Stream[Any]:
        """The same with the largest, `max`."""
        return self._fold("max", name, column, parallelism)

    def _fold(self, kind: str, name: str, column: str, parallelism: int | None) -> Stream[Any]:
        where = graph.caller()
        if not isinstance(column, str):
            raise PipelineError(f"{where}: {kind} {name!r} is given {kind_of(column)}; give the name of a column")
        return self._node(where, name, kind, column, parallelism)
