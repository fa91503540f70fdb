"""This project and its peers on the same work, in turn in one run: keyed count, inverted index, failover.

A round runs ours, then the peer, so what else the machine does weighs on both; ratios are of such pairs.  Every
output is verified against its input, and a run whose output is wrong has no figures.  A peer that cannot be
installed, or cannot do a workload here, keeps its row, with the reason.

*rps*, *docs_per_s*: from the first record that enters to the last output.  *cpu_us* per record: of all processes, from
the first record to their end.  *start_s*: from the command to the first record.  *peak_mib*: proportional set size
of all processes together.  *gap_ms*: from SIGKILL of the stateful process to the first new row of its stage.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness.declared import Benchmark, Measurement, Option, some_of
from benchmarks.harness.measured import figure, measured_now
from benchmarks.harness.runs import RunFailed
from benchmarks.peers import checks, peers_table, venvs
from benchmarks.peers.launched import LATE, Usage, launch
from benchmarks.peers.programs import inputs

ROOT = Path(__file__).parents[2]
OURS = "benchmarks.peers.programs.on_ours"
WORKLOADS = ("count", "index", "failover")
RECORDS, DOCUMENTS, RATE = 2_000_000, 1_790, 5_000
HASH_SEED = {"PYTHONHASHSEED": "0"}
"""Lets the hashes of rows be compared between processes."""
KILL_AFTER_S, KILL_LATER_S = 3.2, 0.37
"""Each round kills at another phase of the checkpoint interval."""
AHEAD_IF_HIGHER = ("rps", "docs_per_s")
DIGITS = {"rps": 0, "docs_per_s": 1, "cpu_us": 3, "peak_mib": 0, "start_s": 2, "gap_ms": 1}
RATIOS = ("rps", "docs_per_s", "cpu_us", "peak_mib", "start_s", "gap_ms")

Outcome = tuple[dict[str, float], dict[str, Any]]


def positive(text: str) -> int:
    """Return a parser of counts."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)


OPTIONS = (
    Option("peer", ",".join(venvs.PEERS), "which ones", some_of(venvs.PEERS), setting=None),
    Option("workload", ",".join(WORKLOADS), "which ones", some_of(WORKLOADS), setting=None),
    Option("rounds", 3, "at most; slow peers have fewer", positive, setting=None),
    Option("round_max", 60.0, "seconds; no more rounds after one that took longer", setting="round_max_s"),
    Option("records", RECORDS, "of count; of slow peers fewer", positive, setting="records_max"),
    Option("documents", DOCUMENTS, "of index; of slow peers fewer", positive, setting="documents_max"),
    Option("seconds", 9.0, "length of failover", setting="failover_s"),
    Option("checkpoint_interval", 1.0, "seconds", setting="checkpoint_interval_s"),
    Option("limit", 240.0, "seconds after which a run is given up", setting=None),
    Option("venvs", venvs.default_place(), "where peers live", Path, setting=None),
)


def _measure(run: Measurement) -> dict[str, Any]:
    """Run all pairs; the result has `pairs`, one per workload and peer.

    `failed`: a run of ours did not end well, or its output was wrong.
    """
    options = run.options
    pairs: list[dict[str, Any]] = []
    for name in options.peer:
        peer = venvs.PEERS[name]
        try:
            python: Path | None = venvs.interpreter(peer, options.venvs, run.report)
            reason = ""
        except venvs.NotInstalled as problem:
            python, reason = None, f"cannot be installed: {problem}"
        for workload in options.workload:
            pair: dict[str, Any] = (
                _pair(workload, peer, python, options, run.report) if python else {"rounds": 0, "problems": [reason]}
            )
            version = peer.requirements[0].partition("==")[2]
            pairs.append(
                {
                    "workload": workload,
                    "peer": name,
                    "version": version,
                    "command": run.command,
                    "measured": measured_now(),
                    **pair,
                }
            )
    pairs.sort(key=lambda pair: list(venvs.PEERS).index(pair["peer"]))
    for pair in pairs:
        label = f"{pair['workload']}.{pair['peer']}"
        for side in ("ours", "theirs", "ratios"):
            run.figures |= {f"{label}.{side}.{name}": each for name, each in pair.get(side, {}).items()}
        run.figures[f"{label}.rounds"] = figure([pair["rounds"]], 0)
    failed = any(pair.get("ours_failed", False) for pair in pairs)
    run.more |= {"pairs": pairs, "summary": summary(pairs), "failed": failed}
    return {"requirements": {pair["peer"]: list(venvs.PEERS[pair["peer"]].requirements) for pair in pairs}}


