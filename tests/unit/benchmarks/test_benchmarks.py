"""Each benchmark runs, with few records, and writes the common form; nothing here looks at a duration."""

from __future__ import annotations

import argparse
import json
import re
import sqlite3
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from benchmarks import page
from benchmarks.__main__ import BENCHMARKS, main
from benchmarks.costs.rested_turns import TASKS, turns_us
from benchmarks.harness import runs
from benchmarks.harness.declared import Benchmark, Option
from benchmarks.harness.measured import distribution, figure, percentile
from benchmarks.jobs import bare, keyed_ledger
from benchmarks.peers.programs import inputs
from benchmarks.report import all_goals, appendix

COMMON = {"benchmark", "command", "machine", "versions", "settings", "figures"}


def measured(path: Path, *arguments: str) -> dict[str, Any]:
    """Return the JSON that a benchmark wrote, whose common form has been looked at."""
    assert main([*arguments, "--json", str(path)]) == 0
    result: dict[str, Any] = json.loads(path.read_text())
    assert set(result) >= COMMON
    assert result["benchmark"] == arguments[0] and arguments[0] in result["command"]
    assert {"processor", "cores"} <= set(result["machine"]) and {"python", "pyzmq", "msgpack"} <= set(
        result["versions"]
    )
    for name, each in result["figures"].items():
        assert each["min"] <= each["median"] <= each["max"] and each["runs"], name
    return result


@pytest.mark.campaign
def test_throughput_compares_every_guarantee_with_the_bare_job(tmp_path: Path) -> None:
    result = measured(tmp_path / "outcome.json", "throughput", "--records", "20000", "--rounds", "1")
    for guarantee in ("none", "causal_f1", "causal_full"):
        assert result["figures"][f"{guarantee}_efficiency"]["median"] > 0
    assert len(result["figures"]["bare_rps"]["runs"]) == 4
    assert result["figures"]["causal_full_over_none"]["median"] > 0


def test_recovery_has_all_phases_and_an_exact_output(tmp_path: Path) -> None:
    arguments = ("recovery", "--kills", "1", "--rate", "200", "--every", "0.7", "--checkpoint-interval", "0.5")
    result = measured(tmp_path / "outcome.json", *arguments)
    output = result["output"]
    assert output["rows"] > 0 and output["lost"] == output["doubled"] == output["contradicted"] == 0
    assert [recovery["task"] for recovery in result["recoveries"]] == ["count/0"]


@pytest.mark.campaign
def test_a_state_of_each_size_and_place_is_saved_and_taken_over(tmp_path: Path) -> None:
    arguments = ("state_sizes", "--memory", "1,2", "--disk", "1", "--checkpoints", "2", "--kills", "1")
    figures = measured(tmp_path / "outcome.json", *arguments)["figures"]
    for each in ("memory.1", "memory.2", "disk.1"):
        assert all(figures[f"{each}.{name}"]["median"] > 0 for name in ("fill_rps", "checkpoint_bytes", "task_mib"))
        assert len(figures[f"{each}.first_output_ms"]["runs"]) == 1
    assert figures["failover_spread"]["median"] >= 1


@pytest.mark.campaign
@pytest.mark.parametrize("mode", ["running", "stop"])
def test_every_change_is_measured_and_leaves_every_row(mode: str, tmp_path: Path) -> None:
    few = "--changes 1 --keys 500 --rate 500 --rate-apart 200 --later 1 --calm 1".split()
    result = measured(tmp_path / "outcome.json", "change", "--mode", mode, *few)
    figures, output = result["figures"], result["output"]
    assert all(figures[f"{mode}.{kind}.gap_ms"]["median"] > 0 for kind in ("wider", "narrower", "upgrade"))
    assert figures[f"{mode}.rollback.first_row_s"]["median"] > 0
    assert output["withdrawn"] == figures[f"{mode}.rollback.withdrawn_rows"]["median"] > 0 and output["rows"] > 0


@pytest.mark.campaign
@pytest.mark.skipif(find_spec("pyspark") is None, reason="PySpark is not installed")
def test_lines_reach_the_job_and_pyspark_alone(tmp_path: Path) -> None:
    figures = measured(tmp_path / "outcome.json", "spark", "--rounds", "1", "--seconds", "1")["figures"]
    assert all(figures[f"{name}.{what}"]["median"] > 0 for name in ("ours", "bare") for what in ("p50_ms", "ready_s"))


def test_a_turn_is_timed_for_each_task() -> None:
    assert set(turns_us(0.0)) == set(TASKS)


@pytest.mark.campaign
def test_determinants_are_told_by_kind(tmp_path: Path) -> None:
    arguments = "determinants --records 20000 --single 500 --payments 200 --windows 2000 --rounds 1".split()
    figures = measured(tmp_path / "outcome.json", *arguments)["figures"]
    single, load = figures["keyed_count_single_full.order"], figures["keyed_count_load_full.order"]
    assert single["median"] > load["median"] > 0
    for kind in ("clock", "order", "random", "call"):
        assert figures[f"fraud_chain_paced_full.{kind}"]["median"] > 0


