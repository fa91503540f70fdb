"""`python -m benchmarks NAME [--json FILE] [--chart [FILE.png]]`: run one benchmark and print its figures.

A line on standard error reports each run as it ends.
Exit status 1: a run failed, with one line that says why, or something is wrong with what it did.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

from benchmarks.charts import style
from benchmarks.charts.catalogue import WITH_CHART
from benchmarks.charts.draw import draw
from benchmarks.harness import children
from benchmarks.harness.measured import shown, write
from benchmarks.harness.runs import RunFailed

BENCHMARKS = {
    "all": "benchmarks.report.all_goals",
    "throughput": "benchmarks.throughput.throughput",
    "recovery": "benchmarks.recovery.recovery",
    "determinants": "benchmarks.throughput.determinants",
    "state": "benchmarks.recovery.state",
    "state_sizes": "benchmarks.recovery.state_sizes",
    "overhead": "benchmarks.throughput.overhead",
    "peers": "benchmarks.peers.comparison",
    "ordinary": "benchmarks.peers.ordinary",
    "scale": "benchmarks.scale.scale",
    "guard": "benchmarks.costs.guard",
    "guarantees": "benchmarks.recovery.guarantees",
    "vectors": "benchmarks.throughput.vectors",
    "torture": "tests.soak.torture",
    "isolation": "benchmarks.recovery.isolation",
    "nexmark": "benchmarks.throughput.nexmark",
    "bad_input": "benchmarks.recovery.bad_input",
    "latency_back": "benchmarks.recovery.latency_back",
    "latency": "benchmarks.latency.latency",
    "latency_flink": "benchmarks.latency.beside_flink",
    "total_failure": "tests.soak.total_failure",
    "hosts": "benchmarks.hosts.hosts",
    "change": "benchmarks.recovery.change",
    "ui": "benchmarks.costs.ui",
    "serve": "benchmarks.costs.serve",
    "connectors": "benchmarks.connectors.connectors",
    "replay": "benchmarks.replay.replay",
    "quiet": "benchmarks.costs.quiet",
    "spark": "benchmarks.latency.spark",
    "host_losses": "tests.soak.host_losses",
}
"""The module of each benchmark; those of `tests.soak` are endurance tests that have figures, too."""


class Benchmark(Protocol):
    """A benchmark as declared with `benchmarks.harness.declared`, or a module that has these two functions."""

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add the options of this benchmark."""

    def measure(self, options: argparse.Namespace, command: str, show: Callable[[str], None]) -> dict[str, Any]:
        """Run it; returns the object that `--json` writes."""


def benchmark(name: str) -> Benchmark:
    """Return the benchmark that has this name on the command line: what its module declares, or the module."""
    module = import_module(BENCHMARKS[name])
    return cast(Benchmark, getattr(module, "BENCHMARK", module))


PLACES = ("--json", "--chart", "--keep", "--venvs")
"""Options that say where something is written."""


BESIDE = Path()
"""--chart without a file."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark that is named; returns the exit status."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    options = _parser().parse_args(words)
    command = shlex.join(["python", "-m", "benchmarks", *_without_file(words)])
    chart = _chart(options)
    try:
        if chart is not None:
            style.check()
        outcome = benchmark(options.name).measure(options, command, _show)
    except RunFailed as problem:
        print(f"benchmarks: {problem}", file=sys.stderr)
        return 1
    if options.json is not None:
        write(options.json, outcome)
    if chart is not None:
        draw(outcome, chart)
    machine = outcome["machine"]
    print(f"{options.name} on {machine['processor']}, {machine['cores']} cores, Python {outcome['versions']['python']}")
    print(shown(outcome["figures"]))
    if "summary" in outcome:
        print(outcome["summary"])
    return int(bool(outcome.get("failed")))


def _without_file(words: Sequence[str]) -> list[str]:
    """Return the arguments that shape the figures: where they are written does not."""
    kept: list[str] = []
    remaining = iter(words)
    for argument in remaining:
        if argument in PLACES:
            next(remaining, None)
        elif not argument.startswith(tuple(f"{place}=" for place in PLACES)):
            kept.append(argument)
    return kept


def _chart(options: argparse.Namespace) -> Path | None:
    """Return where the chart goes, if one is asked for: where it says, or next to the file of --json."""
    wanted: Path | None = getattr(options, "chart", None)
    if wanted != BESIDE:
        return wanted
    return (options.json or Path(f"{options.name}.json")).with_suffix(".png")


def _show(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure; never a test.")
    names = parser.add_subparsers(dest="name", required=True, metavar="NAME")
    for name in BENCHMARKS:
        summary = (import_module(BENCHMARKS[name]).__doc__ or "").splitlines()[0]
        command = names.add_parser(name, help=summary.replace("%", "%%"), description=summary)
        command.add_argument("--json", type=Path, metavar="FILE", help="write all runs there")
        if name in WITH_CHART:
            command.add_argument(
                "--chart", type=Path, nargs="?", const=BESIDE, metavar="FILE.png", help="draw it (default: beside FILE)"
            )
        benchmark(name).add_options(command)
    return parser


if __name__ == "__main__":
    sys.exit(children.attended(main))
