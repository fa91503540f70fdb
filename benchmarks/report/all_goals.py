"""Every benchmark of the goals table in turn, each in a process of its own; one file with all results and the table.

By estimate an hour on two quiet cores, as root, with peers' environments already made; `--quick` takes about 6 and has
figures of few and short runs, which judge nothing.  What fails is named in its rows; the others still run.  The file
of --json is rewritten after each of them, so that nothing is lost when this is interrupted.
`python -m benchmarks.page --take FILE` puts the results into `docs/benchmarks/` and fills in the pages.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness import children
from benchmarks.harness.declared import Benchmark, Measurement, Option, some_of
from benchmarks.harness.measured import figure, result, write
from benchmarks.report import goals

WITHIN_S = 1800.0
"""Limit of one part; a machine that needs longer is not one to measure on."""


@dataclass(frozen=True)
class Part:
    """One run of a benchmark."""

    arguments: str
    quick: str


PARTS: Mapping[str, Part] = {
    "throughput": Part("throughput --records 12000000", "throughput --records 1000000 --rounds 1"),
    "overhead": Part("overhead --records 2000000 --seconds 5", "overhead --records 300000 --seconds 2 --rounds 1"),
    "determinants": Part(
        "determinants --records 1000000 --single 5000 --payments 4000",
        "determinants --records 200000 --single 1000 --payments 400 --rounds 1",
    ),
    "recovery": Part("recovery --kills 40", "recovery --kills 4"),
    "recovery_hot": Part("recovery --kills 40 --standbys hot", "recovery --kills 4 --standbys hot"),
    "recovery_full": Part(
        "recovery --kills 8 --rate 0 --records 24000000", "recovery --kills 2 --rate 0 --records 4000000"
    ),
    "recovery_hot_full": Part(
        "recovery --kills 10 --rate 520000 --standbys hot", "recovery --kills 2 --rate 100000 --standbys hot"
    ),
    "recovery_bounded": Part(
        "recovery --kills 8 --rate 0 --records 24000000 --checkpoint-interval 5 --replay-target 200",
        "recovery --kills 2 --rate 0 --records 2000000 --replay-target 200",
    ),
    "state": Part("state --rounds 5 --seconds 10 --kills 8", "state --keys 100000 --rounds 1 --seconds 8 --kills 1"),
    "memory": Part(
        "state --keys 10000 --rounds 5 --seconds 8 --kills 5", "state --keys 10000 --rounds 1 --seconds 8 --kills 1"
    ),
    "state_sizes": Part("state_sizes", "state_sizes --memory 1,10 --disk 10 --checkpoints 3 --kills 2"),
    "latency_back": Part("latency_back", "latency_back --kills 3"),
    "isolation": Part("isolation", "isolation --kills 3"),
    "latency": Part("latency", "latency --rounds 1 --seconds 4"),
    "latency_flink": Part(
        "latency_flink --rate 10 --seconds 20", "latency_flink --rate 5 --seconds 5 --warm 2 --intervals 500"
    ),
    "bad_input": Part("bad_input --rounds 5 --scale 0.5", "bad_input --rounds 1 --scale 0.5"),
    "vectors": Part("vectors --rounds 5", "vectors --rounds 1 --without-jobs"),
    "hosts": Part(
        "hosts", "hosts --deaths 2 --cuts 1 --successions 1 --rounds 1 --records 100000 --agents 20 --seconds 2"
    ),
    "change": Part("change --mode running", "change --mode running --changes 1 --later 2 --calm 1"),
    "ui": Part("ui", "ui --rounds 1 --starts 3 --seconds 5"),
    "quiet": Part("quiet", "quiet --rounds 1 --seconds 3 --rate 0,1000"),
    "connectors": Part("connectors", "connectors --rounds 1 --events 20000 --kills 1 --changes 10000"),
    "replay": Part("replay", "replay --rounds 1 --records 100000 --seconds 3 --keys 10000 --diff-seconds 5"),
    "spark": Part("spark", "spark --rounds 1 --seconds 3"),
    "host_losses": Part("host_losses --losses 60", "host_losses --losses 2 --per-job 3"),
    "peers": Part(
        "peers --peer bytewax --workload count,index --rounds 5 --records 4000000 --round-max 150",
        "peers --peer bytewax --workload count,index --rounds 1 --records 500000 --documents 200",
    ),
    "ordinary": Part("ordinary", "ordinary --rounds 1 --records 100000 --configuration 2_processes"),
}
"""Parts by the name that the goals' rows look for; the most important first, should time run out."""


OPTIONS = (
    Option("quick", False, "short runs: whether all of it works, not its results"),
    Option("only", ",".join(PARTS), "which ones", some_of(PARTS), setting=None),
)


def _measure(run: Measurement) -> dict[str, Any]:
    """Run all parts; the result has `results` by name, `problems` by name, and `goals`."""
    results: dict[str, Any] = {}
    problems: dict[str, str] = {}
    took_s: dict[str, float] = {}
    run.more |= {"results": results, "problems": problems}
    for name in run.options.only:
        part = PARTS[name]
        began_s = time.monotonic()
        run.report(f"{name} …")
        outcome, problem = _run((part.quick if run.options.quick else part.arguments).split())
        if outcome is not None:
            results[name] = outcome
        if problem:
            problems[name] = problem
        took_s[name] = round(time.monotonic() - began_s, 1)
        run.report(f"{name}: {problems.get(name, 'measured')}, {took_s[name]:.0f} s")
        rows = goals.judged(results, problems)
        run.figures = {row["figure"]: figure([row["value"]], 5) for row in rows if "value" in row}
        run.more |= {"goals": rows, "failed": bool(problems), "summary": goals.summary(rows)}
        if run.options.json is not None:
            settings = {"quick": run.options.quick, "took_s": took_s}
            write(run.options.json, result("all", run.command, settings, run.figures, **run.more))
    return {"took_s": took_s}


def _run(arguments: Sequence[str]) -> tuple[dict[str, Any] | None, str]:
    """(the result of one benchmark if it has one, what was wrong); what it had started is ended whatever happens."""
    with tempfile.TemporaryDirectory(prefix="causal-all-") as name:
        path = Path(name) / "outcome.json"
        command = [sys.executable, "-m", "benchmarks", *arguments, "--json", str(path)]
        problem = ""
        try:
            done = children.run(command, WITHIN_S)
        except subprocess.TimeoutExpired:
            problem = f"it did not end within {WITHIN_S:.0f} s"
        else:
            lines = done.stderr.strip().splitlines() or ["it said nothing"]
            problem = f"status {done.returncode}: {lines[-1]}" if done.returncode else ""
        outcome: dict[str, Any] | None = json.loads(path.read_text()) if path.exists() else None
        return outcome, problem


BENCHMARK = Benchmark("all", OPTIONS, _measure)
