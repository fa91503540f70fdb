"""Kafka → count per key → Kafka on one broker, in turn: ours, Quix Streams exactly-once, and confluent-kafka alone.

All read the same topic of two partitions from its beginning and write a topic of their own; keys and values are JSON,
and peers commit once a second.  *rps*: events from the first that enters to the last row that is written; start-up is
not in it, nor is the last commit, for which peers wait up to a second more.  *cpu_us*: of all processes but the broker,
per event.  *ratio*: ours ÷ the best configuration of a peer, which has one process or one per partition, in runs of one
round; every other round is in the opposite order.  The rows of every run are verified as they were committed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.harness.declared import Measurement
from benchmarks.harness.measured import figure
from benchmarks.harness.runs import RunFailed, output_of
from benchmarks.peers import checks, comparison, venvs
from benchmarks.peers.launched import Usage
from benchmarks.peers.programs import inputs
from benchmarks.servers import kafka

EVENTS = "events"
INTERVAL_S = 1.0
PROCESSES = (1, inputs.PARTITIONS)
FILLING = "benchmarks.peers.programs.kafka_topics"
Entrants = Mapping[str, tuple[str, Path, Mapping[str, Any]]]
"""Name → program, interpreter, and its options in addition to those of all."""


def measure(run: Measurement) -> None:
    """Run all rounds."""
    options = run.options
    entrants = _entrants(run)
    rounds: list[dict[str, float]] = []
    with kafka.topics() as topics:
        topics.create(EVENTS, inputs.PARTITIONS)
        output_of(FILLING, [topics.servers, EVENTS, str(options.events)])
        for number in run.rounds():
            rounds.append({})
            for name in list(entrants)[:: 1 if number % 2 else -1]:
                program, python, more = entrants[name]
                asked = {
                    "workload": "kafka", "records": options.events, "interval_s": INTERVAL_S, "topic": EVENTS,
                    "output": topics.create(f"{name}-{number}", inputs.PARTITIONS), "servers": topics.servers,
                    "within_s": options.limit / 2, **more,
                }  # fmt: skip
                try:
                    figures, _ = comparison.run(program, python, asked, options.limit, _judged)
                except (RunFailed, checks.WrongOutput) as problem:
                    run.report(f"round {number}, {name}: {problem}")
                    if name == OURS:
                        raise RunFailed(f"{name}: {problem}") from None
                    run.more.setdefault("problems", {})[name] = str(problem)
                    continue
                rounds[-1][name] = figures["rps"]
                run.add_all(f"{name}.", figures)
                run.report(f"round {number}, {name}: {comparison.line(figures)}")
    for peer in (QUIX, CONFLUENT):
        if ratios := _ratios(rounds, peer):
            run.figures[f"ours_over_{peer}"] = figure(ratios, 2)


OURS, QUIX, CONFLUENT = "ours", "quix", "confluent"


def _entrants(run: Measurement) -> Entrants:
    """Return all that are compared; Quix Streams is not among them where it cannot be installed."""
    own = Path(sys.executable)
    entrants: dict[str, tuple[str, Path, Mapping[str, Any]]] = {OURS: (comparison.OURS, own, {})}
    peers = {CONFLUENT: own}
    try:
        peers[QUIX] = venvs.interpreter(venvs.QUIX, run.options.venvs, run.report)
    except venvs.NotInstalled as problem:
        run.more.setdefault("problems", {})[QUIX] = f"cannot be installed: {problem}"
    for name, python in peers.items():
        for processes in PROCESSES:
            program = f"benchmarks.peers.programs.on_{name}"
            entrants[f"{name}_{processes}"] = (program, python, {"processes": processes})
    return entrants


def _judged(place: Path, asked: Mapping[str, Any], outcome: Mapping[str, Any], usage: Usage) -> dict[str, float]:
    """Return the figures of a run, after its rows have been verified."""
    rows = kafka.Topics(asked["servers"]).rows(asked["output"])
    check_counts((json.loads(row.value or b"[]") for row in rows), asked["records"])
    first_s = outcome["first_s"] if "first_s" in outcome else comparison.began_s(place)
    return {
        "rps": asked["records"] / (outcome["last_s"] - first_s),
        "cpu_us": usage.cpu_since(first_s) * 1e6 / asked["records"],
        "peak_mib": usage.peak_pss_mib,
        "start_s": first_s - usage.began_s,
    }


def check_counts(rows: Iterable[Sequence[Any]], records: int) -> None:
    """Every key has each of its counts once, in their order.

    Raises:
        WrongOutput: it has not.
    """
    counts: dict[str, int] = {}
    for key, n in rows:
        if n != counts.get(key, 0) + 1:
            raise checks.WrongOutput(f"key {key} has {n} after {counts.get(key, 0)}")
        counts[key] = n
    expected = {f"k{key}": n for key, n in checks.expected_counts(records).items()}
    if wrong := [key for key in expected | counts if counts.get(key) != expected.get(key)]:
        key = wrong[0]
        raise checks.WrongOutput(
            f"{len(wrong):,} keys are wrong, the first {key}: {counts.get(key)} rows, not {expected.get(key)}"
        )


def _ratios(rounds: Sequence[Mapping[str, float]], peer: str) -> list[float]:
    """Return ours ÷ the configuration of a peer that is the fastest in the median, round by round."""
    names = {name for each in rounds for name in each if name.startswith(peer)}
    if not names:
        return []
    best = max(sorted(names), key=lambda name: median(each[name] for each in rounds if name in each))
    return [each[OURS] / each[best] for each in rounds if best in each]
