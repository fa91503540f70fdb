"""Checks that many methods share: for functions, seconds, delivery modes, aggregates and windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from causal.errors import PipelineError
from causal.records.values import NotCarried, encode
from operators.functions import PLAIN, check_function
from operators.graph import ARRIVAL, ORDERED
from operators.kinds.process.accumulating import NO_INITIAL
from operators.kinds.windows.aggregates import Aggregate
from operators.kinds.windows.assigners import Session, Sliding, Tumbling
from operators.records.seconds import ns_of_seconds


def kind_of(value: object) -> str:
    """Describe an argument for an error message."""
    return f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"


def check_callable(
    where: str, what: str, fn: object, parameters: Sequence[str], generates: bool = False, fix: str = PLAIN
) -> None:
    """Refuse anything but a plain function with these parameters (see `check_function`)."""
    if not callable(fn):
        raise PipelineError(f"{where}: {what} was given {kind_of(fn)}; pass a function")
    check_function(f"{where}: {what} was given", fn, parameters, generates, fix)


def check_bool(where: str, what: str, value: object) -> None:
    """Refuse any value other than True and False.

    Args:
        what: for example "join 'j' has wait".
    """
    if type(value) is not bool:
        raise PipelineError(f"{where}: {what} {value!r}; use True or False")


def seconds(where: str, what: str, value: object, least: float) -> int:
    """Convert `value` from seconds to nanoseconds.

    Args:
        what: for example "window 'w' has size_s".
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= 1e9:
        raise PipelineError(f"{where}: {what} {value!r}; use seconds, at least {least:g}")
    return ns_of_seconds(value)


def delivery_option(where: str, what: str, delivery: str, known: Sequence[str] = (ARRIVAL, ORDERED)) -> dict[str, Any]:
    """Return the `delivery` option of an operator; return no option if records are delivered in the order of arrival.

    Args:
        what: for example "process 'p'".
    """
    if delivery not in known:
        choices = " or ".join(f'"{each}"' for each in known)
        raise PipelineError(f"{where}: {what} has delivery {delivery!r}; use {choices}")
    return {} if delivery == ARRIVAL else {"delivery": delivery}


def check_initial(where: str, what: str, initial: object) -> None:
    """Refuse an initial value of a fold that is neither a valid record nor a function that returns one."""
    if callable(initial):
        check_callable(where, what, initial, ())
    elif initial is not NO_INITIAL:
        try:
            encode(initial)
        except NotCarried as problem:
            raise PipelineError(f"{where}: {what}: {problem}") from None


def checked_aggregate(where: str, what: str, aggregate: object) -> Aggregate[Any, Any]:
    """Return `aggregate` if it is an `Aggregate`.

    Raises:
        PipelineError: `aggregate` is something else.
    """
    if not isinstance(aggregate, Aggregate):
        fix = "use Count(), Sum(of) or another Aggregate"
        raise PipelineError(f"{where}: {what} was given {kind_of(aggregate)}; {fix}")
    return aggregate


def check_event_windows(where: str, what: str, assigner: object, instead: str = "", sessions: bool = False) -> None:
    """Refuse all windows other than tumbling and sliding event-time windows.

    Args:
        instead: the remedy to suggest for wall-clock windows.
        sessions: whether sessions are also accepted.
    """
    if not isinstance(assigner, (Tumbling, Sliding, Session) if sessions else (Tumbling, Sliding)):
        kinds = "Tumbling(size_s), Sliding or Session" if sessions else "Tumbling(size_s) or Sliding"
        raise PipelineError(f"{where}: {what} was given {kind_of(assigner)}; pass {kinds}")
    if assigner.clock != "event":
        raise PipelineError(f"{where}: {what} uses event time, but its windows use the wall clock{instead}")
