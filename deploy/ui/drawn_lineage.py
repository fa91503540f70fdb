"""The lineage of a row as the page draws it: columns from the sources to the row, and edges between their nodes.

It is computed from what `causal lineage --json` prints. All values become text, because a browser would round long
numbers. A column shows its last nodes and counts the others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from datetime import datetime
from typing import Any

ROWS_MAX = 6
"""The number of nodes that a column shows."""
TEXT_MAX = 2000
VALUES_MAX = 50
"""The number of determinants that are listed for an event."""

Node = Mapping[str, Any]


def drawn(lineage: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns, their nodes and the edges between them."""
    row, nodes = lineage["row"], [*lineage["nodes"], lineage["row"]]
    depths = _depths(nodes, lineage["edges"])
    bounded = {each["operator"] for each in lineage["operators"] if not each["exact"] or each["older_keys"]}
    values = {(each["task"], each["epoch"], each["event"]): each["values"] for each in lineage["determinants"]}
    sure = _sure(row["id"], nodes, lineage["edges"], bounded)
    columns: dict[tuple[int, str], list[Node]] = {}
    for node in nodes:
        columns.setdefault((depths[node["id"]], node["operator"]), []).append(node)
    placed: list[dict[str, Any]] = [
        {
            "operator": operator,
            "kind": members[0]["kind"] if members[0]["kind"] in ("input", "row") else "event",
            "bounded": operator in bounded,
            "left_out": max(0, len(members) - ROWS_MAX),
            "nodes": [_node(node, node["id"] not in sure, values) for node in members[-ROWS_MAX:]],
        }
        for (_, operator), members in sorted(columns.items(), key=lambda each: each[0])
    ]
    shown = {node["id"] for column in placed for node in column["nodes"]}
    return {
        "account": row["account"],
        "position": row["position"],
        "epoch": row["epoch"],
        "exact": lineage["exact"],
        "inputs": lineage["inputs"],
        "events": lineage["events"],
        "left_out": lineage["left_out"]["inputs"] + lineage["left_out"]["events"],
        "from_epoch": lineage["from_epoch"],
        "version": lineage["version"],
        "code": lineage["code"][:12],
        "notes": [_cut(note) for note in lineage["notes"]],
        "columns": placed,
        "edges": [
            {"from": edge["from"], "to": edge["to"], "role": edge["role"], "through": list(edge["through"])}
            for edge in lineage["edges"]
            if edge["from"] in shown and edge["to"] in shown
        ],
        "key": _last_key(lineage["nodes"]),
    }


def _depths(nodes: Sequence[Node], edges: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return the column of each node: one after the last node that it came from; the row is in the last one."""
    depths = {node["id"]: 0 for node in nodes}
    sources: dict[str, list[str]] = {}
    for edge in edges:
        if edge["from"] in depths and (edge["role"] != "state" or _operator_differs(edge, nodes)):
            sources.setdefault(edge["to"], []).append(edge["from"])
    for _ in range(len(nodes)):  # ends as soon as nothing moves; a damaged graph with a circle ends as well
        moved = False
        for target, before in sources.items():
            depth = 1 + max(depths[each] for each in before)
            if target in depths and depths[target] < depth <= len(nodes):
                depths[target], moved = depth, True
        if not moved:
            break
    deepest: dict[str, int] = {}
    for node in nodes:  # an operator has one column
        deepest[node["operator"]] = max(deepest.get(node["operator"], 0), depths[node["id"]])
    return {node["id"]: deepest[node["operator"]] if node["kind"] != "row" else len(nodes) + 1 for node in nodes}


def _sure(row: str, nodes: Sequence[Node], edges: Sequence[Mapping[str, Any]], bounded: Set[str]) -> set[str]:
    """Return the nodes that certainly had a part in the row: a way leads there without the bound of an operator."""
    operators = {node["id"]: node["operator"] for node in nodes}
    sources: dict[str, list[str]] = {}
    for edge in edges:
        if edge["role"] == "record" or operators.get(edge["to"]) not in bounded:
            sources.setdefault(edge["to"], []).append(edge["from"])
    sure, left = {row}, [row]
    while left:
        new = set(sources.get(left.pop(), ())) - sure
        sure |= new
        left += sorted(new)
    return sure


def _operator_differs(edge: Mapping[str, Any], nodes: Sequence[Node]) -> bool:
    operators = {node["id"]: node["operator"] for node in nodes}
    return operators.get(edge["from"]) != operators.get(edge["to"])


def _node(node: Node, bounded: bool, values: Mapping[tuple[str, int, int], Sequence[Any]]) -> dict[str, Any]:
    place = (node.get("task", ""), node.get("epoch", 0), node.get("event", 0))
    key = node.get("key")
    record = node.get("record")
    return {
        "id": node["id"],
        "kind": node["kind"],
        "title": _title(node),
        "place": _place(node),
        "key": "" if key is None else _cut(_text(key)),
        "record": "" if record is None else _cut(_text(record)),
        "bounded": bounded,
        "determinants": [_value(each) for each in values.get(place, ())[:VALUES_MAX]],
        "more_determinants": max(0, len(values.get(place, ())) - VALUES_MAX),
    }


def _title(node: Node) -> str:
    if node["kind"] == "input":
        return f"position {node['position']:,}"
    if node["kind"] == "row":
        return f"row {node['position']:,}"
    window = node.get("window")
    if window:
        return f"window {_time(window[0])} to {_time(window[1])}"
    return _cut(f"key {_text(node['key'])}") if node.get("key") is not None else str(node["kind"])


def _place(node: Node) -> str:
    if node["kind"] == "input":
        return f"{node['operator']}, partition {node['partition']}, position {node['position']:,}"
    if node["kind"] == "row":
        return f"{node['account']}, position {node['position']:,}, epoch {node['epoch']:,}"
    return f"{node['subtask']}, epoch {node['epoch']:,}, event {node['event']:,}: {node['kind']}"


def _value(value: Mapping[str, Any]) -> str:
    kind, content = value["kind"], value["value"]
    if kind in ("clock", "timer") and isinstance(content, int):
        return f"{kind} {_time(content / 1e9)}"
    if kind == "order" and isinstance(content, dict):
        return f"order: the next {content.get('elements')} of input {content.get('input')}"
    return _cut(f"{kind} {_text(content)}", 200)


def _last_key(nodes: Sequence[Node]) -> dict[str, str] | None:
    """Return the operator and the key of the last event that had one, to ask for its state now."""
    keyed = [node for node in nodes if node["kind"] != "input" and node.get("key") is not None]
    if not keyed:
        return None
    last = max(keyed, key=lambda node: (node["epoch"], node["event"]))
    return {"operator": last["operator"], "key": _text(last["key"])}


def _time(at_s: float) -> str:
    return datetime.fromtimestamp(at_s).strftime("%H:%M:%S.%f")[:-3]


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _cut(text: str, characters_max: int = TEXT_MAX) -> str:
    return text if len(text) <= characters_max else text[: characters_max - 1] + "…"
