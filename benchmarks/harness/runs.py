"""Runs of a job through the command line, each in a directory of its own that is gone afterwards."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from benchmarks.harness import children
from benchmarks.harness.written import rows_in

JOBS = Path(__file__).parents[1] / "jobs"
KEYED_COUNT = JOBS / "keyed_count.py"
KEYED_LEDGER = JOBS / "keyed_ledger.py"
KEYED_WINDOWS = JOBS / "keyed_windows.py"
COMMUTING_SUMS = JOBS / "commuting_sums.py"
FRAUD_CHAIN = JOBS.parents[1] / "examples" / "fraud_chain.py"
GUARANTEES: Mapping[str, Sequence[str]] = {
    "none": ("--guarantee=none",),
    "causal_f1": ("--guarantee=causal", "--sharing-depth=1"),
    "causal_full": ("--guarantee=causal", "--sharing-depth=full"),
}
AT_LEAST_ONCE = ("--guarantee=at-least-once",)
"""The same checkpoints, standbys and replay without determinants: what causal logging alone costs is causal ÷ this."""

Check = Callable[[Path, Mapping[str, Any]], Any]


class RunFailed(RuntimeError):
    """A job or a bare job did not end well; its figures would mean nothing."""


def arguments(
    place: Path, pipeline: Path, settings: Mapping[str, Any], options: Sequence[str], config: Mapping[str, Any] | None
) -> list[str]:
    """Return arguments of a `causal run` that keeps everything in `place`; `out` is added to the pipeline's
    settings, unless it is None there, because the rows go elsewhere.
    """
    named = {"out": place / "out.db", **settings}
    words = ["run", str(pipeline), *sets(**{name: value for name, value in named.items() if value is not None})]
    if config:
        words.append(configured(place, config))
    return [*words, *options, f"--state-dir={place / 'job'}", f"--report={place / 'report.json'}"]


def configured(place: Path, config: Mapping[str, Any]) -> str:
    """Return the option of `causal run` for these fields of `JobConfig`, whose file is put into `place`."""
    path = place / "job.toml"
    path.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in config.items()))
    return f"--config={path}"


def sets(**settings: object) -> list[str]:
    """Return the options of `causal run` that give a pipeline these settings."""
    return [f"--set={name}={value}" for name, value in settings.items()]


def job(
    pipeline: Path,
    settings: Mapping[str, Any],
    options: Sequence[str] = (),
    config: Mapping[str, Any] | None = None,
    check: Check | None = None,
    limit_s: float | None = None,
    beside: Callable[[Path], AbstractContextManager[Any]] | None = None,
) -> dict[str, Any]:
    """Run a pipeline to its end and return its report, with `cpu_s`, the CPU time of all of the job's processes.

    Args:
        settings: the pipeline's; `out` is added.
        options: further arguments of `causal run`.
        config: fields of `JobConfig` that have no option.
        check: gets the sink's database and the report; what it returns is the report's `checked`.
        beside: returns a context for the job directory; entered while the job runs, and in the report as `beside`.

    Raises:
        RunFailed: the exit status was not 0.
    """
    with tempfile.TemporaryDirectory(prefix="causal-bench-") as name:
        place = Path(name)
        words = arguments(place, pipeline, settings, options, config)
        before_s = ended_cpu_s()
        with beside(place / "job") if beside is not None else nullcontext() as watching:
            output_of("deploy", words, limit_s)
        report: dict[str, Any] = json.loads((place / "report.json").read_text())
        report |= {"cpu_s": ended_cpu_s() - before_s, "beside": watching}
        if check is not None:
            report["checked"] = check(place / "out.db", report)
        return report


def tallied_job(
    pipeline: Path,
    settings: Mapping[str, Any],
    rows: int,
    options: Sequence[str] = (),
    config: Mapping[str, Any] | None = None,
    limit_s: float | None = None,
    beside: Callable[[Path], AbstractContextManager[Any]] | None = None,
) -> dict[str, Any]:
    """Run a pipeline whose sink counts its rows.

    Raises:
        RunFailed: the exit status was not 0, or the sink has another number of rows than `rows`.
    """
    report = job(pipeline, settings, options, config, lambda out, _: tallied(out), limit_s, beside)
    if report["checked"] != rows:
        raise RunFailed(f"the sink holds {report['checked']} rows of {rows}")
    return report


def tallied(out: Path) -> int:
    """Return the number of rows that a `TallySink` has counted."""
    [(rows,)] = rows_in(out, "SELECT sum(rows) FROM tally")
    return int(rows)


def printed_by(
    module: str, *words: object, limit_s: float | None = None, env: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the JSON object that a module prints, run in a process of its own.

    Raises:
        RunFailed: it failed, or took longer than `limit_s`.
    """
    printed: dict[str, Any] = json.loads(output_of(module, [str(part) for part in words], limit_s, env))
    return printed


def output_of(
    module: str, words: Sequence[str], limit_s: float | None = None, env: Mapping[str, str] | None = None
) -> str:
    """Return what a module writes to standard output, run in a process of its own.

    Args:
        env: variables of its environment beside those of this process.

    Raises:
        RunFailed: it failed, or took longer than `limit_s`.
    """
    try:
        done = children.run([sys.executable, "-m", module, *words], limit_s, {**os.environ, **(env or {})})
    except subprocess.TimeoutExpired:
        raise RunFailed(f"{module} did not end within {limit_s:g} s") from None
    if done.returncode:
        raise RunFailed(f"{module} ended with status {done.returncode}: {last_line(done.stderr)}")
    return done.stdout


def last_line(text: str) -> str:
    """Return the last line of what a process wrote, which says why it failed."""
    return (text.strip().splitlines() or ["it said nothing"])[-1]


def ended_cpu_s() -> float:
    """CPU seconds of all descendants that have ended: `causal run` leaves none behind that it has not reaped."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
