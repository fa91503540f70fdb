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
from benchmarks.throughput.matrix_points import AXES, Point

OPTIONS = argparse.Namespace(seconds=0.02, failing=3.0, quick=True, minutes_max=60.0)


class Counted(matrix.Jobs):
    """Jobs that only remember what was asked for; each is a record per second faster than the one before."""

    def __init__(self, last: int = 1000) -> None:
        super().__init__(OPTIONS)
        self.asked: list[tuple[Point, str]] = []
        self.last = last

    def late(self) -> bool:
        return len(self.asked) >= self.last

    def run(self, point: Point, mode: str, longer: float = 1.0) -> dict[str, float]:
        self.asked.append((point, mode))
        return {"rps": float(len(self.asked)), "cpu_us": 2.0}


@pytest.mark.parametrize("name", list(AXES))
def test_an_axis_goes_through_its_base_point_and_varies_one_thing(name: str) -> None:
    axis = AXES[name]
    assert axis.base in axis.values
    base = vars(axis.point(axis.base))
    for value in axis.values:
        changed = [field for field, setting in vars(axis.point(value)).items() if setting != base[field]]
        assert changed == ([] if value == axis.base else [axis.name])


def test_points_stand_between_two_runs_of_the_base_point() -> None:
    jobs = Counted()
    points = list(matrix._along(AXES["skew"], "free", jobs, False, {}))
    skews = [point.skew for point, _ in jobs.asked]
    assert skews == ["zipf", "uniform", "one", "zipf"]
    assert [(skew, each["rps"], each["ratio"]) for skew, each in points] == [
        ("zipf", 1, 1 / 2.5), ("zipf", 4, 4 / 2.5), ("uniform", 2, 2 / 2.5), ("one", 3, 3 / 2.5)
    ]  # fmt: skip
    assert {each["cpu_ratio"] for _, each in points} == {1}


def test_the_run_that_ends_an_axis_begins_the_next() -> None:
    jobs, shared = Counted(), dict[tuple[Point, str], dict[str, float]]()
    points = [list(matrix._along(AXES[name], "free", jobs, False, shared)) for name in ("skew", "interval", "sharing")]
    asked = [(point.skew, point.interval_s, point.depth) for point, _ in jobs.asked]
    zipf, deep = ("zipf", 1.0, 1), ("zipf", 1.0, 3)
    assert asked[:8] == [
        zipf, ("uniform", 1.0, 1), ("one", 1.0, 1), zipf, ("zipf", 0.1, 1), ("zipf", 0.5, 1), ("zipf", 5.0, 1), zipf
    ]  # fmt: skip
    assert asked[8:] == [deep] * 5  # of another depth, so its base point is its own
    assert [each["rps"] for interval, each in points[1] if interval == 1.0] == [4, 8]


def test_what_there_is_no_time_for_is_named() -> None:
    jobs = Counted(last=3)
    points = list(matrix._along(AXES["interval"], "free", jobs, False, {}))
    assert [interval for interval, _ in points] == [1.0, 0.1, 0.5]
    assert [each["ratio"] for _, each in points] == [
        1,
        2,
        3,
    ]  # of the one run of the base point
    assert not list(matrix._along(AXES["skew"], "failing", jobs, False, {}))
    assert jobs.left_out == [("interval_s 5.0", "free"), ("skew", "failing")]


class Failing(matrix.Jobs):
    """A uniform skew fails, and a skew of one key is through before its first kill unless it is given more."""

    def run(self, point: Point, mode: str, longer: float = 1.0) -> dict[str, float]:
        if point.skew == "uniform":
            raise RunFailed("it broke")
        if point.skew == "one" and longer == 1:
            raise matrix.Ended("the job ended before the first kill")
        return {"rps": longer, "cpu_us": 1.0}


