"""Keyed count over Arrow columns against the same count over rows: records per CPU second, in turn, in one run.

`chains_*` is one process: the operators' own chains of all tasks (source and routing, count, sink), what goes over a
channel encoded and decoded, no sockets, logs or other processes.  `job_*` is `causal run` with standbys and
checkpoints: CPU time of all processes for one record more, taken from a short and a long run, so that interpreters
that start do not count.  `ratio` is CPU time per record of the row path ÷ that of vectors, within one round.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks import children, runs
from benchmarks.bare import GC_THRESHOLD
from benchmarks.measured import figure, result
from benchmarks.throughput import tallied
from causal.batch import LISTED, Chunk
from causal.config import JobConfig
from causal.ports import Chain, Output
from operators.loading import load
from operators.plan import Plan, plan

PIPELINES = {"rows": runs.KEYED_COUNT, "vectors": Path(__file__).parent / "keyed_vectors.py"}
TASKS = 2
CHECKPOINT_INTERVAL_S = 1.0
INFLIGHT_BYTES_MAX = 1 << 29
"""What both forms send between two checkpoints stays in memory: compressing it for the disk is not what is measured."""
SHARE = {"rows": 1, "vectors": 8}
"""How many times `--job-records` a form is given, so that both run for about as long."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.add_argument(
        "--records", type=int, default=1_000_000, help="of one pass in one process (default: %(default)s)"
    )
    parser.add_argument(
        "--job-records",
        type=int,
        default=4_000_000,
        help="of a long job on rows; of one on vectors eight times that (default: %(default)s)",
    )
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--batch-elements-max", type=int, default=65536, help="rows per read (default: %(default)s)")
    parser.add_argument("--without-jobs", action="store_true", help="measure in one process only")


def measure(options: argparse.Namespace, command: str, tell: Callable[[str], None]) -> dict[str, Any]:
    """Run all rounds; returns the common form.

    Raises:
        RunFailed: a run failed, counted other rows than were given, or pyarrow is missing.
    """
    missing = [package for package in ("pyarrow", "numpy") if find_spec(package) is None]
    if missing:
        raise runs.RunFailed(f"{' and '.join(missing)} is not installed; run `pip install 'causal-streams[arrow]'`")
    places: list[tuple[str, Callable[[str], float]]] = [("chains", lambda form: _chains(form, options))]
    if not options.without_jobs:
        places.append(("job", lambda form: _job(form, options)))
    found: dict[str, list[float]] = {}
    for number in range(options.rounds):
        for place, cpu_us in places:
            took = {form: cpu_us(form) for form in PIPELINES}
            for form, value in took.items():
                found.setdefault(f"{place}_{form}_cpu_us", []).append(value)
            ratio = took["rows"] / took["vectors"]
            found.setdefault(f"{place}_ratio", []).append(ratio)
            tell(
                f"round {number + 1}, {place}: rows {took['rows']:.3f}, vectors {took['vectors']:.3f} µs, {ratio:.1f} ×"
            )
    settings = {
        "records": options.records,
        "job_records": 0 if options.without_jobs else options.job_records,
        "rounds": options.rounds,
        "keys": 9999,
        "partitions": TASKS,
        "parallelism": TASKS,
        "batch_elements_max": options.batch_elements_max,
        "checkpoint_interval_s": CHECKPOINT_INTERVAL_S,
        "inflight_memory_bytes_max": INFLIGHT_BYTES_MAX,
    }
    told = result("vectors", command, settings, {name: figure(values) for name, values in found.items()})
    told["versions"] |= {name: version(name) for name in ("pyarrow", "numpy")}
    return told


# One process.


def _chains(form: str, options: argparse.Namespace) -> float:
    """CPU µs per record, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.vectors", form, str(options.records), str(options.batch_elements_max)]
    done = children.run(command)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["it said nothing"]
        raise runs.RunFailed(f"the chains on {form} ended with status {done.returncode}: {said[-1]}")
    told = json.loads(done.stdout)
    if told["rows"] != options.records // TASKS * TASKS:
        raise runs.RunFailed(f"the chains on {form} counted {told['rows']} rows of {options.records}")
    return float(told["cpu_us"])


class NoServices:
    """What chains that ask for nothing are given."""

    def now_ns(self) -> int:
        raise NotImplementedError

    def seed(self) -> bytes:
        raise NotImplementedError

    def epoch(self) -> int:
        return 0

    def replaying(self) -> bool:
        return False

    def call(self, ask: Callable[[], bytes]) -> bytes:
        raise NotImplementedError

    def user(self, kind: str, ask: Callable[[], bytes]) -> bytes:
        raise NotImplementedError

    def window(self, operator: int, end_ns: int, intervals: Any) -> None:
        raise NotImplementedError


def run(form: str, records: int, batch_elements_max: int) -> dict[str, Any]:
    """Drive the chains of all tasks in turn, after a first pass over one batch each that is not measured."""
    settings = {"count": str(records), "partitions": str(TASKS), "parallelism": str(TASKS)}
    found = plan(load(PIPELINES[form], settings), JobConfig("bench", "bench", str(PIPELINES[form])))
    chains = [found.chain(task.index) for task in found.topology.tasks]
    _pass(found, chains, batch_elements_max * TASKS, batch_elements_max)
    gc.set_threshold(GC_THRESHOLD, 20, 100)
    gc.freeze()
    began = time.process_time()
    rows = _pass(found, chains, records, batch_elements_max)
    return {"rows": rows, "cpu_us": (time.process_time() - began) / records * 1e6}


def _pass(found: Plan, chains: list[Chain], records: int, batch_elements_max: int) -> int:
    services, rows = NoServices(), 0
    channels = found.topology.channels
    readers = [found.reader(channel, Path(), 0) for channel in channels if channel.source < 0]

    def forward(task: int, outputs: list[Output]) -> Iterator[Chunk]:
        for ordinal, chunk in outputs:
            channel = found.topology.outputs(found.topology.tasks[task].index)[ordinal]
            if channel.target < 0:
                yield chunk
                continue
            inputs = found.topology.inputs(channel.target)
            given = chains[channel.target].deliver(inputs.index(channel), [chunk], 0, services)
            yield from forward(channel.target, given)

    for start in range(0, records // TASKS, batch_elements_max):
        for task, reader in enumerate(readers):
            told = reader.read(start, min(batch_elements_max, records // TASKS - start))
            if told is not None and told.records:
                chunk = Chunk(LISTED, len(told.records), told.records)
                rows += sum(chunk.count for chunk in forward(task, chains[task].deliver(0, [chunk], start, services)))
    return rows


# Whole jobs.


def _job(form: str, options: argparse.Namespace) -> float:
    """CPU µs for one record more."""
    many: int = options.job_records * SHARE[form]
    few = many // 4
    more_s = _cpu_s(form, many, options) - _cpu_s(form, few, options)
    return more_s / (many - few) * 1e6


def _cpu_s(form: str, records: int, options: argparse.Namespace) -> float:
    report = runs.job(
        PIPELINES[form],
        {"count": records, "partitions": TASKS, "parallelism": TASKS},
        (f"--checkpoint-interval={CHECKPOINT_INTERVAL_S}",),
        {"batch_elements_max": options.batch_elements_max, "inflight_memory_bytes_max": INFLIGHT_BYTES_MAX},
        tallied,
    )
    if report["checked"] != records // TASKS * TASKS:
        raise runs.RunFailed(f"the sink holds {report['checked']} rows of {records}")
    return float(report["cpu_s"])


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
