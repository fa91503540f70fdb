"""`Table`: rows by key, whose changes are a stream of revisions (key, old, new)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from causal.errors import PipelineError
from operators import graph
from operators.graph import Edge, Node
from operators.joins.sides import HOW, LEFT, RIGHT, pair
from operators.streams.base import kind_of
from operators.tables.revisions import KEY_OF, end_of_window, kept
from operators.windowing.aggregates import Aggregate

if TYPE_CHECKING:
    from operators.pipeline import Pipeline, Stream

K = TypeVar("K")
"""Type of the keys."""
V = TypeVar("V")
"""Type of the values; None is no row."""
W = TypeVar("W")


class Table(Generic[K, V]):
    """Rows by key that change as records come; may be used more than once.

    Functions are given `(key, value)`, and must depend on these alone: an old value is derived anew when it is taken
    back.

    Attributes:
        windowed: whether its keys are (key, start, end) of windows.
    """

    def __init__(self, stream: Stream[Any], windowed: bool = False) -> None:
        self._stream = stream
        self.windowed = windowed
        for edge in stream._edges:
            edge.source.table = True

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline that it is part of."""
        return self._stream.pipeline

    @property
    def _name(self) -> str:
        return self._stream._edges[0].source.name

    def filter(self, name: str, fn: Callable[[K, V], Any]) -> Table[K, V]:
        """Only rows for which `fn(key, value)` is true."""
        return self._derived(graph.caller(), name, "table_filter", "filter", fn)

    def map_values(self, name: str, fn: Callable[[K, V], W]) -> Table[K, W]:
        """`fn(key, value)` in the place of each value; None is no row."""
        return self._derived(graph.caller(), name, "map_values", "map_values", fn)

    def group_by(self, name: str, fn: Callable[[K, V], W]) -> Grouped[W, V]:
        """Rows with equal `fn(key, value)` together, for `.aggregate(name, aggregate)`."""
        where = graph.caller()
        self._stream._callable(where, f"group_by {name!r}", fn)
        return Grouped(self._stream._node(where, name, "group_by", fn, None))

    def join(
        self,
        name: str,
        other: Table[K, W],
        fn: Callable[[Any, Any], Any] | None = None,
        how: str = "inner",
        parallelism: int | None = None,
    ) -> Table[K, Any]:
        """`fn(left, right)` for each key that both tables have; a side that is missing is None.

        Args:
            how: "left", "right", "outer": also for keys that only that side, or either, has.
            fn: gives the value; without it `(left, right)`.
        """
        where = graph.caller()
        if not isinstance(other, Table):
            raise PipelineError(f"{where}: join {name!r} of a table is given {kind_of(other)}; give a table")
        if other.pipeline is not self.pipeline:
            raise PipelineError(f"{where}: join {name!r} is given a table of another pipeline")
        if how not in HOW:
            raise PipelineError(f"{where}: join {name!r} has how {how!r}; give one of {', '.join(map(repr, HOW))}")
        if fn is not None:
            self._stream._callable(where, f"join {name!r}", fn)
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
        """Fewer revisions: those of one key are folded into one, from the first old value to the last new one.

        Args:
            until: "closed": sent when the window of the key is closed, so that it is final: its end is behind the
                watermark that the windowed table passes on, which is less its grace.
            after_s: instead: sent when event time has moved on by so much since the key was first held.
            keys_max: with more keys than this, those that are due first are sent at once.
        """
        where = graph.caller()
        told = f"suppress {name!r}"
        if (until is None) == (after_s is None):
            raise PipelineError(f'{where}: {told} needs until="closed" or after_s=, one of them')
        if until is not None and until != "closed":
            raise PipelineError(f'{where}: {told} has until {until!r}; give until="closed", or after_s=')
        if until is not None and not self.windowed:
            raise PipelineError(
                f"{where}: {told} waits for windows to close, but {self._name!r} has none; give after_s="
            )
        if keys_max is not None and (type(keys_max) is not int or keys_max < 1):
            raise PipelineError(f"{where}: {told} has keys_max {keys_max!r}; give a whole number from 1")
        after_ns = None if after_s is None else self._stream._seconds(where, f"{told} has after_s", after_s, 0.000001)
        stream = self._stream._stream(self.by_key(LEFT), where, "suppress")
        options = {"after_ns": after_ns, "keys_max": keys_max, "windowed": self.windowed}
        return Table(stream._node(where, name, "suppress", None, parallelism, **options), self.windowed)

    def revisions(self, name: str) -> Stream[tuple[K, V | None, V | None]]:
        """The revisions `(key, old, new)` as a stream; None is no row."""
        return self._stream._node(graph.caller(), name, "revisions", None, None)

    def to_stream(self, name: str, fn: Callable[[K, V | None], W] | None = None) -> Stream[W]:
        """`fn(key, value)` of each new value as a stream, value None where the row is gone; else `(key, value)`."""
        where = graph.caller()
        if fn is not None:
            self._stream._callable(where, f"to_stream {name!r}", fn)
        return self._stream._node(where, name, "to_stream", fn or pair, None)

    def side(self, tag: str) -> Stream[Any]:
        """What the table's operator put aside: "late" of a windowed table."""
        return self._stream.side(tag)

    def sink(self, name: str, *_: Any, **__: Any) -> NoReturn:
        """A sink takes records, not revisions.

        Raises:
            PipelineError: always; with the mend.
        """
        raise PipelineError(
            f"{graph.caller()}: sink {name!r} reads table {self._name!r}; put .revisions(name) or .to_stream(name, fn) "
            "before it"
        )

    def _derived(self, where: str, name: str, kind: str, told: str, fn: Callable[..., Any]) -> Table[Any, Any]:
        self._stream._callable(where, f"{told} {name!r}", fn)
        return Table(self._stream._node(where, name, kind, fn, None), self.windowed)

    @property
    def name(self) -> str:
        """The name of the operator that makes it."""
        return self._name

    def versions(self, side: int) -> Versions | None:
        """Its rows as records of the stream that it is made of; None where each row is made of several."""
        node = self._stream._edges[0].source
        chain: list[Node] = []
        while node.kind in ("table_filter", "map_values"):
            chain.append(node)
            node = node.edges[0].source
        if node.kind != "table":
            return None
        return Versions([replace(edge, side=side) for edge in node.edges], [*chain, node])

    def by_key(self, side: int) -> list[Edge]:
        """Edges on which each of its revisions goes to the task that owns its key, for an operator that reads it."""
        return [replace(edge, key_of=KEY_OF, side=side) for edge in self._stream._use()]


