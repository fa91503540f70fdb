"""Checks of the arguments of `process` and `broadcast`, which run user-defined operators with state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from causal.errors import PipelineError
from operators.builder.arguments.basics import check_bool, delivery_option, kind_of
from operators.builder.declarations import Outlet
from operators.functions import check_methods
from operators.graph import DELIVERIES, LEFT, RIGHT, SPECULATIVE
from operators.kinds.ordering.speculative import time_of_revision
from operators.stage.operator import Operator

_GIVING = {
    "process": ("record", "ctx"),
    "process_batch": ("records", "keys", "ctx"),
    "process_broadcast": ("record", "ctx"),
    "on_timer": ("name", "ctx"),
    "finish": ("ctx",),
}
"""The methods of an operator that return records, and the parameters of each method."""


def process_options(where: str, what: str, operator: object, delivery: str, state: str | None) -> dict[str, Any]:
    """Return the options of a `process` operator."""
    if state not in (None, "memory", "disk"):
        raise PipelineError(f"{where}: {what} has state {state!r}; use 'memory' or 'disk'")
    if isinstance(operator, type):
        raise PipelineError(f"{where}: {what} was given {kind_of(operator)}; pass {operator.__name__}()")
    if not isinstance(operator, Operator):
        raise PipelineError(
            f"{where}: {what} was given {kind_of(operator)}; pass an instance of a subclass of Operator"
        )
    if type(operator).process is Operator.process and not hasattr(operator, "process_batch"):
        raise PipelineError(
            f"{where}: {type(operator).__name__} has no method process; define process(self, record, ctx)"
        )
    _check_methods(f"{where}: {what}", operator)
    options = {"state": state, **delivery_option(where, what, delivery, DELIVERIES)}
    return {**options, "time_of": time_of_revision} if delivery == SPECULATIVE else options


def broadcast(
    where: str, name: str, operator: object, records: Outlet, rules: Outlet, wait: bool, parallelism: int | None
) -> Outlet:
    """Return the output of an operator whose tasks each receive all rules."""
    what = f"broadcast {name!r}"
    if not hasattr(operator, "process_broadcast") or isinstance(operator, type):
        raise PipelineError(f"{where}: {what} was given {kind_of(operator)}; pass an instance of a BroadcastOperator")
    _check_methods(f"{where}: {what}", operator)
    check_bool(where, f"{what} has wait", wait)
    left, right = records.consume(), rules.consume()
    if any(edge.key_of is not None for edge in right):
        raise PipelineError(
            f"{where}: the rules of {what} are keyed, but every task receives all rules; leave key_by out"
        )
    # An operator reads either all its inputs by key or none of them. Every task receives every rule, so it does not
    # matter which task owns the key of a rule.
    of_no_key = _no_key if any(edge.key_of is not None for edge in left) else None
    edges = [replace(edge, side=LEFT) for edge in left]
    edges += [replace(edge, side=RIGHT, broadcast=True, key_of=of_no_key) for edge in right]
    if parallelism is None:
        parallelism = max(edge.source.parallelism for edge in left)
    return records.feed(where, name, "broadcast", operator, parallelism, edges, wait=wait)


def _check_methods(what: str, operator: object) -> None:
    """Refuse an operator with an unsuitable `commutes` or with a method that is not a plain method."""
    commutes = getattr(operator, "commutes", False)
    if type(commutes) is not bool:
        raise PipelineError(f"{what}: {type(operator).__name__} has commutes = {commutes!r:.60}; use True or False")
    if commutes and getattr(type(operator), "on_timer", None) is not Operator.on_timer:
        raise PipelineError(
            f"{what}: {type(operator).__name__} has commutes = True and on_timer, but timers for the same time fire "
            "in the order in which they were set; remove commutes or on_timer"
        )
    check_methods(what, operator, {"open": ("ctx",)})
    check_methods(what, operator, _GIVING, generates=True)


def _no_key(rule: Any) -> None:
    """Return None, the key that all rules share."""
