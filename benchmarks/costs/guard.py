"""A regression guard for the hot paths that noise cannot trip: counts of what one batch makes the interpreter do.

`guard_count` says what is counted and why, `guard_paths` where.  The counts are exact, so what tolerance there is
leaves room for patch versions of Python and for libraries, not for chance.  `guard.json` keeps them per minor version.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from benchmarks.costs.guard_count import CALLS, INSTRUCTIONS, PEAK_BYTES
from benchmarks.harness import runs
from benchmarks.harness.declared import Benchmark, Measurement, Option
from benchmarks.harness.measured import write

KEPT = Path(__file__).parents[1] / "guard.json"
TOLERANCE = {INSTRUCTIONS: 0.01, CALLS: 0.01, PEAK_BYTES: 0.01}
SLACK = {INSTRUCTIONS: 4, CALLS: 1, PEAK_BYTES: 1024}
"""Added to the tolerance, for paths of a few instructions."""
WITHIN_S = 120

Counts = Mapping[str, Mapping[str, int]]
"""Path → what is counted → how much."""


OPTIONS = (
    Option("update", False, "keep what is counted now as what it should be", setting=None),
    Option("kept", KEPT, "the file that keeps it", setting=None, parse=Path),
)


def _measure(run: Measurement) -> None:
    """Count, and compare with the stored counts; `failed` has a line for each path that grew.

    Raises:
        RunFailed: nothing could be counted, or nothing is kept for this Python.
    """
    path: Path = run.options.kept
    counts = runs.printed_by("benchmarks.costs.guard_paths", limit_s=WITHIN_S, env={"PYTHONHASHSEED": "0"})
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    kept: dict[str, dict[str, dict[str, int]]] = json.loads(path.read_text()) if path.exists() else {}
    if run.options.update:
        write(path, dict(sorted({**kept, version: counts}.items())))
        failed: list[str] = []
        summary = [f"kept {len(counts)} paths for Python {version} in {path}"]
    elif version in kept:
        failed, better = compared(kept[version], counts)
        summary = [*failed, *better, f"{len(counts)} paths, {len(failed)} counts too high"]
    else:
        raise runs.RunFailed(f"{path} has no counts for Python {version}; python -m benchmarks guard --update")
    for name, count in counts.items():
        run.add(name, count[INSTRUCTIONS])
    run.more |= {"counts": counts, "failed": failed, "summary": "\n".join(summary)}


def compared(kept: Counts, counts: Counts) -> tuple[list[str], list[str]]:
    """Return (a line for each count that is too high or missing, a line for each better than the stored one)."""
    failed, better = [], []
    for path, before in kept.items():
        if path not in counts:
            failed.append(f"{path}: is not counted any more; if that is meant: python -m benchmarks guard --update")
            continue
        for name, old in before.items():
            new = counts[path][name]
            room = old * TOLERANCE[name] + SLACK[name]
            line = f"{path}: {name.replace('_', ' ')} {old:,} before, {new:,} now ({new / max(old, 1) - 1:+.1%})"
            if new > old + room:
                failed.append(line)
            elif new < old - room:
                better.append(f"{line}; python -m benchmarks guard --update keeps it")
    unknown = [path for path in counts if path not in kept]
    better += [f"{path}: is new; python -m benchmarks guard --update keeps it" for path in unknown]
    return failed, better


BENCHMARK = Benchmark("guard", OPTIONS, _measure, digits=0)
