"""Ordinary records (dicts, own operators, windows, joins, words) next to Bytewax and next to the bare user code.

A round runs, per workload, ours with guarantee causal, the same in `stages`, Bytewax, ours with guarantee none, and the
same user code with MessagePack in one process without an engine (*bare*); every other round in the opposite order.
Bytewax is run in all its configurations (1 worker, 2 workers, 2 processes, each without and with recovery); one whose
median is below 80 % of the best of its kind is not run again.  Every row of every run is verified: their number and the
sum of their hashes are those of a model.

*rps*: input records (both streams of a join; lines of words) from the first that enters to the last row; start-up is
not in it, and is listed separately: *start_s*, from the command to the first record.  *cpu_us*: of all processes per
record, from the first record to their end, which is CPU seconds per million records; ours starts its standbys in that
time.  *peak_mib*: proportional set size of all processes together.  *ratio*: ours ÷ Bytewax's best configuration
without recovery; *ratio_stages*, *memory_stages*: the same of `stages`, in records/s and in peak memory;
*ratio_recovery*: ÷ its best with recovery; *efficiency*: ours ÷ (cores × bare); *over_none*: causal ÷ none.  All divide
runs of one round.

By default it takes about an hour on two quiet cores; `--rounds 1 --records 20000 --configuration
2_processes` takes less than a minute, and says whether all of it works, not how fast.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.harness import runs
from benchmarks.harness.declared import Benchmark, Measurement, Option, some_of
from benchmarks.harness.measured import figure
from benchmarks.peers import checks, comparison, venvs
from benchmarks.peers.programs import inputs
from benchmarks.peers.programs.ordinary.user_code import WORKLOADS

MODEL = "benchmarks.peers.programs.ordinary.model"
BARE = "benchmarks.peers.programs.ordinary.one_process"
PEER = venvs.PEERS["bytewax"]
CORES_MAX = 2
CLOSE = 0.8
"""A configuration of Bytewax that is slower than this much of the best of its kind is not run again."""
LEAST = 20
"""Records are shared out to partitions in tenths."""
RECOVERY = "_recovery"
CONFIGURATIONS: Mapping[str, Mapping[str, int]] = {
    "1_worker": {"processes": 1, "workers": 1},
    "2_workers": {"processes": 1, "workers": 2},
    "2_processes": {"processes": 2, "workers": 1},
}
OURS: Mapping[str, Sequence[str]] = {
    "ours": ("--guarantee=causal",),
    "ours_stages": ("--guarantee=causal", "--processes=stages"),
    "ours_none": runs.GUARANTEES["none"],
}
CHECKPOINT_INTERVAL_S = 1.0
PER_RUN = ("rps", "cpu_us", "peak_mib", "start_s")
CONTRACT = ("ours_rps", "ours_none_rps", "bytewax_rps", "bare_rps", "ratio", "efficiency")
"""Names of the medians that a result has per workload, outside of `figures`."""


def _records(text: str) -> int:
    if not text.isdigit() or int(text) < LEAST or int(text) % LEAST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a multiple of {LEAST}")
    return int(text)


OPTIONS = (
    Option("workload", ",".join(WORKLOADS), "which ones", some_of(WORKLOADS), setting="workloads"),
    Option("rounds", 5, "alternating", comparison.positive),
    Option("records", 0, "of each workload; 0: what takes a few seconds of each here", _records),
    Option("configuration", ",".join(CONFIGURATIONS), "of Bytewax", some_of(CONFIGURATIONS), setting="configurations"),
    Option("limit", 240.0, "seconds after which a run is given up", setting=None),
    Option("venvs", venvs.default_place(), "where Bytewax lives", Path, setting=None),
)
Entrants = Mapping[str, tuple[str, Path, Mapping[str, Any]]]
"""Name → program, interpreter, and its options in addition to the workload."""


class Compared:
    """The rounds of one workload so far."""

    def __init__(self, workload: str, records: int, entrants: Entrants) -> None:
        self.workload = workload
        self.records = records or WORKLOADS[workload].records
        self.entrants = dict(entrants)
        self.rounds: list[dict[str, dict[str, float]]] = []
        self.problems: dict[str, str] = {}
        self._asked = {
            "workload": workload,
            "records": self.records,
            "interval_s": CHECKPOINT_INTERVAL_S,
            "expected": runs.printed_by(MODEL, workload, self.records, env=comparison.HASH_SEED),
        }

    def run(self, name: str, limit_s: float) -> str:
        """Run one entrant in the latest round; returns what came of it, for a person."""
        program, python, more = self.entrants[name]
        try:
            figures, _ = comparison.run(program, python, {**self._asked, **more}, limit_s)
        except (runs.RunFailed, checks.WrongOutput) as problem:
            self.problems[name] = str(problem)
            return str(problem)
        self.rounds[-1][name] = figures
        return comparison.line(figures)

    def runs_of(self, name: str, what: str) -> list[float]:
        """Return the runs of an entrant."""
        return [each[name][what] for each in self.rounds if name in each]

    def configurations(self, recovery: bool) -> list[str]:
        """Return the configurations of Bytewax that are still run and were measured, the fastest first."""
        kept = [name for name in self.entrants if name.startswith(PEER.name) and name.endswith(RECOVERY) == recovery]
        speeds = {name: median(self.runs_of(name, "rps")) for name in kept if self.runs_of(name, "rps")}
        return sorted(speeds, key=lambda name: -speeds[name])

    def drop_slow(self) -> None:
        """Run no configuration again that is far behind the best of its kind."""
        for recovery in (False, True):
            every = self.configurations(recovery)
            for name in every[1:]:
                if median(self.runs_of(name, "rps")) < CLOSE * median(self.runs_of(every[0], "rps")):
                    del self.entrants[name]

    def figures(self, cores: int) -> dict[str, Any]:
        """Return all figures, without the workload before their names."""
        best, recovering = ((self.configurations(recovery) or [""])[0] for recovery in (False, True))
        names = {name: name for each in self.rounds for name in each}
        names |= {label: name for label, name in ((PEER.name, best), (PEER.name + RECOVERY, recovering)) if name}
        ratios = {
            "ratio": self._ratios("ours", best),
            "ratio_stages": self._ratios("ours_stages", best),
            "memory_stages": self._ratios("ours_stages", best, what="peak_mib"),
            "ratio_recovery": self._ratios("ours", recovering),
            "efficiency": self._ratios("ours", "bare", cores),
            "over_none": self._ratios("ours", "ours_none"),
        }
        return {
            f"{label}_{what}": figure(self.runs_of(name, what), comparison.DIGITS[what])
            for label, name in names.items()
            for what in PER_RUN
        } | {name: figure(each) for name, each in ratios.items() if each}

    def _ratios(self, over: str, under: str, times: int = 1, what: str = "rps") -> list[float]:
        """Record/s of an entrant ÷ (`times` × those of another), round by round; or another figure."""
        both = [each for each in self.rounds if over in each and under in each]
        return [each[over][what] / (times * each[under][what]) for each in both]


def _measure(run: Measurement) -> dict[str, Any]:
    """Run all rounds; the result has `workloads`, with the figures of the contract, and `problems`.

    `failed`: a run of ours or the bare one did not end well, or its rows were wrong.

    Raises:
        RunFailed: the model of a workload failed.
    """
    options = run.options
    entrants, reason = _entrants(run)
    run.report("the rows that must come …")
    every = [Compared(workload, options.records, entrants) for workload in options.workload]
    for number in run.rounds():
        for compared in every:
            compared.rounds.append({})
            for name in list(compared.entrants)[:: 1 if number % 2 else -1]:
                run.report(f"round {number}, {compared.workload}, {name}: {compared.run(name, options.limit)}")
            compared.drop_slow()
    cores = min(CORES_MAX, len(os.sched_getaffinity(0)))
    workloads: dict[str, Any] = {}
    problems: dict[str, str] = {PEER.name: reason} if reason else {}
    for compared in every:
        figures = compared.figures(cores)
        run.figures |= {f"{compared.workload}.{name}": each for name, each in figures.items()}
        medians = {name: figures[name]["median"] if name in figures else None for name in CONTRACT}
        fastest = {"fastest": next(iter(compared.configurations(False)), None)}
        workloads[compared.workload] = {**medians, **fastest, "records": compared.records}
        problems |= {f"{compared.workload}, {name}": problem for name, problem in compared.problems.items()}
    failed = any(not name.startswith(PEER.name) for compared in every for name in compared.problems)
    run.more |= {"workloads": workloads, "problems": problems, "failed": failed}
    run.more["summary"] = "\n".join([*_behind(workloads), *(f"{name}: {each}" for name, each in problems.items())])
    return {"cores": cores, "records": {compared.workload: compared.records for compared in every}}


def _entrants(run: Measurement) -> tuple[Entrants, str]:
    """Return all that are compared in the order of their runs, and why Bytewax is not among them."""
    python, theirs, reason = Path(sys.executable), {}, ""
    ours = {name: (comparison.OURS, python, {"options": more}) for name, more in OURS.items()}
    try:
        its_python = venvs.interpreter(PEER, run.options.venvs, run.report)
    except venvs.NotInstalled as problem:
        reason = f"cannot be installed: {problem}"
    else:
        theirs = {
            f"{PEER.name}_{name}{RECOVERY * recovery}": (
                PEER.program,
                its_python,
                {**CONFIGURATIONS[name], "recovery": recovery},
            )
            for name in run.options.configuration
            for recovery in (False, True)
        }
    unprotected = {"ours_none": ours.pop("ours_none"), "bare": (BARE, python, {})}
    return {**ours, **theirs, **unprotected}, reason


def _behind(workloads: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return where Bytewax is faster, in a line."""
    slower = [f"{name} ×{each['ratio']:.2f}" for name, each in workloads.items() if each["ratio"] and each["ratio"] < 1]
    return [f"behind Bytewax: {', '.join(slower) or 'nowhere in what was measured'}"]


BENCHMARK = Benchmark(
    "ordinary",
    OPTIONS,
    _measure,
    settings={
        "checkpoint_interval_s": CHECKPOINT_INTERVAL_S,
        "parallelism": inputs.PARTITIONS,
        "peer": PEER.requirements,
    },
)
