"""`benchmarks ui`: the large job that it pretends is one that the dashboard shows, and that changes."""

from __future__ import annotations

from benchmarks.costs import ui
from deploy.ui.observed import observed
from tests.unit.deploy.test_ui_models import viewed


def test_a_pretended_job_is_shown_with_all_of_its_tasks_and_with_rates() -> None:
    names = dict.fromkeys(("slot", "state", "host", "task", "standby_of", "doing"))
    view = viewed(processes=[{**names, "slot": "w1", "state": "serving", "pid": 1}])
    with ui.pretended(view, 3, 4) as (job, put):
        shown = observed(job, breaks=False)
        put()
        model = shown.page()
    assert model["present"] and model["state"] == "running" and len(model["tasks"]) == 12
    assert [len(node["tasks"]) for node in model["graph"]["nodes"]] == [4, 4, 4]
    assert all(edge["bytes_rate"] > 0 for edge in model["graph"]["edges"])
    assert [task["kind"] for task in model["tasks"]] == ["source"] * 4 + ["operator"] * 4 + ["sink"] * 4
    assert all(task["rate"] > 0 for task in model["tasks"])
