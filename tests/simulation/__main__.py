"""`python -m tests.simulation`: runs seeds on all cores, and says how to repeat the one that fails."""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from functools import partial
from itertools import count
from pathlib import Path

from tests.simulation.diagram import drawn
from tests.simulation.finding import FOUND_WITHIN_SEEDS
from tests.simulation.sabotage import SABOTAGES
from tests.simulation.scenario import Scenario, draw, draw_cells, draw_changes, draw_hosts, draw_hot, from_json
from tests.simulation.shrink import shrink
from tests.simulation.trial import Outcome, run

FAILURES_SHOWN_MAX = 5
PROGRESS_S = 10.0


def main(argv: list[str] | None = None) -> int:
    """Return the exit status: 0 if every promise was kept (or every sabotage found), 1 if not."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=300, metavar="N", help="how many seeds to run (300)")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first of them (0)")
    parser.add_argument("--hosts", action="store_true", help="give each job several hosts, and faults of those")
    parser.add_argument("--hot", action="store_true", help="give each job hot standbys")
    parser.add_argument("--cells", action="store_true", help="let several operators share a task")
    parser.add_argument("--changes", action="store_true", help="change each job while it runs")
    parser.add_argument("--soak", action="store_true", help="run until stopped with Ctrl-C")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (one per core)")
    parser.add_argument(
        "--sabotage", metavar="NAME", help=f"break one rule, or all of them in turn: all, {', '.join(SABOTAGES)}"
    )
    parser.add_argument("--scenario", metavar="JSON", help="run just this scenario, as a shrunk failure prints it")
    parser.add_argument("--no-shrink", action="store_true", help="do not look for a smaller failing scenario")
    parser.add_argument(
        "--draw", type=Path, metavar="FILE.svg", help="draw the first seed, or the scenario, as a space-time diagram"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    options = parser.parse_args(argv)
    logging.getLogger("standby.control").setLevel(logging.ERROR)  # messages that are refused are what is tested
    if options.sabotage is not None and options.sabotage != "all" and options.sabotage not in SABOTAGES:
        parser.error(f"no sabotage is called {options.sabotage}; there are {', '.join(SABOTAGES)}")
    if options.scenario is not None or options.draw is not None:
        scenario = from_json(options.scenario) if options.scenario is not None else _drawing(options)(options.first)
        return _single(scenario, options.draw, options.sabotage or "")
    if options.sabotage is not None:
        names = list(SABOTAGES) if options.sabotage == "all" else [options.sabotage]
        return _teeth(names, options.first, options.jobs)
    seeds = count(options.first) if options.soak else range(options.first, options.first + options.seeds)
    return _many(seeds, options)


def _single(scenario: Scenario, drawing: Path | None, sabotage: str) -> int:
    if drawing is not None:
        drawing.write_text(drawn(scenario, sabotage))
        print(f"drawn: {drawing}")
    outcome = run(scenario, sabotage)
    print(json.dumps(asdict(scenario)))
    print(outcome.problem or f"passed, digest {outcome.digest}")
    return 1 if outcome.problem else 0


def _drawing(options: argparse.Namespace) -> Callable[[int], Scenario]:
    if options.changes:
        return draw_changes
    if options.cells:
        return draw_cells
    return draw_hot if options.hot else draw_hosts if options.hosts else draw


def _outcomes(
    seeds: Iterable[int], jobs: int, drawn_by: Callable[[int], Scenario], sabotage: str = ""
) -> Iterator[Outcome]:
    trial = partial(_trial, sabotage=sabotage, drawn_by=drawn_by)
    if jobs == 1:
        yield from map(trial, seeds)
        return
    with multiprocessing.get_context("fork").Pool(jobs, _deaf) as pool:
        yield from pool.imap_unordered(trial, seeds, chunksize=4)


def _deaf() -> None:
    """Ignore Ctrl-C, which is for the process that sums up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _trial(seed: int, sabotage: str, drawn_by: Callable[[int], Scenario]) -> Outcome:
    return run(drawn_by(seed), sabotage)


