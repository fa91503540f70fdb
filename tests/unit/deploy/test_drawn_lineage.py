"""The drawing of a lineage: each operator has a column, nothing is shown as certain that is not, and it is bounded."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from deploy.ui.drawn_lineage import ROWS_MAX, drawn


def lineage(nodes: list[dict[str, Any]], edges: list[tuple[str, str, str]], exact: bool = True) -> dict[str, Any]:
    """Return what `causal lineage --json` prints, with the operators of the events."""
    names = dict.fromkeys(node["operator"] for node in nodes if node["kind"] != "input")
    operators = [{"operator": name, "exact": exact, "older_keys": [], "events": 1} for name in names]
    row = {"id": "row", "kind": "row", "operator": "out", "account": "out/0", "position": 7, "epoch": 3, "record": 1}
    return {
        "row": row, "exact": exact, "from_epoch": 0, "version": 1, "code": "c0de" * 8, "inputs": 2, "events": 2,
        "left_out": {"inputs": 1, "events": 0}, "operators": operators, "notes": [], "nodes": nodes,
        "edges": [{"from": one, "to": other, "role": role, "through": []} for one, other, role in edges],
        "determinants": [
            {"task": "count/0", "epoch": 3, "event": 5, "values": [{"kind": "clock", "value": 1_795_837_337 * 10**9}]}
        ],
    }  # fmt: skip


def given_record(position: int) -> dict[str, Any]:
    return {
        "id": f"i{position}",
        "kind": "input",
        "operator": "read",
        "partition": 0,
        "position": position,
        "record": {"n": 2**60},
    }


def event(name: str, number: int, operator: str = "count") -> dict[str, Any]:
    place = {"subtask": f"{operator}/0", "task": f"{operator}/0", "epoch": 3, "event": number}
    return {"id": name, "kind": "record", "operator": operator, **place, "key": "k", "record": [number]}


def columns(answer: dict[str, Any]) -> list[tuple[str, list[str]]]:
    return [(column["operator"], [node["id"] for node in column["nodes"]]) for column in answer["columns"]]


NODES = [given_record(1), given_record(2), event("v1", 4), event("v2", 5)]
EDGES = [("i1", "v1", "record"), ("i2", "v2", "record"), ("v1", "v2", "state"), ("v2", "row", "record")]


def test_the_columns_lead_from_the_sources_to_the_row() -> None:
    answer = drawn(lineage(NODES, EDGES))
    assert columns(answer) == [("read", ["i1", "i2"]), ("count", ["v1", "v2"]), ("out", ["row"])]
    assert [column["kind"] for column in answer["columns"]] == ["input", "event", "row"]
    assert answer["key"] == {"operator": "count", "key": '"k"'}
    [shown] = [node for node in answer["columns"][1]["nodes"] if node["id"] == "v2"]
    assert shown["determinants"] and shown["determinants"][0].startswith("clock ")
    assert answer["columns"][0]["nodes"][0]["record"] == '{"n": 1152921504606846976}', "a browser would round it"


def test_an_operator_after_another_has_a_column_after_it_although_its_key_came_before() -> None:
    nodes = [given_record(1), event("v1", 4), event("w1", 1, "sum"), event("w2", 2, "sum")]
    edges = [
        ("i1", "v1", "record"),
        ("i1", "w1", "record"),
        ("v1", "w2", "record"),
        ("w1", "w2", "state"),
        ("w2", "row", "record"),
    ]
    assert columns(drawn(lineage(nodes, edges))) == [
        ("read", ["i1"]), ("count", ["v1"]), ("sum", ["w1", "w2"]), ("out", ["row"])
    ]  # fmt: skip


def bounded(answer: dict[str, Any]) -> set[str]:
    return {node["id"] for column in answer["columns"] for node in column["nodes"] if node["bounded"]}


def test_what_only_an_upper_bound_leads_from_is_not_shown_as_certain() -> None:
    assert bounded(drawn(lineage(NODES, EDGES, exact=False))) == {"i1", "v1"}
    assert bounded(drawn(lineage(NODES, EDGES, exact=True))) == set()


@given(st.lists(st.tuples(st.integers(0, 59), st.integers(0, 59), st.sampled_from(["record", "state"])), max_size=200))
def test_any_graph_is_drawn_within_bounds(pairs: list[tuple[int, int, str]]) -> None:
    nodes = [given_record(n) if n < 20 else event(f"v{n}", n, f"o{n % 3}") for n in range(60)]
    edges = [(nodes[one]["id"], nodes[other]["id"], role) for one, other, role in pairs]
    answer = drawn(lineage(nodes, [*edges, ("v59", "row", "record"), ("gone", "v59", "record")], exact=False))
    assert sum(len(column["nodes"]) + column["left_out"] for column in answer["columns"]) == 61
    assert all(len(column["nodes"]) <= ROWS_MAX for column in answer["columns"])
    assert answer["columns"][-1]["operator"] == "out" and len(answer["columns"]) <= 6
    shown = {node["id"] for column in answer["columns"] for node in column["nodes"]}
    assert all({edge["from"], edge["to"]} <= shown for edge in answer["edges"])
    json.dumps(answer)
