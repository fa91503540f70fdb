"""Event time of records, watermarks, and side outputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from causal.errors import PipelineError
from operators import graph
from operators.builder.streams.stream_base import StreamBase, T, kind_of

if TYPE_CHECKING:
    from operators.builder.streams.stream import Stream
    from operators.kinds.eventtime.watermarks import WatermarkGenerator


class Timing(StreamBase[T]):
    """The methods `watermarks`, `timed` and `side`."""

    def watermarks(
        self,
        name: str,
        time: Callable[[T], Any],
        out_of_order_s: float = 0.0,
        idle_after_s: float | None = None,
        generator: Callable[[], WatermarkGenerator] | None = None,
    ) -> Stream[T]:
        """Define the event time of these records and generate watermarks.

        Logs with `idle_after_s`: `timer`: 8 times 2 to 5 bytes per period.
        State: the largest time per input.

        The watermark of an input is its largest event time so far minus `out_of_order_s`; the watermark of the stream
        is the minimum over its inputs. A watermark m states that no record with a time below m will arrive. Call this
        method once per stream, before `key_by`, and not on vectors.

        Args:
            time: `time(record)` returns seconds since 1970 (int, float) or a datetime (a naive one is UTC).
            out_of_order_s: how far a record may lag the largest event time without being late.
            idle_after_s: an input that has had no records for this long (at most twice as long) no longer holds the
                watermark back.
            generator: returns a generator for each input channel, as an alternative to `out_of_order_s`.
        """
        where = graph.caller()
        what = f"watermarks {name!r}"
        self._callable(where, f"time of {what}", time, ("record",))
        bound_ns = self._seconds(where, f"{what} has out_of_order_s", out_of_order_s, 0)
        idle_ns = None
        if idle_after_s is not None:
            idle_ns = self._seconds(where, f"{what} has idle_after_s", idle_after_s, 0.001)
        if generator is not None:
            self._callable(where, f"generator of {what}", generator, ())
            if not hasattr(generator, "on_batch") and isinstance(generator, type):
                raise PipelineError(
                    f"{where}: generator of {what} is {kind_of(generator)}; give a subclass of WatermarkGenerator"
                )
            if bound_ns:
                raise PipelineError(f"{where}: {what} has out_of_order_s and a generator; give one of them")
        options = {"bound_ns": bound_ns, "idle_ns": idle_ns, "generator": generator}
        return self._node(where, name, "watermarks", time, None, time_of=time, **options)

    def timed(self, time: Callable[[T], Any]) -> Self:
        """Define the event time of these records; the stream keeps its watermarks.

        The event time is lost after `map`, `flat_map`, `process` and `reduce`.
        """
        where = graph.caller()
        self._callable(where, "timed", time, ("record",))
        return self._stream([replace(edge, time_of=time) for edge in self._use()], where, "timed")

    def side(self, tag: str) -> Stream[Any]:
        """Return a side output of the operator: "late" of windows and joins, or any tag of `ctx.aside(tag, record)`.

        The main output of the operator remains readable; `pipeline.stream(name)` returns it again.
        """
        where = graph.caller()
        return self.pipeline._aside(where, self._use(), tag)
