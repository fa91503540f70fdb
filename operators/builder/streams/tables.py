"""Tables from streams: the latest record of each key, or an aggregate of its records, in total or per window."""

from __future__ import annotations

from typing import Any, Generic

from causal.errors import PipelineError
from operators import graph
from operators.builder.streams.stream_base import K, StreamBase, T, kind_of
from operators.builder.streams.table import Table, checked
from operators.kinds.tables.revisions import end_of_window
from operators.kinds.windows.aggregates import Aggregate
from operators.kinds.windows.assigners import Sliding, Tumbling


class Tables(StreamBase[T], Generic[K, T]):
    """The methods `table`, `aggregate_table` and `window_table`."""

    def table(self, name: str, parallelism: int | None = None) -> Table[K, T]:
        """Return a table of the latest record of each key; a record that is None deletes its row.

        State: the value per key.
        """
        return Table(self._node(graph.caller(), name, "table", None, parallelism))

    def aggregate_table(self, name: str, aggregate: Aggregate[T, Any], parallelism: int | None = None) -> Table[K, Any]:
        """Return a table of an aggregate of all records of each key so far.

        State: the aggregate per key.
        """
        where = graph.caller()
        known = checked(where, f"aggregate_table {name!r}", aggregate)
        return Table(self._node(where, name, "aggregate_table", known, parallelism))

    def window_table(
        self,
        name: str,
        assigner: Tumbling | Sliding,
        aggregate: Aggregate[T, Any],
        grace_s: float = 0.0,
        parallelism: int | None = None,
    ) -> Table[tuple[K, float, float], Any]:
        """Return the aggregates per key and window of event time as rows keyed by `(key, start, end)`, in seconds.

        State: open windows.

        Each record that changes a row immediately emits a revision. This needs event time, but no watermarks.

        Args:
            assigner: `Tumbling` or `Sliding` windows of event time.
            grace_s: how far a record of an ended window may lag stream time. A record that lags further is counted as
                late and goes to `.side("late")`. Stream time is the watermark or, without watermarks, the largest event
                time that the task has seen so far.
        """
        where = graph.caller()
        what = f"window_table {name!r}"
        if not isinstance(assigner, (Tumbling, Sliding)):
            raise PipelineError(f"{where}: {what} is given {kind_of(assigner)}; give Tumbling(size_s) or Sliding")
        if assigner.clock != "event":
            raise PipelineError(f"{where}: {what} counts event time, its windows use the wall clock; use window")
        known = checked(where, what, aggregate)
        grace_ns = self._seconds(where, f"{what} has grace_s", grace_s, 0)
        output = self._node(
            where, name, "window_table", known, parallelism, time_of=end_of_window, assigner=assigner, grace_ns=grace_ns
        )
        return Table(output, windowed=True)
