"""`guarantees` runs, with few records, and makes of rows and stamps the gaps that are there."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.charts.catalogue import CHARTS
from benchmarks.charts.style import Rows
from benchmarks.harness.measured import longest_gap_ms
from benchmarks.harness.runs import RunFailed
from tests.unit.benchmarks.test_benchmarks import measured


@pytest.mark.campaign
def test_a_guarantee_has_its_cost_and_what_a_death_does_under_it(tmp_path: Path) -> None:
    short = ("--records", "4000", "--rounds", "1", "--rate", "1000", "--calm", "2", "--after", "1.5")
    figures = measured(
        tmp_path / "outcome.json", "guarantees", "--only", "epoch", *short, "--checkpoint-interval", "0.4"
    )["figures"]
    wrong = [figures[f"epoch.{name}"]["median"] for name in ("lost", "doubled", "contradicted")]
    assert wrong == [0, 0, 0]
    assert figures["epoch.p99_ms"]["median"] >= figures["epoch.p50_ms"]["median"] > 0
    assert figures["epoch.gap_ms"]["median"] > 0 and figures["epoch.rps"]["median"] > 0
    _, panels = CHARTS["guarantees"]
    assert [len(panel.present(figures)) for panel in panels if isinstance(panel, Rows)] == [1, 2, 2, 1]


def test_a_gap_counts_where_it_ends() -> None:
    seen_ns = [0, 1_000_000, 5_000_000, 6_000_000]
    assert longest_gap_ms(seen_ns, 0, 5_000_000) == 1
    assert longest_gap_ms(seen_ns, 2_000_000, 9_000_000) == 4
    assert longest_gap_ms(seen_ns, 7_000_000, 9_000_000, none_ms=2) == 2
    with pytest.raises(RunFailed, match="no row was seen"):
        longest_gap_ms(seen_ns, 7_000_000, 9_000_000)
