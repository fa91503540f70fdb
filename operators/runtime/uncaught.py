"""A worker's report about an uncaught exception that involves user code."""

from __future__ import annotations

from causal.errors import OperatorFailed
from operators.tracebacks import described, location, own_location


def reported(problem: BaseException, label: str) -> tuple[str, str, bool] | None:
    """Return the error, its line and whether it is definite; None for an exception of this runtime alone.

    Readers and stores depend on the outside, where a retry may succeed, so an exception raised in them is not definite.

    Args:
        label: the name of the task.
    """
    if isinstance(problem, Exception):
        where = own_location(problem)
        error, _, text = described(problem).partition(": ")
        return (error, f"{text} at {where}".lstrip(), False) if where else None
    at = f" at {location(problem)}" if location(problem) else ""
    did = "called exit()" if isinstance(problem, SystemExit) else f"raised {described(problem)}"
    line = f"{label}: user code {did}{at}; raise an Exception if a record is wrong"
    return OperatorFailed.__name__, line, True