def test_the_bare_job_counts_what_the_source_gives() -> None:
    counted = bare.run(10_000, 512)
    rows = inputs.rows(0, 0, 5_000) + inputs.rows(1, 0, 5_000)
    highest = max(sum(row[0] == key for row in rows) for key in (1, 2))
    assert counted["rows"] == 10_000 and counted["top"] == highest


def test_the_check_of_rows_finds_what_is_wrong(tmp_path: Path) -> None:
    rows = [[keyed_ledger.make(p, i)[0], 1] for p in range(2) for i in range(10)]

    def checked(name: str, records: list[list[int]]) -> dict[str, int]:
        database = sqlite3.connect(tmp_path / name)
        database.execute("CREATE TABLE output(task TEXT, position INTEGER, record TEXT)")
        database.executemany(
            "INSERT INTO output VALUES('out/0', ?, ?)", ((i, json.dumps(r)) for i, r in enumerate(records))
        )
        database.commit()
        database.close()
        return keyed_ledger.check(tmp_path / name, 20)

    assert checked("exact", rows) == {"rows": 20, "lost": 0, "doubled": 0, "contradicted": 0}
    assert checked("short", rows[1:])["lost"] == 1
    assert checked("twice", [rows[0], *rows])["doubled"] == 1
    assert checked("skips", [[rows[0][0], 2], *rows[1:]])["contradicted"] == 1


def test_a_run_that_fails_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(runs.RunFailed, match="status 2"):
        runs.job(tmp_path / "missing.py", {})


def test_an_option_is_in_the_settings_of_a_result_as_it_was_given() -> None:
    declared = Benchmark("b", (Option("standbys", "per-task"),), lambda run: None, settings={"standbys": "per-task"})
    outcome = declared.measure(argparse.Namespace(standbys="hot"), "b --standbys hot", print)
    assert outcome["settings"] == {"standbys": "hot"}


def test_figures_have_their_median_and_percentiles() -> None:
    assert figure([3, 1, 2]) == {"runs": [3, 1, 2], "median": 2, "min": 1, "max": 3}
    summary = distribution(list(range(1, 101)))
    assert (summary["p90"], summary["p99"], summary["max"]) == (90, 99, 100)
    assert percentile([7.0], 0.5) == 7.0


def test_the_pages_are_what_their_files_say() -> None:
    for path, name, content in page.contents(appendix.stored()):
        text = path.read_text()
        assert page.filled(text, name, content) == text, f"run python -m benchmarks.page: {name} is newer than {path}"


def test_every_raw_table_has_one_place() -> None:
    """Those that a page needs are in it; those of the appendix are filled in when the site is built."""
    parts, pages = appendix.contents(appendix.stored()), sorted(page.DOCS.glob("*.md"))
    texts = [path.read_text() for path in pages]
    appended = [place for text in texts for place in appendix.PLACE.findall(text)]
    shown = [place for text in texts for place in re.findall(r"^<!-- figures of ([\w-]+): made by", text, re.MULTILINE)]
    places = [*appended, *shown]
    assert len(places) == len(set(places))
    assert set(parts) <= set(places)
    assert set(places) - set(parts) <= {*BENCHMARKS, *all_goals.PARTS}, "where no result is stored the page says so"
    rows = [line for name in appended for line in parts.get(name, "").splitlines() if line.startswith("| ")]
    numbered = [row for row in rows if "[" not in row and sum(character.isdigit() for character in row) > 8]
    assert len(numbered) > 300
    for path, text in zip(pages, texts, strict=True):
        assert set(numbered).isdisjoint(text.splitlines()), path


def test_a_page_is_filled_with_the_figures_of_its_result() -> None:
    results = appendix.stored()
    text = appendix.filled((page.DOCS / "benchmarks.md").read_text(), appendix.contents(results))
    assert appendix.PLACE.search(text) is None
    for name in ("throughput", "recovery", "latency", "isolation", "total_failure"):
        for figure_name, each in results[name]["figures"].items():
            assert f"| {figure_name} | {each['median']:,} |" in text, f"{name}: {figure_name}"
    assert appendix.filled("<!-- table: absent -->\n", {}) == f"{appendix.NOT_STORED}\n"


def test_a_raw_table_is_printed_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    assert page.main(["--show", "recovery"]) == 0
    assert "| first_output_ms | " in capsys.readouterr().out
    assert page.main(["--show", "absent"]) == 2
    assert "there are bad_input, " in capsys.readouterr().err


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="has no marks for absent"):
        page.filled("nothing", "absent", "table")