@dataclass(frozen=True)
class Versions:
    """The rows of a table as what they are made of: records of a stream, keyed, and the table's operators.

    Attributes:
        nodes: from the last `filter` or `map_values` to the `table` itself.
    """

    edges: list[Edge]
    nodes: list[Node]

    def taken(self) -> list[tuple[str, Callable[[Any, Any], Any]]]:
        """Somebody reads the records instead of the table: (name, what makes a row out of another), first one first."""
        for node in self.nodes:
            node.options["versions_read"] = True
        return [
            (node.name, kept(node.subject) if node.kind == "table_filter" else node.subject)
            for node in reversed(self.nodes[:-1])
        ]


class Grouped(Generic[K, V]):
    """Rows of a table under other keys; `.aggregate` makes a table of them."""

    def __init__(self, stream: Stream[Any]) -> None:
        self._stream = stream

    def aggregate(self, name: str, aggregate: Aggregate[V, Any], parallelism: int | None = None) -> Table[K, Any]:
        """A row per group: new values are added, old ones subtracted; a group without values has no row."""
        where = graph.caller()
        given = checked(where, f"aggregate {name!r}", aggregate).retracting()
        if given.subtract is None:
            raise PipelineError(
                f"{where}: aggregate {name!r} reads a table, so it must retract; give Aggregate(…, subtract=fn)"
            )
        edges = [replace(edge, key_of=KEY_OF) for edge in self._stream._use()]
        stream = self._stream._stream(edges, where, "group_by")
        return Table(stream._node(where, name, "aggregate", given, parallelism))


def checked(where: str, told: str, aggregate: object) -> Aggregate[Any, Any]:
    """What somebody gave, when it is an aggregate.

    Raises:
        PipelineError: it is not.
    """
    if not isinstance(aggregate, Aggregate):
        mend = "give Count(), Sum(of) or another Aggregate"
        raise PipelineError(f"{where}: {told} is given {kind_of(aggregate)}; {mend}")
    return aggregate