def _many(seeds: Iterable[int], options: argparse.Namespace) -> int:
    faults: Counter[str] = Counter()
    figures: Counter[str] = Counter()
    failures: list[Outcome] = []
    passed, began_s, shown_s = 0, time.monotonic(), time.monotonic()
    try:
        for outcome in _outcomes(seeds, options.jobs, _drawing(options)):
            faults += outcome.faults
            figures += outcome.figures
            if outcome.problem:
                failures.append(outcome)
                if len(failures) <= FAILURES_SHOWN_MAX:
                    _print_failure(outcome, shrinking=not options.no_shrink)
            else:
                passed += 1
            if time.monotonic() - shown_s > PROGRESS_S and (options.soak or sys.stderr.isatty()):
                shown_s = time.monotonic()
                print(f"{passed} passed, {len(failures)} failed", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        pass
    took_s = time.monotonic() - began_s
    summary = {
        "passed": passed,
        "failed": len(failures),
        "failing_seeds": sorted(outcome.scenario.seed for outcome in failures)[:100],
        "seeds_per_minute": round(60 * (passed + len(failures)) / took_s),
        "processes": options.jobs,
        "faults": dict(sorted(faults.items())),
        "figures": dict(sorted(figures.items())),
    }
    if options.json is not None:
        options.json.write_text(json.dumps(summary, indent=1) + "\n")
    for name in ("faults", "figures"):
        print(", ".join(f"{kind} {number}" for kind, number in summary[name].items()))
    print(
        f"{passed} passed, {len(failures)} failed, {summary['seeds_per_minute']} seeds a minute on {options.jobs} cores"
    )
    return 1 if failures else 0


def _print_failure(outcome: Outcome, shrinking: bool) -> None:
    seed = outcome.scenario.seed
    print(f"seed {seed}: {outcome.problem}", flush=True)
    scenario = outcome.scenario
    several = " --changes" if scenario.changes else " --cells" if scenario.processes else ""
    several = several or (" --hot" if scenario.hot else " --hosts" if scenario.layout is not None else "")
    print(f"  again:   python -m tests.simulation{several} --first {seed} --seeds 1")
    if shrinking:
        smaller, tries = shrink(outcome)
        faults = ", ".join(fault.kind for fault in smaller.scenario.faults) or "none"
        now = smaller.scenario
        print(f"  smaller: {now.layers} tasks, {now.records} records, faults: {faults} ({tries} tries)")
        print(f"  {smaller.problem}")
        print(f"  again:   python -m tests.simulation --scenario '{json.dumps(asdict(smaller.scenario))}'")
        print("  drawn:   the same with --draw failure.svg")


def _teeth(names: list[str], first: int, jobs: int) -> int:
    missed = []
    for name in names:
        outcome = next((o for o in _in_order(name, first, jobs) if o.problem), None)
        if outcome is None:
            missed.append(name)
            print(f"{name}: not found in {FOUND_WITHIN_SEEDS} seeds: a hole in the checkers", flush=True)
        else:
            seed = outcome.scenario.seed
            print(f"{name}: found by seed {seed} (number {seed - first + 1}): {outcome.problem[:160]}", flush=True)
    print(f"{len(names) - len(missed)} of {len(names)} sabotages found")
    return 1 if missed else 0


def _in_order(name: str, first: int, jobs: int) -> Iterator[Outcome]:
    """Seed by seed: most sabotages show within the first few."""
    yield from (run(scenario, name) for scenario in SABOTAGES[name].first)
    few, drawn_by = min(20, FOUND_WITHIN_SEEDS), SABOTAGES[name].drawn_by
    yield from _outcomes(range(first, first + few), 1, drawn_by, name)
    yield from _outcomes(range(first + few, first + FOUND_WITHIN_SEEDS), jobs, drawn_by, name)


if __name__ == "__main__":
    sys.exit(main())
