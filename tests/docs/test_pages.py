"""Compares the facts on the pages with the code."""

from __future__ import annotations

import re
from dataclasses import MISSING, fields
from pathlib import Path

import pytest

from causal.channels import wire
from causal.config import JobConfig
from deploy.jobs.resuming import IDENTITY
from docs import indexes, tables
from tests.architecture.source import PACKAGES
from tests.unit.deploy.exposition import every_family

DOCS = Path(__file__).resolve().parents[2] / "docs"


def rows(page: str, columns: int) -> list[list[str]]:
    lines = [line for line in (DOCS / page).read_text().splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if len(row) == columns]


@pytest.mark.parametrize("name", tables.PAGES)
def test_the_tables_of_a_page_are_those_of_the_code(name: str) -> None:
    page = (tables.ROOT / name).read_text()
    assert "made by docs/tables.py" in page
    assert tables.filled(page) == page, "run python docs/tables.py"


def test_where_the_time_goes_is_said_of_every_goal_that_is_missed() -> None:
    _, *rows = tables.rows_of("missed")
    explained = [figure for *_, figures in rows for figure in figures.split("; ")]
    missed = re.findall(r"^\| (.+?) \| .* \| \*\*missed\*\*", (DOCS / "figures.md").read_text(), re.MULTILINE)
    assert missed and not set(missed) - set(explained)
    assert len(explained) == len(set(explained))


@pytest.mark.parametrize("name", indexes.PAGES)
def test_an_index_lists_the_pages_of_its_folder(name: str) -> None:
    page = (indexes.ROOT / name).read_text()
    assert "made by docs/indexes.py" in page
    assert indexes.filled(page) == page, "run python docs/indexes.py"


def test_the_header_is_as_documented() -> None:
    documented_fields = [(int(o), int(b), name) for o, b, name, _ in rows("wire.md", 4) if o.isdigit()]
    place = 0
    for offset, size, _ in documented_fields:
        assert offset == place
        place += size
    assert place == wire.HEADER_BYTES
    packed = wire.Header(wire.DATA, 1, 2, 3, session=4, sequence=5, count=6, position=7, plain_bytes=8).pack()
    at = {name: packed[offset : offset + size] for offset, size, name in documented_fields}
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
    section = re.search(r"<!-- settings: .*? -->(.*?)<!-- end -->", (DOCS / "operations.md").read_text(), re.DOTALL)
    assert section is not None
    documented = dict(re.findall(r"^\| `(\w+)` \| `?([^|`]*)`? \|", section[1], re.MULTILINE))
    defaults = {f.name: "" if f.default is MISSING else f.default for f in fields(JobConfig) if f.name not in IDENTITY}
    assert documented.keys() == defaults.keys() >= {"settings"}
    for name, default in defaults.items():
        assert documented[name].strip() == ("full" if name == "sharing_depth" else str(default) or "–"), name


def test_every_metric_is_documented_with_its_kind_and_labels() -> None:
    section = re.search(r"<!-- metrics: .*? -->(.*?)<!-- end -->", (DOCS / "guide/metrics.md").read_text(), re.DOTALL)
    assert section is not None
    documented = {
        name: (kind, labels)
        for name, kind, labels in re.findall(r"^\| `(\w+)` \| (\w+) \| ([^|]*?) ?\|", section[1], re.M)
    }
    exported = {}
    for family in every_family():
        name = family.name + {"counter": "_total", "info": "_info"}.get(family.type, "")
        labels = [label for label in family.samples[0].labels if label not in ("job", "le")]
        exported[name] = (family.type, ", ".join(labels))
    assert documented == exported


def test_every_rule_that_is_cited_is_in_the_list_of_rules() -> None:
    listed = re.findall(r"^\* \*\*(D\d+)\. ", (DOCS / "design" / "README.md").read_text(), re.MULTILINE)
    assert listed == [f"D{number}" for number in range(1, len(listed) + 1)]
    places = [
        *DOCS.rglob("*.md"),
        *(path for package in (*PACKAGES, "tests") for path in (DOCS.parent / package).rglob("*.py")),
    ]
    cited = {rule: path for path in sorted(places) for rule in re.findall(r"\bD[1-9]\d?\b", path.read_text())}
    assert cited.keys() <= set(listed), {rule: cited[rule] for rule in cited.keys() - set(listed)}


@pytest.mark.parametrize(
    ("name", "sought"),
    [
        ("cookbook/deduplication.md", "deduplicat"),
        ("guide/outside.md", "retries"),
        ("guarantees.md", "exactly once"),
        ("cookbook/late_data.md", "late"),
    ],
)
def test_a_page_has_in_its_title_the_word_for_which_readers_search(name: str, sought: str) -> None:
    """The search of the site prefers words of titles."""
    title = (DOCS / name).read_text().splitlines()[0]
    assert title.startswith("# ") and sought in title.lower()
