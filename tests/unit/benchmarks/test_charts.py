"""Charts show the figures that a result has, and are drawn where matplotlib is."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks import __main__ as entry
from benchmarks.charts import catalogue, draw, style, timeline
from benchmarks.charts.catalogue import kind
from benchmarks.harness.measured import PHASES, figure
from benchmarks.report.appendix import stored
from benchmarks.report.goals import bounds
from tests.members import members

ONE = figure([2.0, 1.0, 3.0])
SCALE = ["scale-control.png", "scale-data.png"]
RESULTS = stored()
STORED = {kind(result): result for result in RESULTS.values()} | {
    name: result for name, result in RESULTS.items() if kind(result) == name
}
"""Kind of chart → the result that is named after it, or another of that kind."""


@pytest.mark.parametrize("name", members(sorted(catalogue.WITH_CHART & STORED.keys()), "bad_input", "latency_back"))
def test_a_chart_is_drawn_or_says_what_is_missing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "result.json").write_text(json.dumps(STORED[name]))
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


@pytest.mark.parametrize("name", sorted(STORED.keys() - {"nexmark"}))
def test_every_panel_of_a_kept_result_has_something_to_show(name: str) -> None:
    result = STORED[name]
    for chart in catalogue.charts_of(result).values():
        assert "\n" in chart.title, "every figure that the title names is there"
        for panel in chart.panels:
            if isinstance(panel, style.Lines):
                assert all(len(numbers) == len(values) > 0 for numbers, values in panel.lines.values())
            else:
                assert panel.present(result["figures"]), panel


def test_rows_are_the_figures_that_match_and_are_called_by_their_groups() -> None:
    figures = {"causal_f1_cpu_us": ONE, "calm_gap_ms": ONE, "replayed": ONE}
    assert style.Rows("µs", "(.*)_cpu_us").present(figures) == {"causal_f1_cpu_us": ("causal_f1",)}
    assert style.Rows("", "replayed").present(figures) == {"replayed": ("replayed",)}
    [groups] = style.Rows("", r"(calm_)?(gap)_ms").present(figures).values()
    assert style.label(groups) == "before the kill, gap"


def test_an_axis_has_its_values_in_their_order() -> None:
    figures = {f"causal.{each}.p50_ms": ONE for each in ("5.0", "0.1", "1.0")}
    rows = style.Rows("", r"causal\.(.*)\.p50_ms").present(figures)
    assert list(rows.values()) == [("0.1",), ("1.0",), ("5.0",)]


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


def test_a_title_changes_with_its_figures_and_needs_them() -> None:
    output = {"rows": 5, "lost": 0, "doubled": 0, "contradicted": 0}
    figures = {"first_output_ms": {**ONE, "p99": 3.0}, "other": {"median": 4.0}}
    result = {"benchmark": "recovery", "figures": figures, "output": output, "machine": {"processor": "p", "cores": 2}}
    template = "{first_output_ms}, p99 {first_output_ms:p99}, × {other / first_output_ms}; {output}"
    measured = "recovery (p, 2 cores)"
    assert (
        catalogue.title(template, result) == f"2, p99 3, × 2; none of 5 rows lost, doubled or contradicted\n{measured}"
    )
    assert "1 doubled" in catalogue.title(template, {**result, "output": {**output, "doubled": 1}})
    assert catalogue.title(template, {**result, "figures": {}}) == measured


def test_goals_of_medians_are_drawn() -> None:
    assert bounds("recovery") == {"first_output_ms": 50}
    for name in STORED:
        assert set(bounds(name)) <= set(STORED[name]["figures"]), name


def test_few_keys_are_a_result_about_memory() -> None:
    assert kind({"benchmark": "state", "settings": {"keys": 10_000}}) == "memory"
    assert kind({"benchmark": "state", "settings": {"keys": 1_000_000}}) == "state"


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
