"""The goals table says what results say: met, missed, or why there is nothing to say."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import page
from benchmarks.__main__ import _parser
from benchmarks.harness.measured import distribution, figure, measured_now
from benchmarks.report import all_goals, goals, main_figures

PART_NAMES = list(all_goals.PARTS)


def result(name: str, figures: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"benchmark": name, "command": f"python -m benchmarks {name}", "figures": figures, "machine": {}, **more}


def rows(results: dict[str, Any], problems: dict[str, str] | None = None) -> dict[str, dict[str, Any]]:
    return {row["figure"]: row for row in goals.judged(results, problems or {})}


def test_a_goal_is_met_at_its_bound_and_missed_beyond() -> None:
    at = {"first_output_ms": distribution([50.0, 50.0, 50.0, 50.0, 150.0])}
    by_text = rows({"recovery": result("recovery", at)})
    row = by_text["kill -9 → first new output, ms, median"]
    assert (row["value"], row["low"], row["high"], row["runs"], row["met"]) == (50.0, 50.0, 150.0, 5, True)
    assert by_text["the same, p99"]["met"] is True
    beyond = rows({"recovery": result("recovery", {"first_output_ms": distribution([50.1])})})
    assert beyond["kill -9 → first new output, ms, median"]["met"] is False


def test_what_should_be_high_is_judged_the_other_way() -> None:
    efficiency = {f"causal_full_{name}": figure([value]) for name, value in (("efficiency", 0.79), ("over_none", 1.0))}
    by_text = rows({"throughput": result("throughput", efficiency)})
    assert by_text["efficiency: end-to-end records/s ÷ (cores × bare job)"]["met"] is False


def test_a_row_without_a_result_says_why() -> None:
    by_text = rows({"recovery": result("recovery", {})}, {"state": "status 1: it broke | badly"})
    assert "no such figure" in by_text["kill -9 → first new output, ms, median"]["problem"]
    assert by_text["the same with 1,000,000 keys, ms, median"]["problem"] == "status 1: it broke | badly"
    text = goals.table(list(by_text.values()))
    assert "it broke / badly" in text and "| **missed** |" not in text
    assert "0 of" in goals.summary(list(by_text.values()))


def test_a_pair_of_peers_brings_its_own_command() -> None:
    pairs = [
        {
            "workload": "count",
            "peer": "bytewax",
            "command": "its own",
            "problems": [],
        },
        {"workload": "index", "peer": "bytewax", "command": "x", "problems": ["cannot be installed"]},
    ]
    by_text = rows({"peers": result("peers", {"count.bytewax.ratios.rps": figure([8.0])}, pairs=pairs)})
    count, index = by_text["records/s ÷ Bytewax, keyed count"], by_text["documents/s ÷ Bytewax, inverted index"]
    assert count["met"] and count["command"] == "its own"
    assert "cannot be installed" in index["problem"]


def test_every_goal_has_a_place_on_the_page_of_figures() -> None:
    shown = page.FIGURES.read_text()
    assert all(f"<!-- {goal.section}: made by" in shown and f"| {goal.text} |" in shown for goal in goals.GOALS)
    assert set(main_figures.README_ROWS) <= {goal.text for goal in goals.GOALS}


def test_what_a_total_failure_lost_is_a_missed_row() -> None:
    output = {"rows": 9, "lost": 1, "doubled": 0, "contradicted": 0, "visible_contradicted": 0}
    figures = {"first_row_ms": figure([7.0])}
    failed = result("total_failure", figures, output=output, settings={"times": 5})
    assert "of 9 | 0 | 1 | 5 | **missed** |" in goals.table(main_figures.total_failure(failed))


def test_the_readme_says_which_goal_is_missed() -> None:
    row = {"value": 2.0, "low": 1.0, "high": 3.0, "goal": "≤ 1", "met": False}
    kept = {text: {**row, "met": True} for text in main_figures.README_ROWS}
    first = next(iter(kept))
    lines = main_figures.readme({**kept, first: row}).splitlines()
    assert [line.endswith("| 2 [1–3] | ≤ 1: **missed** |") for line in lines[2:]] == [True] + [False] * (len(kept) - 1)


def test_bytes_per_changed_key_count_what_can_have_changed() -> None:
    settings = {"changed_keys": 10_000, "records_per_s": 5000, "checkpoint_interval_s": 1.0}
    state = result("state", {"snapshot_bytes_per_checkpoint": figure([500_000])}, settings=settings)
    assert goals.per_changed_key(state).value == 100


def test_isolation_is_met_where_nothing_can_be_told_from_noise() -> None:
    isolation = result("isolation", {}, told_apart=["sibling second1"], settings={"kills": 24})
    assert goals.disturbed(isolation).value == 1
    assert goals.disturbed({**isolation, "told_apart": []}).runs == 24


def test_every_goal_has_a_part_and_every_part_a_goal() -> None:
    assert {goal.benchmark for goal in goals.GOALS} == set(PART_NAMES)
    assert len({goal.text for goal in goals.GOALS}) == len(goals.GOALS)
    for goal in goals.GOALS:
        assert goal.limit >= 0 and (goal.names or goal.figures.strip("()") in goals.READERS), goal.text


@pytest.mark.parametrize("name", PART_NAMES)
def test_a_part_is_a_command_that_there_is(name: str) -> None:
    for words in (all_goals.PARTS[name].arguments, all_goals.PARTS[name].quick):
        assert _parser().parse_args(words.split()).name == words.split()[0]


def test_a_part_that_fails_is_named_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {
        "recovery": (result("recovery", {"first_output_ms": distribution([10.0])}), ""),
        "state": (None, "broken"),
    }
    monkeypatch.setattr(all_goals, "_run", lambda words: answers[words[0]])
    path = tmp_path / "all.json"
    everything = all_goals.BENCHMARK.measure(
        argparse.Namespace(only=["state", "recovery"], quick=True, json=path), "all", print
    )
    assert (
        everything["failed"]
        and everything["problems"] == {"state": "broken"}
        and set(everything["results"]) == {"recovery"}
    )
    assert json.loads(path.read_text())["goals"] == everything["goals"]
    assert everything["figures"]["kill -9 → first new output, ms, median"]["median"] == 10.0


def test_a_benchmark_that_ends_badly_is_told_of_in_one_line() -> None:
    outcome, problem = all_goals._run(["recovery", "--kills", "many"])
    assert outcome is None and problem.startswith("status 2: ") and "many" in problem and "\n" not in problem


def test_taking_results_keeps_the_peers_that_were_not_measured() -> None:
    def peers_of(machine: str, *peers: str) -> dict[str, Any]:
        pairs = [{"workload": "count", "peer": peer, "by": machine} for peer in peers]
        return {
            "machine": "m",
            "command": "c",
            "pairs": pairs,
            "figures": {f"count.{peer}.rounds": {} for peer in peers},
        }

    results = {"peers": peers_of("new", "bytewax"), "recovery": {"machine": "m"}}
    new = {"benchmark": "all", "settings": {"quick": False}, "results": results}
    taken = page.taken(new, {"peers": peers_of("old", "bytewax", "pathway")})
    assert [(pair["peer"], pair["by"]) for pair in taken["peers"]["pairs"]] == [("bytewax", "new"), ("pathway", "old")]
    assert set(taken["peers"]["figures"]) == {"count.bytewax.rounds", "count.pathway.rounds"} and "recovery" in taken
    with pytest.raises(ValueError, match="another machine"):
        page.taken(new, {"peers": {**peers_of("old", "pathway"), "machine": "other"}})
    with pytest.raises(ValueError, match="judges nothing"):
        page.taken({**new, "settings": {"quick": True}}, {})
    with pytest.raises(ValueError, match="--take wants what"):
        page.taken({"settings": {}}, {})
    state = {"benchmark": "state", "settings": {}}
    assert page.taken(state, {}) == {"state": state}


def test_the_page_is_told_what_to_take_or_says_how(capsys: pytest.CaptureFixture[str]) -> None:
    assert page.main(["--take"]) == 2 and "--take FILE" in capsys.readouterr().err
    assert page.main(["--take", "/nowhere.json"]) == 2 and "/nowhere.json" in capsys.readouterr().err


def test_a_table_says_when_and_on_which_tree_its_rows_were_measured() -> None:
    figures = {"first_output_ms": distribution([50.0])}
    measured = result("recovery", figures, measured={"date": "2026-11-23", "tree": "abc-dirty"})
    row = rows({"recovery": measured})["the same, p99"]
    expected = "* `python -m benchmarks recovery`: measured on 2026-11-23 on tree abc-dirty"
    assert goals.table([row]).splitlines()[-1] == expected
    stored = result("recovery", figures, stored={"date": "2026-11-21", "commit": "96e5a26698"})
    assert rows({"recovery": stored})["the same, p99"]["origin"] == "stored on 2026-11-21 with commit 96e5a26698"
    assert set(measured_now()) <= {"date", "tree"}
