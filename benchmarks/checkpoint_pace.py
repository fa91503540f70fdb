"""How long checkpoints take while a task is busy and all of its state changes, as a share of their interval.

A job counts over many keys at a fixed rate.  `took_per_interval` is the time from a checkpoint's trigger to its durable
manifest, divided by the interval; at most 2 is wanted as long as a fifth of a core is left (`spare_cores`).
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import paced_state, runs
from benchmarks.measured import distribution, figure, result

PIPELINE = Path(paced_state.__file__)
LIMIT_S = 600.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.add_argument("--keys", type=int, default=300_000, help="default: %(default)s")
    parser.add_argument("--rate", type=int, default=150_000, help="records per second (default: %(default)s)")
    parser.add_argument("--seconds", type=int, default=20, help="of each run (default: %(default)s)")
    parser.add_argument("--interval", type=float, default=2.0, help="of checkpoints, seconds (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="default: %(default)s")


def measure(options: argparse.Namespace, command: str, tell: Callable[[str], None]) -> dict[str, Any]:
    """Run all jobs; returns the common form.

    Raises:
        RunFailed: a run failed, or no checkpoint was complete in one.
    """
    settings = {"keys": options.keys, "rate": options.rate, "seconds": options.seconds}
    took: list[float] = []
    rates, counts, spare = list[float](), list[float](), list[float]()
    for number in range(options.rounds):
        idle_s = _idle_s()
        report = runs.job(PIPELINE, settings, (f"--checkpoint-interval={options.interval}",), limit_s=LIMIT_S)
        if not report["checkpoint_ms"]:
            raise runs.RunFailed("no checkpoint was complete; give more --seconds")
        took += report["checkpoint_ms"]
        rates.append(report["throughput_rps"])
        counts.append(report["checkpoints"])
        spare.append((_idle_s() - idle_s) / report["wall_s"])
        tell(f"round {number + 1}: {report['checkpoints']} checkpoints, the longest {max(took):,.0f} ms so far")
    figures = {
        "took_per_interval": distribution([each / 1000 / options.interval for each in took], 3),
        "checkpoint_ms": distribution(took),
        "checkpoints": figure(counts, 0),
        "records_per_s": figure(rates, 0),
        "spare_cores": figure(spare, 2),
    }
    return result("checkpoint_pace", command, {**settings, "interval_s": options.interval}, figures)


def _idle_s() -> float:
    """Seconds that the cores of this machine have had nothing to do, all together."""
    idle, waiting = Path("/proc/stat").read_text().split("\n", 1)[0].split()[4:6]
    return (int(idle) + int(waiting)) / os.sysconf("SC_CLK_TCK")
