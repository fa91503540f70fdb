"""The recipe for a figure: a counter and a line in `FIGURES`, and every display shows it."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO

import pytest

from deploy.monitoring.metrics import ViewCollector, described
from deploy.monitoring.status import shown
from deploy.progress.display import Progress
from deploy.progress.report import report
from deploy.ui import models, terminal
from deploy.ui.meter import Meter
from standby.supervision.figures import FIGURES, Figure, Merge, names
from standby.supervision.job_view import JobView
from tests.unit.deploy.test_ui_models import facts
from tests.unit.standby.scene import Scene


@pytest.fixture
def parked() -> Iterator[Figure]:
    figure = Figure("parked_rows", Merge.LEVEL, "Rows that wait for a key.", "parked_rows", label="parked rows")
    FIGURES.append(figure)
    yield figure
    FIGURES.remove(figure)


def view_with(figure: Figure) -> JobView:
    """The view after a task has reported 1,200 of that figure, as `status.json` has it."""
    scene = Scene()
    scene.beats(5)
    scene.beat(scene.slot_of("count/0"), counters={figure.name: 1200})
    return JobView.of(scene.view)


def test_every_display_shows_a_figure_that_was_added(parked: Figure) -> None:
    view = view_with(parked)
    assert parked.name in names(Merge.LEVEL)
    assert "parked rows: 1,200" in [line.strip() for line in shown(view, True, 0.0, "resume")]
    assert report(view, 1.0).content()["tasks"]["count/0"] == {"parked_rows": 1200}
    progress = Progress(StringIO())
    progress.show(view, 1.0)
    assert "parked rows 1,200" in progress.line(1.0)
    families = {family.name: family for family in ViewCollector(lambda: view, lambda: 0.0).collect()}
    [sample] = families["causal_parked_rows"].samples
    assert (sample.labels["task"], sample.value) == ("count/0", 1200)
    assert "causal_parked_rows" in [family.name for family in described()], "the guide has to list it"
    model = models.page(facts(view.content()), Meter(), breaks=False)
    assert [task.get("listed") for task in model["tasks"] if task["task"] == "count/0"] == [[["parked rows", 1200]]]
    assert "parked rows 1,200" in terminal.totals(model)


def test_what_has_no_title_is_listed_nowhere() -> None:
    model = models.page(facts(view_with(Figure("parked_rows")).content()), Meter(), breaks=False)
    assert "listed" not in model["totals"] and all("listed" not in task for task in model["tasks"])
