"""Peers: what is verified, how gaps and tables are made, what a launched run takes; and one tiny run of a real peer."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks import page
from benchmarks.__main__ import main
from benchmarks.harness.measured import figure, result
from benchmarks.harness.runs import RunFailed
from benchmarks.peers import checks, comparison, launched, peers_table, venvs
from benchmarks.peers.programs import inputs
from benchmarks.report import appendix


def tallied(place: Path, records: int, change: Any = None, columns: bool = False) -> dict[str, Any]:
    """Return what a correct count of the rows leaves behind, with one change; given as pairs or as columns."""
    tally = inputs.Tally(place)
    counts: dict[int, int] = {}
    pairs = []
    for partition in range(inputs.PARTITIONS):
        for key, _ in inputs.rows(partition, 0, records // inputs.PARTITIONS):
            counts[key] = counts.get(key, 0) + 1
            pairs.append((str(key), counts[key]))
    rows = change(pairs) if change else pairs
    if columns:
        tally.add_columns(*map(list, zip(*rows, strict=True)))
    else:
        tally.add(rows)
    tally.write()
    return checks.merged(place, int)


def test_rows_are_the_table_again_and_again() -> None:
    whole, half = inputs.table(), inputs.TABLE_ROWS // inputs.PARTITIONS
    assert inputs.rows(0, 0, 50) == whole[:50] and inputs.rows(1, 0, 50) == whole[half : half + 50]
    assert inputs.rows(1, half - 2, half + 2) == [*whole[-2:], *whole[:2]]
    assert len(inputs.rows(0, 0, inputs.TABLE_ROWS + 1)) == inputs.TABLE_ROWS + 1


def test_files_hold_the_rows_of_both_partitions(tmp_path: Path) -> None:
    paths = inputs.write_csv(tmp_path / "csv", 1_000, 3)
    lines = [line for path in paths for line in path.read_text().splitlines()]
    expected = inputs.rows(0, 0, 500) + inputs.rows(1, 0, 500)
    assert [tuple(map(int, line.split(","))) for line in lines] == expected


@pytest.mark.parametrize("columns", [False, True], ids=["pairs", "columns"])
def test_a_correct_count_is_accepted(tmp_path: Path, columns: bool) -> None:
    output = tallied(tmp_path, 2_000, columns=columns)
    checks.check_count(output, 2_000, per_record=True)
    assert output["rows"] == 2_000 == sum(output["last"].values())


@pytest.mark.parametrize("columns", [False, True], ids=["pairs", "columns"])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda pairs: pairs[:-1], "1 of .* keys are wrong"),
        (lambda pairs: [*pairs, pairs[-1]], "2,001 rows came out for 2,000"),
        (lambda pairs: [("1", 2), *pairs[1:]], "add up"),
        (lambda pairs: [*pairs, ("77777", 1)], "keys are wrong"),
    ],
    ids=["lost", "doubled", "contradicted", "made up"],
)
def test_a_wrong_count_is_refused(tmp_path: Path, change: Any, said: str, columns: bool) -> None:
    with pytest.raises(checks.WrongOutput, match=said):
        checks.check_count(tallied(tmp_path, 2_000, change, columns), 2_000, per_record=True)


def test_a_key_in_two_places_is_refused(tmp_path: Path) -> None:
    sinks = [inputs.Tally(tmp_path) for _ in range(2)]
    for sink in sinks:
        sink.add([(1, 1)])
        sink.write()
    with pytest.raises(checks.WrongOutput, match="two places"):
        checks.merged(tmp_path, int)


def test_an_index_has_its_documents_and_occurrences(tmp_path: Path) -> None:
    for number, text in enumerate(("a b a", "a c")):
        (tmp_path / f"{number}.py").write_text(text)
    updates, expected = checks.expected_index(tmp_path, 2)
    assert (updates, expected) == (4, {"a": (2, 3), "b": (1, 1), "c": (1, 1)})
    output: dict[str, Any] = {"rows": 4, "last": dict(expected)}
    assert checks.check_index(output, tmp_path, 2, per_record=True) == 4
    output["last"]["a"] = (2, 2)
    with pytest.raises(checks.WrongOutput, match="'a'"):
        checks.check_index(output, tmp_path, 2, per_record=True)


def events(numbers: list[int], step_s: float = 0.001) -> list[checks.Event]:
    return [(10 + i * step_s, number, number // inputs.KEYS + 1) for i, number in enumerate(numbers)]


def test_rows_after_a_failure_are_accounted_for() -> None:
    every = list(range(100))
    assert checks.account(events(every), 100, True) == {"rows": 100, "lost": 0, "doubled": 0, "contradicted": 0}
    assert checks.account(events(every[:90]), 100, True)["lost"] == 10
    assert checks.account(events([*every, 5, 6]), 100, True)["doubled"] == 2
    assert checks.account([*events(every[1:]), (11.0, 0, 2)], 100, True)["contradicted"] == 1
    with pytest.raises(checks.WrongOutput, match="never given"):
        checks.account(events([*every, 100]), 100, True)


def test_coalesced_rows_are_held_to_their_counts() -> None:
    last = events(list(range(10_000, 20_000)))
    assert checks.account(last, 20_000, False) == {"rows": 10_000, "lost": 0, "doubled": 0, "contradicted": 0}
    assert checks.account(last[1:], 20_000, False)["lost"] == 2
    twice = [*last[1:], (last[0][0], 10_000, 3)]
    assert checks.account(twice, 20_000, False) == {"rows": 10_000, "lost": 0, "doubled": 1, "contradicted": 1}


def test_the_gap_is_from_the_kill_to_the_first_new_row() -> None:
    before = [(1 + i / 100, i, 1) for i in range(100)]  # until 1.99
    again = [(2.5 + i / 1000, 80 + i, 1) for i in range(20)]  # doubled
    fresh = [(3.0 + i / 100, 100 + i, 1) for i in range(50)]
    assert checks.gap_ms([*before, *again, *fresh], 2.0, None) == pytest.approx(1000)
    assert checks.gap_ms([*before, (2.02, 100, 1), *[(t, n + 1, c) for t, n, c in fresh]], 2.0, None) == pytest.approx(
        1000
    )


def test_a_later_pause_is_not_the_gap() -> None:
    rows = [(1 + i / 100 + 0.1 * (i >= 100) + 0.2 * (i >= 170), i, 1) for i in range(300)]
    assert checks.gap_ms(rows, 1.995, None) == pytest.approx(105)
    assert checks.gap_ms(rows, 1.995, None, late_s=2.0) > 800


def test_other_keys_do_not_shorten_the_gap() -> None:
    rows = [(1 + i / 100 + (i > 100) / 200, i, 1) for i in range(300) if i % 2 or not 100 <= i < 150]
    assert checks.gap_ms(rows, 2.0, range(0, inputs.KEYS, 2)) == pytest.approx(505)
    assert checks.gap_ms(rows, 2.0, range(1, inputs.KEYS, 2)) == pytest.approx(15)


def test_a_stage_that_does_not_come_back_has_no_gap() -> None:
    rows = [(1 + i / 100, i, 1) for i in range(100)]
    with pytest.raises(checks.WrongOutput, match="nothing out after"):
        checks.gap_ms(rows, 2.0, None)
    with pytest.raises(checks.WrongOutput, match="before it was killed"):
        checks.gap_ms(rows, 0.5, None)
    with pytest.raises(checks.WrongOutput, match="nothing new"):
        checks.gap_ms([*rows, (3.0, 5, 1)], 2.0, None)


def test_a_launched_run_counts_what_it_started_and_leaves_nothing(tmp_path: Path) -> None:
    orphan = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    busy = "sum(i * i for i in range(3_000_000))"
    program = (
        f"import subprocess, sys; out = open('{tmp_path}/pid', 'w');"
        f"subprocess.Popen([sys.executable, '-c', {orphan!r}], stdout=out);"
        f"subprocess.run([sys.executable, '-c', {busy!r}]); print('done')"
    )
    usage = launched.launch([sys.executable, "-c", program], tmp_path, 60, os.environ)
    assert usage.status == 0 and usage.said == "done"
    assert usage.cpu_s > 0 and usage.peak_pss_mib > 1
    assert usage.cpu_since(usage.began_s) == pytest.approx(usage.cpu_s, rel=0.01)
    assert usage.cpu_since(usage.began_s + usage.wall_s + 1) == 0
    pid = int((tmp_path / "pid").read_text())
    assert not Path(f"/proc/{pid}").exists()


def test_the_line_that_names_an_error_is_told() -> None:
    assert launched.blamed("started\nValueError: 3 is odd\n\nWARN bye\n") == "ValueError: 3 is odd"
    assert launched.blamed("a\nno Error here\n") == "no Error here"
    assert launched.blamed("") == "it said nothing"


def test_a_run_that_does_not_end_is_given_up(tmp_path: Path) -> None:
    usage = launched.launch([sys.executable, "-c", "import time; time.sleep(600)"], tmp_path, 0.5, os.environ)
    assert usage.status == launched.LATE


def test_a_run_ends_with_the_command_that_started_it(tmp_path: Path) -> None:
    program = f"import os, time; open('{tmp_path}/pid', 'w').write(str(os.getpid())); time.sleep(600)"
    launching = (
        "import os, sys, pathlib; from benchmarks.peers import launched;"
        f"launched.launch([sys.executable, '-c', {program!r}], pathlib.Path({str(tmp_path)!r}), 600, os.environ)"
    )
    command = subprocess.Popen([sys.executable, "-c", launching], cwd=comparison.ROOT)
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert command.poll() is None
        time.sleep(0.01)
    command.kill()
    command.wait()
    pid = (tmp_path / "pid").read_text()
    while Path(f"/proc/{pid}").exists():  # the test's own limit ends this if it never does
        time.sleep(0.01)


def test_cpu_time_is_interpolated_between_samples() -> None:
    usage = launched.Usage(0, 100.0, 10.0, 8.0, 1.0, [(102.0, 1.0), (104.0, 3.0)], "")
    assert usage.cpu_since(103.0) == pytest.approx(6.0)
    assert usage.cpu_since(101.0) == pytest.approx(7.5)
    assert usage.cpu_since(107.0) == pytest.approx(2.5)


def test_a_program_that_fails_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="on_missing"):
        comparison.run("benchmarks.peers.programs.on_missing", Path(sys.executable), {"workload": "count"}, 30)


def pair(**more: Any) -> dict[str, Any]:
    sides = {"rps": figure([100.0], 0), "cpu_us": figure([2.0]), "peak_mib": figure([50], 0), "start_s": figure([1.0])}
    return {
        "workload": "count",
        "peer": "bytewax",
        "version": "1.2",
        "command": "python -m benchmarks peers",
        "rounds": 1,
        "problems": [],
        "given": {"ours": {"records": 20}, "theirs": {"records": 10}},
        "guarantee": "at least once",
        "per_record": True,
        "ours": sides,
        "theirs": sides | {"rps": figure([50.0], 0)},
        "ratios": {"rps": figure([2.0], 2), "peak_mib": figure([0.4], 2)},
        **more,
    }


def test_a_table_has_every_row_and_says_where_it_is_behind() -> None:
    refused = {"workload": "index", "peer": "pathway", "version": "3", "rounds": 0, "problems": ["no wheel | here"]}
    text = peers_table.tables([pair(), refused])
    assert "| bytewax 1.2 | at least once | 10 (ours 20) | 50 (ours 100); ×2.0 |" in text
    assert "**no figures**: no wheel / here" in text
    assert "Behind (ours ÷ theirs below 1): count against bytewax: peak MiB ×0.4." in text
    heads = [line.count("|") for line in text.splitlines() if line.startswith("|")]
    assert heads == [9] * 6
    assert "nowhere" in peers_table.behind([pair(ratios={"rps": figure([2.0])})])


def test_a_failover_table_counts_faults_on_both_sides() -> None:
    sides = {name: figure([n], 0) for n, name in enumerate(("gap_ms", "peak_mib", "lost", "doubled", "contradicted"))}
    requests = {"ours": {"rate": 5000}, "theirs": {"rate": 1000}}
    failover = pair(workload="failover", ours=sides, theirs=sides, given=requests, killed="a worker", ratios={})
    text = peers_table.tables([failover])
    assert "at least once; killed: a worker | 1,000/s (ours 5,000/s) |" in text
    assert "| 2 (ours 2) | 3 (ours 3) | 4 (ours 4) | 1 |" in text


def test_the_page_takes_the_tables(tmp_path: Path) -> None:
    peers = result("peers", "python -m benchmarks peers", {}, {}, pairs=[pair()])
    assert "| bytewax 1.2 |" in appendix.table(json.loads(json.dumps(peers)))


def test_ahead_is_above_one_whichever_way_a_figure_counts() -> None:
    assert comparison.ahead("rps", 200, 100) == 2
    assert comparison.ahead("gap_ms", 50, 100) == 2


def options(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(exit_on_error=False)
    comparison.BENCHMARK.add_options(parser)
    return parser.parse_args(words)


def test_options_name_what_is_compared() -> None:
    chosen = options("--peer", "pathway,bytewax", "--workload", "index", "--records", "7")
    assert (chosen.peer, chosen.workload) == (["pathway", "bytewax"], ["index"])
    assert comparison.asked_of(venvs.PEERS["pathway"], "count", chosen)["records"] == 6
    many = options("--records", "8000000")
    sizes = [comparison.asked_of(peer, "count", many)["records"] for peer in (None, *venvs.PEERS.values())]
    assert sizes == [8_000_000, *(peer.records for peer in venvs.PEERS.values())]
    assert comparison.asked_of(None, "failover", chosen)["rate"] == comparison.RATE
    with pytest.raises(argparse.ArgumentError, match="'nosuch' is none of bytewax"):
        options("--peer", "nosuch")
    with pytest.raises(argparse.ArgumentError, match="'0' is not a whole number from 1"):
        options("--rounds", "0")


def test_a_peer_that_cannot_be_installed_keeps_its_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    peer = venvs.Peer("nosuch", ("nosuch==1",), 1, 1, 1, 1)
    with pytest.raises(venvs.NotInstalled, match="give another --venvs"):
        venvs.interpreter(peer, tmp_path / "file" / "below", print)

    def refuse(*_: object) -> Path:
        raise venvs.NotInstalled("no wheel")

    monkeypatch.setattr(venvs, "interpreter", refuse)
    assert main(["peers", "--peer", "pathway", "--workload", "count", "--json", str(tmp_path / "outcome.json")]) == 0
    result = json.loads((tmp_path / "outcome.json").read_text())
    assert result["pairs"][0]["problems"] == ["cannot be installed: no wheel"]
    assert "no wheel" in appendix.table(result)


def test_a_run_of_ours_that_fails_is_a_failure_and_one_of_theirs_is_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken: list[str] = []

    def run(program: str, *_: object) -> tuple[dict[str, float], dict[str, Any]]:
        if program in broken:
            raise checks.WrongOutput("3 keys are wrong")
        return {"rps": 10.0, "peak_mib": 5.0}, {"guarantee": "some", "per_record": True}

    monkeypatch.setattr(venvs, "interpreter", lambda *_: tmp_path)
    monkeypatch.setattr(comparison, "run", run)
    words = ["peers", "--peer", "pathway", "--workload", "count", "--json", str(tmp_path / "outcome.json")]
    for programs, status in (([], 0), ([venvs.PEERS["pathway"].program], 0), ([comparison.OURS], 1)):
        broken[:] = programs
        assert main(words) == status
        (row,) = json.loads((tmp_path / "outcome.json").read_text())["pairs"]
        assert row["problems"] == ["3 keys are wrong"] * bool(programs)
        assert row["rounds"] == (0 if programs else 3)


def test_what_was_measured_earlier_is_kept_beside_what_is_measured_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(venvs, "interpreter", lambda *_: tmp_path)
    monkeypatch.setattr(comparison, "run", lambda *_: ({"rps": 10.0}, {"guarantee": "some", "per_record": True}))
    before, now = tmp_path / "before.json", tmp_path / "now.json"
    assert main(["peers", "--peer", "pathway", "--workload", "count,index", "--json", str(before)]) == 0
    assert main(["peers", "--peer", "bytewax,pathway", "--workload", "count", "--json", str(now)]) == 0
    taken = page.taken(json.loads(now.read_text()), {"peers": json.loads(before.read_text())})["peers"]
    commands = {(pair["peer"], pair["workload"]): pair["command"] for pair in taken["pairs"]}
    assert commands == {
        ("bytewax", "count"): "python -m benchmarks peers --peer bytewax,pathway --workload count",
        ("pathway", "count"): "python -m benchmarks peers --peer bytewax,pathway --workload count",
        ("pathway", "index"): "python -m benchmarks peers --peer pathway --workload count,index",
    }
    assert all(f"`{command}`" in appendix.table(taken) for command in commands.values())


def test_every_peer_is_pinned_and_has_a_program() -> None:
    programs = Path(inputs.__file__).parent
    for name, peer in venvs.PEERS.items():
        assert (programs / f"on_{name}.py").exists(), name
        assert all("==" in requirement for requirement in venvs.needed(peer)), name


@pytest.mark.campaign
def test_one_tiny_run_against_a_peer_that_is_installed(tmp_path: Path) -> None:
    place = venvs.default_place()
    if not venvs.present(venvs.PEERS["bytewax"], place):
        pytest.skip(f"bytewax is not installed in {place}; `python -m benchmarks peers --peer bytewax` installs it")
    words = ("peers", "--peer", "bytewax", "--workload", "count", "--rounds", "1", "--records", "4000")
    assert main([*words, "--json", str(tmp_path / "outcome.json")]) == 0
    result = json.loads((tmp_path / "outcome.json").read_text())
    assert result["benchmark"] == "peers" and result["pairs"][0]["rounds"] == 1
    assert result["figures"]["count.bytewax.ratios.rps"]["median"] > 0
