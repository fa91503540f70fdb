"""The queries of the dashboard and of the alerts, and the metrics and labels that they name."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[3]
DASHBOARD = ROOT / "deploy" / "grafana" / "causal.json"
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yml"
CONFIGURATION = ROOT / "deploy" / "prometheus" / "prometheus.yml"
_METRIC = re.compile(r"\bcausal_\w+")
_GROUPED = re.compile(r"\bby \(([^)]*)\)")
_MATCHED = re.compile(r"\{([^}]*)\}")
_SHOWN = re.compile(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}")


def alerts() -> list[dict[str, Any]]:
    """Return the rules of the file of alerts."""
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    """Return the dashboard."""
    loaded: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return loaded


def targets() -> list[tuple[str, str, str]]:
    """(title of the panel, expression, legend) of every query of the dashboard."""
    panels = [panel for panel in dashboard()["panels"] if panel["type"] != "row"]
    return [(panel["title"], each["expr"], each["legendFormat"]) for panel in panels for each in panel["targets"]]


def metrics_of(expression: str) -> set[str]:
    """Return the metrics that an expression names."""
    return set(_METRIC.findall(expression))


def labels_of(expression: str) -> set[str]:
    """Return the labels by which an expression groups or selects."""
    grouped = {name.strip() for group in _GROUPED.findall(expression) for name in group.split(",")}
    matched = {part.split("=")[0].rstrip("!~ ") for group in _MATCHED.findall(expression) for part in group.split(",")}
    return grouped | matched - {""}


def shown_labels(text: str) -> set[str]:
    """Return the labels that a legend or an annotation shows."""
    return set(_SHOWN.findall(text))
