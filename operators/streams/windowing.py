"""`window`: what records of one stretch of time amount to."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from operators import graph
from operators.streams.base import StreamBase, T

if TYPE_CHECKING:
    from operators.pipeline import Stream


class Windowing(StreamBase[T]):
    """`window`."""

    def window(self, name: str, size_s: float, fn: Callable[..., Any], parallelism: int | None = None) -> Stream[Any]:
        """Tumbling windows of wall-clock time, per key after key_by: `fn(key, records, window)` gives records.

        On vectors `fn(batch, window)` gives a batch, once for all keys of the task.  `window.start` and `window.end`
        are in seconds, multiples of `size_s`.
        """
        where = graph.caller()
        self._callable(where, f"window {name!r}", fn)
        size_ns = self._seconds(where, f"window {name!r} has size_s", size_s, 0.001)
        return self._node(where, name, "window", fn, parallelism, size_ns=size_ns)