def summary(pairs: Sequence[Mapping[str, Any]]) -> str:
    """Return where ours is behind, and why a row has no figures, for a person."""
    reasons = [f"{pair['workload']} {pair['peer']}: {why}" for pair in pairs for why in pair["problems"]]
    return "\n".join([peers_table.behind(pairs), *reasons])


def _pair(
    workload: str, peer: venvs.Peer, python: Path, options: argparse.Namespace, show: Callable[[str], None]
) -> dict[str, Any]:
    """Return ours and one peer in turn; figures are of the rounds in which both did it."""
    ours: list[dict[str, float]] = []
    theirs: list[dict[str, float]] = []
    problems: list[str] = []
    failed, began_s = False, 0.0
    more: dict[str, Any] = {}
    recoveries: list[Any] = []
    requests = {"ours": asked_of(None, workload, options), "theirs": asked_of(peer, workload, options)}
    for number in range(min(options.rounds, peer.rounds)):
        if number and time.monotonic() - began_s > options.round_max:
            break
        late_s, began_s, runner = KILL_AFTER_S + number * KILL_LATER_S, time.monotonic(), "ours"
        try:
            own, own_described = run(
                OURS, Path(sys.executable), requests["ours"] | {"kill_after_s": late_s}, options.limit
            )
            show(f"{workload} round {number + 1}, ours: {line(own)}")
            runner = peer.name
            its, described = run(peer.program, python, requests["theirs"] | {"kill_after_s": late_s}, options.limit)
        except (RunFailed, checks.WrongOutput) as problem:
            problems.append(str(problem))
            failed = failed or runner == "ours"
            show(f"{workload} round {number + 1}, {runner}: {problem}")
            continue
        show(f"{workload} round {number + 1}, {peer.name}: {line(its)}")
        ours.append(own)
        theirs.append(its)
        more = {name: described[name] for name in ("guarantee", "per_record", "killed") if name in described}
        more["our_guarantee"] = own_described["guarantee"]
        recoveries += own_described.get("recoveries", [])
    sizes = {side: {name: each for name, each in asked.items() if name != "corpus"} for side, asked in requests.items()}
    pair: dict[str, Any] = {"rounds": len(theirs), "problems": list(dict.fromkeys(problems)), "given": sizes, **more}
    pair |= {"ours_failed": failed, "our_recoveries": recoveries}
    if theirs:
        pair["ours"], pair["theirs"] = _figures(ours), _figures(theirs)
        pair["ratios"] = {
            name: figure([ahead(name, mine[name], its[name]) for mine, its in zip(ours, theirs, strict=True)], 2)
            for name in RATIOS
            if name in theirs[0] and all(mine[name] and its[name] for mine, its in zip(ours, theirs, strict=True))
        }
    return pair


def ahead(name: str, ours: float, theirs: float) -> float:
    """Return how many times better ours is: above 1 is ahead, whether a figure should be high or low."""
    return ours / theirs if name in AHEAD_IF_HIGHER else theirs / ours


