"""The matrix varies one thing at a time, compares with its base point, and checks every output."""

from __future__ import annotations

import argparse
import json
import sqlite3
from array import array
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness import runs
from benchmarks.harness.runs import RunFailed
from benchmarks.jobs import matrix_count
from benchmarks.report import tables
from benchmarks.throughput import matrix
from benchmarks.throughput.matrix import AXES, Point

OPTIONS = argparse.Namespace(seconds=0.02, failing=3.0, quick=True, minutes_max=60.0)


@pytest.mark.parametrize("name", list(AXES))
def test_an_axis_goes_through_its_base_point_and_varies_one_thing(name: str) -> None:
    axis = AXES[name]
    assert axis.base in axis.values
    base = vars(axis.point(axis.base))
    for value in axis.values:
        changed = [field for field, setting in vars(axis.point(value)).items() if setting != base[field]]
        assert changed == ([] if value == axis.base else [axis.name])


def test_points_stand_between_two_runs_of_the_base_point() -> None:
    assert AXES["skew"].order("free", False) == ["zipf", "uniform", "one", "zipf"]
    assert AXES["skew"].order("free", True) == ["zipf", "one"]
    assert "none" in AXES["sharing"].order("free", False)
    assert "none" not in AXES["sharing"].order("failing", False), "without a guarantee nothing is killed"


def test_every_run_is_compared_with_the_mean_of_the_base_point() -> None:
    measured = [(value, {"rps": rps, "cpu_us": 2.0}) for value, rps in (("zipf", 1.0), ("one", 3.0), ("zipf", 4.0))]
    ratios = [(value, values["ratio"], values["cpu_ratio"]) for value, values in matrix.compared("zipf", measured)]
    assert ratios == [("zipf", 1 / 2.5, 1), ("one", 3 / 2.5, 1), ("zipf", 4 / 2.5, 1)]
    assert not list(matrix.compared("zipf", measured[1:2])), "a base point that failed is no measure"


def test_a_point_that_fails_is_named_and_the_others_still_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_point(point: Point, mode: str, options: argparse.Namespace) -> dict[str, float]:
        if point.skew == "uniform":
            raise RunFailed("it broke")
        return {"rps": 1.0, "cpu_us": 1.0}

    monkeypatch.setattr(matrix, "run_point", run_point)
    parser = argparse.ArgumentParser()
    matrix.BENCHMARK.add_options(parser)
    result = matrix.BENCHMARK.measure(parser.parse_args(["--axis", "skew"]), "matrix", print)
    assert result["problems"] == dict.fromkeys(("skew='uniform', free", "skew='uniform', failing"), "it broke")
    assert result["failed"] and len(result["figures"]["skew/zipf/free/ratio"]["runs"]) == 2
    assert "No figures for skew='uniform', failing: it broke." in tables.matrix(result)


def test_large_records_are_read_fewer_at_a_time() -> None:
    assert Point(record_bytes=65536).batch_elements_max == 16
    assert Point(batch=1).batch_elements_max == 1


@pytest.mark.parametrize("skew", matrix_count.SKEWS)
def test_what_is_expected_is_what_the_source_gives(skew: str) -> None:
    table = matrix_count.keys_of(skew, 50)
    count = len(table) + 77
    records = matrix_count.Records(skew, 50, 3, count)
    records.make()
    rows = [row for p in range(matrix_count.PARTITIONS) for row in records.slices(p, 0, count)]
    assert Counter(key for key, _ in rows) == matrix_count.expected_of(table, count * matrix_count.PARTITIONS)
    assert {len(payload) for _, payload in rows} == {3}


def test_slices_do_not_depend_on_how_they_are_asked_for() -> None:
    rows = matrix_count.ROWS_MIN
    records = matrix_count.Records("zipf", 100, 1, rows)
    records.make()
    at_once = records.slices(1, rows - 10, rows + 10)
    assert at_once == records.slices(1, rows - 10, rows - 3) + records.slices(1, rows - 3, rows + 10)


def test_the_check_of_rows_finds_what_is_wrong(tmp_path: Path) -> None:
    def checked(name: str, rows: list[tuple[int, int]]) -> dict[str, int]:
        database = sqlite3.connect(tmp_path / name)
        database.execute(matrix_count._TABLE)
        blob = array("q", chain.from_iterable(rows)).tobytes()
        database.execute("INSERT INTO packed VALUES('out/0', 0, ?)", (blob,))
        database.commit()
        database.close()
        return matrix_count.check(tmp_path / name, "one", 10, 4)

    exact = [(1, 1), (1, 2), (1, 3), (1, 4)]
    assert checked("exact", exact) == {"rows": 4, "lost": 0, "doubled": 0, "contradicted": 0}
    assert checked("short", exact[:3])["lost"] == 1
    assert checked("twice", [*exact, (1, 4)])["doubled"] == 1
    assert checked("skips", [*exact[:2], (1, 4)])["contradicted"] == 1
    assert checked("foreign", [*exact, (7, 1)])["contradicted"] == 1


REPORT = {"cpu_s": 1.0, "throughput_rps": 5.0, "recoveries": [], "checkpoints": 0}


def test_a_point_is_run_and_its_output_checked() -> None:
    values = matrix.run_point(Point(keys=100, skew="uniform"), "free", OPTIONS)
    assert values["rps"] > 0 and values["wire"] > 0


def test_a_kill_that_did_not_happen_gives_no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix, "job", lambda point, records, kills: {**REPORT, "tasks": {}})
    with pytest.raises(RunFailed, match="ended before the first kill"):
        matrix.run_point(Point(depth=7), "failing", OPTIONS)


def test_a_run_without_a_checkpoint_says_nothing_of_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = {"count0/0": {"delta_bytes": 8, "snapshot_bytes": 0}}
    monkeypatch.setattr(matrix, "job", lambda point, records, kills: {**REPORT, "tasks": tasks})
    values = matrix.run_point(Point(depth=7), "free", OPTIONS)
    assert "checkpoint_bytes" not in values and values["wire"] > 0


def test_an_output_that_is_not_exactly_once_gives_no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    checked = {"rows": 9, "lost": 1, "doubled": 0, "contradicted": 0}
    monkeypatch.setattr(runs, "job", lambda *arguments: {"checked": checked})
    with pytest.raises(RunFailed, match="not exactly once"):
        matrix.job(Point(), 10, ())


def test_nothing_begins_after_the_time_is_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from benchmarks.__main__ import main

    assert main(["matrix", "--axis", "skew", "--minutes-max", "0", "--json", str(tmp_path / "outcome.json")]) == 1
    assert "no time for anything" in capsys.readouterr().err


def test_a_table_has_a_row_for_each_value_and_mode() -> None:
    one: dict[str, Any] = {"median": 1000.0, "min": 900.0, "max": 1100.0, "runs": [900.0, 1000.0, 1100.0]}
    figures = {f"keys/{keys}/free/rps": one for keys in (100, 10_000)}
    result = {"figures": figures, "settings": {"rounds": 1}, "left_out": ["size, free"]}
    text = tables.matrix(json.loads(json.dumps(result)))
    assert "| 100 | free | 1,000 [900–1,100] |" in text and "| 10,000 | free |" in text
    assert "1,000,000" not in text and "Not measured, for there was no time: size, free." in text
