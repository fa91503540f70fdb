"""The programs of `ordinary` give the rows of its model, wrong rows are refused, and a result has what it promises."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import page
from benchmarks.__main__ import main
from benchmarks.harness import runs
from benchmarks.peers import checks, comparison, ordinary, venvs
from benchmarks.peers.programs import inputs
from benchmarks.peers.programs.ordinary import model, one_process, pipelines, user_code
from benchmarks.peers.programs.ordinary.joins_by_hand import AsOf, Interval
from benchmarks.report import appendix, main_figures
from operators import Pipeline
from operators.sinks import SqliteSink
from operators.testing import run
from tests.members import except_for

RECORDS = 6_000
"""A join has pairs with this many: a user pays a thousand records before the order."""
WORKLOADS = list(user_code.WORKLOADS)


def expected_rows(workload: str) -> list[Any]:
    return list(map(verified_of(workload), model.ROWS[workload](RECORDS)))


def verified_of(workload: str) -> Callable[[Any], Any]:
    return user_code.WORKLOADS[workload].verified or tuple


@pytest.mark.parametrize("workload", WORKLOADS)
def test_the_bare_job_gives_the_rows_of_the_model(workload: str) -> None:
    rows = [row for batch in one_process.rows_of(workload, RECORDS) for row in batch]
    assert sorted(map(verified_of(workload), rows)) == sorted(expected_rows(workload))


@pytest.mark.parametrize("workload", except_for(WORKLOADS, "sliding", "running"))
def test_our_pipeline_gives_the_rows_of_the_model(workload: str) -> None:
    pipeline = Pipeline("ordinary")
    pipelines.built(pipeline, workload, RECORDS).sink("out", SqliteSink("out.db"))
    rows = run(pipeline, batch=256)["out"]
    verified = pipelines.VERIFIED.get(workload, verified_of(workload))
    assert sorted(map(verified, rows)) == sorted(expected_rows(workload))


@pytest.mark.parametrize("workload", WORKLOADS)
def test_the_model_has_rows_that_differ(workload: str) -> None:
    rows = expected_rows(workload)
    assert len(set(rows)) > 1 and model.expected(workload, RECORDS)["rows"] == len(rows)


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("change", ["none", "lost", "doubled", "another"])
def test_the_tally_of_wrong_rows_is_refused(workload: str, change: str, tmp_path: Path) -> None:
    rows = list(model.ROWS[workload](RECORDS))
    changed = {"none": rows, "lost": rows[1:], "doubled": [*rows, rows[-1]], "another": [rows[-1], *rows[1:]]}[change]
    tally = user_code.tally_of(workload, tmp_path)
    tally.add(changed)
    tally.write()
    output, expected = checks.merged(tmp_path, str), json.loads(json.dumps(model.expected(workload, RECORDS)))
    if change == "none":
        checks.check_rows(output, expected)
        return
    with pytest.raises(checks.WrongOutput):
        checks.check_rows(output, expected)


def test_columns_are_tallied_as_rows(tmp_path: Path) -> None:
    rows, columns = (user_code.Digest(tmp_path, tuple) for _ in range(2))
    rows.add([("a", 1), ("b", 2)])
    columns.add_columns(["b", "a"], [2, 1])
    assert (rows.rows, rows.total) == (columns.rows, columns.total)


@pytest.mark.parametrize("late_side", [0, 1])
def test_a_join_by_hand_does_not_depend_on_which_side_is_read_first(late_side: int) -> None:
    def sides(workload: str, *names: str) -> list[list[Any]]:
        every, counts = user_code.WORKLOADS[workload].inputs, user_code.WORKLOADS[workload].counts(RECORDS)
        return [[every[name][0](0, i) for i in range(counts[name])] for name in names]

    for workload, key, logic, names in (
        ("join", "user", Interval, ("orders", "payments")),
        ("as_of", "item", AsOf, ("sales", "prices")),
    ):
        keys: dict[str, Any] = {}
        rows: list[Any] = []
        tagged = [(record["ts"], side, record) for side, of in enumerate(sides(workload, *names)) for record in of]
        for _, side, record in sorted(tagged, key=lambda each: each[0] + (each[1] == late_side)):
            keys.setdefault(record[key], logic()).take(side, record, rows)
        for each in keys.values():
            if isinstance(each, AsOf):
                each.end(rows)
        wanted = [
            row for row in model.ROWS[workload](RECORDS) if int(row["user" if key == "user" else "item"][4:]) % 2 == 0
        ]
        verified = verified_of(workload)
        assert rows and sorted(map(verified, rows)) == sorted(map(verified, wanted))


SPEEDS = {
    "ours": 300.0, "ours_stages": 290.0, "ours_none": 310.0, "bare": 200.0, "2_processes": 100.0, "2_workers": 79.0,
    "1_worker": 81.0,
}  # fmt: skip


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, dict[str, Any], list[str]]]:
    """Runs the benchmark with made-up speeds: (status, result, names of the runs in their order)."""

    def measure(*words: str, broken: str = "") -> tuple[int, dict[str, Any], list[str]]:
        names: list[str] = []

        def run_one(program: str, python: Path, asked: Any, limit_s: float) -> Any:
            configurations = {tuple(each.items()): name for name, each in ordinary.CONFIGURATIONS.items()}
            name = {comparison.OURS: "ours", ordinary.BARE: "bare"}.get(program) or configurations[
                ("processes", asked["processes"]), ("workers", asked["workers"])
            ]
            for option, of_option in (("--guarantee=none", "_none"), ("--processes=stages", "_stages")):
                name += of_option * (option in asked.get("options", ()))
            names.append(name + "_recovery" * asked.get("recovery", False))
            if names[-1] == broken:
                raise checks.WrongOutput("the rows are wrong")
            return {"rps": SPEEDS[name], "cpu_us": 3.0, "peak_mib": 90.0, "start_s": 1.0}, {}

        monkeypatch.setattr(comparison, "run", run_one)
        monkeypatch.setattr(venvs, "interpreter", lambda *_: tmp_path)
        path = tmp_path / "outcome.json"
        status = main(["ordinary", "--records", "20", "--json", str(path), *words])
        return status, json.loads(path.read_text()), names

    return measure


def test_a_result_has_the_figures_of_the_contract(measured: Any) -> None:
    status, result, names = measured("--workload", "profile,join", "--rounds", "2")
    assert status == 0 and list(result["workloads"]) == ["profile", "join"]
    for name, each in result["workloads"].items():
        assert {figure: each[figure] for figure in ordinary.CONTRACT} == {
            "ours_rps": 300, "ours_none_rps": 310, "bytewax_rps": 100, "bare_rps": 200, "ratio": 3.0,
            "efficiency": 300 / (200 * result["settings"]["cores"]),
        }  # fmt: skip
        assert each["fastest"] == "bytewax_2_processes" and each["records"] == 20
        assert result["figures"][f"{name}.ratio"]["runs"] == [3.0, 3.0]
        assert result["figures"][f"{name}.ratio_stages"]["runs"] == [2.9, 2.9]
        assert result["figures"][f"{name}.memory_stages"]["runs"] == [1.0, 1.0]
        assert {f"{name}.bytewax_recovery_{what}" for what in ordinary.PER_RUN} <= result["figures"].keys()
    assert result["settings"]["records"] == {"profile": 20, "join": 20}
    assert {"benchmark", "command", "measured", "machine", "versions"} <= result.keys()


def test_the_table_of_the_comparison_is_made_from_the_result(measured: Any) -> None:
    """The page keeps its table as long as there is no result; a workload that is slower here stands out."""
    _, result, _ = measured("--workload", "profile,join", "--rounds", "1")
    for what in ("median", "min", "max"):
        result["figures"]["join.ratio"][what] = 0.5
    table = main_figures.beside_bytewax(result)
    assert "| own operator | 300 / 100 | 3 | 90 / 90 | 3 / 3 | 1 / 1 |" in table
    assert "| interval join | 300 / 100 | **0.5** |" in table
    assert result["command"] in table and result["measured"]["date"] in table

    stored = {name: each for name, each in appendix.stored().items() if name != "ordinary"}
    assert main_figures.ORDINARY not in main_figures.contents(stored)
    by_name = {name: (path, text) for path, name, text in page.contents({**stored, "ordinary": result})}
    path, text = by_name[main_figures.ORDINARY]
    assert table == text and text in page.filled(path.read_text(), main_figures.ORDINARY, text)


def test_a_slow_configuration_is_not_run_again_and_rounds_alternate(measured: Any) -> None:
    _, result, names = measured("--workload", "running", "--rounds", "2")
    first, second = names[:10], names[10:]
    assert first[0] == "ours" and first[-1] == "bare" and sorted(set(first)) == sorted(first)
    assert second == [name for name in reversed(first) if not name.startswith("2_workers")]
    assert len(result["figures"]["running.bytewax_2_workers_rps"]["runs"]) == 1


def test_a_run_of_ours_that_fails_is_a_failure_and_one_of_theirs_a_problem(measured: Any) -> None:
    words = ("--workload", "words", "--rounds", "1")
    for broken, status in (("ours", 1), ("ours_none", 1), ("bare", 1), ("2_processes", 0)):
        got, result, _ = measured(*words, broken=broken)
        assert got == status and "the rows are wrong" in " ".join(result["problems"].values())
    assert result["workloads"]["words"]["fastest"] == "bytewax_1_worker"


def test_without_bytewax_ours_is_measured_alone(measured: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: object) -> Path:
        raise venvs.NotInstalled("no wheel")

    monkeypatch.setattr(
        comparison, "run", lambda *_: ({"rps": 9.0, "cpu_us": 1.0, "peak_mib": 1.0, "start_s": 1.0}, {})
    )
    monkeypatch.setattr(venvs, "interpreter", refuse)
    path = tmp_path / "alone.json"
    assert main(["ordinary", "--workload", "words", "--records", "20", "--rounds", "1", "--json", str(path)]) == 0
    result = json.loads(path.read_text())
    assert result["problems"] == {"bytewax": "cannot be installed: no wheel"}
    assert result["workloads"]["words"]["ours_rps"] == 9 and result["workloads"]["words"]["ratio"] is None


def test_records_are_shared_out_in_tenths(capsys: pytest.CaptureFixture[str]) -> None:
    for name, workload in user_code.WORKLOADS.items():
        for records in (ordinary.LEAST, workload.records):
            assert sum(workload.counts(records).values()) * inputs.PARTITIONS == records, name
    with pytest.raises(SystemExit):
        main(["ordinary", "--records", "30"])
    assert "'30' is not a multiple of 20" in capsys.readouterr().err


@pytest.mark.campaign
def test_one_tiny_run_of_everything_where_bytewax_is_installed(tmp_path: Path) -> None:
    if not venvs.present(venvs.PEERS["bytewax"], venvs.default_place()):
        pytest.skip("bytewax is not installed; `python -m benchmarks ordinary` installs it")
    path = tmp_path / "outcome.json"
    words = ["--workload", "join", "--configuration", "1_worker", "--rounds", "1", "--records", "6000"]
    assert main(["ordinary", *words, "--json", str(path)]) == 0
    result = json.loads(path.read_text())
    assert not result["problems"] and all(result["workloads"]["join"][name] > 0 for name in ordinary.CONTRACT)


def test_a_model_that_fails_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(*_: object, **__: object) -> dict[str, Any]:
        raise runs.RunFailed("the model ended with status 1")

    monkeypatch.setattr(venvs, "interpreter", lambda *_: Path())
    monkeypatch.setattr(runs, "printed_by", fail)
    assert main(["ordinary", "--rounds", "1"]) == 1
    assert "benchmarks: the model ended with status 1" in capsys.readouterr().err
