"""Checks of the arguments of `call`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from causal.errors import PipelineError
from operators.builder.arguments.basics import check_callable, seconds

CONCURRENCY_MAX = 1000
RETRIES_MAX = 100


def call_options(
    where: str,
    what: str,
    combine: Callable[[Any, Any], Any] | None,
    concurrency: int,
    order: str,
    timeout_s: float | None,
    retries: int,
    backoff_s: float,
) -> dict[str, Any]:
    """Return the options of a `call` operator."""
    if combine is not None:
        check_callable(where, f"combine of {what}", combine, ("record", "response"))
    if type(concurrency) is not int or not 1 <= concurrency <= CONCURRENCY_MAX:
        raise PipelineError(f"{where}: {what} has concurrency {concurrency!r}; use 1 to {CONCURRENCY_MAX}")
    if type(retries) is not int or not 0 <= retries <= RETRIES_MAX:
        raise PipelineError(f"{where}: {what} has retries {retries!r}; use 0 to {RETRIES_MAX}")
    if order not in ("input", "completion"):
        raise PipelineError(f'{where}: {what} has order {order!r}; use "input" or "completion"')
    seconds(where, f"{what} has backoff_s", backoff_s, 0)
    if timeout_s is not None:
        seconds(where, f"{what} has timeout_s", timeout_s, 0.001)
    return {
        "combine": combine or _together, "concurrency": concurrency, "order": order, "timeout_s": timeout_s,
        "retries": retries, "backoff_s": backoff_s,
    }  # fmt: skip


def _together(record: Any, answer: Any) -> Any:
    return (record, answer)
