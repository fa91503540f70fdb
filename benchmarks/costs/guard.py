"""A regression guard for the hot paths that noise cannot trip: counts of what one batch makes the interpreter do.

`guard_count` says what is counted and why, `guard_paths` where.  The counts are exact, so what tolerance there is
leaves room for patch versions of Python and for libraries, not for chance.  `guard.json` keeps them per minor version.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.costs.guard_count import CALLS, INSTRUCTIONS, PEAK_BYTES
from benchmarks.harness.measured import figure, result, write
from benchmarks.harness.runs import RunFailed

KEPT = Path(__file__).parents[1] / "guard.json"
TOLERANCE = {INSTRUCTIONS: 0.01, CALLS: 0.01, PEAK_BYTES: 0.01}
SLACK = {INSTRUCTIONS: 4, CALLS: 1, PEAK_BYTES: 1024}
"""Added to the tolerance, for paths of a few instructions."""
WITHIN_S = 120

Counts = Mapping[str, Mapping[str, int]]
"""Path → what is counted → how much."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.add_argument("--update", action="store_true", help="keep what is counted now as what it should be")
    parser.add_argument("--kept", type=Path, default=KEPT, metavar="FILE", help="default: benchmarks/guard.json")


def measure(options: argparse.Namespace, command: str, show: Callable[[str], None]) -> dict[str, Any]:
    """Count, and compare with what is kept; returns the common form, `failed` with a line for each path that grew.

    Raises:
        RunFailed: nothing could be counted, or nothing is kept for this Python.
    """
    counts = counted()
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    kept: dict[str, dict[str, dict[str, int]]] = json.loads(options.kept.read_text()) if options.kept.exists() else {}
    if options.update:
        write(options.kept, dict(sorted({**kept, version: counts}.items())))
        failed: list[str] = []
        summary = [f"kept {len(counts)} paths for Python {version} in {options.kept}"]
    elif version in kept:
        failed, better = compared(kept[version], counts)
        summary = [*failed, *better, f"{len(counts)} paths, {len(failed)} counts too high"]
    else:
        raise RunFailed(f"{options.kept} has no counts for Python {version}; python -m benchmarks guard --update")
    figures = {path: figure([count[INSTRUCTIONS]], 0) for path, count in counts.items()}
    return result("guard", command, {}, figures, counts=counts, failed=failed, summary="\n".join(summary))


def counted() -> dict[str, dict[str, int]]:
    """All counts of this tree, from a process whose hashes and collector cannot vary.

    Raises:
        RunFailed: the process failed.
    """
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.costs.guard_paths"],
        env={**os.environ, "PYTHONHASHSEED": "0"},
        cwd=KEPT.parents[1],
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    if done.returncode:
        raise RunFailed(f"counting failed: {(done.stderr.strip().splitlines() or ['it said nothing'])[-1]}")
    counts: dict[str, dict[str, int]] = json.loads(done.stdout)
    return counts


def compared(kept: Counts, counts: Counts) -> tuple[list[str], list[str]]:
    """(a line for each count that is too high or gone, a line for each that is better than what is kept)."""
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
