"""`Table`: rows by key, whose changes are a stream of revisions (key, old, new)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from causal.errors import PipelineError
from operators import graph
from operators.builder.streams.stream_base import kind_of
from operators.graph import LEFT, RIGHT, Edge, Node
from operators.kinds.joins.sides import HOW, pair
from operators.kinds.tables.revisions import KEY_OF, end_of_window, kept
from operators.kinds.windows.aggregates import Aggregate

if TYPE_CHECKING:
    from operators.builder.pipeline import Pipeline
    from operators.builder.streams.stream import Stream

K = TypeVar("K")
"""Type of the keys."""
V = TypeVar("V")
"""Type of the values; None is no row."""
W = TypeVar("W")


_ROW = ("key", "value")
"""The parameters of a function of a row."""


class Table(Generic[K, V]):
    """Rows by key that records change; several operators may read them.

    The results of functions of `(key, value)` must depend on these arguments alone, because an old value is derived
    again when it is retracted. An upgrade may replace the functions: results of the old functions are retracted
    unchanged.

    Attributes:
        windowed: whether the keys are (key, start, end) of windows.
    """

    def __init__(self, stream: Stream[Any], windowed: bool = False) -> None:
        self._stream = stream
        self.windowed = windowed
        for edge in stream._edges:
            edge.source.table = True

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline of the table."""
        return self._stream.pipeline

    @property
    def _name(self) -> str:
        return self._stream._edges[0].source.name

    def filter(self, name: str, fn: Callable[[K, V], Any]) -> Table[K, V]:
        """Keep only rows for which `fn(key, value)` is true."""
        return self._derived(graph.caller(), name, "table_filter", "filter", fn)

    def map_values(self, name: str, fn: Callable[[K, V], W]) -> Table[K, W]:
        """Replace each value with `fn(key, value)`; None removes the row."""
        return self._derived(graph.caller(), name, "map_values", "map_values", fn)

    def group_by(self, name: str, fn: Callable[[K, V], W]) -> Grouped[W, V]:
        """Group rows with equal `fn(key, value)`, for `.aggregate(name, aggregate)`."""
        where = graph.caller()
        self._stream._callable(where, f"group_by {name!r}", fn, _ROW)
        return Grouped(self._stream._node(where, name, "group_by", fn, None, readers=[]))

    def join(
        self,
        name: str,
        other: Table[K, W],
        fn: Callable[[Any, Any], Any] | None = None,
        how: str = "inner",
        parallelism: int | None = None,
    ) -> Table[K, Any]:
        """Join two tables: the value of a key is `fn(left, right)`, where a missing side is None.

        State: the rows of both sides.

        Args:
            how: "inner": only keys that both tables have; "left", "right": all keys of that table; "outer": all keys of
                either table.
            fn: returns the value; without `fn` the value is `(left, right)`.
        """
        where = graph.caller()
        if not isinstance(other, Table):
            raise PipelineError(f"{where}: join {name!r} of a table is given {kind_of(other)}; give a table")
        if other.pipeline is not self.pipeline:
            raise PipelineError(f"{where}: join {name!r} is given a table of another pipeline")
        if how not in HOW:
            raise PipelineError(f"{where}: join {name!r} has how {how!r}; give one of {', '.join(map(repr, HOW))}")
        if fn is not None:
            self._stream._callable(where, f"join {name!r}", fn, ("left", "right"))
        edges = [*self.by_key(LEFT), *other.by_key(RIGHT)]
        if parallelism is None:
            parallelism = max(edge.source.parallelism for edge in edges)
        windowed = self.windowed and other.windowed
        joined = self._stream.pipeline._add(
            where, name, "table_join", fn or pair, parallelism, edges, how=how,
            time_of=end_of_window if windowed else None,
        )  # fmt: skip
        return Table(joined, windowed)

    def suppress(
        self,
        name: str,
        until: str | None = None,
        after_s: float | None = None,
        keys_max: int | None = None,
        parallelism: int | None = None,
    ) -> Table[K, V]:
        """Merge the revisions of a key into one, from the first old value to the last new one.

        State: revisions that wait.

        Which revisions are merged depends on when watermarks arrive; their combined effect does not.

        Args:
            until: "closed": emit a revision when the window of its key is closed, so that it is final. A window is
                closed when the watermark that the windowed table passes on, which is reduced by its grace, has passed
                its end.
            after_s: alternatively, emit a revision when event time has advanced by this much since the key was first
                held.
            keys_max: if more keys than this are held, emit those that are due first immediately.
        """
        where = graph.caller()
        what = f"suppress {name!r}"
        if (until is None) == (after_s is None):
            raise PipelineError(f'{where}: {what} needs until="closed" or after_s=, one of them')
        if until is not None and until != "closed":
            raise PipelineError(f'{where}: {what} has until {until!r}; give until="closed", or after_s=')
        if until is not None and not self.windowed:
            raise PipelineError(
                f"{where}: {what} waits for windows to close, but {self._name!r} has none; give after_s="
            )
        if keys_max is not None and (type(keys_max) is not int or keys_max < 1):
            raise PipelineError(f"{where}: {what} has keys_max {keys_max!r}; give a whole number from 1")
        after_ns = None if after_s is None else self._stream._seconds(where, f"{what} has after_s", after_s, 0.000001)
        stream = self._stream._stream(self.by_key(LEFT), where, "suppress")
        options = {"after_ns": after_ns, "keys_max": keys_max, "windowed": self.windowed}
        return Table(stream._node(where, name, "suppress", None, parallelism, **options), self.windowed)

    def revisions(self, name: str) -> Stream[tuple[K, V | None, V | None]]:
        """Return the revisions `(key, old, new)` as a stream; None means that there is no row."""
        return self._stream._node(graph.caller(), name, "revisions", None, None)

    def to_stream(self, name: str, fn: Callable[[K, V | None], W] | None = None) -> Stream[W]:
        """Return `fn(key, value)`, or `(key, value)`, for each new value, as a stream; a deleted row yields None."""
        where = graph.caller()
        if fn is not None:
            self._stream._callable(where, f"to_stream {name!r}", fn, _ROW)
        return self._stream._node(where, name, "to_stream", fn or pair, None)

    def side(self, tag: str) -> Stream[Any]:
        """Return a side output of the table's operator, such as "late" of a windowed table."""
        return self._stream.side(tag)

    def sink(self, name: str, *_: Any, **__: Any) -> NoReturn:
        """Refuse a sink, because sinks accept records, not revisions.

        Raises:
            PipelineError: always; the message names the fix.
        """
        raise PipelineError(
            f"{graph.caller()}: sink {name!r} reads table {self._name!r}; put .revisions(name) or .to_stream(name, fn) "
            "before it"
        )

    def _derived(self, where: str, name: str, kind: str, method: str, fn: Callable[..., Any]) -> Table[Any, Any]:
        self._stream._callable(where, f"{method} {name!r}", fn, _ROW)
        return Table(self._stream._node(where, name, kind, fn, None), self.windowed)

    @property
    def name(self) -> str:
        """The name of the operator that produces the table."""
        return self._name

    def versions(self, side: int) -> Versions | None:
        """Return the table's rows as records of its stream; None if a row depends on several records."""
        node = self._stream._edges[0].source
        chain: list[Node] = []
        while node.kind in ("table_filter", "map_values"):
            chain.append(node)
            node = node.edges[0].source
        if node.kind != "table":
            return None
        return Versions([replace(edge, side=side) for edge in node.edges], [*chain, node])

    def by_key(self, side: int) -> list[Edge]:
        """Return edges that route the table's revisions to the task that owns the key."""
        return [replace(edge, key_of=KEY_OF, side=side) for edge in self._stream._use()]


