"""Measures what kinds of state cost: bytes of a checkpoint after one append, and state on disk against state in memory.

In one process each, without sockets or logs: the chain of one task.  `append_*` are the bytes that a checkpoint
writes after one append, of a list of so many items: as `ListState`, and as a list in `ctx.state`.  `disk_*` against
`memory_*` is a count per key in random order over so many keys, a tenth of them in memory: CPU time per record, and
memory beyond what the process took before.  `reads_us` is CPU time per key fetched from the store alone.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from random import Random
from typing import Any

from benchmarks.harness import runs
from benchmarks.harness.declared import Benchmark, Measurement, Option
from benchmarks.throughput.vectors import NoServices
from causal.config import JobConfig
from causal.ports import Chain
from causal.records.batch import LISTED, Chunk
from operators import ListState, Operator, Pipeline
from operators.engine.plan import plan
from operators.sinks import JsonLinesSink
from operators.sources import GeneratedSource
from operators.state.cold_store import ColdStore

LENGTHS = (100, 10_000, 100_000)
BATCH = 1000
STATES = ("memory", "disk")
TENTH_OF = 10
BYTES_PER_KEY = 900
"""Memory that `Visits` takes per key, about, and by the estimate of `operators.state.cold_values`."""


class Appends(Operator):
    """Keeps what comes twice."""

    items = ListState[int]()

    def process(self, record: Any, ctx: Any) -> None:
        """Put the record's numbers at the end."""
        if record["kind"] == "list":
            self.items.extend(record["numbers"])
        else:
            ctx.state.setdefault("items", []).extend(record["numbers"])


class Visits(Operator):
    """Counts, with what a profile has beside a count."""

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        """One row for each record."""
        state = ctx.state
        if not state:
            state.update(n=0, name=f"visitor {ctx.key}", tags=["a", "b", "c"], last=0.0)
        state["n"] += 1
        state["last"] = record["at"]
        yield (ctx.key, state["n"])


OPTIONS = (
    Option("keys", 100_000),
    Option("records", 200_000, "after all keys are there"),
    Option("rounds", 3),
)


def _measure(run: Measurement) -> None:
    options = run.options
    for kind in ("list", "dict"):
        for length in LENGTHS:
            run.add(f"append_{kind}_{length}_bytes", _append_bytes(kind, length))
    run.report("appends: done")
    for number in run.rounds():
        rounds = {
            state: runs.printed_by(__spec__.name, json.dumps([state, options.keys, options.records]))
            for state in STATES
        }
        if rounds["memory"]["sum"] != rounds["disk"]["sum"]:
            raise runs.RunFailed("state on disk gave other rows than state in memory")
        for state, values in rounds.items():
            run.add_all(f"{state}_", {name: values[name] for name in ("us_per_record", "mib")})
        run.add("disk_over_memory", rounds["disk"]["us_per_record"] / rounds["memory"]["us_per_record"])
        run.add("reads_us", _read_us(options.keys))
        run.report(f"round {number}: done")


def _chain(operator: Operator, **settings: Any) -> Chain:
    pipeline = Pipeline("kinds")
    (
        pipeline.source("in", GeneratedSource(lambda p, i: {"key": i}, count=0))
        .key_by(lambda record: record["key"])
        .process("op", operator, parallelism=1)
        .sink("out", JsonLinesSink("rows"))
    )
    planned = plan(pipeline, JobConfig("run", "kinds", "kinds.py", **settings))
    task = planned.topology.named("op/0")
    if task is None:
        raise runs.RunFailed("the pipeline has no task op/0")
    return planned.chain(task.index)


def _give(chain: Chain, records: list[Any]) -> int:
    """Returns how many bytes come out."""
    outputs = chain.deliver(0, [Chunk(LISTED, len(records), records)], 0, NoServices())
    return sum(len(chunk.body) for _, chunk in outputs)


def _snapshot_bytes(chain: Chain, full: bool) -> int:
    job = chain.snapshot(full)
    while not job.step(BATCH):
        continue
    return sum(map(len, job.parts()))


def _append_bytes(kind: str, length: int) -> int:
    chain = _chain(Appends())
    _give(chain, [{"key": "k", "kind": kind, "numbers": list(range(length))}])
    _snapshot_bytes(chain, True)
    _give(chain, [{"key": "k", "kind": kind, "numbers": [1]}])
    return _snapshot_bytes(chain, False)


def _run(state: str, keys: int, records: int) -> dict[str, float]:
    limit = max(1 << 16, keys // TENTH_OF * BYTES_PER_KEY)
    with tempfile.TemporaryDirectory() as directory:
        chain = _chain(Visits(), state=state, state_memory_bytes_max=limit, state_directory=directory)
        before = _peak_mib()
        total = 0
        for start in range(0, keys, BATCH):
            total += _give(chain, [{"key": f"k{n}", "at": 0.0} for n in range(start, min(keys, start + BATCH))])
        chance = Random(7)
        took_s = 0.0
        for start in range(0, records, BATCH):
            batch = [{"key": f"k{chance.randrange(keys)}", "at": float(start)} for _ in range(BATCH)]
            began = time.process_time()
            total += _give(chain, batch)
            took_s += time.process_time() - began
    return {"us_per_record": took_s / records * 1e6, "mib": _peak_mib() - before, "sum": total}


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _read_us(keys: int) -> float:
    with tempfile.TemporaryDirectory() as directory:
        store = ColdStore(directory)
        names = [f"k{n}".encode() for n in range(keys)]
        store.put_many([(name, b"v" * 60, None) for name in names])
        Random(7).shuffle(names)
        began = time.process_time()
        count = sum(len(store.get_many(names[start : start + BATCH])) for start in range(0, keys, BATCH))
        took_s = time.process_time() - began
        store.close()
    if count != keys:
        raise runs.RunFailed(f"{keys - count} keys were not found in the store")
    return took_s / keys * 1e6


SETTINGS = {"batch": BATCH, "in_memory": f"1/{TENTH_OF}"}
BENCHMARK = Benchmark("state_kinds", OPTIONS, _measure, digits=2, digits_of={"_bytes": 0, "_mib": 1}, settings=SETTINGS)


if __name__ == "__main__":
    print(json.dumps(_run(*json.loads(sys.argv[1]))))
