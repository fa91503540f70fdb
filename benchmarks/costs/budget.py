"""Shows where a batch's time goes: receive, merge delta, decode, operators, log, encode, send …, by task; and a replay.

The three tasks of the keyed count run in one process with real sockets, frames, logs and store (`budget_drive`), for
batches of several sizes; beside them, the bare job's steps, and the same tasks with no clock inside (`whole`).  A
round runs all of these, each in a process of its own.  *replay* is per event of one record (`budget_replay`).
Microseconds of CPU per batch, the slowest fifth of the batches left out.
"""

from __future__ import annotations

import argparse

from benchmarks.costs.budget_parts import PARTS, TASKS
from benchmarks.harness import runs
from benchmarks.harness.declared import Benchmark, Measurement, Option
from benchmarks.harness.measured import figure

SIZES = (4096, 256, 1)
PER_TURN = {"one event per turn": 1, "as many per turn as a replay performs": 0}
"""0: what the task does by itself."""
RECORDS = 4_000_000
"""Enough for batches of a size, up to --batches of them."""
WITHIN_S = 120


def _sizes(text: str) -> tuple[int, ...]:
    words = text.split(",")
    if not all(each.isdigit() and int(each) for each in words):
        raise argparse.ArgumentTypeError(f"{text!r}: give whole numbers from 1, with commas between them")
    return tuple(map(int, words))


OPTIONS = (
    Option("sizes", SIZES, "records per batch", _sizes),
    Option("batches", 2000, "of each size, at most", setting="batches_max"),
    Option("events", 5000, "of a replay"),
    Option("rounds", 5),
)


def _measure(run: Measurement) -> None:
    options = run.options
    samples: dict[str, list[float]] = {}
    for number in run.rounds():
        for size in options.sizes:
            batches = max(20, min(options.batches, RECORDS // size))
            for what in ("bare", "whole", "parts"):
                for name, value in _took(what, size, batches).items():
                    samples.setdefault(f"{size}/{what}/{name}", []).append(value)
            whole = sum(samples[f"{size}/whole/{task}/whole"][-1] for task in TASKS)
            run.report(f"round {number}, {size} records per batch: {whole:,.1f} µs for a batch in all three tasks")
        for name, per_turn in PER_TURN.items():
            replay = runs.printed_by("benchmarks.costs.budget_replay", options.events, per_turn)
            samples.setdefault(f"replay/{name}", []).append(replay["us"])
            run.report(f"round {number}, replay, {name}: {replay['us']:.2f} µs per event of {replay['events']:,}")
    # A part that a round lacks took nothing in it.
    run.figures |= {name: figure(each + [0.0] * (options.rounds - len(each))) for name, each in samples.items()}


def _took(what: str, size: int, batches: int) -> dict[str, float]:
    """`TASK/PART` → µs per batch."""
    words = ("budget_bare",) if what == "bare" else ("budget_drive", what)
    tasks = runs.printed_by(
        f"benchmarks.costs.{words[0]}", *words[1:], str(size), str(batches), limit_s=WITHIN_S
    )  # fmt: skip
    return {f"{task}/{part}": took for task, parts in tasks.items() for part, took in parts.items()}


SETTINGS = {"parts": PARTS, "partitions": 1, "parallelism": 1, "guarantee": "causal", "sharing_depth": "full"}
BENCHMARK = Benchmark("budget", OPTIONS, _measure, settings=SETTINGS)
