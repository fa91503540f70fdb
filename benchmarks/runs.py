"""Runs of a job through the command line, each in a directory of its own that is gone afterwards."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from benchmarks import children

HERE = Path(__file__).parent
KEYED_COUNT = HERE / "keyed_count.py"
KEYED_LEDGER = HERE / "keyed_ledger.py"
FRAUD_CHAIN = HERE.parent / "examples" / "fraud_chain.py"

Check = Callable[[Path, Mapping[str, Any]], Any]


class RunFailed(RuntimeError):
    """A job or a bare job did not end well; its figures would mean nothing."""


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
        check: is given the sink's database and the report; what it returns is the report's `checked`.

    Raises:
        RunFailed: the exit status was not 0.
    """
    with tempfile.TemporaryDirectory(prefix="causal-bench-") as name:
        place = Path(name)
        out = place / "out.db"
        told = [f"--set={key}={value}" for key, value in {**settings, "out": out}.items()]
        if config:
            lines = [f"{key} = {json.dumps(value)}" for key, value in config.items()]
            (place / "job.toml").write_text("\n".join(lines) + "\n")
            told.append(f"--config={place / 'job.toml'}")
        places = [f"--state-dir={place / 'job'}", f"--report={place / 'report.json'}"]
        before_s = _cpu_s()
        with beside(place / "job") if beside is not None else nullcontext():
            _run("deploy", ["run", str(pipeline), *told, *options, *places], limit_s)
        report: dict[str, Any] = json.loads((place / "report.json").read_text())
        report["cpu_s"] = _cpu_s() - before_s
        if check is not None:
            report["checked"] = check(out, report)
        return report


def bare(records: int, batch_elements_max: int) -> dict[str, Any]:
    """Run the bare job in a process of its own; see `benchmarks.bare`."""
    told: dict[str, Any] = json.loads(_run("benchmarks.bare", [str(records), str(batch_elements_max)]))
    return told


def _cpu_s() -> float:
    """CPU seconds of all descendants that have ended: `causal run` leaves none behind that it has not reaped."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _run(module: str, arguments: Sequence[str], limit_s: float | None = None) -> str:
    command = [sys.executable, "-m", module, *arguments]
    try:
        done = children.run(command, limit_s)
    except subprocess.TimeoutExpired:
        raise RunFailed(f"{module} did not end within {limit_s:g} s") from None
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["it said nothing"]
        raise RunFailed(f"{module} ended with status {done.returncode}: {said[-1]}")
    return done.stdout
