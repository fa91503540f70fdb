"""Measures how long a killed task takes to recover: phases of many recoveries, and whether the rows were exact.

The kills fall at all phases of a checkpoint interval: each comes a little later in it than the one before.
"""

from __future__ import annotations

from benchmarks.harness import runs
from benchmarks.harness.declared import CAUSAL, Benchmark, Measurement, Option
from benchmarks.harness.measured import PHASES, distribution
from benchmarks.jobs import keyed_ledger

TASK = "count/0"
SETTLE_S = 2.0
OPTIONS = (
    Option("kills", 30),
    Option("rate", 5000, "records per second; 0: as fast as they are taken", setting="records_per_s"),
    Option("records", 0, "in all; 0: as many as come at that rate until the last recovery is over"),
    Option(
        "replay_target", 0, "ms of a task's work that a failure may repeat; 0: no bound", setting="replay_target_ms"
    ),
    Option("every", 2.537, "seconds between kills, not a multiple of the checkpoint interval", setting="every_s"),
    Option("checkpoint_interval", 1.0, "seconds", setting="checkpoint_interval_s"),
    Option("standbys", "per-task", "per-task, hot or the size of a pool"),
)


def _measure(run: Measurement) -> None:
    options = run.options
    length_s = (options.kills + 1) * options.every + SETTLE_S
    records = (options.records or int(options.rate * length_s)) // keyed_ledger.PARTITIONS * keyed_ledger.PARTITIONS
    if not records:
        raise runs.RunFailed("without a rate the number of records is needed: --rate 0 --records 10000000")
    moments = [f"--kill={TASK}@{(number + 1) * options.every:.3f}" for number in range(options.kills)]
    report = runs.job(
        runs.KEYED_LEDGER,
        {"count": records, "rate": options.rate},
        (f"--checkpoint-interval={options.checkpoint_interval}", f"--standbys={options.standbys}", *moments),
        {"replay_target_ms": options.replay_target},
        check=lambda out, report: keyed_ledger.check(out, records),
    )
    output, recoveries = report["checked"], report["recoveries"]
    if output["lost"] or output["doubled"] or output["contradicted"]:
        raise runs.RunFailed(f"the output is not exactly once: {output}")
    for phase in PHASES:
        times = [recovery[phase] for recovery in recoveries if recovery[phase] is not None]
        if len(times) != options.kills:
            raise runs.RunFailed(f"{len(times)} of {options.kills} recoveries have {phase}")
        run.figures[phase] = distribution(times)
    for recovery in recoveries:
        run.add("replayed_elements", recovery["replayed_elements"])
    run.add("throughput_rps", report["throughput_rps"])
    run.more |= {"output": output, "recoveries": recoveries}


SETTINGS = {"task": TASK, "keys": keyed_ledger.KEYS, **CAUSAL, "heartbeat_ms": 100}
BENCHMARK = Benchmark("recovery", OPTIONS, _measure, digits=0, settings=SETTINGS)
