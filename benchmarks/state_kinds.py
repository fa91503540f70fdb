"""What kinds of state cost: bytes of a checkpoint after one append, and state on disk against state in memory.

In one process each, without sockets or logs: the chain of one task.  `append_*` are the bytes that a checkpoint
writes after one append, of a list of so many items: as `ListState`, and as a list in `ctx.state`.  `disk_*` against
`memory_*` is a count per key in random order over so many keys, a tenth of them in memory: CPU time per record, and
memory beyond what the process took before.  `reads_us` is CPU time per key fetched from the store alone.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, cast

from benchmarks import children
from benchmarks.measured import figure, result
from benchmarks.runs import RunFailed
from causal.batch import LISTED, Chunk
from causal.config import JobConfig
from causal.ports import Chain, Services
from operators import ListState, Operator, Pipeline
from operators.keyed.cold import ColdStore
from operators.plan import plan
from operators.sinks import JsonLinesSink
from operators.sources import GeneratedSource

LENGTHS = (100, 10_000, 100_000)
BATCH = 1000
STATES = ("memory", "disk")
TENTH_OF = 10
BYTES_PER_KEY = 900
"""What `Visits` takes of memory per key, about, and by the estimate of `operators.keyed.cold_values`."""


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


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.add_argument("--keys", type=int, default=100_000, help="default: %(default)s")
    parser.add_argument("--records", type=int, default=200_000, help="after all keys are there (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="default: %(default)s")


def measure(options: argparse.Namespace, command: str, tell: Callable[[str], None]) -> dict[str, Any]:
    """Run all rounds; returns the common form.

    Raises:
        RunFailed: the two forms gave different rows.
    """
    figures: dict[str, Any] = {}
    for kind in ("list", "dict"):
        for length in LENGTHS:
            figures[f"append_{kind}_{length}_bytes"] = figure([_append_bytes(kind, length)], 0)
    tell("appends: done")
    rounds: list[dict[str, dict[str, float]]] = []
    for number in range(options.rounds):
        rounds.append({state: _apart(state, options.keys, options.records) for state in STATES})
        if rounds[-1]["memory"]["sum"] != rounds[-1]["disk"]["sum"]:
            raise RunFailed("state on disk gave other rows than state in memory")
        tell(f"round {number + 1}: done")
    for state in STATES:
        for name, digits in (("us_per_record", 2), ("mib", 1)):
            figures[f"{state}_{name}"] = figure([told[state][name] for told in rounds], digits)
    ratios = [told["disk"]["us_per_record"] / told["memory"]["us_per_record"] for told in rounds]
    figures["disk_over_memory"] = figure(ratios, 2)
    figures["reads_us"] = figure([_read_us(options.keys) for _ in range(options.rounds)], 2)
    settings = {"keys": options.keys, "records": options.records, "batch": BATCH, "in_memory": f"1/{TENTH_OF}"}
    return result("state_kinds", command, settings, figures)


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
        raise RunFailed("the pipeline has no task op/0")
    return planned.chain(task.index)


def _give(chain: Chain, records: list[Any]) -> int:
    """How many bytes come out."""
    outputs = chain.deliver(0, [Chunk(LISTED, len(records), records)], 0, cast(Services, _NOBODY))
    return sum(len(chunk.body) for _, chunk in outputs)


class _Nobody:
    """Services for operators that ask for nothing."""

    def replaying(self) -> bool:
        """Everything is live."""
        return False


_NOBODY = _Nobody()


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


def _apart(state: str, keys: int, records: int) -> dict[str, float]:
    """The figures of one run in a process of its own, whose memory nothing else has grown."""
    given = json.dumps([state, keys, records])
    ran = children.run([sys.executable, "-m", "benchmarks.state_kinds", given])
    if ran.returncode:
        raise RunFailed((ran.stderr.strip().splitlines() or ["it ended without a word"])[-1])
    told: dict[str, float] = json.loads(ran.stdout)
    return told


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
            given = [{"key": f"k{chance.randrange(keys)}", "at": float(start)} for _ in range(BATCH)]
            began = time.process_time()
            total += _give(chain, given)
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
        found = sum(len(store.get_many(names[start : start + BATCH])) for start in range(0, keys, BATCH))
        took_s = time.process_time() - began
        store.close()
    if found != keys:
        raise RunFailed(f"{keys - found} keys were not found in the store")
    return took_s / keys * 1e6


if __name__ == "__main__":
    print(json.dumps(_run(*json.loads(sys.argv[1]))))
