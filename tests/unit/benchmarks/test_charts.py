"""Charts show the figures that a result has, and are drawn where matplotlib is."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as entry
from benchmarks import charts, charts_budget, charts_dots, charts_findings, charts_lives, charts_matrix, charts_style
from benchmarks.charts_panels import PANELS, kind
from benchmarks.measured import figure
from benchmarks.page import RESULTS, results

ONE = figure([2.0, 1.0, 3.0])
SCALE = ["scale-control.png", "scale-data.png"]


def told(name: str) -> dict[str, Any]:
    """A result that has something of everything."""
    machine = {"processor": "p", "cores": 2}
    figures: dict[str, Any]
    if name == "matrix":
        values = (100, 10_000, 1_000_000)
        figures = {f"keys/{v}/{m}/ratio": ONE for v in values for m in ("free", "failing")}
        figures |= {f"keys/{v}/failing/first_output_ms": ONE for v in values}
    elif name == "budget":
        figures = {f"64/{what}/{task}/encode": ONE for what in ("parts", "bare") for task in ("source", "count")}
    elif name == "latency":
        figures = {f"causal.{ms}.{each}_ms": ONE for ms in (50, 500, 1000) for each in ("p50", "p75", "p95", "p99")}
    elif name == "total_failure":
        figures = {"first_row_ms": ONE, "live_ms": ONE}
    elif name in ("peers", "scale"):
        return dict(json.loads((RESULTS / ("scale/scale.json" if name == "scale" else "peers.json")).read_text()))
    else:
        figures = {each: ONE for panel in PANELS[name] for each in panel.figures}
    killed = {"latency_ms": [9.0, None, 7.5], "kills_s": [0.02], "incomplete": 1, "contradicted": 2}
    more = {"series": {"none": killed}} if name == "latency" else {}
    settings = {"sizes": [64], "keys": 1_000_000, "cores": 2}
    return {"benchmark": name, "machine": machine, "figures": figures, "settings": settings, **more}


@pytest.mark.parametrize("name", list(charts.CHARTS))
def test_a_chart_is_drawn_or_says_what_is_missing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "told.json").write_text(json.dumps(told(name)))
    given = [str(tmp_path / "told.json"), str(tmp_path / "charts" / "told.png")]
    if find_spec("matplotlib") is not None:
        assert charts.main(given) == 0
        drawn = sorted((tmp_path / "charts").iterdir())
        assert [path.name for path in drawn] == (SCALE if name == "scale" else ["told.png"])
        assert all(path.read_bytes().startswith(b"\x89PNG") for path in drawn)
        capsys.readouterr()
    monkeypatch.setattr(charts_style, "find_spec", lambda name: None)
    assert charts.main(given) == 1
    assert capsys.readouterr().err == "charts: --chart needs matplotlib; install the extra: pip install '.[bench]'\n"


def test_a_row_that_a_result_has_not_is_left_out() -> None:
    panels = charts_dots.shown("throughput", {"none_rps": ONE})
    assert [charts_dots.rows(panel, {"none_rps": ONE}) for panel in panels] == [[("none_rps", "none", ONE)]]


def test_an_axis_is_drawn_in_its_order_as_far_as_it_was_measured() -> None:
    figures = {"keys/1000000/free/ratio": ONE, "keys/100/free/ratio": ONE}
    assert [value for value, _ in charts_matrix.along(figures, "keys", "free", "ratio")] == ["100", "1000000"]
    assert charts_matrix._short("1000000") == "1M" and charts_matrix._short("0.5") == "0.5"


def test_a_part_that_a_task_has_not_takes_nothing() -> None:
    took = charts_budget.stacked({"64/parts/sink/write": ONE}, 64, "parts", "sink")
    assert sum(took) == 2.0 and took.count(0.0) == len(took) - 1


def test_what_has_no_chart_is_told_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "told.json").write_text(json.dumps({"benchmark": "guard"}))
    assert charts.main([str(tmp_path / "told.json"), str(tmp_path / "told.png")]) == 1
    assert "no chart for guard" in capsys.readouterr().err
    assert charts.main(["one"]) == 2


def test_a_chart_goes_beside_the_json_unless_a_file_is_named() -> None:
    def place(*words: str) -> Path | None:
        return entry._chart(entry._parser().parse_args(["recovery", *words]))

    assert place() is None
    assert place("--json", "a/told.json", "--chart") == Path("a/told.png")
    assert place("--chart", "b.png") == Path("b.png")
    assert place("--chart") == Path("recovery.png")


def test_without_matplotlib_nothing_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(charts_style, "find_spec", lambda name: None)
    assert entry.main(["recovery", "--chart"]) == 1
    assert "--chart needs matplotlib" in capsys.readouterr().err


def test_every_kept_result_has_a_finding_made_from_its_figures() -> None:
    found = {
        name: charts_findings.finding(each) for name, each in results().items() if name in charts_findings.FINDINGS
    }
    assert all(found.values()), found
    assert "memory" in found and "1,000,000" not in found["memory"]


def test_a_finding_changes_with_its_figures_and_needs_them() -> None:
    output = {"rows": 5, "lost": 0, "doubled": 0, "contradicted": 0}
    first = {"first_output_ms": {**ONE, "p99": 3.0}}
    result = {"benchmark": "recovery", "figures": first, "output": output, "machine": {"processor": "p", "cores": 2}}
    assert "median 2 ms, p99 3 ms; none of 5 rows lost" in charts_findings.finding(result)
    assert "1 doubled" in charts_findings.finding({**result, "output": {**output, "doubled": 1}})
    assert charts_findings.finding({**result, "figures": {}}) == ""
    assert charts_findings.title({**result, "figures": {}}) == "recovery (p, 2 cores)"


def test_goals_are_of_figures_that_are_drawn() -> None:
    for panels in PANELS.values():
        for panel in panels:
            assert {*panel.at_most, *panel.at_least} <= set(panel.figures)


def test_few_keys_are_a_result_about_memory() -> None:
    assert kind({"benchmark": "state", "settings": {"keys": 10_000}}) == "memory"
    assert kind({"benchmark": "state", "settings": {"keys": 1_000_000}}) == "state"


def test_a_resume_that_was_struck_early_has_no_time() -> None:
    lives: list[dict[str, Any]] = [{"first_row_ms": None}, {"first_row_ms": 7.0}]
    assert charts_lives.points(lives, "first_row_ms") == [(2, 7.0)]
    without = charts_lives.lives_of({"figures": {"first_row_ms": ONE, "live_ms": ONE}})
    assert without[0] == {"first_row_ms": 2.0, "live_ms": 2.0, "replayed_elements": None}


def test_numbers_on_axes_are_written_out() -> None:
    class Axis:
        def set_major_formatter(self, formatter: Any) -> None:
            self.shown = [formatter(value, 0) for value in (2_500_000, 0.001)]

    axis = Axis()
    charts_style.plain(axis)
    assert axis.shown == ["2,500,000", "0.001"]
