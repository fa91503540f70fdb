"""Checks of the arguments of `watermarks`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from causal.errors import PipelineError
from operators.builder.arguments.basics import check_callable, kind_of, seconds


def watermark_options(
    where: str,
    what: str,
    time: Callable[[Any], Any],
    out_of_order_s: float,
    idle_after_s: float | None,
    generator: Callable[[], Any] | None,
) -> dict[str, Any]:
    """Return the options of a `watermarks` operator."""
    check_callable(where, f"time of {what}", time, ("record",))
    bound_ns = seconds(where, f"{what} has out_of_order_s", out_of_order_s, 0)
    idle_ns = None
    if idle_after_s is not None:
        idle_ns = seconds(where, f"{what} has idle_after_s", idle_after_s, 0.001)
    if generator is not None:
        check_callable(where, f"generator of {what}", generator, ())
        if not hasattr(generator, "on_batch") and isinstance(generator, type):
            raise PipelineError(
                f"{where}: generator of {what} is {kind_of(generator)}; use a subclass of WatermarkGenerator"
            )
        if bound_ns:
            raise PipelineError(f"{where}: {what} has out_of_order_s and a generator; pass only one of them")
    return {"time_of": time, "bound_ns": bound_ns, "idle_ns": idle_ns, "generator": generator}
