"""The layout of a graph drawing in layers; an operator's layer is the length of its longest path from a source.

All functions are pure. An edge that spans several layers occupies a place in each layer between its ends, so that it is
drawn between the boxes. Within a layer, each node moves to the mean place of its neighbours (its barycentre), which
removes most crossings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

ROUNDS = 4

Edge = tuple[str, str]
Place = tuple[int, int]
_Node = str | tuple[Edge, int]
"""An operator, or an edge together with a layer that it crosses."""


class Layers(NamedTuple):
    """A layout.

    Attributes:
        places: name → (layer, row).
        ways: edge → the places that the edge crosses between its two ends.
    """

    places: dict[str, Place]
    ways: dict[Edge, list[Place]]


def placed(names: Sequence[str], edges: Sequence[Edge]) -> Layers:
    """Return the layout of a graph.

    Args:
        names: the operators in topological order.
        edges: the edges without duplicates, each as (earlier name, later name).
    """
    depth: dict[str, int] = dict.fromkeys(names, 0)
    for name in names:
        depth[name] = max((depth[source] + 1 for source, target in edges if target == name), default=0)
    before: dict[_Node, list[_Node]] = {name: [] for name in names}
    after: dict[_Node, list[_Node]] = {name: [] for name in names}
    rows: list[list[_Node]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for name in names:
        rows[depth[name]].append(name)
    for edge in edges:
        passed = [(edge, layer) for layer in range(depth[edge[0]] + 1, depth[edge[1]])]
        way: list[_Node] = [edge[0], *passed, edge[1]]
        for node in passed:
            rows[node[1]].append(node)
        for one, other in zip(way, way[1:]):
            after.setdefault(one, []).append(other)
            before.setdefault(other, []).append(one)
    for number in range(ROUNDS):
        neighbours = after if number % 2 else before
        for row in reversed(rows) if number % 2 else rows:
            _settle(row, rows, neighbours)
    at = {node: (layer, place) for layer, row in enumerate(rows) for place, node in enumerate(row)}
    ways = {edge: [at[edge, layer] for layer in range(depth[edge[0]] + 1, depth[edge[1]])] for edge in edges}
    return Layers({name: at[name] for name in names}, ways)


def _settle(row: list[_Node], rows: Sequence[Sequence[_Node]], neighbours: Mapping[_Node, Sequence[_Node]]) -> None:
    """Sort a layer by the mean place of each node's neighbours; a node without neighbours keeps its place."""
    place = {node: (at + 0.5) / len(other) for other in rows for at, node in enumerate(other)}
    middles = {}
    for node in row:
        others = neighbours.get(node, ())
        middles[node] = sum(place[other] for other in others) / len(others) if others else place[node]
    row.sort(key=lambda node: middles[node])
