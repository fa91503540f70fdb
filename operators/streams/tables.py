"""Tables out of streams: the latest record of each key, or what its records amount to, for ever or per window."""

from __future__ import annotations

from typing import Any

from causal.errors import PipelineError
from operators import graph
from operators.streams.base import StreamBase, T, kind_of
from operators.streams.table import Table, checked
from operators.tables.revisions import end_of_window
from operators.windowing.aggregates import Aggregate
from operators.windowing.assigners import Sliding, Tumbling


class Tables(StreamBase[T]):
    """`table`, `aggregate_table`, `window_table`; all behind key_by."""

    def table(self, name: str, parallelism: int | None = None) -> Table[Any, T]:
        """The latest record of each key; a record None deletes its row."""
        return Table(self._node(graph.caller(), name, "table", None, parallelism))

    def aggregate_table(
        self, name: str, aggregate: Aggregate[T, Any], parallelism: int | None = None
    ) -> Table[Any, Any]:
        """What all records of each key amount to so far."""
        where = graph.caller()
        given = checked(where, f"aggregate_table {name!r}", aggregate)
        return Table(self._node(where, name, "aggregate_table", given, parallelism))

    def window_table(
        self,
        name: str,
        assigner: Tumbling | Sliding,
        aggregate: Aggregate[T, Any],
        grace_s: float = 0.0,
        parallelism: int | None = None,
    ) -> Table[Any, Any]:
        """What the records of each key amount to per window of event time: rows by `(key, start, end)`, in seconds.

        Each record that changes a row gives a revision at once.  Watermarks are not needed, only a time.

        Args:
            grace_s: how far behind stream time a record of a window that has ended may be; one further behind is
                counted and goes to `.side("late")`.  Stream time is the watermark, or without watermarks the largest
                time that the task was given so far.
        """
        where = graph.caller()
        told = f"window_table {name!r}"
        if not isinstance(assigner, (Tumbling, Sliding)):
            raise PipelineError(f"{where}: {told} is given {kind_of(assigner)}; give Tumbling(size_s) or Sliding")
        if assigner.clock != "event":
            raise PipelineError(f"{where}: {told} counts event time, its windows use the wall clock; use window")
        given = checked(where, told, aggregate)
        grace_ns = self._seconds(where, f"{told} has grace_s", grace_s, 0)
        made = self._node(
            where, name, "window_table", given, parallelism, time_of=end_of_window, assigner=assigner, grace_ns=grace_ns
        )
        return Table(made, windowed=True)
