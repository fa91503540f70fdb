"""How long a killed task is away: the phases of many recoveries of a middle task, and whether the output was exact.

The kills fall at all phases of a checkpoint interval: each comes a little later in it than the one before.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks import keyed_ledger, runs
from benchmarks.measured import distribution, figure, result

PHASES = ("detected_ms", "promoted_ms", "collected_ms", "first_output_ms", "live_ms")
TASK = "count/0"
EVERY_S = 2.537
"""Not a multiple of the checkpoint interval."""
SETTLE_S = 2.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.add_argument("--kills", type=int, default=30, help="in all runs together (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=1, help="the kills are spread over them (default: %(default)s)")
    parser.add_argument("--rate", type=int, default=5000, help="records per second (default: %(default)s)")
    parser.add_argument("--every", type=float, default=EVERY_S, help="seconds between kills (default: %(default)s)")
    parser.add_argument("--checkpoint-interval", type=float, default=1.0, help="seconds (default: %(default)s)")


def measure(options: argparse.Namespace, command: str, tell: Callable[[str], None]) -> dict[str, Any]:
    """Run it; returns the common form, `output` being what the check of the rows found.

    Raises:
        RunFailed: a run failed, a recovery is not in its report, or the rows are not there exactly once.
    """
    recoveries: list[Mapping[str, Any]] = []
    output = {"rows": 0, "lost": 0, "doubled": 0, "contradicted": 0}
    for number in range(options.runs):
        kills = options.kills // options.runs + (number < options.kills % options.runs)
        report = _run(options, kills)
        recoveries += report["recoveries"]
        output = {name: output[name] + report["checked"][name] for name in output}
        tell(f"run {number + 1}: {kills} kills, {report['checked']['rows']:,} rows")
    if output["lost"] or output["doubled"] or output["contradicted"]:
        raise runs.RunFailed(f"the output is not exactly once: {output}")
    figures = {}
    for phase in PHASES:
        times = [recovery[phase] for recovery in recoveries if recovery[phase] is not None]
        if len(times) != options.kills:
            raise runs.RunFailed(f"{len(times)} of {options.kills} recoveries have {phase}")
        figures[phase] = distribution(times)
    figures["replayed_elements"] = figure([recovery["replayed_elements"] for recovery in recoveries], 0)
    settings = {
        "kills": options.kills,
        "runs": options.runs,
        "task": TASK,
        "records_per_s": options.rate,
        "every_s": options.every,
        "keys": keyed_ledger.KEYS,
        "guarantee": "causal",
        "sharing_depth": "full",
        "standbys": "per-task",
        "checkpoint_interval_s": options.checkpoint_interval,
        "heartbeat_ms": 100,
    }
    return result("recovery", command, settings, figures, output=output, recoveries=recoveries)


def _run(options: argparse.Namespace, kills: int) -> dict[str, Any]:
    length_s = (kills + 1) * options.every + SETTLE_S
    records = int(options.rate * length_s) // keyed_ledger.PARTITIONS * keyed_ledger.PARTITIONS

    def check(out: Path, report: Mapping[str, Any]) -> dict[str, int]:
        return keyed_ledger.check(out, records)

    return runs.job(
        runs.KEYED_LEDGER,
        {"count": records, "rate": options.rate},
        (
            f"--checkpoint-interval={options.checkpoint_interval}",
            *(f"--kill={TASK}@{(number + 1) * options.every:.3f}" for number in range(kills)),
        ),
        check=check,
    )
