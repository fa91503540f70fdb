"""Joins of streams with streams, and with tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from causal.errors import PipelineError
from operators import graph
from operators.builder.streams.stream_base import K, StreamBase, T, U, kind_of
from operators.builder.streams.table import Table
from operators.graph import LEFT, RIGHT, Edge
from operators.kinds.joins.sides import HOW, pair
from operators.kinds.windows.assigners import Sliding, Tumbling
from operators.records.seconds import ns_of_seconds, seconds_of
from operators.stage.event_times import ns_of

if TYPE_CHECKING:
    from operators.builder.streams.stream import KeyedStream, Stream

R = TypeVar("R")
"""Type of the records that a join emits."""

_FARTHEST_S = 1e9


class Joining(StreamBase[T], Generic[K, T]):
    """The methods `join`, `window_join` and `join_table`."""

    @overload
    def join(
        self,
        name: str,
        other: KeyedStream[K, U],
        within: tuple[float, float],
        how: Literal["inner"] = "inner",
        fn: None = None,
        parallelism: int | None = None,
    ) -> Stream[tuple[T, U]]: ...

    @overload
    def join(
        self,
        name: str,
        other: KeyedStream[K, U],
        within: tuple[float, float],
        how: Literal["inner"] = "inner",
        *,
        fn: Callable[[T, U], R],
        parallelism: int | None = None,
    ) -> Stream[R]: ...

    @overload
    def join(
        self,
        name: str,
        other: KeyedStream[K, U],
        within: tuple[float, float],
        how: Literal["left"],
        fn: Callable[[T, U | None], R],
        parallelism: int | None = None,
    ) -> Stream[R]: ...

    @overload
    def join(
        self,
        name: str,
        other: KeyedStream[K, U],
        within: tuple[float, float],
        how: Literal["right"],
        fn: Callable[[T | None, U], R],
        parallelism: int | None = None,
    ) -> Stream[R]: ...

    @overload
    def join(
        self,
        name: str,
        other: KeyedStream[K, U],
        within: tuple[float, float],
        how: Literal["outer"],
        fn: Callable[[T | None, U | None], R],
        parallelism: int | None = None,
    ) -> Stream[R]: ...

    @overload
    def join(
        self,
        name: str,
        other: KeyedStream[K, U],
        within: tuple[float, float],
        how: Literal["left", "right", "outer"],
        fn: None = None,
        parallelism: int | None = None,
    ) -> Stream[tuple[T | None, U | None]]: ...

    def join(
        self,
        name: str,
        other: Stream[Any],
        within: tuple[float, float] | None = None,
        how: str = "inner",
        fn: Callable[[Any, Any], Any] | None = None,
        parallelism: int | None = None,
    ) -> Stream[Any]:
        """Join pairs of records of this stream (left) and another (right) that have equal keys and nearby event times.

        State: records that may still be joined.

        Each pair is emitted once, when the later of its records is delivered. Late records go to `.side("late")`.

        Args:
            within: (before_s, after_s): the right record's time must be between `before_s` and `after_s` seconds after
                the left record's time; (-5, 60) means from 5 s before it to 60 s after it.
            how: "left": a left record without a partner results in `fn(left, None)` once the watermark shows that no
                partner will arrive; "right" and "outer" likewise; "inner": no result.
            fn: `fn(left, right)` returns a record; without `fn` the result is `(left, right)`, whose event time is the
                later of the two.
        """
        where = graph.caller()
        what = f"join {name!r}"
        edges = self._sides(where, what, other)
        if within is None:
            raise PipelineError(
                f"{where}: {what} needs within=(before_s, after_s): without it records would be kept forever; "
                "for a table use join_table"
            )
        within_ns = _within(where, what, within)
        times = (_one_time(edges, LEFT), _one_time(edges, RIGHT))
        return self._joined(
            where,
            name,
            "join",
            fn,
            parallelism,
            edges,
            how,
            within_ns=within_ns,
            time_of=None if fn else _later(*times),
        )

    @overload
    def window_join(
        self,
        name: str,
        other: KeyedStream[K, U],
        assigner: Tumbling | Sliding,
        how: Literal["inner"] = "inner",
        fn: None = None,
        parallelism: int | None = None,
    ) -> Stream[tuple[T, U]]: ...

    @overload
    def window_join(
        self,
        name: str,
        other: KeyedStream[K, U],
        assigner: Tumbling | Sliding,
        how: Literal["inner"] = "inner",
        *,
        fn: Callable[[T, U], R],
        parallelism: int | None = None,
    ) -> Stream[R]: ...

    @overload
    def window_join(
        self,
        name: str,
        other: KeyedStream[K, U],
        assigner: Tumbling | Sliding,
        how: Literal["left", "right", "outer"],
        fn: Callable[[T | None, U | None], R],
        parallelism: int | None = None,
    ) -> Stream[R]: ...

    @overload
    def window_join(
        self,
        name: str,
        other: KeyedStream[K, U],
        assigner: Tumbling | Sliding,
        how: Literal["left", "right", "outer"],
        fn: None = None,
        parallelism: int | None = None,
    ) -> Stream[tuple[T | None, U | None]]: ...

    def window_join(
        self,
        name: str,
        other: Stream[Any],
        assigner: Tumbling | Sliding,
        how: str = "inner",
        fn: Callable[[Any, Any], Any] | None = None,
        parallelism: int | None = None,
    ) -> Stream[Any]:
        """Join pairs of records of this stream (left) and another (right) with equal keys in one window of event time.

        State: both sides of open windows.

        The pairs are emitted when the watermark reaches the end of the window. Records whose windows have all ended go
        to `.side("late")`.

        Args:
            how: "left": left records of a window without any right record result in `fn(left, None)`; "right" and
                "outer" likewise.
            fn: as in `join`.
        """
        where = graph.caller()
        what = f"window_join {name!r}"
        if not isinstance(assigner, (Tumbling, Sliding)):
            raise PipelineError(f"{where}: {what} is given {kind_of(assigner)}; give Tumbling(size_s) or Sliding")
        if assigner.clock != "event":
            raise PipelineError(f"{where}: {what} counts event time; its windows use the wall clock")
        edges = self._sides(where, what, other)
        time_of = None if fn else _later(_one_time(edges, LEFT), _one_time(edges, RIGHT))
        return self._joined(where, name, "window_join", fn, parallelism, edges, how, assigner=assigner, time_of=time_of)

    @overload
    def join_table(
        self,
        name: str,
        table: Table[K, U],
        fn: None = None,
        how: Literal["inner"] = "inner",
        wait: bool = False,
        parallelism: int | None = None,
        as_of: bool = False,
    ) -> Stream[tuple[T, U]]: ...

    @overload
    def join_table(
        self,
        name: str,
        table: Table[K, U],
        fn: Callable[[T, U], R],
        how: Literal["inner"] = "inner",
        wait: bool = False,
        parallelism: int | None = None,
        as_of: bool = False,
    ) -> Stream[R]: ...

    @overload
    def join_table(
        self,
        name: str,
        table: Table[K, U],
        fn: Callable[[T, U | None], R],
        how: Literal["left"],
        wait: bool = False,
        parallelism: int | None = None,
        as_of: bool = False,
    ) -> Stream[R]: ...

    @overload
    def join_table(
        self,
        name: str,
        table: Table[K, U],
        fn: None = None,
        *,
        how: Literal["left"],
        wait: bool = False,
        parallelism: int | None = None,
        as_of: bool = False,
    ) -> Stream[tuple[T, U | None]]: ...

    def join_table(
        self,
        name: str,
        table: Table[Any, Any],
        fn: Callable[[Any, Any], Any] | None = None,
        how: str = "inner",
        wait: bool = False,
        parallelism: int | None = None,
        as_of: bool = False,
    ) -> Stream[Any]:
        """Join each record with the row that the table contains for its key when the record is delivered.

        State: rows; records that wait; versions with `as_of`.

        With `as_of`, each record is joined with the row that was valid at its event time: the row of the latest record
        of the table's stream that is not later. Late records then go to `.side("late")`; a late row is valid from the
        current watermark on.

        Args:
            fn: `fn(record, row)` returns a record; without `fn` the result is `(record, row)`, with the event time of
                the record.
            how: "inner": a record without a row has no result; "left": its result is `fn(record, None)`.
            wait: hold each record until the inputs of the table have ended. If the event times of records and rows are
                known and both streams have watermarks, this is the same as `as_of`.
            as_of: join by event time; the table must be `stream.key_by(fn).table(name)`, optionally followed by
                `filter` and `map_values`, and both streams must have watermarks.
        """
        where = graph.caller()
        what = f"join_table {name!r}"
        if not isinstance(table, Table):
            raise PipelineError(
                f"{where}: {what} is given {kind_of(table)}; give a table: stream.key_by(fn).table(name)"
            )
        if table.pipeline is not self.pipeline:
            raise PipelineError(f"{where}: {what} is given a table of another pipeline")
        if how not in ("inner", "left"):
            raise PipelineError(f"{where}: {what} has how {how!r}; give 'inner' or 'left'")
        for option, value in (("wait", wait), ("as_of", as_of)):
            if type(value) is not bool:
                raise PipelineError(f"{where}: {what} has {option} {value!r}; give True or False")
        left = [replace(edge, side=LEFT) for edge in self._use()]
        time_of = None if fn else _first(_one_time(left, LEFT))
        versions = table.versions(RIGHT) if wait or as_of else None
        if as_of and versions is None:
            raise PipelineError(
                f"{where}: {what} joins as of the time of each record, but when the rows of table {table.name!r} "
                "became valid is not known; give stream.key_by(fn).table(name), with .filter or .map_values after it"
            )
        timed = versions is not None and all(map(_dated, (left, versions.edges)))
        if versions is None or not (as_of or timed):
            edges, options = left + table.by_key(RIGHT), dict[str, Any](as_of=False)
        else:
            edges, options = left + versions.edges, dict[str, Any](as_of=True, derivations=versions.taken())
        return self._joined(
            where, name, "join_table", fn, parallelism, edges, how, wait=wait, time_of=time_of, **options
        )

    def _sides(self, where: str, what: str, other: object) -> list[Edge]:
        """Return the edges of both sides, each marked with its side."""
        if not isinstance(other, StreamBase):
            raise PipelineError(f"{where}: {what} is given {kind_of(other)}; give a stream, or use join_table")
        if other.pipeline is not self.pipeline:
            raise PipelineError(f"{where}: {what} is given a stream of another pipeline")
        left = [replace(edge, side=LEFT) for edge in self._use()]
        right = [replace(edge, side=RIGHT) for edge in other._use()]
        keyed = [all(edge.key_of is not None for edge in edges) for edges in (left, right)]
        if not all(keyed):
            names = [
                f"its {side} side is {'' if by else 'not '}keyed" for side, by in zip(HOW[1:], keyed, strict=False)
            ]
            raise PipelineError(f"{where}: {what}: {', '.join(names)}; put .key_by(fn) before both")
        return left + right

    def _joined(
        self,
        where: str,
        name: str,
        kind: str,
        fn: Callable[[Any, Any], Any] | None,
        parallelism: int | None,
        edges: list[Edge],
        how: str,
        **options: Any,
    ) -> Stream[Any]:
        """Return the output of an operator that reads two sides."""
        if fn is not None:
            parameters = ("record", "row") if kind == "join_table" else ("left", "right")
            self._callable(where, f"{kind} {name!r}", fn, parameters)
        if how not in HOW:
            raise PipelineError(f"{where}: {kind} {name!r} has how {how!r}; give one of {', '.join(map(repr, HOW))}")
        if parallelism is None:
            parallelism = max(edge.source.parallelism for edge in edges)
        return self.pipeline._add(where, name, kind, fn or pair, parallelism, edges, how=how, **options)


def _within(where: str, what: str, within: object) -> tuple[int, int]:
    """Return the interval in ns, rounded to the microsecond."""
    bounds = within if isinstance(within, (tuple, list)) else ()
    if len(bounds) != 2 or not all(_is_seconds(bound) for bound in bounds):
        raise PipelineError(f"{where}: {what} has within {within!r}; give (before_s, after_s) in seconds")
    if bounds[0] > bounds[1]:
        raise PipelineError(
            f"{where}: {what}: within {tuple(bounds)!r} holds nothing; give (before_s, after_s), before ≤ after"
        )
    return ns_of_seconds(bounds[0]), ns_of_seconds(bounds[1])


def _is_seconds(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -_FARTHEST_S <= value <= _FARTHEST_S


def _dated(edges: list[Edge]) -> bool:
    """Return whether all these edges share one event-time function and have watermarks."""
    time_of = edges[0].time_of
    return time_of is not None and all(edge.time_of is time_of and graph.watermarked(edge.source) for edge in edges)


def _one_time(edges: list[Edge], side: int) -> Callable[[Any], Any] | None:
    functions = [edge.time_of for edge in edges if edge.side == side]
    return functions[0] if all(time_of is functions[0] for time_of in functions) else None


def _later(
    left: Callable[[Any], Any] | None, right: Callable[[Any], Any] | None
) -> Callable[[tuple[Any, Any]], float] | None:
    """Return the event-time function of pairs: the later time of the two records, in seconds."""
    if left is None or right is None:
        return None

    def later(joined: tuple[Any, Any]) -> float:
        sides = zip((left, right), joined, strict=True)
        return seconds_of(max(ns_of(time_of(record)) for time_of, record in sides if record is not None))

    return later


def _first(time_of: Callable[[Any], Any] | None) -> Callable[[tuple[Any, Any]], Any] | None:
    """Return the event-time function of pairs whose event time is that of their first item."""
    return None if time_of is None else lambda joined: time_of(joined[0])
