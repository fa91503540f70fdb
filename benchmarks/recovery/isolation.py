"""Whether a kill can be seen by tasks that do not depend on the dead one: their output gaps, after kills and before.

One task is killed repeatedly. For each second after a kill, and for the second before it, the longest gap between two
bundles that became visible is taken, per chain. `ratio` is the median after ÷ the median before, with the 95 % interval
of a bootstrap; `chance` is how often gaps shuffled between the two differ as much (a permutation test). A ratio whose
interval holds 1 is none above noise; its upper end says how large an effect could hide there. The killed chain is
measured alike: there the effect must show, or the measurement could not have seen one.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.harness import runs
from benchmarks.harness.declared import Benchmark, Measurement, Option
from benchmarks.harness.measured import figure, longest_gap_ms, percentile
from benchmarks.harness.watched import watched
from benchmarks.jobs import bystanders
from benchmarks.jobs.stamped_sink import Stamp, read_stamps
from benchmarks.recovery import paced_kills

PIPELINE = Path(bystanders.__file__)
TASK = "victim/0"
INTERVAL_S = 1.0
WINDOW_NS = 1_000_000_000
SECONDS = 3
"""Number of seconds that are looked at after each kill: the failover, and the start of the next standby."""
DRAWS = 4000
END_WITHIN_S = 120.0


OPTIONS = (
    Option("kills", 24),
    Option("rate", 400, "records per second per source"),
    Option("every", 4.0, "least seconds between kills", setting="every_s"),
)


def _measure(run: Measurement) -> dict[str, Any]:
    options = run.options
    length_s = paced_kills.seconds_needed(options.kills, options.every, INTERVAL_S)
    settings = {"count": int(length_s * options.rate), "rate": options.rate}
    with watched(PIPELINE, settings, (f"--checkpoint-interval={INTERVAL_S}",)) as job:
        moments = paced_kills.kill_again(job, TASK, options.kills, options.every, INTERVAL_S, run.report)
        report = job.report(END_WITHIN_S)
        stamps = {chain: read_stamps(bystanders.database(job.out, chain)) for chain in bystanders.CHAINS}
    figures = run.figures
    for chain, of_chain in stamps.items():
        rows = sum(stamp.count for stamp in of_chain)
        if rows != settings["count"]:
            raise runs.RunFailed(f"{chain} has {rows} rows of {settings['count']}")
        figures |= {f"{chain}.{name}": each for name, each in compared(of_chain, moments).items()}
    apart = [f"{chain} {second}" for chain in bystanders.CHAINS[1:] for second in _significant(figures, chain)]
    lines = [f"above noise: {', '.join(apart) or 'none'}; in the killed chain: {_significant(figures, 'victim')}"]
    lines += [
        f"  {name} {each['median']}, 95 % from {each['low']} to {each['high']}, chance {each['chance']}"
        for name, each in figures.items()
        if "low" in each
    ]
    run.more |= {"told_apart": apart, "recoveries": report["recoveries"], "summary": "\n".join(lines)}
    return settings


def compared(stamps: Sequence[Stamp], moments: Sequence[int]) -> dict[str, Any]:
    """Return figures of one chain: the longest gaps before and in each second after the kills, and their ratios."""
    times = [stamp.at_ns for stamp in stamps]
    before = [_gap_ms(times, moment - WINDOW_NS) for moment in moments]
    figures = {"before_gap_ms": _gaps(before)}
    for second in range(SECONDS):
        starts = [moment + second * WINDOW_NS for moment in moments]
        after = [_gap_ms(times, start) for start in starts]
        figures[f"second{second + 1}_gap_ms"] = _gaps(after)
        ratio = median(after) / median(before)
        low, high = bootstrap(after, before)
        figures[f"second{second + 1}_ratio"] = figure([ratio]) | {
            "low": round(low, 3),
            "high": round(high, 3),
            "chance": round(chance(after, before), 4),
        }
    return figures


def _gap_ms(times: Sequence[int], start_ns: int) -> float:
    """Return the longest stretch without output that ends in a second; one without output counts as a whole."""
    return longest_gap_ms(times, start_ns, start_ns + WINDOW_NS, WINDOW_NS / 1e6)


def bootstrap(after: Sequence[float], before: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the ratio of the medians."""
    draw = random.Random(DRAWS).choices
    ratios = [
        median(draw(after, k=len(after))) / median(draw(before, k=len(before))) for _ in range(DRAWS)
    ]  # fmt: skip
    return percentile(ratios, 0.025), percentile(ratios, 0.975)


def chance(after: Sequence[float], before: Sequence[float]) -> float:
    """Return how often the medians lie at least this far above one another when after and before are alike."""
    shuffle = random.Random(DRAWS).shuffle
    observed = median(after) - median(before)
    pooled = [*after, *before]
    reached = 0
    for _ in range(DRAWS):
        shuffle(pooled)
        reached += median(pooled[: len(after)]) - median(pooled[len(after) :]) >= observed
    return (reached + 1) / (DRAWS + 1)


def _gaps(gaps: Sequence[float]) -> dict[str, Any]:
    return figure(gaps, 2) | {"p90": round(percentile(gaps, 0.9), 2), "p99": round(percentile(gaps, 0.99), 2)}


def _significant(figures: Mapping[str, Any], chain: str) -> list[str]:
    """Return the seconds in which a kill shows: both tests say so."""
    seconds = [f"second{second + 1}" for second in range(SECONDS)]
    ratios = {second: figures[f"{chain}.{second}_ratio"] for second in seconds}
    return [second for second, each in ratios.items() if each["low"] > 1 and each["chance"] < 0.05 / SECONDS]


BENCHMARK = Benchmark("isolation", OPTIONS, _measure, settings={"checkpoint_interval_s": INTERVAL_S})
