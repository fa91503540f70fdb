"""The graph that the page draws: a node for each operator chain, and edges with their bytes per second. Pure.

A node has the name of its first operator, by which users know the chain.  Almost every operator has an edge to the dead
letters, which is of no interest while no record fails.  Such edges are only counted, and are drawn on request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from causal.ids import OUTSIDE
from causal.layers import placed
from causal.topology import DEAD_LETTERS, Task, Topology

Edge = tuple[str, str]


def title_of(task: Task) -> str:
    """Return the first operator of a task's chain and the number of other operators: `orders +2`."""
    first, *others = task.operators or (group_of(task),)
    return f"{first} +{len(others)}" if others else first


def group_of(task: Task) -> str:
    """Return the name that all tasks of an operator chain share."""
    return task.name.rpartition("/")[0] or task.name


def graph(
    topology: Topology,
    tasks: Mapping[str, Mapping[str, Any]],
    rates: Mapping[str, Mapping[str, float]],
    present: bool,
    letter_edges: bool = False,
) -> dict[str, Any]:
    """Return the nodes and edges with their positions.

    Args:
        tasks: the tasks as the page shows them, by name.
        rates: the rates from a `Meter`, by task.
        present: whether the job is running; otherwise, the rates are averages and are labelled as such.
        letter_edges: whether edges to the dead letters are drawn.
    """
    members: dict[str, list[Task]] = {}
    for task in topology.tasks:
        members.setdefault(group_of(task), []).append(task)
    flows = _flows(topology, rates)
    failing = [source for source, target in flows if target == DEAD_LETTERS]
    drawn = {edge: flow for edge, flow in flows.items() if letter_edges or edge[1] != DEAD_LETTERS}
    places, ways = _placed(list(members), list(drawn), apart=bool(failing) and not letter_edges)
    return {
        "nodes": [
            {**_node(name, group, tasks), "letters": name in failing, "layer": places[name][0], "row": places[name][1]}
            for name, group in members.items()
        ],
        "edges": [
            {
                "source": edge[0], "target": edge[1], "way": ways[edge],
                "bytes_rate": round(flow) if present else None, "average_bytes_rate": None if present else round(flow),
            }
            for edge, flow in drawn.items()
        ],
        "letter_edges": {"count": len(failing), "drawn": letter_edges},
    }  # fmt: skip


def _flows(topology: Topology, rates: Mapping[str, Mapping[str, float]]) -> dict[Edge, float]:
    """Return the bytes per second on each edge."""
    flows: dict[Edge, float] = {}
    for channel in topology.channels:
        if OUTSIDE not in (channel.source, channel.target):
            source = topology.tasks[channel.source]
            edge = (group_of(source), group_of(topology.tasks[channel.target]))
            flows[edge] = flows.get(edge, 0.0) + rates.get(source.name, {}).get(f"to {channel.target}", 0.0)
    return flows


def _placed(names: list[str], edges: list[Edge], apart: bool) -> tuple[dict[str, Any], dict[Edge, Any]]:
    """Return the positions of nodes and the routes of edges; with `apart`, put dead letters below the last layer."""
    if not apart:
        return placed(names, edges)
    places, ways = placed([name for name in names if name != DEAD_LETTERS], edges)
    last = max(layer for layer, _ in places.values())
    passed = [place for way in ways.values() for place in way]
    row = 1 + max(row for layer, row in [*places.values(), *passed] if layer == last)
    return {**places, DEAD_LETTERS: (last, row)}, ways


def _node(name: str, members: list[Task], tasks: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    shown = [tasks[task.name] for task in members if task.name in tasks]
    return {
        "name": name,
        "title": title_of(members[0]),
        "kind": shown[0]["kind"] if shown else "operator",
        "unit": shown[0]["unit"] if shown else "elements",
        "operators": list(members[0].operators),
        "tasks": [task.name for task in members],
        "rate": _sum(task["rate"] for task in shown),
        "average_rate": _sum(task["average_rate"] for task in shown),
    }


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(sum(known), 1) if known else None
