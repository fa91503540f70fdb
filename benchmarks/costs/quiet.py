"""Measures what a job costs while little comes: CPU of all its processes by rate, latency, and its first row.

The job is a keyed count whose rows go into SQLite, in two tasks per stage and a sink, with a standby per task and a
checkpoint per second; its counterpart in Bytewax writes them into a file, in one process without recovery.  *cores*:
CPU seconds of all processes of the job per second, once every standby is ready.  *p50_ms*, *p99_ms*: from the moment at
which an element was due to the transaction that makes its row visible.  *first_row_s*: from the command to the first
such transaction.  *turn*: µs of one turn of a task, warm and after a rest of the processor.  A round runs all of them,
every other round in the opposite order.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.costs.rested_turns import turns_us
from benchmarks.harness import children, zero_point
from benchmarks.harness.declared import CAUSAL, Benchmark, Measurement, Option, some_of
from benchmarks.harness.measured import percentile
from benchmarks.harness.processes import of_job, wait_for
from benchmarks.harness.runs import GUARANTEES, RunFailed
from benchmarks.harness.usage import cores, pss_mib
from benchmarks.harness.watched import ready, watched
from benchmarks.jobs import stamped_ledger
from benchmarks.jobs.stamped_sink import read_stamps
from benchmarks.peers import venvs
from benchmarks.peers.programs import inputs
from benchmarks.recovery.row_latency import latencies

RATES = (0, 100, 1000, 2000, 10_000)
COUNT = 10**9
"""More elements than there is time for: each run is ended."""
NEVER = 1e-4
"""The rate of a source that gives its first elements and then nothing."""
NARROW = ("--set", "width=1")
ENTRANTS: Mapping[str, Sequence[str]] = {
    "causal": (),
    "none": GUARANTEES["none"],
    "stages": ("--processes", "stages", *NARROW),
    "one": ("--processes", "one", *NARROW),
    "one_10_ms": ("--processes", "one", *NARROW, "--config", str(Path(__file__).with_name("gathered.toml"))),
}
"""The job with a task per process, without a guarantee, in cells, and in a cell that gathers for 10 ms."""
PEER = venvs.PEERS["bytewax"]
RESTS_S = {"warm": 0.0, "rested": 0.004}
"""The rest of the processor before a turn; 4 ms is the default of `latency_target_ms`."""
READY_WITHIN_S, SETTLE_S = 60.0, 2.0
LATENCY_FROM = 100
"""Records/s from which there are enough rows for percentiles."""
PIPELINE = Path(stamped_ledger.__file__)
OPTIONS = (
    Option("rounds", 3, "alternating"),
    Option("seconds", 10.0, "of each measurement"),
    Option(
        "rate",
        ",".join(map(str, RATES)),
        "records/s; 0: an idle job",
        lambda text: [int(rate) for rate in some_of(map(str, RATES))(text)],
        setting="rates",
    ),
    Option("venvs", venvs.default_place(), "where Bytewax lives", Path, setting=None),
)


def _settled_cores(pids: Callable[[], Sequence[int]], seconds: float) -> float:
    """CPU seconds of processes per second, once they have settled."""
    time.sleep(SETTLE_S)
    return cores(pids, seconds)


def _footprint(pids: Sequence[int]) -> dict[str, float]:
    """Return the number of processes and their memory."""
    return {"processes": len(pids), "pss_mib": sum(filter(None, map(pss_mib, pids)))}


def _ours(name: str, rate: int, seconds: float) -> dict[str, float]:
    """Return the figures of one run of ours."""
    began_ns = time.monotonic_ns()
    with watched(PIPELINE, {"count": COUNT, "rate": rate or NEVER}, ENTRANTS[name]) as job:
        holds = _running if name == "none" else ready
        job.until("all tasks run", holds, READY_WITHIN_S)
        figures = {"cores": _settled_cores(lambda: list(of_job(job.directory)), seconds)}
        figures |= _footprint(list(of_job(job.directory)))
        if rate < LATENCY_FROM:
            return figures
        first_ns = time.monotonic_ns() - int(seconds * 1e9)
        stamps = read_stamps(job.out)
        rows = stamped_ledger.read_rows(job.out)
        zero_ns = zero_point.began_ns(job.directory)
    figures["first_row_s"] = (stamps[0].at_ns - began_ns) / 1e9
    interval_ns = stamped_ledger.PARTITIONS / rate * 1e9
    took_ms: list[float] = []
    for task in range(stamped_ledger.COUNTERS if name in ("causal", "none") else 1):
        # Rows that were written after the stamps were read have none yet.
        each = latencies(rows, stamps, task, zero_ns, interval_ns)
        took_ms += [took / 1e6 for at, took in zip(each.origins_ns, each.took_ns, strict=True) if at >= first_ns]
    return figures | {"p50_ms": percentile(took_ms, 0.5), "p99_ms": percentile(took_ms, 0.99)}


def _running(view: Mapping[str, Any]) -> bool:
    return bool(view["tasks"]) and all(task["state"] == "running" for task in view["tasks"])


@contextmanager
def _bytewax(python: Path, rate: int) -> Iterator[tuple[Path, Callable[[], Sequence[int]]]]:
    """Yield a running dataflow of Bytewax: its directory, and its processes."""
    with tempfile.TemporaryDirectory(prefix="causal-bench-") as name:
        place = Path(name)
        asked = {"workload": "failover", "records": COUNT, "rate": rate or NEVER, "began_s": time.time()}
        inputs.put(place / "asked.json", asked)
        command = [str(python), "-m", "bytewax.run", f"{PEER.program}:flow()", "-w", "1"]
        env = {**os.environ, "PEER_PLACE": name, "PYTHONPATH": str(children.ROOT)}
        with children.started(command, cwd=children.ROOT, env=env) as process:

            def pids() -> list[int]:
                if process.poll() is not None:
                    raise RunFailed(f"Bytewax ended with status {process.returncode}")
                return [process.pid, *children.descendants(process.pid)]

            yield place, pids


def _theirs(python: Path, rate: int, seconds: float) -> dict[str, float]:
    """Return the figures of one run of Bytewax."""
    began_s = time.time()
    with _bytewax(python, rate) as (place, pids):
        first_s = wait_for("the first record", lambda: _began_s(place), READY_WITHIN_S)
        figures = {"cores": _settled_cores(pids, seconds), "first_record_s": first_s - began_s}
        return figures | _footprint(pids())


def _began_s(place: Path) -> float | None:
    """Return the time of the first record; None before."""
    began: list[float] = [json.loads(path.read_text())["first_s"] for path in place.glob("began-*.json")]
    return min(began, default=None)


def _measure(run: Measurement) -> dict[str, Any]:
    options = run.options
    entrants: dict[str, Callable[[int, float], dict[str, float]]] = {name: partial(_ours, name) for name in ENTRANTS}
    try:
        entrants[PEER.name] = partial(_theirs, venvs.interpreter(PEER, options.venvs, run.report))
    except venvs.NotInstalled as problem:
        run.more["problems"] = {PEER.name: str(problem)}
    cases = [(name, rate) for rate in options.rate for name in entrants]
    for number in run.rounds():
        for name, rest_s in RESTS_S.items():
            run.add_all("turn.", {f"{task}.{name}_us": took for task, took in turns_us(rest_s).items()})
        for name, rate in cases[:: 1 if number % 2 else -1]:
            figures = entrants[name](rate, options.seconds)
            run.add_all(f"{name}.{rate}.", figures)
            shown = ", ".join(f"{what} {value:.3g}" for what, value in figures.items())
            run.report(f"round {number}, {name} at {rate} records/s: {shown}")
    return {"pipeline": PIPELINE.name, "peer": PEER.requirements}


BENCHMARK = Benchmark(
    "quiet",
    OPTIONS,
    _measure,
    digits=4,
    digits_of={"_ms": 2, "_s": 2},
    settings={**CAUSAL, "checkpoint_interval_s": 1.0},
)
