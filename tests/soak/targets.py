"""The jobs that `torture` runs, drawn by the seed, each with a checker that knows its output and nothing of the job.

A checker looks at the rows alone and counts; all but `rows` must be 0 after any failures whatever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.harness.children import ROOT
from benchmarks.harness.runs import FRAUD_CHAIN, KEYED_LEDGER
from benchmarks.jobs import keyed_ledger
from examples import fraud_chain
from tests.soak import mix

Check = Callable[[Path], Mapping[str, int]]

INVERTED_INDEX = ROOT / "examples" / "inverted_index.py"
GROUPINGS = ("per-task", "per-task", "stages", "one")
MIX = ROOT / "tests" / "soak" / "mix.py"


@dataclass(frozen=True, slots=True)
class Target:
    """One job to be thrown at."""

    pipeline: Path
    settings: Mapping[str, Any]
    """The pipeline's settings; where its output goes is added."""
    config: Mapping[str, Any]
    check: Check
    """Given the directory with the output."""
    database: str = "out.db"
    elements: int = 0
    """The elements that enter in all; 0 where only the source knows."""
    rescaled: Sequence[str] = ()
    """The operators that may get another number of tasks while the job runs."""


def _fraud(rng: Random, seconds: float) -> Target:
    rate = rng.choice((150, 300, 450))
    count = int(seconds * rate)

    def check(out: Path) -> Mapping[str, int]:
        return fraud_chain.check(str(out / "out.db"), 2 * count)

    target = Target(FRAUD_CHAIN, {"count": count, "rate": rate}, _config(rng), check, elements=2 * count)
    return _grouped(rng, target, "score", "totals")


def _mix(rng: Random, seconds: float) -> Target:
    rate = rng.choice((60, 120))
    count = int(seconds * rate)
    config = {**_config(rng), "inflight_memory_bytes_max": rng.choice((1 << 17, 1 << 19, 64 << 20))}

    def check(out: Path) -> Mapping[str, int]:
        return mix.check(out / "out.db", out / "out.lines", count)

    target = Target(MIX, {"count": count, "rate": rate}, config, check, elements=3 * count)
    return _grouped(rng, target, "merge", "join")


def _ledger(rng: Random, seconds: float) -> Target:
    rate = rng.choice((1000, 3000))
    count = int(seconds * rate) // keyed_ledger.PARTITIONS * keyed_ledger.PARTITIONS

    def check(out: Path) -> Mapping[str, int]:
        return keyed_ledger.check(out / "out.db", count)

    target = Target(KEYED_LEDGER, {"count": count, "rate": rate}, _config(rng), check, elements=count)
    return _grouped(rng, target, "count")


def _index(rng: Random, seconds: float) -> Target:
    from examples.corpus import STANDARD_LIBRARY
    from examples.survive import compare

    corpus = Path(STANDARD_LIBRARY)

    def check(out: Path) -> Mapping[str, int]:
        outcome = compare(out / "out.db", _index_of(corpus))
        return {
            "rows": outcome["change records"],
            **{name: outcome[name] for name in ("lost", "doubled", "contradicted")},
        }

    settings = {"corpus": corpus, "files_per_batch": rng.choice((25, 60))}
    return Target(INVERTED_INDEX, settings, {**_config(rng), "transport": "ipc"}, check)


@cache
def _index_of(corpus: Path) -> Mapping[tuple[str, str], list[int]]:
    from examples.survive import expected

    return expected(corpus)


def _grouped(rng: Random, target: Target, *rescaled: str) -> Target:
    """Draw what shares a process; a job in one process has one task of each operator, and keeps it."""
    processes = rng.choice(GROUPINGS)
    width = 1 if processes == "one" else rng.choice((1, 2)) if processes == "stages" else 2
    return replace(
        target,
        settings={**target.settings, "parallelism": width},
        config={**target.config, "processes": processes},
        rescaled=() if processes == "one" else rescaled,
    )


def _config(rng: Random) -> dict[str, Any]:
    """Draw the settings that any job may have; kills come more often than any job would have to bear."""
    return {
        "transport": rng.choice(("ipc", "tcp")),
        "checkpoint_interval_s": rng.choice((0.4, 1.0, 2.5)),
        "standbys": rng.choice(("per-task", "per-task", "2", "0")),
        "sharing_depth": rng.choice(("full", "full", "full", 2, 1)),
        "batch_elements_max": rng.choice((16, 256, 4096)),
        "heartbeat_ms": 100,
        "heartbeat_timeout_ms": 2000,
        "crash_loop_max": 100_000,
    }


TARGETS: Mapping[str, Callable[[Random, float], Target]] = {
    "fraud_chain": _fraud,
    "torture_mix": _mix,
    "keyed_ledger": _ledger,
    "inverted_index": _index,
}
"""Pipeline → its job, drawn by the seed to take about that many seconds."""

USUAL = ("fraud_chain", "torture_mix", "fraud_chain", "keyed_ledger")
"""The pipelines that run in turn unless one is named; the inverted index needs Spark."""
