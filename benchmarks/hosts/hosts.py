"""Jobs of several hosts, in network namespaces of one machine: recoveries from lost hosts, and what several hosts cost.

The parts are independent (`--parts`): *killed* and *cut* (`deaths`), *moved* (`moves`), *supervisor* (`succession`),
*transport* and *store* (`apart`), *agents* (`idle_agents`).  How rows fare over hundreds of losses is `host_losses`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from benchmarks.harness.declared import CAUSAL, Benchmark, Measurement, Option, some_of
from benchmarks.hosts import apart, deaths, idle_agents, moves, succession

PARTS: Mapping[str, Callable[[Measurement], None]] = {
    "killed": deaths.killed,
    "cut": deaths.cut,
    "moved": moves.measure,
    "supervisor": succession.measure,
    "transport": apart.transport,
    "store": apart.store,
    "agents": idle_agents.measure,
}
OPTIONS = (
    Option("parts", ",".join(PARTS), "which ones", some_of(PARTS)),
    Option("deaths", 20, "hosts killed"),
    Option("cuts", 15, "hosts cut off"),
    Option("host_timeout", 1000, "ms of silence, where hosts are cut off", setting="host_timeout_ms"),
    Option("moves", 20, "hosts drained"),
    Option("successions", 3, "losses of the supervisor's host"),
    Option("rounds", 5, "of transport and store"),
    Option("records", 1_500_000, "per run of ordinary records; ten times as many of the keyed count"),
    Option("agents", 100, "idle ones"),
    Option("seconds", 10.0, "for which agents are idle"),
)


def _measure(run: Measurement) -> None:
    for name in run.options.parts:
        PARTS[name](run)


DIGITS = {"_rps": 0, "_checkpoints": 0}
BENCHMARK = Benchmark("hosts", OPTIONS, _measure, digits_of=DIGITS, settings={**CAUSAL, "records_per_s": deaths.RATE})