def test_a_point_that_fails_is_named_and_the_others_go_on() -> None:
    jobs = Failing(OPTIONS)
    points = dict(matrix._along(AXES["skew"], "failing", jobs, False, {}))
    assert {skew: each["ratio"] for skew, each in points.items()} == {"zipf": 1.0, "one": 4.0}
    assert str(Point()) == "base point"
    [(point, problem)] = jobs.problems.items()
    assert "uniform" in point and problem == "it broke"
    text = tables.matrix({"figures": {}, "settings": {"rounds": 2}, "left_out": [], "problems": jobs.problems})
    assert "No figures for skew='uniform', failing: it broke." in text and "run 2 times" in text


def test_an_axis_whose_base_point_fails_has_no_points() -> None:
    jobs = Failing(OPTIONS)
    assert not list(matrix._along(AXES["keys"], "free", jobs, False, {}))
    assert len(jobs.problems) == 3


def test_a_quick_run_shares_the_base_point_between_axes() -> None:
    jobs, shared = Counted(), dict[tuple[Point, str], dict[str, float]]()
    for name in ("skew", "batch"):
        list(matrix._along(AXES[name], "free", jobs, True, shared))
    assert [(point.skew, point.batch) for point, _ in jobs.asked] == [("zipf", 16384), ("one", 16384), ("zipf", 65536)]


def test_without_a_guarantee_nothing_is_killed() -> None:
    jobs = Counted()
    list(matrix._along(AXES["sharing"], "failing", jobs, False, {}))
    assert "none" not in [point.sharing for point, _ in jobs.asked]


def test_large_records_are_read_fewer_at_a_time() -> None:
    assert Point(record_bytes=65536).batch_elements_max == 16
    assert Point(batch=1).batch_elements_max == 1


@pytest.mark.parametrize("skew", matrix_count.SKEWS)
def test_what_is_expected_is_what_the_source_gives(skew: str) -> None:
    table = matrix_count.keys_of(skew, 50)
    records = matrix_count.Records(skew, 50, 3)
    count = len(table) + 77
    rows = [row for p in range(matrix_count.PARTITIONS) for row in records.slices(p, 0, count)]
    assert Counter(key for key, _ in rows) == matrix_count._expected(table, count * matrix_count.PARTITIONS)
    assert {len(payload) for _, payload in rows} == {3}


def test_slices_do_not_depend_on_how_they_are_asked_for() -> None:
    records = matrix_count.Records("zipf", 100, 1)
    rows = matrix_count.ROWS_MIN
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


def test_a_point_is_run_and_its_output_checked() -> None:
    values = matrix.Jobs(OPTIONS).run(Point(keys=100, skew="uniform"), "free")
    assert values["rps"] > 0 and values["wire"] > 0


def test_a_kill_that_did_not_happen_gives_no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    report = {"cpu_s": 1.0, "throughput_rps": 5.0, "recoveries": [], "tasks": {}, "checkpoints": 1}
    monkeypatch.setattr(matrix, "_job", lambda point, records, kills: report)
    with pytest.raises(matrix.Ended, match="ended before the first kill"):
        matrix.Jobs(OPTIONS).run(Point(), "failing")


def test_a_run_without_a_checkpoint_says_nothing_of_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    report = {"cpu_s": 1.0, "throughput_rps": 5.0, "tasks": {"count0/0": {"delta_bytes": 8, "snapshot_bytes": 0}}}
    monkeypatch.setattr(matrix, "_job", lambda point, records, kills: {**report, "checkpoints": 0})
    values = matrix.Jobs(OPTIONS).run(Point(), "free")
    assert "checkpoint_bytes" not in values and values["wire"] > 0


def test_an_output_that_is_not_exactly_once_gives_no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    checked = {"rows": 9, "lost": 1, "doubled": 0, "contradicted": 0}
    monkeypatch.setattr(runs, "job", lambda *arguments: {"checked": checked})
    with pytest.raises(RunFailed, match="not exactly once"):
        matrix._job(Point(), 10, ())


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
