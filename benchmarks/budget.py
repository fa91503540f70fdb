"""Where a batch's time goes: receive, merge delta, decode, operators, log, encode, send, keep …, by task; and a replay.

The three tasks of the keyed count run in one process with real sockets, frames, logs and store (`budget_drive`), for
batches of several sizes; beside them, the bare job's steps, and the same tasks with no clock inside (`whole`).  A
round runs all of these, each in a process of its own.  *replay* is per event of one record (`budget_replay`).
Microseconds of CPU per batch, the slowest fifth of the batches left out.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from benchmarks import children, runs
from benchmarks.budget_parts import PARTS
from benchmarks.measured import figure, result

SIZES = (4096, 256, 1)
PER_TURN = {"one event per turn": 1, "as many per turn as a replay performs": 0}
"""0: what the task does by itself."""
RECORDS = 4_000_000
"""Enough for batches of a size, up to --batches of them."""
WITHIN_S = 120


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.add_argument("--sizes", type=_sizes, default=SIZES, help="records per batch (default: 4096,256,1)")
    parser.add_argument("--batches", type=int, default=2000, help="of each size, at most (default: %(default)s)")
    parser.add_argument("--events", type=int, default=5000, help="of a replay (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")


def _sizes(text: str) -> tuple[int, ...]:
    words = text.split(",")
    if not all(word.isdigit() and int(word) for word in words):
        raise argparse.ArgumentTypeError(f"{text!r}: give whole numbers from 1, with commas between them")
    return tuple(map(int, words))


def measure(options: argparse.Namespace, command: str, tell: Callable[[str], None]) -> dict[str, Any]:
    """Run all rounds; returns the common form, `figures` named `SIZE/WHAT/TASK/PART`.

    Raises:
        RunFailed: a process failed, or what was read did not come out.
    """
    found: dict[str, list[float]] = {}
    for number in range(options.rounds):
        for size in options.sizes:
            batches = max(20, min(options.batches, RECORDS // size))
            for what in ("bare", "whole", "parts"):
                for name, value in _took(what, size, batches).items():
                    found.setdefault(f"{size}/{what}/{name}", []).append(value)
            whole = sum(found[f"{size}/whole/{task}/whole"][-1] for task in ("source", "count", "sink"))
            tell(f"round {number + 1}, {size} records per batch: {whole:,.1f} µs for a batch in all three tasks")
        for name, per_turn in PER_TURN.items():
            told = _asked("benchmarks.budget_replay", str(options.events), str(per_turn))
            found.setdefault(f"replay/{name}", []).append(told["us"])
            tell(f"round {number + 1}, replay, {name}: {told['us']:.2f} µs per event of {told['events']:,}")
    settings = {
        "sizes": list(options.sizes),
        "batches_max": options.batches,
        "events": options.events,
        "rounds": options.rounds,
        "parts": list(PARTS),
        "partitions": 1,
        "parallelism": 1,
        "guarantee": "causal",
        "sharing_depth": "full",
    }
    figures = {name: figure(values + [0.0] * (options.rounds - len(values))) for name, values in found.items()}
    return result("budget", command, settings, figures)


def _took(what: str, size: int, batches: int) -> dict[str, float]:
    """`TASK/PART` → µs per batch."""
    if what == "bare":
        told = _asked("benchmarks.budget_bare", str(size), str(batches))
    else:
        told = _asked("benchmarks.budget_drive", what, str(size), str(batches))
    return {f"{task}/{part}": took for task, parts in told.items() for part, took in parts.items()}


def _asked(module: str, *arguments: str) -> dict[str, Any]:
    """What a process of its own prints.

    Raises:
        RunFailed: it failed.
    """
    try:
        done = children.run([sys.executable, "-m", module, *arguments], WITHIN_S)
    except subprocess.TimeoutExpired:
        raise runs.RunFailed(f"{module} did not end within {WITHIN_S} s") from None
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["it said nothing"]
        raise runs.RunFailed(f"{module} ended with status {done.returncode}: {said[-1]}")
    told: dict[str, Any] = json.loads(done.stdout)
    return told
