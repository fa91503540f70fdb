"""Tables as operator inputs: table revisions by key, row versions that joins read, and options of `suppress`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from causal.errors import PipelineError
from operators.builder.arguments.basics import checked_aggregate, kind_of, seconds
from operators.builder.declarations import Outlet
from operators.graph import Edge, Node
from operators.kinds.tables.revisions import KEY_OF, kept
from operators.kinds.windows.aggregates import Aggregate
from operators.kinds.windows.assigners import clock_of
from operators.sinks.contract.sink import Sink


@dataclass(frozen=True)
class Versions:
    """The row versions of a table, represented by the records of a keyed stream and the operators that derive the rows.

    Attributes:
        edges: the edges that carry the records of the keyed stream.
        nodes: the operators from the last `filter` or `map_values` back to the `table` itself.
    """

    edges: list[Edge]
    nodes: list[Node]

    def taken(self) -> list[tuple[str, Callable[[Any, Any], Any]]]:
        """Record that the stream is read instead of the table; return (name, row derivation) of each operator."""
        for node in self.nodes:
            node.options["versions_read"] = True
        return [
            (node.name, kept(node.subject) if node.kind == "table_filter" else node.subject)
            for node in reversed(self.nodes[:-1])
        ]


def versions_of(table: Outlet, side: int) -> Versions | None:
    """Return the table's rows as records of its stream, or None if a row can depend on several records."""
    node = table.edges[0].source
    chain: list[Node] = []
    while node.kind in ("table_filter", "map_values"):
        chain.append(node)
        node = node.edges[0].source
    if node.kind != "table":
        return None
    return Versions([replace(edge, side=side) for edge in node.edges], [*chain, node])


def by_key(table: Outlet, side: int) -> list[Edge]:
    """Return edges that route each of the table's revisions to the task that owns its key."""
    return [replace(edge, key_of=KEY_OF, side=side) for edge in table.consume()]


def checked_retracting(where: str, what: str, aggregate: object) -> Aggregate[Any, Any]:
    """Return the aggregate in its retracting form; refuse it if it cannot subtract."""
    retracting = checked_aggregate(where, what, aggregate).retracting()
    if retracting.subtract is None:
        raise PipelineError(
            f"{where}: {what} reads a table, so it must be able to retract; use Aggregate(…, subtract=fn)"
        )
    return retracting


def check_sink(where: str, name: str, sink: object, of_table: bool) -> None:
    """Refuse what is not a sink, and a sink that does not keep the rows of what it reads."""
    if not isinstance(sink, Sink):
        raise PipelineError(f"{where}: sink {name!r} was given {kind_of(sink)}; pass a Sink, e.g. SqliteSink(path)")
    if sink.upsert and not of_table:
        raise PipelineError(
            f"{where}: sink {name!r} has upsert=True, which keeps the rows of a table, but it reads a stream; put "
            ".key_by(fn).table(name) before it, or leave upsert out"
        )
    if of_table and not sink.upsert:
        raise PipelineError(
            f"{where}: sink {name!r} reads a table, but {type(sink).__name__} writes one row per record; use a sink "
            "with upsert=True, or put .revisions(name) or .to_stream(name, fn) before it"
        )


def suppress_options(
    where: str,
    name: str,
    table: str,
    windowed: bool,
    until: str | None,
    after_s: float | None,
    keys_max: int | None,
    clock: object,
) -> dict[str, Any]:
    """Return the options of a `suppress` operator that reads the table named `table`."""
    what = f"suppress {name!r}"
    if (until is None) == (after_s is None):
        raise PipelineError(f'{where}: {what} needs either until="closed" or after_s=')
    if until is not None and until != "closed":
        raise PipelineError(f'{where}: {what} has until {until!r}; use until="closed", or after_s=')
    if until is not None and not windowed:
        raise PipelineError(f"{where}: {what} waits for windows to close, but {table!r} has none; use after_s=")
    if keys_max is not None and (type(keys_max) is not int or keys_max < 1):
        raise PipelineError(f"{where}: {what} has keys_max {keys_max!r}; use a whole number from 1")
    if clock_of(where, what, clock) == "processing" and until is not None:
        raise PipelineError(
            f"{where}: {what} waits for windows of event time to close; use after_s=, or leave out clock"
        )
    after_ns = None if after_s is None else seconds(where, f"{what} has after_s", after_s, 0.000001)
    return {"after_ns": after_ns, "keys_max": keys_max, "windowed": windowed, "clock": clock}
