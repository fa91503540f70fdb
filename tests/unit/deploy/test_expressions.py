"""The dashboard and the alerts name metrics and labels that a job has, and each alert says what to do."""

from __future__ import annotations

import re

import pytest

from tests.unit.deploy.expressions import (
    CONFIGURATION,
    ROOT,
    alerts,
    dashboard,
    labels_of,
    metrics_of,
    shown_labels,
    targets,
)

PAGE = (ROOT / "docs" / "guide" / "metrics.md").read_text()
ROWS = re.findall(r"^\| `(causal_\w+)` \| (\w+) \|([^|]*)\|", PAGE, re.MULTILINE)
LABELS = {name: {label.strip() for label in labels.split(",") if label.strip()} | {"job"} for name, _, labels in ROWS}
HISTOGRAMS = {name for name, kind, _ in ROWS if kind == "histogram"}
EXPRESSIONS = [*((title, expr, legend) for title, expr, legend in targets())] + [
    (rule["alert"], rule["expr"], " ".join(rule["annotations"].values())) for rule in alerts()
]


def metric(name: str) -> str:
    """Return the metric as the page names it: without the ending of a histogram's series."""
    base = re.sub(r"_(bucket|sum|count)$", "", name)
    return base if base in HISTOGRAMS else name


@pytest.mark.parametrize("title, expression, shown", EXPRESSIONS, ids=[title for title, _, _ in EXPRESSIONS])
def test_it_names_metrics_and_labels_that_there_are(title: str, expression: str, shown: str) -> None:
    names = {metric(name) for name in metrics_of(expression)}
    if title == "CausalTargetDown":  # of Prometheus itself
        assert not names
        return
    assert names and names <= set(LABELS), names - set(LABELS)
    labels = set.intersection(*(LABELS[name] for name in names)) | {"le"}
    assert labels_of(expression) <= labels
    assert shown_labels(shown) - {"value"} <= labels


@pytest.mark.parametrize("title, expression, shown", EXPRESSIONS, ids=[title for title, _, _ in EXPRESSIONS])
def test_a_counter_is_asked_for_its_growth_and_a_gauge_for_its_value(title: str, expression: str, shown: str) -> None:
    for name in metrics_of(expression):
        rising = name.endswith(("_total", "_bucket"))
        asked = re.search(rf"(rate|increase)\({name}", expression) is not None
        assert rising == asked, name


def test_each_alert_has_its_line_in_the_page_about_operations() -> None:
    described = re.findall(r"^\| `(Causal\w+)` \| \S.*\|$", (ROOT / "docs" / "operations.md").read_text(), re.MULTILINE)
    assert described == [rule["alert"] for rule in alerts()]
    assert {rule["labels"]["severity"] for rule in alerts()} == {"warning", "critical"}


def test_panels_do_not_overlap_and_have_units_that_grafana_knows() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + dx, at["y"] + dy) for dx in range(at["w"]) for dy in range(at["h"])}
        assert not cells & taken and at["x"] + at["w"] <= 24, panel["title"]
        taken |= cells
        if panel["type"] != "row":
            assert panel["fieldConfig"]["defaults"]["unit"] in {"short", "s", "bytes", "Bps", "percentunit"}
            assert panel["description"]


def test_the_configuration_loads_the_alerts() -> None:
    assert "alerts.yml" in CONFIGURATION.read_text() and (CONFIGURATION.parent / "alerts.yml").exists()
