"""Charts show the figures that a result has, and are drawn where matplotlib is."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as entry
from benchmarks.charts import draw, findings, layouts, style, timeline
from benchmarks.charts.panels import PANELS, kind
from benchmarks.harness.measured import PHASES, RESULTS, figure
from benchmarks.report.appendix import stored

ONE = figure([2.0, 1.0, 3.0])
SCALE = ["scale-control.png", "scale-data.png"]


def result(name: str) -> dict[str, Any]:
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


@pytest.mark.parametrize("name", sorted(draw.CHARTS))
def test_a_chart_is_drawn_or_says_what_is_missing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "result.json").write_text(json.dumps(result(name)))
    arguments = [str(tmp_path / "result.json"), str(tmp_path / "charts" / "chart.png")]
    if find_spec("matplotlib") is not None:
        assert draw.main(arguments) == 0
        drawn = sorted((tmp_path / "charts").iterdir())
        assert [path.name for path in drawn] == (SCALE if name == "scale" else ["chart.png"])
        assert all(path.read_bytes().startswith(b"\x89PNG") for path in drawn)
        capsys.readouterr()
    monkeypatch.setattr(style, "find_spec", lambda name: None)
    assert draw.main(arguments) == 1
    assert capsys.readouterr().err == "charts: --chart needs matplotlib; install the extra: pip install '.[bench]'\n"


@pytest.mark.parametrize("name", sorted(layouts.LAYOUTS))
def test_every_panel_of_a_chart_has_something_to_show(name: str) -> None:
    for chart in layouts.LAYOUTS[name](result(name)).values():
        shown = [panel for panel in chart.panels if isinstance(panel, style.Lines) or panel.present(chart.figures)]
        assert shown
        for panel in shown:
            if isinstance(panel, style.Lines):
                assert all(len(numbers) == len(values) > 0 for numbers, values in panel.lines.values())


def test_a_row_that_a_result_lacks_is_left_out() -> None:
    rows = [panel.present({"none_rps": ONE}) for panel in PANELS["throughput"]]
    assert [names for names in rows if names] == [["none_rps"]]


def test_an_axis_has_its_values_in_their_order() -> None:
    figures = {"keys/1000000/free/ratio": ONE, "keys/100/free/ratio": ONE}
    [chart] = layouts.LAYOUTS["matrix"]({"figures": figures}).values()
    shown = [panel.present(figures) for panel in chart.panels if isinstance(panel, style.Rows)]
    assert [names for names in shown if names] == [["keys/100/free/ratio", "keys/1000000/free/ratio"]]


def test_a_part_is_the_sum_over_the_tasks_that_have_it() -> None:
    [chart] = layouts.LAYOUTS["budget"](result("budget")).values()
    assert chart.figures["64/parts/encode"] == {"runs": [], "median": 4.0, "min": 2.0, "max": 6.0}
    assert list(chart.figures) == ["64/parts/encode", "64/bare/encode"]


def test_what_has_no_chart_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "result.json").write_text(json.dumps({"benchmark": "guard"}))
    assert draw.main([str(tmp_path / "result.json"), str(tmp_path / "chart.png")]) == 1
    assert "no chart for guard" in capsys.readouterr().err
    assert draw.main(["one"]) == 2


def test_a_chart_is_beside_the_json_unless_a_file_is_named() -> None:
    def place(*words: str) -> Path | None:
        return entry._chart(entry._parser().parse_args(["recovery", *words]))

    assert place() is None
    assert place("--json", "a/result.json", "--chart") == Path("a/result.png")
    assert place("--chart", "b.png") == Path("b.png")
    assert place("--chart") == Path("recovery.png")


def test_without_matplotlib_nothing_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(style, "find_spec", lambda name: None)
    assert entry.main(["recovery", "--chart"]) == 1
    assert "--chart needs matplotlib" in capsys.readouterr().err


def test_every_kept_result_has_a_finding_made_from_its_figures() -> None:
    known = {*findings.TEMPLATES, *findings.FINDINGS}
    sentences = {name: findings.finding(each) for name, each in stored().items() if name in known}
    assert all(sentences.values()), sentences
    assert "memory" in sentences and "1,000,000" not in sentences["memory"]
    assert all(findings.finding(result("scale"), part) for part in ("control", "data"))


def test_a_finding_changes_with_its_figures_and_needs_them() -> None:
    output = {"rows": 5, "lost": 0, "doubled": 0, "contradicted": 0}
    first = {"first_output_ms": {**ONE, "p99": 3.0}}
    kept = {"benchmark": "recovery", "figures": first, "output": output, "machine": {"processor": "p", "cores": 2}}
    assert "median 2 ms, p99 3 ms; none of 5 rows lost" in findings.finding(kept)
    assert "1 doubled" in findings.finding({**kept, "output": {**output, "doubled": 1}})
    assert findings.finding({**kept, "figures": {}}) == ""
    assert findings.title({**kept, "figures": {}}) == "recovery (p, 2 cores)"


def test_goals_are_of_figures_that_are_drawn() -> None:
    for panels in PANELS.values():
        for panel in panels:
            assert {*panel.at_most, *panel.at_least} <= set(panel.figures)


def test_few_keys_are_a_result_about_memory() -> None:
    assert kind({"benchmark": "state", "settings": {"keys": 10_000}}) == "memory"
    assert kind({"benchmark": "state", "settings": {"keys": 1_000_000}}) == "state"


def test_a_resume_that_was_struck_early_has_no_time() -> None:
    resumes: list[dict[str, Any]] = [{"first_row_ms": None}, {"first_row_ms": 7.0}]
    assert layouts.points(resumes, "first_row_ms") == ([2.0], [7.0])
    without = layouts.lives_of({"figures": {"first_row_ms": ONE, "live_ms": ONE}})
    assert without[0] == {"first_row_ms": 2.0, "live_ms": 2.0, "replayed_elements": None}


def test_the_picture_of_a_recovery_is_that_of_its_result() -> None:
    result = stored()["recovery"]
    assert timeline.PICTURE.read_text() == timeline.drawn(result), "run python -m benchmarks.charts.timeline"
    typical = timeline.typical(result)
    assert typical in result["recoveries"]
    root = ElementTree.fromstring(timeline.drawn(result))
    texts = {element.text for element in root.iter("{http://www.w3.org/2000/svg}text")}
    assert f"{typical['first_output_ms']:.1f} ms" in texts and f"{typical['promoted_ms']:.1f}" in texts


def test_the_typical_recovery_is_near_the_median_in_every_phase() -> None:
    def recovery(*phases_ms: float) -> dict[str, float]:
        return dict(zip(PHASES, phases_ms, strict=True))

    recoveries = [recovery(1, 2, 9, 30, 30), recovery(3, 4, 10, 34, 33), recovery(9, 20, 40, 34, 34)]
    figures = {phase: figure([each[phase] for each in recoveries]) for phase in PHASES}
    assert timeline.typical({"figures": figures, "recoveries": recoveries}) is recoveries[1]


def test_numbers_on_axes_are_written_out() -> None:
    class Axis:
        def set_major_formatter(self, formatter: Any) -> None:
            self.shown = [formatter(value, 0) for value in (2_500_000, 0.001)]

    axis = Axis()
    style.plain(axis)
    assert axis.shown == ["2,500,000", "0.001"]
