"""Stream-stream, stream-table and table-table joins, and the checks of their arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from causal.errors import PipelineError
from operators import graph
from operators.builder.arguments.basics import check_bool, check_callable
from operators.builder.arguments.table_inputs import by_key, versions_of
from operators.builder.declarations import Outlet
from operators.graph import LEFT, RIGHT, Edge
from operators.kinds.joins.sides import HOW, pair
from operators.kinds.tables.revisions import end_of_window
from operators.records.seconds import ns_of_seconds, seconds_of
from operators.stage.event_times import ns_of

_FARTHEST_S = 1e9


def join_streams(
    where: str,
    name: str,
    kind: str,
    left: Outlet,
    right: Outlet,
    fn: Callable[[Any, Any], Any] | None,
    how: str,
    parallelism: int | None,
    **options: Any,
) -> Outlet:
    """Return the output of a join of two streams; the event time of a pair is the later time of its two records."""
    sides = [[replace(edge, side=side) for edge in outlet.consume()] for side, outlet in enumerate((left, right))]
    keyed = [all(edge.key_of is not None for edge in edges) for edges in sides]
    if not all(keyed):
        names = [f"its {side} side is {'' if by else 'not '}keyed" for side, by in zip(HOW[1:], keyed, strict=False)]
        raise PipelineError(f"{where}: {kind} {name!r}: {', '.join(names)}; put .key_by(fn) before both")
    time_of = None if fn else _later(*map(_one_time, sides))
    return _joined(where, name, kind, fn, parallelism, left, sum(sides, []), how, time_of=time_of, **options)


def join_table(
    where: str,
    name: str,
    records: Outlet,
    table: Outlet,
    fn: Callable[[Any, Any], Any] | None,
    how: str,
    wait: bool,
    parallelism: int | None,
    as_of: bool,
) -> Outlet:
    """Return the output of a join of a stream with a table."""
    what = f"join_table {name!r}"
    if how not in ("inner", "left"):
        raise PipelineError(f"{where}: {what} has how {how!r}; use 'inner' or 'left'")
    check_bool(where, f"{what} has wait", wait)
    check_bool(where, f"{what} has as_of", as_of)
    left = [replace(edge, side=LEFT) for edge in records.consume()]
    versions = versions_of(table, RIGHT) if wait or as_of else None
    if as_of and versions is None:
        raise PipelineError(
            f"{where}: {what} joins as of the time of each record, but table "
            f"{table.edges[0].source.name!r} does not say when its rows became valid; use "
            "stream.key_by(fn).table(name), with .filter or .map_values after it"
        )
    options: dict[str, Any] = {"wait": wait, "time_of": None if fn else _first(_one_time(left)), "as_of": False}
    if versions is not None and (as_of or all(map(_dated, (left, versions.edges)))):
        options |= {"as_of": True, "derivations": versions.taken()}
        edges = left + versions.edges
    else:
        edges = left + by_key(table, RIGHT)
    return _joined(where, name, "join_table", fn, parallelism, records, edges, how, ("record", "row"), **options)


def join_of_tables(
    where: str,
    name: str,
    left: Outlet,
    right: Outlet,
    fn: Callable[[Any, Any], Any] | None,
    how: str,
    parallelism: int | None,
    windowed: bool,
) -> Outlet:
    """Return the output of a join of two tables."""
    edges = [*by_key(left, LEFT), *by_key(right, RIGHT)]
    time_of = end_of_window if windowed else None
    return _joined(where, name, "table_join", fn, parallelism, left, edges, how, time_of=time_of)


def _joined(
    where: str,
    name: str,
    kind: str,
    fn: Callable[[Any, Any], Any] | None,
    parallelism: int | None,
    left: Outlet,
    edges: list[Edge],
    how: str,
    parameters: tuple[str, str] = ("left", "right"),
    **options: Any,
) -> Outlet:
    """Return the output of an operator that reads a left and a right side."""
    what = f"{kind} {name!r}".removeprefix("table_")
    if fn is not None:
        check_callable(where, what, fn, parameters)
    if how not in HOW:
        raise PipelineError(f"{where}: {what} has how {how!r}; use one of {', '.join(map(repr, HOW))}")
    return left.feed(where, name, kind, fn or pair, parallelism, edges, how=how, **options)


def within_ns(where: str, what: str, within: object) -> tuple[int, int]:
    """Return the interval in nanoseconds, rounded to microseconds."""
    if within is None:
        raise PipelineError(
            f"{where}: {what} needs within=(before_s, after_s), because records would be kept forever without "
            "it; for a table, use join_table"
        )
    bounds = within if isinstance(within, (tuple, list)) else ()
    if len(bounds) != 2 or not all(_is_seconds(bound) for bound in bounds):
        raise PipelineError(f"{where}: {what} has within {within!r}; use (before_s, after_s) in seconds")
    if bounds[0] > bounds[1]:
        raise PipelineError(
            f"{where}: {what}: within {tuple(bounds)!r} is empty; use (before_s, after_s) with before_s ≤ after_s"
        )
    return ns_of_seconds(bounds[0]), ns_of_seconds(bounds[1])


def _is_seconds(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -_FARTHEST_S <= value <= _FARTHEST_S


def _dated(edges: list[Edge]) -> bool:
    """Return whether all these edges have the same event-time function and carry watermarks."""
    time_of = edges[0].time_of
    return time_of is not None and all(edge.time_of is time_of and graph.watermarked(edge.source) for edge in edges)


def _one_time(edges: list[Edge]) -> Callable[[Any], Any] | None:
    functions = [edge.time_of for edge in edges]
    return functions[0] if all(time_of is functions[0] for time_of in functions) else None


def _later(
    left: Callable[[Any], Any] | None, right: Callable[[Any], Any] | None
) -> Callable[[tuple[Any, Any]], float] | None:
    """Return the event-time function of pairs, which returns the later time of the two records in seconds."""
    if left is None or right is None:
        return None

    def later(joined: tuple[Any, Any]) -> float:
        sides = zip((left, right), joined, strict=True)
        return seconds_of(max(ns_of(time_of(record)) for time_of, record in sides if record is not None))

    return later


def _first(time_of: Callable[[Any], Any] | None) -> Callable[[tuple[Any, Any]], Any] | None:
    """Return the event-time function of pairs whose event time is the event time of their first item."""
    return None if time_of is None else lambda joined: time_of(joined[0])
