"""`python -m benchmarks NAME [--json FILE] [--chart [FILE.png]]`: run one benchmark and print its figures.

A run is told of on standard error as it ends.
Exit status 1: a run failed, with one line that says why, or something is wrong with what it did.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import (
    all_goals,
    bad_input,
    budget,
    charts_style,
    checkpoint_pace,
    children,
    determinants,
    durability,
    flush,
    guarantees,
    guard,
    isolation,
    latency,
    latency_back,
    matrix,
    nexmark,
    overhead,
    recovery,
    scale,
    sinks,
    spark_vectors,
    state,
    state_kinds,
    throughput,
    torture,
    total_failure,
    vectors,
)
from benchmarks.charts import CHARTS
from benchmarks.measured import shown, write
from benchmarks.peers import comparison
from benchmarks.runs import RunFailed

BENCHMARKS = {
    "all": all_goals,
    "throughput": throughput,
    "recovery": recovery,
    "determinants": determinants,
    "flush": flush,
    "durability": durability,
    "state": state,
    "checkpoint_pace": checkpoint_pace,
    "state_kinds": state_kinds,
    "overhead": overhead,
    "peers": comparison,
    "scale": scale,
    "guard": guard,
    "guarantees": guarantees,
    "vectors": vectors,
    "spark_vectors": spark_vectors,
    "matrix": matrix,
    "budget": budget,
    "torture": torture,
    "isolation": isolation,
    "nexmark": nexmark,
    "bad_input": bad_input,
    "latency_back": latency_back,
    "latency": latency,
    "total_failure": total_failure,
    "sinks": sinks,
}

PLACES = ("--json", "--chart", "--keep", "--venvs", "--add")
"""Options that say where something is written."""


BESIDE = Path()
"""--chart without a file."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark that is named; returns the exit status."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    options = _parser().parse_args(given)
    command = shlex.join(["python", "-m", "benchmarks", *_without_file(given)])
    chart = _chart(options)
    try:
        if chart is not None:
            charts_style.check()
        told = BENCHMARKS[options.name].measure(options, command, _tell)
    except RunFailed as problem:
        print(f"benchmarks: {problem}", file=sys.stderr)
        return 1
    if options.json is not None:
        write(options.json, told)
    if chart is not None:
        CHARTS[options.name](told, chart)
    machine = told["machine"]
    print(f"{options.name} on {machine['processor']}, {machine['cores']} cores, Python {told['versions']['python']}")
    print(shown(told["figures"]))
    if "summary" in told:
        print(told["summary"])
    return int(bool(told.get("failed")))


def _without_file(given: Sequence[str]) -> list[str]:
    """The arguments that shape the figures: where they are written does not."""
    kept: list[str] = []
    words = iter(given)
    for word in words:
        if word in PLACES:
            next(words, None)
        elif not word.startswith(tuple(f"{place}=" for place in PLACES)):
            kept.append(word)
    return kept


def _chart(options: argparse.Namespace) -> Path | None:
    """Where the chart goes, if one is asked for: where it says, or beside the file of --json."""
    wanted: Path | None = getattr(options, "chart", None)
    if wanted != BESIDE:
        return wanted
    return (options.json or Path(f"{options.name}.json")).with_suffix(".png")


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure; never a test.")
    names = parser.add_subparsers(dest="name", required=True, metavar="NAME")
    for name, module in BENCHMARKS.items():
        summary = (module.__doc__ or "").splitlines()[0]
        benchmark = names.add_parser(name, help=summary.replace("%", "%%"), description=summary)
        benchmark.add_argument("--json", type=Path, metavar="FILE", help="write all runs there")
        if name in CHARTS:
            benchmark.add_argument(
                "--chart", type=Path, nargs="?", const=BESIDE, metavar="FILE.png", help="draw it (default: beside FILE)"
            )
        module.add_options(benchmark)
    return parser


if __name__ == "__main__":
    sys.exit(children.attended(main))
