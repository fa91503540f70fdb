"""Compares the facts on the pages with the code."""

from __future__ import annotations

import re
from dataclasses import MISSING, fields
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from causal.channels import wire
from causal.config import JobConfig
from deploy.metrics import COUNTERS, GAUGES, ViewCollector
from tests.unit.deploy.test_report import several, view

DOCS = Path(__file__).resolve().parents[2] / "docs"


def rows(page: str, columns: int) -> list[list[str]]:
    lines = [line for line in (DOCS / page).read_text().splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if len(row) == columns]


def test_the_header_is_as_documented() -> None:
    fields_told = [(int(o), int(b), name) for o, b, name, _ in rows("wire.md", 4) if o.isdigit()]
    place = 0
    for offset, size, _ in fields_told:
        assert offset == place
        place += size
    assert place == wire.HEADER_BYTES
    packed = wire.Header(wire.DATA, 1, 2, 3, session=4, sequence=5, count=6, position=7, plain_bytes=8).pack()
    at = {name: packed[offset : offset + size] for offset, size, name in fields_told}
    documented = {
        name: int.from_bytes(at[name], "little") for name in ("job", "channel", "incarnation", "session", "sequence")
    }
    assert documented == {"job": 1, "channel": 2, "incarnation": 3, "session": 4, "sequence": 5}
    assert (at["count"][0], at["position"][0], at["plain_bytes"][0]) == (6, 7, 8)


def test_the_kinds_are_as_documented() -> None:
    documented = {
        name: (int(number), int(parts)) for name, number, parts, _, _ in rows("wire.md", 5) if number.isdigit()
    }
    assert dict(documented.values()) == wire.KINDS
    assert all(getattr(wire, name) == number for name, (number, _) in documented.items())


def test_every_setting_is_documented_with_its_default() -> None:
    section = re.search(r"<!-- settings -->(.*?)<!-- end -->", (DOCS / "operations.md").read_text(), re.DOTALL)
    assert section is not None
    documented = dict(re.findall(r"^\| `(\w+)` \| `?([^|`]*)`? \|", section[1], re.MULTILINE))
    ours = ("run", "name", "pipeline", "code", "first_incarnation", "format", "settings")
    defaults = {f.name: "" if f.default is MISSING else f.default for f in fields(JobConfig) if f.name not in ours}
    assert documented.keys() == defaults.keys()
    for name, default in defaults.items():
        assert documented[name].strip() == ("full" if name == "sharing_depth" else str(default) or "–"), name


def test_every_metric_is_documented_with_its_kind_and_labels() -> None:
    section = re.search(r"<!-- metrics -->(.*?)<!-- end -->", (DOCS / "operations.md").read_text(), re.DOTALL)
    assert section is not None
    documented = {
        name: (kind, labels)
        for name, kind, labels in re.findall(r"^\| `(\w+)` \| (\w+) \| ([^|]*?) ?\|", section[1], re.M)
    }
    full = several()
    for task in full["tasks"]:
        task["figures"] |= dict.fromkeys([*COUNTERS, *GAUGES], 1)
        task["figures"] |= {"counts": {"w": {"late": 1}}, "determinant_bytes": {"order": 1}}
    exported = {}
    for family in ViewCollector(lambda: full).collect():
        assert family.samples, f"{family.name} has no sample in the view of this test"
        name = family.name + ("_total" if family.type == "counter" else "")
        labels = [label for label in family.samples[0].labels if label not in ("job", "le")]
        exported[name] = (family.type, ", ".join(labels))
    assert documented == exported


def test_the_page_of_metrics_is_what_prometheus_reads() -> None:
    registry = CollectorRegistry()
    registry.register(ViewCollector(view))
    families = {family.name: family for family in text_string_to_metric_families(generate_latest(registry).decode())}
    assert all(family.documentation for family in families.values())
    buckets = {s.labels["le"]: s.value for s in families["causal_latency_seconds"].samples}
    assert (buckets["0.001"], buckets["0.0025"], buckets["+Inf"]) == (50, 90, 90)
