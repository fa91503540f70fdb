"""A worker's report on an uncaught exception that involves user code."""

from __future__ import annotations

from causal.errors import OperatorFailed
from operators.tracebacks import described, location, own_location


def reported(problem: BaseException, label: str) -> tuple[str, str, bool] | None:
    """Return (error, message, whether it is definite), or None if only code of this runtime is involved.

    An exception in a reader or store is not definite: readers and stores depend on the outside, so a retry may succeed.

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
