"""The graph of the dashboard: users' names of operators, and edges to dead letters only on request."""

from __future__ import annotations

from typing import Any

import pytest

from causal.ids import OUTSIDE, ChannelId, TaskIndex, TaskName
from causal.topology import DEAD_LETTERS, Channel, Task, Topology
from deploy.ui import models
from deploy.ui.drawn_graph import graph, title_of
from deploy.ui.meter import Meter
from standby.supervision.job_view import JobView
from tests.unit.deploy.test_report import task
from tests.unit.deploy.test_ui_models import modelled, viewed

CHAINS = {
    "time/0": ("orders", "clean", "time"), "row/0": ("minutes", "row"), "out/0": ("out",),
    f"{DEAD_LETTERS}/0": (DEAD_LETTERS,),
}  # fmt: skip


def topology() -> Topology:
    """Return a source, a window and a sink; each may put records aside."""
    ends = [(OUTSIDE, 0), (0, 1), (1, 2), (2, OUTSIDE), (0, 3), (1, 3), (2, 3), (3, OUTSIDE)]
    return Topology(
        tuple(Task(TaskIndex(i), TaskName(name), chain) for i, (name, chain) in enumerate(CHAINS.items())),
        tuple(Channel(ChannelId(i), TaskIndex(s), TaskIndex(t)) for i, (s, t) in enumerate(ends)),
    )


def facts(shown: dict[str, Any], alive: bool = True) -> models.Facts:
    from causal.config import JobConfig

    sizes = {"time/0": 40, "row/0": 1000, "out/0": 20}
    return models.Facts(JobConfig("r", "j", "j.py"), topology(), JobView.of(shown), alive, 0.2, sizes)


def seen(**changes: Any) -> dict[str, Any]:
    kinds = {"time/0": "source", "out/0": "sink", f"{DEAD_LETTERS}/0": "sink"}
    return viewed(tasks=[task(name, kinds.get(name, "operator")) for name in CHAINS], **changes)


def test_a_chain_has_the_name_of_its_first_operator_and_the_number_of_the_others() -> None:
    titles = {name: title_of(each) for name, each in zip(CHAINS, topology().tasks, strict=True)}
    assert titles == {"time/0": "orders +2", "row/0": "minutes +1", "out/0": "out", f"{DEAD_LETTERS}/0": DEAD_LETTERS}
    assert title_of(Task(TaskIndex(0), TaskName("none/0"))) == "none"
    model = models.page(facts(seen()), Meter(), breaks=True)
    assert [node["title"] for node in model["graph"]["nodes"]] == list(titles.values())
    assert [each["title"] for each in model["tasks"]] == list(titles.values())
    assert model["graph"]["nodes"][0]["operators"] == ["orders", "clean", "time"]


def test_edges_to_dead_letters_are_counted_and_drawn_on_request() -> None:
    plain, full = (models.page(facts(seen()), Meter(), True, letters)["graph"] for letters in (False, True))
    assert [(e["source"], e["target"]) for e in plain["edges"]] == [("time", "row"), ("row", "out")]
    assert plain["letter_edges"] == {"count": 3, "drawn": False}
    assert [node["name"] for node in plain["nodes"] if node["letters"]] == ["time", "row", "out"]
    assert sum(edge["target"] == DEAD_LETTERS for edge in full["edges"]) == 3 and full["letter_edges"]["drawn"]
    for drawn in (plain, full):
        taken = [(node["layer"], node["row"]) for node in drawn["nodes"]]
        taken += [tuple(place) for edge in drawn["edges"] for place in edge["way"]]
        assert len(set(taken)) == len(taken)
        for layer in {layer for layer, _ in taken}:
            rows = sorted(row for other, row in taken if other == layer)
            assert rows == list(range(len(rows))), "no place of a layer is left free"
    places = {node["name"]: (node["layer"], node["row"]) for node in plain["nodes"]}
    assert places[DEAD_LETTERS] == (places["out"][0], 1), "below the last layer, and not among the sources"


def test_a_job_without_dead_letters_has_nothing_to_hide() -> None:
    drawn = modelled(viewed())["graph"]
    assert drawn["letter_edges"] == {"count": 0, "drawn": False} and not any(node["letters"] for node in drawn["nodes"])


@pytest.mark.parametrize("present", [True, False])
def test_bytes_per_second_of_a_job_that_does_not_run_are_averages(present: bool) -> None:
    [first, *_] = graph(topology(), {}, {"time/0": {"to 1": 7.0}}, present)["edges"]
    assert (first["bytes_rate"], first["average_bytes_rate"]) == ((7, None) if present else (None, 7))


def test_state_is_looked_up_first_in_an_operator_of_the_user_that_keeps_some() -> None:
    assert models.operators(facts(seen())) == ["minutes", "row", "orders", "clean", "time", "out"]
