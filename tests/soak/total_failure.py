"""Every process of a job gets SIGKILL at the same moment, repeatedly, while readers watch its output.

The pipeline (`tests/soak/total_failure_job.py`) has everything nondeterministic there is, at full sharing depth, and
writes into SQLite and JSON lines.  A quarter of the strikes hit before the job is up again.  Exit status 1 if a row
was lost, doubled or contradicted, or if any row that a reader had seen was another one at the end.

`first_row_ms` is from `causal run --resume` to the first new row that a reader of the database saw, `live_ms` to the
moment at which the supervisor says that every task is live again (it says so every half second); both hold the start of
the whole job.  What surviving this costs while nothing fails: determinant bytes in the bundles, and the same job whose
bundles carry none, in turn.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.harness import runs
from benchmarks.harness.measured import distribution, figure, result
from tests.soak import total_failure_job
from tests.soak.mix import LOAD_BYTES
from tests.soak.total_failure_run import INTERVAL_S, Struck, begun

EARLY = 0.25
RATE = 100.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.add_argument("--times", type=int, default=100, help="that everything dies (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the moments (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="of the cost, 0 for none (default: %(default)s)")
    parser.add_argument(
        "--load-bytes", type=int, default=LOAD_BYTES, help="that an element carries, at most %(default)s, the default"
    )
    parser.add_argument("--count", type=int, default=6000, help="elements per partition there (default: %(default)s)")


def measure(options: argparse.Namespace, command: str, progress: Callable[[str], None]) -> dict[str, Any]:
    """Strike that often, then measure the cost; returns the common form with `output`, what the readers found.

    Raises:
        RunFailed: the job failed, or could not be resumed.
    """
    if options.times < 1:
        raise runs.RunFailed("--times is the number of total failures; give 1 or more")
    rng = Random(options.seed)
    with (
        tempfile.TemporaryDirectory(prefix="causal-bench-") as name,
        begun(Path(name), RATE, options.load_bytes) as job,
    ):
        began_s = time.monotonic()
        for number in range(options.times):
            job.live(rng, up=number == 0 or rng.random() >= EARLY)
            life = job.lives[-1]
            progress(f"strike {number + 1} of {options.times}: {life.struck} processes within {life.spread_ms:.1f} ms")
        elements = job.finish()
        took_s = time.monotonic() - began_s
        output = job.wrong(elements)
        lives = _lives(job)
        figures = _figures(job, lives)
        bundles = {each: total_failure_job.weight(job.run.out / f"{each}.weights") for each in ("out", "lines")}
    for sink, weight in bundles.items():
        figures[f"{sink}.determinant_bytes_per_row"] = figure([weight.determinant_bytes / weight.rows])
        figures[f"{sink}.determinants_over_rows"] = figure([weight.determinant_bytes / weight.row_bytes], 4)
    figures |= _cost(options, progress)
    wrong = {name: output[name] for name in ("lost", "doubled", "contradicted", "visible_contradicted")}
    settings = {
        "times": options.times,
        "seed": options.seed,
        "load_bytes": options.load_bytes,
        "early": EARLY,
        "records_per_s": 3 * RATE,
    }
    settings |= {"count": options.count, "checkpoint_interval_s": INTERVAL_S, "sharing_depth": "full"}
    counts = ", ".join(f"{count:,} {what}" for what, count in output.items())
    summary = f"{options.times} total failures in {took_s:.0f} s: {counts}"
    return result(
        "total_failure", command, settings, figures, output=output, lives=lives, summary=summary,
        failed=any(wrong.values()),
    )  # fmt: skip


def _lives(job: Struck) -> list[dict[str, Any]]:
    """Return what each resume came to; None is what its life was too short for."""
    seen = [each.at_ns for each in job.reader.so_far()]
    lives = []
    for life in job.lives[1:]:  # the first one was not resumed
        first_ns = next((at_ns for at_ns in seen if life.resumed_ns < at_ns < life.struck_ns), None)
        times_ns = {"first_row_ms": first_ns, "live_ms": life.live_ns}
        after = {name: None if at is None else round((at - life.resumed_ns) / 1e6, 1) for name, at in times_ns.items()}
        lives.append({**after, "replayed_elements": life.replayed, "struck": life.struck})
    return lives


def _figures(job: Struck, lives: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the figures of all strikes together."""
    figures = {"struck": figure([life.struck for life in job.lives], 0)}
    figures["strike_spread_ms"] = distribution([life.spread_ms for life in job.lives], 2)
    for name in ("first_row_ms", "live_ms", "replayed_elements"):
        if values := [life[name] for life in lives if life[name] is not None]:
            figures[name] = distribution(values)
    return figures


def _cost(options: argparse.Namespace, progress: Callable[[str], None]) -> dict[str, Any]:
    """Run at full speed with and without what the bundles carry, in turn, and the ratios of each round."""
    ratios_by_name: dict[str, list[float]] = {}
    for number in range(options.rounds):
        order = ("yes", "no") if number % 2 else ("no", "yes")
        speeds = {carried: _at_full_speed(carried, options.count) for carried in order}
        ratios = {f"carried_over_not.{name}": speeds["yes"][name] / speeds["no"][name] for name in ("rps", "cpu_s")}
        ratios["carried_over_not.bytes"] = speeds["yes"]["bytes_over_rows"]
        for name, value in ratios.items():
            ratios_by_name.setdefault(name, []).append(value)
        progress(f"round {number + 1}: " + ", ".join(f"{name} {value:.3f}" for name, value in ratios.items()))
    return {name: figure(values) for name, values in ratios_by_name.items()}


def _at_full_speed(carried: str, count: int) -> dict[str, float]:
    def check(out: Path, report: Mapping[str, Any]) -> float:
        weights = [total_failure_job.weight(out.with_name(f"{each}.weights")) for each in ("out", "lines")]
        rows = sum(each.row_bytes for each in weights)
        return 1 + sum(each.determinant_bytes for each in weights) / rows

    settings = {"paced": "no", "count": count, "carried": carried}
    report = runs.job(Path(total_failure_job.__file__), settings, check=check)
    return {"rps": report["throughput_rps"], "cpu_s": report["cpu_s"], "bytes_over_rows": report["checked"]}
