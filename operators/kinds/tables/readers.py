"""The readers of a table's rows, and the value that a row has for a reader after the functions between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from operators.graph import LEFT, SPECULATIVE, Node
from operators.kinds.tables.attempts import value_or_none
from operators.kinds.tables.revisions import derivation
from operators.records.keys import canonical_key
from operators.records.ownership import copy_containers

_ROWS = frozenset(("table", "aggregate_table", "window_table", "aggregate", "table_join"))
"""The kinds of operators whose stages keep the rows of a table."""
SUPPRESS, GROUP, REVISIONS = "suppress", "group_by", "revisions"
_BETWEEN = frozenset(("table_filter", "map_values", GROUP, SUPPRESS))
"""The kinds of operators through which a table's rows pass on their way to a reader."""


@dataclass(frozen=True, slots=True)
class Reader:
    """An operator that receives the rows of a table, with each key once, as values or in groups.

    Attributes:
        name: the name of the operator; for a join of two tables, the side is appended.
        path: the operators between the table and the reader, in the order in which rows pass through them.
        node: the reader itself.
    """

    name: str
    path: tuple[Node, ...]
    node: Node

    @property
    def accumulates(self) -> bool:
        """Whether the reader keeps state derived from the rows, which must then all come from one table."""
        return self.node.kind in ("aggregate", "table_join", "join_table")


def keeps_rows(node: Node) -> bool:
    """Return whether an operator's stage keeps the rows of a table."""
    return node.kind in _ROWS or node.options.get("delivery") == SPECULATIVE


def readers(nodes: Sequence[Node], table: Node) -> list[Reader]:
    """Return all readers of the rows of `table`, which may also be a `suppress` operator."""
    known: list[Reader] = []
    waiting: list[tuple[Node, tuple[Node, ...]]] = [(table, ())]
    while waiting:
        giver, path = waiting.pop()
        edges = [(node, edge) for node in nodes for edge in node.edges if edge.source is giver and not edge.tag]
        for node, edge in edges:
            if node.kind in _BETWEEN:
                waiting.append((node, (*path, node)))
            if node.kind == "table_join":
                known.append(Reader(f"{node.name}:{'left' if edge.side == LEFT else 'right'}", path, node))
            elif node.kind == SUPPRESS or node.kind not in _BETWEEN:
                known.append(Reader(node.name, path, node))
    return known


def received(path: Sequence[Node], key: Any, row: Any, sent: Mapping[str, Any]) -> Any:
    """Return the result of passing a row along a path: a value, `[group, value]` in a group, or None for no row.

    Args:
        sent: the value that each `suppress` on the path received, if it cannot be derived from the row.
    """
    value = copy_containers(row) if path else row
    for node in path:
        if node.kind == SUPPRESS:
            value = sent.get(node.name, value)
            continue
        if value is None:
            continue
        value = value_or_none(_grouped if node.kind == GROUP else _derived, node, key, value)
    return value


def _grouped(node: Node, key: Any, value: Any) -> list[Any]:
    return [canonical_key(node.subject(key, value)), value]


def _derived(node: Node, key: Any, value: Any) -> Any:
    return copy_containers(derivation(node)(key, value))