@dataclass(frozen=True)
class Versions:
    """The rows of a table, as the records of a keyed stream and the table's operators.

    Attributes:
        nodes: the operators from the last `filter` or `map_values` back to the `table` itself.
    """

    edges: list[Edge]
    nodes: list[Node]

    def taken(self) -> list[tuple[str, Callable[[Any, Any], Any]]]:
        """Record that the records are read instead of the table; return (name, row derivation) of each operator."""
        for node in self.nodes:
            node.options["versions_read"] = True
        return [
            (node.name, kept(node.subject) if node.kind == "table_filter" else node.subject)
            for node in reversed(self.nodes[:-1])
        ]


class Grouped(Generic[K, V]):
    """Rows of a table grouped under other keys; `.aggregate` returns a table of the groups."""

    def __init__(self, stream: Stream[Any]) -> None:
        self._stream = stream

    def aggregate(self, name: str, aggregate: Aggregate[V, Any], parallelism: int | None = None) -> Table[K, Any]:
        """Aggregate each group into a row: new values are added and old ones subtracted; an empty group has no row.

        State: the aggregate and the size of each group.
        """
        where = graph.caller()
        retracting = checked(where, f"aggregate {name!r}", aggregate).retracting()
        if retracting.subtract is None:
            raise PipelineError(
                f"{where}: aggregate {name!r} reads a table, so it must retract; give Aggregate(…, subtract=fn)"
            )
        edges = [replace(edge, key_of=KEY_OF) for edge in self._stream._use()]
        stream = self._stream._stream(edges, where, "group_by")
        rows = Table[K, Any](stream._node(where, name, "aggregate", retracting, parallelism))
        edges[0].source.options["readers"].append(name)
        return rows


def checked(where: str, what: str, aggregate: object) -> Aggregate[Any, Any]:
    """Return `aggregate` if it is an aggregate.

    Raises:
        PipelineError: it is not an aggregate.
    """
    if not isinstance(aggregate, Aggregate):
        fix = "give Count(), Sum(of) or another Aggregate"
        raise PipelineError(f"{where}: {what} is given {kind_of(aggregate)}; {fix}")
    return aggregate