def _figures(rounds: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    return {name: figure([each[name] for each in rounds], DIGITS.get(name, 0)) for name in rounds[0]}


def line(figures: Mapping[str, float]) -> str:
    """Return the figures of a run for a person."""
    return ", ".join(f"{name} {round(value, DIGITS.get(name, 0)):,}" for name, value in figures.items())


def asked_of(peer: venvs.Peer | None, workload: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return what one run is given: `asked.json` of its program."""
    rate = RATE if peer is None else peer.rate
    records = {
        "count": (options.records if peer is None else min(options.records, peer.records)) // 2 * 2,
        "index": (options.documents if peer is None else min(options.documents, peer.documents)) // 2 * 2,
        "failover": int(rate * options.seconds) // 2 * 2,
    }[workload]
    asked = {"workload": workload, "records": records, "interval_s": options.checkpoint_interval}
    if workload == "index":
        asked["corpus"] = sysconfig.get_paths()["stdlib"]
    if workload == "failover":
        asked["rate"] = rate
    return asked


def run(
    program: str,
    python: Path,
    asked: Mapping[str, Any],
    limit_s: float,
    judge: Callable[[Path, Mapping[str, Any], Mapping[str, Any], Usage], dict[str, float]] | None = None,
) -> Outcome:
    """Run a program once, in a directory that is gone afterwards; returns its figures and what it reports of itself.

    Args:
        judge: returns the figures of a workload that is none of `WORKLOADS`, from the directory.

    Raises:
        RunFailed: it did not end well.
        WrongOutput: it did, but its output is not what its input demands.
    """
    with tempfile.TemporaryDirectory(prefix="causal-peers-", ignore_cleanup_errors=True) as name:
        place = Path(name)
        (place / "asked.json").write_text(json.dumps(dict(asked)))
        path = os.pathsep.join([str(python.parent), os.environ.get("PATH", os.defpath)])
        environment = {**os.environ, **HASH_SEED, "PYTHONPATH": str(ROOT), "PATH": path}
        command = [str(python), "-m", program, str(asked["workload"]), str(place)]
        usage = launch(command, place, limit_s, environment)
        short = program.rpartition("on_")[2]
        if usage.status == LATE:
            raise RunFailed(f"{short} did not end within {limit_s:g} s")
        if usage.status or not (place / "outcome.json").exists():
            raise RunFailed(f"{short} ended with status {usage.status}: {usage.said}")
        outcome = json.loads((place / "outcome.json").read_text())
        return (judge or judged)(place, asked, outcome, usage), outcome


def judged(place: Path, asked: Mapping[str, Any], outcome: Mapping[str, Any], usage: Usage) -> dict[str, float]:
    """The figures of a run, after its output has been verified.

    Raises:
        WrongOutput: the output is wrong.
    """
    if asked["workload"] == "failover":
        events = checks.read_events(place)
        gap = checks.gap_ms(events, outcome["killed_s"], outcome["killed_keys"], outcome.get("late_s", checks.LATE_S))
        counted = checks.account(events, outcome.get("records", asked["records"]), outcome["per_record"])
        return {"gap_ms": gap, **counted, "peak_mib": usage.peak_pss_mib}
    output = checks.merged(place, int if asked["workload"] == "count" else str)
    first_s = outcome["first_s"] if "first_s" in outcome else began_s(place)
    took_s = outcome.get("last_s", output["last_s"]) - first_s
    cpu_us = usage.cpu_since(first_s) * 1e6
    speed = {"rps": asked["records"] / took_s, "cpu_us": cpu_us / asked["records"]}
    if asked["workload"] == "count":
        checks.check_count(output, asked["records"], outcome["per_record"])
    elif asked["workload"] == "index":
        updates = checks.check_index(output, Path(asked["corpus"]), asked["records"], outcome["per_record"])
        speed = {"docs_per_s": asked["records"] / took_s, "cpu_us": cpu_us / updates, "updates": updates}
    else:
        checks.check_rows(output, asked["expected"])
    return {**speed, "peak_mib": usage.peak_pss_mib, "start_s": first_s - outcome.get("started_s", usage.began_s)}


def began_s(place: Path) -> float:
    """Return when the first record entered, as the processes of a run have noted it."""
    times = [json.loads(path.read_text())["first_s"] for path in place.glob("began-*.json")]
    if not times:
        raise checks.WrongOutput("no source reported when it began")
    first_s: float = min(times)
    return first_s


BENCHMARK = Benchmark("peers", OPTIONS, _measure, settings={"keys": inputs.KEYS, "parallelism": inputs.PARTITIONS})
