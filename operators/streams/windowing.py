"""`window`: what the records of one stretch of time, or so many records, amount to."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from causal.errors import PipelineError
from operators import graph
from operators.streams.base import StreamBase, T, kind_of
from operators.windowing.aggregates import Aggregate
from operators.windowing.assigners import Assigned, Sliding, Tumbling

if TYPE_CHECKING:
    from operators.pipeline import Stream


def end_of(result: Any) -> Any:
    """The event time of `(key, value, start, end)`: a microsecond before the end of the window."""
    return result[3] - 1e-6


class Windowing(StreamBase[T]):
    """`window`."""

    def window(
        self,
        name: str,
        assigner: Assigned | float,
        contents: Aggregate[T, Any] | Callable[..., Any],
        parallelism: int | None = None,
        *,
        lateness_s: float = 0.0,
    ) -> Stream[Any]:
        """What the records of each window amount to, per key after key_by.

        An aggregate gives `(key, value, start, end)`, a function is given `(key, records, window)` and gives records;
        `start` and `end` are seconds, the end is not part of the window.

        Args:
            assigner: Tumbling, Sliding; or a number of seconds: tumbling windows of wall-clock time.
                On vectors such a number only, and `contents(batch, window)` gives a batch, once for all keys of a task.
            lateness_s: how long behind its end a window is kept; a record that comes meanwhile has it told again, a
                later one goes to `.side("late")`.
        """
        where = graph.caller()
        assigned = self._assigner(where, name, assigner)
        if not isinstance(contents, Aggregate):
            self._callable(where, f"window {name!r}", contents)
        if self._vectors and (isinstance(contents, Aggregate) or isinstance(assigner, (Tumbling, Sliding))):
            raise PipelineError(
                f"{where}: window {name!r} on vectors takes a number of seconds and a function of (batch, window); "
                "put .to_rows(name) before it for any other"
            )
        lateness_ns = self._seconds(where, f"window {name!r} has lateness_s", lateness_s, 0) // 1000 * 1000
        if lateness_ns and assigned.clock == "processing":
            raise PipelineError(f"{where}: lateness_s counts event time, window {name!r} uses the wall clock")
        time_of = end_of if assigned.clock == "event" and isinstance(contents, Aggregate) else None
        options = {"assigner": assigned, "lateness_ns": lateness_ns}
        return self._node(where, name, "window", contents, parallelism, time_of=time_of, **options)

    def _assigner(self, where: str, name: str, given: object) -> Tumbling | Sliding:
        if isinstance(given, (Tumbling, Sliding)):
            return given
        if isinstance(given, (int, float)):
            self._seconds(where, f"window {name!r} has size_s", given, 0.001)
            return Tumbling(given, clock="processing")
        raise PipelineError(f"{where}: window {name!r} is given {kind_of(given)}; give Tumbling(size_s)")
