"""User-defined operators with state: `process`, and `broadcast`, whose rules reach all tasks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, overload

from causal.errors import PipelineError
from operators import graph
from operators.builder.streams.stream_base import StreamBase, T, U, kind_of
from operators.builder.streams.table import Table
from operators.functions import check_methods
from operators.graph import DELIVERIES, LEFT, RIGHT, SPECULATIVE
from operators.kinds.ordering.speculative import time_of_revision
from operators.stage.operator import Operator

if TYPE_CHECKING:
    from operators.builder.streams.stream import Stream
    from operators.stage.context import Context

T_contra = TypeVar("T_contra", contravariant=True)
U_co = TypeVar("U_co", covariant=True)

_GIVING = {
    "process": ("record", "ctx"),
    "process_batch": ("records", "keys", "ctx"),
    "process_broadcast": ("record", "ctx"),
    "on_timer": ("name", "ctx"),
    "finish": ("ctx",),
}
"""The methods of an operator that return records, and their parameters."""


class Processes(Protocol[T_contra, U_co]):
    """An `Operator`, typed by its input and output records."""

    def process(self, record: T_contra, ctx: Context, /) -> Iterable[U_co] | None:
        """See `Operator.process`."""
        ...


class Processing(StreamBase[T]):
    """The methods `process` and `broadcast`."""

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
        state: Literal["memory", "disk"] | None = None,
    ) -> Table[Any, U]: ...

    @overload
    def process(
        self,
        name: str,
        operator: Processes[T, U],
        parallelism: int | None = None,
        delivery: str = "arrival",
        state: Literal["memory", "disk"] | None = None,
    ) -> Any: ...

    def process(
        self,
        name: str,
        operator: Any,
        parallelism: int | None = None,
        delivery: str = "arrival",
        state: Literal["memory", "disk"] | None = None,
    ) -> Any:
        """Run an operator with state, which it keeps per key after key_by and otherwise per task.

        Logs: every answer of `ctx`.
        State: `ctx.state` per key, or per task without `key_by`; declared states; timers.

        Args:
            delivery: "arrival": in the order of arrival; "ordered": in the order of event times, which is the same in
                every run; records that arrive too late for that order go to `.side("late")`. "speculative": in the
                order of arrival, and again after an older record arrives; this returns a `Table` whose final rows equal
                those of "ordered".
            state: where the operator's state is kept; by default as the setting `state` of the job specifies.
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
        _check_methods(f"{where}: process {name!r}", operator)
        options: dict[str, Any] = self._delivery(where, f"process {name!r}", delivery, DELIVERIES)
        if delivery == SPECULATIVE:
            options["time_of"] = time_of_revision
        output: Stream[Any] = self._node(where, name, "process", operator, parallelism, state=state, **options)
        return Table(output) if delivery == SPECULATIVE else output

    def broadcast(
        self, name: str, rules: Stream[Any], operator: Operator, wait: bool = False, parallelism: int | None = None
    ) -> Stream[Any]:
        """Run an operator with state, as `process` does; each of its tasks also receives all records of `rules`.

        Logs: every answer of `ctx`.
        State: as `process`; the rules, in every task.

        Args:
            operator: a `BroadcastOperator`: its `process(record, ctx)` reads the dict `ctx.broadcast`, which its
                `process_broadcast(record, ctx)` changes.
            wait: hold all records until the rules have ended; the rules must then be bounded.
        """
        where = graph.caller()
        what = f"broadcast {name!r}"
        if not isinstance(rules, StreamBase) or rules.pipeline is not self.pipeline:
            raise PipelineError(f"{where}: the rules of {what} are {kind_of(rules)}; give a stream of this pipeline")
        if not hasattr(operator, "process_broadcast") or isinstance(operator, type):
            raise PipelineError(
                f"{where}: {what} is given {kind_of(operator)}; give an instance of a BroadcastOperator"
            )
        _check_methods(f"{where}: {what}", operator)
        if type(wait) is not bool:
            raise PipelineError(f"{where}: {what} has wait {wait!r}; give True or False")
        left, right = self._use(), rules._use()
        if any(edge.key_of is not None for edge in right):
            raise PipelineError(f"{where}: the rules of {what} are keyed, but every task gets all; leave key_by out")
        # An operator reads either all its inputs by key or none; it does not matter which task owns the key of a rule.
        of_no_key = _no_key if any(edge.key_of is not None for edge in left) else None
        edges = [replace(edge, side=LEFT) for edge in left]
        edges += [replace(edge, side=RIGHT, broadcast=True, key_of=of_no_key) for edge in right]
        if parallelism is None:
            parallelism = max(edge.source.parallelism for edge in left)
        return self.pipeline._add(where, name, "broadcast", operator, parallelism, edges, wait=wait)


def _check_methods(what: str, operator: object) -> None:
    """Refuse an operator if one of its methods is not a plain method."""
    commutes = getattr(operator, "commutes", False)
    if type(commutes) is not bool:
        raise PipelineError(f"{what}: {type(operator).__name__} has commutes = {commutes!r:.60}; give True or False")
    if commutes and getattr(type(operator), "on_timer", None) is not Operator.on_timer:
        raise PipelineError(
            f"{what}: {type(operator).__name__} has commutes = True and on_timer, and timers of one time fire in the "
            "order in which they were set; leave one of them out"
        )
    check_methods(what, operator, {"open": ("ctx",)})
    check_methods(what, operator, _GIVING, generates=True)


def _no_key(rule: Any) -> None:
    """Return None, the common key of all rules."""
