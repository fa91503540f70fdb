"""Charts show the figures that a result has, and are drawn where matplotlib is."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as entry
from benchmarks import charts, charts_budget, charts_dots, charts_matrix, charts_style
from benchmarks.measured import figure

ONE = figure([2.0, 1.0, 3.0])


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
    else:
        figures = {each: ONE for panel in charts_dots.PANELS[name] for each in panel.figures}
    killed = {"latency_ms": [9.0, None, 7.5], "kills_s": [0.02], "incomplete": 1, "contradicted": 2}
    more = {"series": {"none": killed}} if name == "latency" else {}
    return {"benchmark": name, "machine": machine, "figures": figures, "settings": {"sizes": [64]}, **more}


@pytest.mark.parametrize("name", list(charts.CHARTS))
def test_a_chart_is_drawn_or_says_what_is_missing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "told.json").write_text(json.dumps(told(name)))
    given = [str(tmp_path / "told.json"), str(tmp_path / "charts" / "told.png")]
    if find_spec("matplotlib") is not None:
        assert charts.main(given) == 0
        assert (tmp_path / "charts" / "told.png").read_bytes().startswith(b"\x89PNG")
        capsys.readouterr()
    monkeypatch.setattr(charts_style, "find_spec", lambda name: None)
    assert charts.main(given) == 1
    assert capsys.readouterr().err == "charts: --chart needs matplotlib; install the extra: pip install '.[bench]'\n"


def test_a_row_that_a_result_has_not_is_left_out() -> None:
    panels = charts_dots.shown("throughput", {"none_rps": ONE})
    assert [charts_dots.rows(panel, {"none_rps": ONE}) for panel in panels] == [[("none", ONE)]]


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
