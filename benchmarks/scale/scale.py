"""Measures what a job costs as it grows: the control plane with up to 10,000 tasks, determinants by depth and fan-in.

Everything runs in one process on virtual time, with the production supervisor, membership, core and encodings
(`scale_control`, `scale_data`).  Counts and bytes are exact and the same in every run; CPU time is that of the
supervisor's steps alone.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Mapping
from contextlib import closing

from benchmarks.harness.declared import Benchmark, Measurement, Option
from benchmarks.harness.graphs import layered
from benchmarks.harness.measured import figure
from benchmarks.scale.scale_control import ControlPlane, Tally, blocks
from benchmarks.scale.scale_data import Shape, determinants, handshake
from causal.topology import FULL_DEPTH

SIZES = (10, 100, 1_000, 10_000)
BLOCK_TASKS = 5
BACKGROUND = frozenset(("beat", "agent_beat", "alive"))
"""Messages that come whatever happens."""
CHECKPOINT = frozenset(("checkpoint", "snapshot", "completed"))
"""Those of a checkpoint that happens to be due while a task fails."""
DEPTHS = {"f1": 1, "f2": 2, "full": FULL_DEPTH}
FAILURES = 5
BEATS = 8
"""Beats of each process for the steady state: neighbours are named in each fourth of them."""

SHAPES: dict[str, dict[int, Shape]] = {
    "depth": {depth: Shape(depth, 2) for depth in range(1, 9)},
    "fan_in": {fan_in: Shape(2, fan_in) for fan_in in (1, 2, 4, 8, 16, 32, 64)},
    "width": {width: Shape(4, width, width) for width in (1, 2, 4, 8, 16)},
}
"""The graphs, by what is varied: hops from source to sink; sources of one task; tasks of each of four layers."""


def _sizes(text: str) -> tuple[int, ...]:
    sizes = tuple(int(each) for each in text.split(","))
    if not sizes or any(size < BLOCK_TASKS or size % BLOCK_TASKS for size in sizes):
        raise argparse.ArgumentTypeError(f"{text!r}: give multiples of {BLOCK_TASKS}, with commas between them")
    return sizes


OPTIONS = (
    Option("sizes", ",".join(map(str, SIZES)), "tasks, multiples of 5", _sizes, setting=None),
    Option("rounds", 3, "of each size", setting=None),
    Option("cpu_max", 60.0, "seconds of the supervisor per size", setting=None),
    Option("records", 16_000, "per graph, at least ten reads per source"),
    Option("batch", 100, "records per read", setting="batch_records"),
)


def _measure(run: Measurement) -> None:
    """Measure the control plane at every size, and the data plane at every shape.

    Raises:
        RunFailed: a size needs more CPU time than `--cpu-max`, or something did not end well.
    """
    options = run.options
    for size in options.sizes:
        for _ in range(options.rounds if size < max(SIZES) else 1):
            run.add_all(f"control.{size}.", control(size, options.cpu_max))
        cpu_us = run.last(f"control.{size}.steady_cpu_us_per_task_s")
        run.report(f"{size} tasks: {cpu_us:.0f} µs of CPU per task and second")
    for width in (1, 4, 16, 64):
        run.add_all(f"neighbours.{width}.", neighbours(width))
    for kind, shapes in SHAPES.items():
        for number, shape in shapes.items():
            for name, depth in DEPTHS.items():
                for key, value in _data(shape, depth, options).items():
                    run.figures[f"{kind}.{number}.{name}.{key}"] = figure([value], 5)
        run.report(f"{kind}: measured")


def _data(shape: Shape, depth: int, options: argparse.Namespace) -> dict[str, float]:
    records = max(options.records, 10 * options.batch * shape.fan_in)
    values = determinants(shape, depth, records, options.batch)
    if shape.depth > 1:  # with one hop there is no task between source and sink whose failure could be looked at
        values |= handshake(shape, depth, records, options.batch)
    return values


def control(tasks: int, cpu_s_max: float) -> dict[str, float]:
    """Return figures of one control plane, by phase: start, steady state, a checkpoint, failures, a new supervisor."""
    values: dict[str, float] = {}
    with closing(ControlPlane(blocks(tasks // BLOCK_TASKS), cpu_s_max)) as plane:
        with plane.phase() as tally:
            plane.start()
        values |= _per_task("start", tally, tasks)
        values["start_journal_bytes_per_task"] = tally.journal_bytes / tasks
        plane.checkpoint()
        plane.quiet()
        gc.collect()
        gc.freeze()  # the workers that are simulated here are no burden of a supervisor's garbage collector
        try:
            values |= _running(plane, tasks)
        finally:
            gc.unfreeze()
    return values


def _running(plane: ControlPlane, tasks: int) -> dict[str, float]:
    values: dict[str, float] = {}
    with plane.phase() as tally:
        for _ in range(BEATS if tasks <= 1000 else BEATS // 2):
            plane.beats()
    beats = tally.messages["beat"] / 2 / tasks * plane.config.heartbeat_ms / 1000
    values |= {f"{name}_s": value / beats for name, value in _per_task("steady", tally, tasks, all_kinds=True).items()}
    values["step_us"] = tally.cpu_ns / tally.steps / 1e3
    values["beat_bytes"] = tally.bytes["beat"] / tally.messages["beat"]
    values["agent_beat_bytes_per_task"] = tally.bytes["agent_beat"] / tally.messages["agent_beat"] / tasks
    plane.checkpoint()  # so that the next one begins in the phase that is looked at
    with plane.phase() as tally:
        plane.checkpoint()
    values |= _per_task("checkpoint", tally, tasks)
    values["checkpoint_journal_bytes_per_task"] = tally.journal_bytes / tasks
    values["checkpoint_step_ms_max"] = tally.step_ns_max / 1e6
    values["manifest_bytes_per_task"] = tally.manifest_bytes / tasks
    plane.quiet()
    values |= _failing(plane)
    with plane.phase() as tally:
        values["status_bytes_per_task"] = plane.status_bytes() / tasks
    values["status_cpu_us_per_task"] = tally.cpu_ns / tasks / 1e3
    values["journal_kept_bytes_per_task"] = plane.journal_bytes() / tasks
    with plane.phase() as tally:
        plane.restart()
    values["restart_cpu_us_per_task"] = tally.cpu_ns / tasks / 1e3
    return values


def _failing(plane: ControlPlane) -> dict[str, float]:
    """Per failure; one after the other, each of a counting task."""
    names = [task.name for task in plane.topology.tasks if task.name.startswith("count/")]
    total = {"messages": 0.0, "bytes": 0.0, "journal_bytes": 0.0}
    promoting_ns: list[int] = []
    for number in range(FAILURES):
        plane.quiet()
        with plane.phase() as tally:
            plane.fail(names[number % len(names)])
        total["messages"] += _of_failure(tally.messages)
        total["bytes"] += _of_failure(tally.bytes)
        total["journal_bytes"] += tally.journal_bytes
        promoting_ns.append(plane.promotion_ns)
    values = {f"failure_{name}": value / FAILURES for name, value in total.items()}
    return {**values, "failure_step_us": sorted(promoting_ns)[FAILURES // 2] / 1e3}


def _per_task(phase: str, tally: Tally, tasks: int, all_kinds: bool = False) -> dict[str, float]:
    return {
        f"{phase}_messages_per_task": _sum(tally.messages, all_kinds) / tasks,
        f"{phase}_bytes_per_task": _sum(tally.bytes, all_kinds) / tasks,
        f"{phase}_cpu_us_per_task": tally.cpu_ns / tasks / 1e3,
    }


def _sum(kinds: Mapping[str, int], all_kinds: bool = False) -> int:
    return sum(count for kind, count in kinds.items() if all_kinds or kind not in BACKGROUND)


def _of_failure(kinds: Mapping[str, int]) -> int:
    return sum(count for kind, count in kinds.items() if kind not in BACKGROUND | CHECKPOINT)


def neighbours(width: int) -> dict[str, float]:
    """Return the control plane of three layers of `width` tasks, all to all."""
    with closing(ControlPlane(layered((width, width, width)))) as plane:
        with plane.phase() as tally:
            plane.start()
        values = {"start_messages_per_task": _sum(tally.messages) / (3 * width)}
        with plane.phase() as tally:
            for _ in range(BEATS):
                plane.beats()
        values["beat_bytes"] = tally.bytes["beat"] / tally.messages["beat"]
        with plane.phase() as tally:
            plane.fail("l1/0")
    return {
        **values,
        "failure_messages": float(_of_failure(tally.messages)),
        "failure_bytes": float(_of_failure(tally.bytes)),
    }


SETTINGS = {"heartbeat_ms": 100, "standbys": "per-task", "graph": "blocks of 2 sources, 2 counting tasks, 1 sink"}
BENCHMARK = Benchmark("scale", OPTIONS, _measure, settings=SETTINGS)
