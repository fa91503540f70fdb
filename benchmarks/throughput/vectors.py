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
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import runs
from benchmarks.harness.declared import Benchmark, Measurement, Option
from benchmarks.harness.measured import versions
from benchmarks.jobs import keyed_count
from benchmarks.jobs.bare import GC_THRESHOLD
from causal.config import JobConfig
from causal.ports import Chain, Output
from causal.records.batch import LISTED, Chunk
from operators.builder.loading import load
from operators.engine.plan import Plan, plan
from operators.stage.calls import CLOSED

PIPELINES = {"rows": runs.KEYED_COUNT, "vectors": runs.JOBS / "keyed_vectors.py"}
TASKS = 2
CHECKPOINT_INTERVAL_S = 1.0
INFLIGHT_BYTES_MAX = 1 << 29
"""All that both forms send between two checkpoints stays in memory: compression for the disk is not measured."""
SHARE = {"rows": 1, "vectors": 8}
"""The multiple of `--job-records` that a form gets, so that both run for about as long."""


OPTIONS = (
    Option("records", 1_000_000, "of one pass in one process"),
    Option("job_records", 4_000_000, "of a long job on rows; of one on vectors eight times that"),
    Option("rounds", 5),
    Option("batch_elements_max", 65536, "rows per read"),
    Option("without_jobs", False, "measure in one process only"),
)


def _measure(run: Measurement) -> None:
    options = run.options
    run.more["versions"] = versions("pyarrow", "numpy", extra="arrow")
    places = {"chains": _chains} if options.without_jobs else {"chains": _chains, "job": _job}
    for number in run.rounds():
        for place, cpu_us in places.items():
            took = {form: cpu_us(form, options) for form in PIPELINES}
            ratio = took["rows"] / took["vectors"]
            run.add_all(f"{place}_", {f"{form}_cpu_us": value for form, value in took.items()})
            run.add(f"{place}_ratio", ratio)
            run.report(
                f"round {number}, {place}: rows {took['rows']:.3f}, vectors {took['vectors']:.3f} µs, {ratio:.1f} ×"
            )


# One process.


def _chains(form: str, options: argparse.Namespace) -> float:
    """CPU µs per record, in a process of its own."""
    chains = runs.printed_by(__spec__.name, form, options.records, options.batch_elements_max)
    if chains["rows"] != options.records // TASKS * TASKS:
        raise runs.RunFailed(f"the chains on {form} counted {chains['rows']} rows of {options.records}")
    return float(chains["cpu_us"])


def run(form: str, records: int, batch_elements_max: int) -> dict[str, Any]:
    """Drive the chains of all tasks in turn, after a first pass over one batch each that is not measured."""
    settings = {"count": str(records), "partitions": str(TASKS), "parallelism": str(TASKS)}
    graph = plan(load(PIPELINES[form], settings), JobConfig("bench", "bench", str(PIPELINES[form])))
    chains = [graph.chain(task.index) for task in graph.topology.tasks]
    _pass(graph, chains, batch_elements_max * TASKS, batch_elements_max)
    gc.set_threshold(GC_THRESHOLD, 20, 100)
    gc.freeze()
    began = time.process_time()
    rows = _pass(graph, chains, records, batch_elements_max)
    return {"rows": rows, "cpu_us": (time.process_time() - began) / records * 1e6}


def _pass(graph: Plan, chains: Sequence[Chain], records: int, batch_elements_max: int) -> int:
    rows = 0
    channels = graph.topology.channels
    readers = [graph.reader(channel, Path(), 0) for channel in channels if channel.source < 0]

    def forward(task: int, outputs: list[Output]) -> Iterator[Chunk]:
        for ordinal, chunk in outputs:
            channel = graph.topology.outputs(graph.topology.tasks[task].index)[ordinal]
            if channel.target < 0:
                yield chunk
                continue
            inputs = graph.topology.inputs(channel.target)
            delivered = chains[channel.target].deliver(inputs.index(channel), [chunk], 0, CLOSED)
            yield from forward(channel.target, delivered)

    for start in range(0, records // TASKS, batch_elements_max):
        for task, reader in enumerate(readers):
            batch = reader.read(start, min(batch_elements_max, records // TASKS - start))
            if batch is not None and batch.records:
                chunk = Chunk(LISTED, len(batch.records), batch.records)
                rows += sum(chunk.count for chunk in forward(task, chains[task].deliver(0, [chunk], start, CLOSED)))
    return rows


# Whole jobs.


def _job(form: str, options: argparse.Namespace) -> float:
    """CPU µs for one record more."""
    many: int = options.job_records * SHARE[form]
    few = many // 4
    more_s = _cpu_s(form, many, options) - _cpu_s(form, few, options)
    return more_s / (many - few) * 1e6


def _cpu_s(form: str, records: int, options: argparse.Namespace) -> float:
    report = runs.tallied_job(
        PIPELINES[form],
        {"count": records, "partitions": TASKS, "parallelism": TASKS},
        records // TASKS * TASKS,
        (f"--checkpoint-interval={CHECKPOINT_INTERVAL_S}",),
        {"batch_elements_max": options.batch_elements_max, "inflight_memory_bytes_max": INFLIGHT_BYTES_MAX},
    )
    return float(report["cpu_s"])


SETTINGS = {
    **keyed_count.SHAPE,
    "checkpoint_interval_s": CHECKPOINT_INTERVAL_S,
    "inflight_memory_bytes_max": INFLIGHT_BYTES_MAX,
}
BENCHMARK = Benchmark("vectors", OPTIONS, _measure, settings=SETTINGS)


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
