"""What a job costs as it grows: the control plane with up to 10,000 tasks, determinants by depth and fan-in.

Everything runs in one process on virtual time, with the production supervisor, membership, core and encodings
(`scale_control`, `scale_data`).  Counts and bytes are exact and the same in every run; CPU time is that of the
supervisor's steps alone.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

from benchmarks.measured import figure, result
from benchmarks.scale_control import ControlPlane, Tally, blocks, layered
from benchmarks.scale_data import Shape, determinants, handshake
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
"""Of each process, for the steady state: neighbours are named in each fourth of them."""

SHAPES: dict[str, dict[int, Shape]] = {
    "depth": {depth: Shape(depth, 2) for depth in range(1, 9)},
    "fan_in": {fan_in: Shape(2, fan_in) for fan_in in (1, 2, 4, 8, 16, 32, 64)},
    "width": {width: Shape(4, width, width) for width in (1, 2, 4, 8, 16)},
}
"""What is varied: hops from source to sink; sources that one task reads; tasks of each of four layers, all to all."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.add_argument("--sizes", type=_sizes, default=SIZES, help="tasks, multiples of 5 (default: 10,…,10000)")
    parser.add_argument("--rounds", type=int, default=3, help="of each size (default: %(default)s)")
    parser.add_argument(
        "--cpu-max", type=float, default=60.0, metavar="S", help="of the supervisor per size (default: %(default)s)"
    )
    parser.add_argument(
        "--records", type=int, default=16_000, help="per graph, at least ten reads per source (default: %(default)s)"
    )
    parser.add_argument("--batch", type=int, default=100, help="records per read (default: %(default)s)")


def _sizes(text: str) -> tuple[int, ...]:
    sizes = tuple(int(word) for word in text.split(","))
    if not sizes or any(size < BLOCK_TASKS or size % BLOCK_TASKS for size in sizes):
        raise argparse.ArgumentTypeError(f"{text!r}: give multiples of {BLOCK_TASKS}, with commas between them")
    return sizes


def measure(options: argparse.Namespace, command: str, tell: Callable[[str], None]) -> dict[str, Any]:
    """Measure the control plane at every size, and the data plane at every shape; returns the common form.

    Raises:
        RunFailed: a size needs more CPU time than `--cpu-max`, or something did not end well.
    """
    figures: dict[str, Any] = {}
    for size in options.sizes:
        runs: dict[str, list[float]] = {}
        for _ in range(options.rounds if size < max(SIZES) else 1):
            for name, value in control(size, options.cpu_max).items():
                runs.setdefault(name, []).append(value)
        figures |= {f"control.{size}.{name}": figure(values) for name, values in runs.items()}
        tell(f"{size} tasks: {runs['steady_cpu_us_per_task_s'][-1]:.0f} µs of CPU per task and second")
    for width in (1, 4, 16, 64):
        figures |= {f"neighbours.{width}.{name}": figure([value]) for name, value in neighbours(width).items()}
    for kind, shapes in SHAPES.items():
        for number, shape in shapes.items():
            for name, depth in DEPTHS.items():
                told = _data(shape, depth, options)
                figures |= {f"{kind}.{number}.{name}.{key}": figure([value], 5) for key, value in told.items()}
        tell(f"{kind}: measured")
    settings = {
        "heartbeat_ms": 100,
        "standbys": "per-task",
        "records": options.records,
        "batch_records": options.batch,
        "graph": "blocks of 2 sources, 2 counting tasks, 1 sink",
    }
    return result("scale", command, settings, figures)


def _data(shape: Shape, depth: int, options: argparse.Namespace) -> dict[str, float]:
    records = max(options.records, 10 * options.batch * shape.fan_in)
    told = determinants(shape, depth, records, options.batch)
    if shape.depth > 1:  # with one hop there is no task between source and sink whose failure could be looked at
        told |= handshake(shape, depth, records, options.batch)
    return told


def control(tasks: int, cpu_s_max: float) -> dict[str, float]:
    """Figures of one control plane, by phase: start, steady state, a checkpoint, failures, a new supervisor."""
    told: dict[str, float] = {}
    with closing(ControlPlane(blocks(tasks // BLOCK_TASKS), cpu_s_max)) as plane:
        with plane.phase() as tally:
            plane.start()
        told |= _per_task("start", tally, tasks)
        told["start_journal_bytes_per_task"] = tally.journal_bytes / tasks
        plane.checkpoint()
        plane.quiet()
        gc.collect()
        gc.freeze()  # the workers that are simulated here are no burden of a supervisor's garbage collector
        try:
            told |= _running(plane, tasks)
        finally:
            gc.unfreeze()
    return told


def _running(plane: ControlPlane, tasks: int) -> dict[str, float]:
    told: dict[str, float] = {}
    with plane.phase() as tally:
        for _ in range(BEATS if tasks <= 1000 else BEATS // 2):
            plane.beats()
    beats = tally.messages["beat"] / 2 / tasks * plane.config.heartbeat_ms / 1000
    told |= {f"{name}_s": value / beats for name, value in _per_task("steady", tally, tasks, all_kinds=True).items()}
    told["step_us"] = tally.cpu_ns / tally.steps / 1e3
    told["beat_bytes"] = tally.bytes["beat"] / tally.messages["beat"]
    told["agent_beat_bytes_per_task"] = tally.bytes["agent_beat"] / tally.messages["agent_beat"] / tasks
    plane.checkpoint()  # so that the next one begins in the phase that is looked at
    with plane.phase() as tally:
        plane.checkpoint()
    told |= _per_task("checkpoint", tally, tasks)
    told["checkpoint_journal_bytes_per_task"] = tally.journal_bytes / tasks
    told["checkpoint_step_ms_max"] = tally.step_ns_max / 1e6
    told["manifest_bytes_per_task"] = tally.manifest_bytes / tasks
    plane.quiet()
    told |= _failing(plane)
    with plane.phase() as tally:
        told["status_bytes_per_task"] = plane.status_bytes() / tasks
    told["status_cpu_us_per_task"] = tally.cpu_ns / tasks / 1e3
    told["journal_kept_bytes_per_task"] = plane.journal_bytes() / tasks
    with plane.phase() as tally:
        plane.restart()
    told["restart_cpu_us_per_task"] = tally.cpu_ns / tasks / 1e3
    return told


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
    told = {f"failure_{name}": value / FAILURES for name, value in total.items()}
    return {**told, "failure_step_us": sorted(promoting_ns)[FAILURES // 2] / 1e3}


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
    """The control plane of three layers of `width` tasks, all to all."""
    with closing(ControlPlane(layered((width, width, width)))) as plane:
        with plane.phase() as tally:
            plane.start()
        told = {"start_messages_per_task": _sum(tally.messages) / (3 * width)}
        with plane.phase() as tally:
            for _ in range(BEATS):
                plane.beats()
        told["beat_bytes"] = tally.bytes["beat"] / tally.messages["beat"]
        with plane.phase() as tally:
            plane.fail("l1/0")
    return {
        **told,
        "failure_messages": float(_of_failure(tally.messages)),
        "failure_bytes": float(_of_failure(tally.bytes)),
    }
