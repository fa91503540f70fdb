"""Every benchmark of the goals table in turn, each in a process of its own; one file with all results and the table.

By estimate 45 minutes on two quiet cores, with peers' environments already made; `--quick` takes about 6 and has
figures of few and short runs, which judge nothing.  What fails is named in its rows; the others still run.  The file
of --json is rewritten after each of them, so that nothing is lost when this is interrupted.
`python -m benchmarks.page --take FILE` puts the results into `docs/benchmarks/` and fills in the pages.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness import children
from benchmarks.harness.measured import figure, result, write
from benchmarks.report import goals

WITHIN_S = 900.0
"""Limit of one part; a machine that needs longer is not one to measure on."""


@dataclass(frozen=True)
class Part:
    """One run of a benchmark."""

    arguments: str
    quick: str


PARTS: Mapping[str, Part] = {
    "throughput": Part("throughput --records 12000000 --profile", "throughput --records 1000000 --rounds 1"),
    "overhead": Part("overhead --records 2000000 --seconds 5", "overhead --records 300000 --seconds 2 --rounds 1"),
    "determinants": Part(
        "determinants --records 1000000 --single 5000 --payments 4000",
        "determinants --records 200000 --single 1000 --payments 400 --rounds 1",
    ),
    "recovery": Part("recovery --kills 40", "recovery --kills 4"),
    "state": Part("state --rounds 5 --seconds 10 --kills 8", "state --keys 100000 --rounds 1 --seconds 8 --kills 1"),
    "memory": Part(
        "state --keys 10000 --rounds 5 --seconds 8 --kills 5", "state --keys 10000 --rounds 1 --seconds 8 --kills 1"
    ),
    "latency_back": Part("latency_back", "latency_back --kills 3"),
    "isolation": Part("isolation", "isolation --kills 3"),
    "latency": Part("latency", "latency --quick"),
    "bad_input": Part("bad_input --rounds 5 --scale 0.5", "bad_input --rounds 1 --scale 0.5"),
    "vectors": Part("vectors --rounds 5", "vectors --rounds 1 --without-jobs"),
    "peers": Part(
        "peers --peer bytewax --workload count,index --rounds 5 --records 4000000 --round-max 150",
        "peers --peer bytewax --workload count,index --rounds 1 --records 500000 --documents 200",
    ),
}
"""Parts by the name that the goals' rows look for; the most important first, should time run out."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.add_argument("--quick", action="store_true", help="short runs: whether all of it works, not what it gives")
    parser.add_argument("--only", type=_parts, default=list(PARTS), metavar="NAME,…", help=f"of {', '.join(PARTS)}")


def _parts(text: str) -> list[str]:
    wanted = text.split(",")
    for name in wanted:
        if name not in PARTS:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(PARTS)}")
    return wanted


def measure(options: argparse.Namespace, command: str, show: Callable[[str], None]) -> dict[str, Any]:
    """Run all parts; returns the common form, with `results` by name, `problems` by name, and `goals`."""
    results: dict[str, Any] = {}
    problems: dict[str, str] = {}
    took_s: dict[str, float] = {}
    everything = _result(command, options, results, problems, took_s)
    for name in options.only:
        part = PARTS[name]
        began_s = time.monotonic()
        show(f"{name} …")
        outcome, problem = _run((part.quick if options.quick else part.arguments).split())
        if outcome is not None:
            results[name] = outcome
        if problem:
            problems[name] = problem
        took_s[name] = round(time.monotonic() - began_s, 1)
        show(f"{name}: {problems.get(name, 'measured')}, {took_s[name]:.0f} s")
        everything = _result(command, options, results, problems, took_s)
        if options.json is not None:
            write(options.json, everything)
    return everything


def _result(
    command: str,
    options: argparse.Namespace,
    results: Mapping[str, Any],
    problems: Mapping[str, str],
    took_s: Mapping[str, float],
) -> dict[str, Any]:
    rows = goals.judged(results, problems)
    figures = {row["figure"]: figure([row["value"]], 5) for row in rows if "value" in row}
    return result(
        "all", command, {"quick": options.quick, "took_s": dict(took_s)}, figures,
        goals=rows, results=dict(results), problems=dict(problems), failed=bool(problems), summary=goals.summary(rows),
    )  # fmt: skip


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
