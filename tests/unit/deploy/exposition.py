"""Every metric that a job can have, and the conventions that each of them keeps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from prometheus_client import Metric

from causal.topology import LETTER_TASK
from deploy.monitoring.metrics import ViewCollector
from standby.supervision.figures import FIGURES
from standby.supervision.job_view import JobView
from tests.unit.deploy.test_report import several, task

LABELS = frozenset(
    ("job", "operator", "task", "host", "kind", "mode", "phase", "reason", "le", "version", "python_version")
)
"""None of them has more values than the job has tasks, operators or hosts, or than the code names."""

NOT_BASE_UNITS = ("_ms", "_s", "_us", "_ns", "_milliseconds", "_minutes", "_kb", "_mb", "_kilobytes", "_percent")


def full_view() -> dict[str, Any]:
    """Return the view of a job that has every figure."""
    full = several()
    full["tasks"].append(task(LETTER_TASK, "sink", dead_letters=1))
    full["tasks"][0]["shadow"] = {"slot": "w9", "epoch": 3, "behind": 12, "compared": 2, "difference": ""}
    figures = [figure.name for figure in FIGURES if figure.metric]
    for each in full["tasks"]:
        each["figures"] |= dict.fromkeys(figures, 1)
        each["figures"] |= {"counts": {"w": {"late": 1}}, "determinant_bytes": {"order": 1}}
    full["refused_connections"] = 1
    full["recording"] = {"bytes": 1, "first": 0, "end": 9, "span_s": 8.5, "problem": ""}
    return full


def every_family() -> list[Metric]:
    """Return the families that the page shows of that view."""
    return [*ViewCollector(lambda: JobView.of(full_view()), lambda: 0.5).collect()]


def breaches(families: Iterable[Metric]) -> list[str]:
    """Return what breaks a convention of OpenMetrics or Prometheus, a line each."""
    return [f"{family.name}: {breach}" for family in families for breach in _breaches(family)]


def _breaches(family: Metric) -> Iterator[str]:
    name = family.name
    if not name.startswith("causal_") or name != name.lower() or "__" in name:
        yield "the name is not causal_ and words in lower case"
    if name.endswith(("_total", "_count", "_sum", "_bucket", "_info", "_created")):
        yield "the suffix is for samples"
    if name.endswith(NOT_BASE_UNITS):
        yield "the unit is no base unit"
    unit = next((unit for unit in ("seconds", "bytes", "ratio") if name.endswith(f"_{unit}")), "")
    if family.unit != unit:
        yield f"the unit is {family.unit!r}, and the name says {unit!r}"
    if family.type == "histogram" and unit != "seconds":
        yield "a histogram without a unit"
    if family.type not in ("counter", "gauge", "histogram", "info"):
        yield f"the kind {family.type}"
    if not family.documentation.endswith(".") or not family.documentation[0].isupper():
        yield "the help is no sentence"
    if not family.samples:
        yield "no sample"
    for sample in family.samples:
        if not set(sample.labels) <= LABELS:
            yield f"the labels {sorted(set(sample.labels) - LABELS)} are not bounded"
        if "job" not in sample.labels:
            yield "no label job"
        if family.type == "counter" and not sample.name.endswith("_total"):
            yield f"a counter whose sample is {sample.name}"
    if family.type == "histogram":
        kinds = {sample.name.removeprefix(name) for sample in family.samples}
        if kinds != {"_bucket", "_count", "_sum"}:
            yield f"a histogram of {sorted(kinds)}"
