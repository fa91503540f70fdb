"""The inverted index at 50 documents/s: how long until a reader of the sink has all change records of a document.

The experiment of Figures 9 to 12 of FlameStream, per guarantee and interval between checkpoints.  Latency counts from
the moment at which a document was due (so waiting because others are late counts) to the one at which a reader of the
database, a process of its own, finds the last of its rows there.  A round has every guarantee beside every other at
each interval, in an order that turns; ratios are taken within a round.  The series are runs in which an index task
gets SIGKILL three times.  Runs whose rows are not there exactly once count for nothing, but for `none` with kills.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import latency_index, runs, sink_reader
from benchmarks.measured import figure, percentile, result
from benchmarks.sink_reader import Seen
from benchmarks.watched import watched

PIPELINE = Path(latency_index.__file__)
GUARANTEES = ("none", "causal", "epoch")
INTERVALS_MS = (50, 500, 1000)
SHARES = {"p50": 0.50, "p75": 0.75, "p95": 0.95, "p99": 0.99}
RATE = 50
WARM_S = 2.0
"""At the start processes of standbys come up beside the job; these documents are not counted."""
SERIES_S, KILLS_S, SERIES_INTERVAL_MS = 16.0, (4.0, 8.0, 12.0), 1000
KILLED = "index/0"
END_WITHIN_S = 90.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.add_argument("--rounds", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=9.0, help="of documents per run (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="one short round: whether it works, not what it gives")
    parser.add_argument(
        "--guarantee", type=_guarantees, default=list(GUARANTEES), metavar="NAME,…", help=f"of {', '.join(GUARANTEES)}"
    )


def _guarantees(text: str) -> list[str]:
    wanted = text.split(",")
    for name in wanted:
        if name not in GUARANTEES:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(GUARANTEES)}")
    return wanted


@dataclass(frozen=True, slots=True)
class Run:
    """What one run came to."""

    latency_ms: Sequence[float | None]
    """By document; None where some of its rows never came."""
    wrong: Mapping[str, int]
    began_ns: int


def measure(options: argparse.Namespace, command: str, tell: Callable[[str], None]) -> dict[str, Any]:
    """Run all rounds and the series; returns the common form, `series` having latency by document and guarantee.

    Raises:
        RunFailed: a run failed, or rows of a guarantee that promises them are not there exactly once.
    """
    rounds, seconds = (1, WARM_S + 2.0) if options.quick else (options.rounds, options.seconds)
    if seconds <= WARM_S:
        raise runs.RunFailed(f"the first {WARM_S:g} s are not counted; give more than that: --seconds {WARM_S * 4:g}")
    found: dict[str, list[float]] = {}
    for number in range(rounds):
        for interval_ms in INTERVALS_MS:
            told = {
                guarantee: _percentiles(_undisturbed(guarantee, interval_ms, seconds))
                for guarantee in _turned(options.guarantee, number)
            }
            for guarantee in options.guarantee:
                for name, value in told[guarantee].items():
                    found.setdefault(f"{guarantee}.{interval_ms}.{name}_ms", []).append(value)
            shown = ", ".join(f"{each} {held['p50']:.1f} / {held['p99']:.1f}" for each, held in told.items())
            tell(f"round {number + 1}, {interval_ms} ms between checkpoints: p50 / p99 ms: {shown}")
    figures = {name: figure(values, 2) for name, values in found.items()} | _ratios(found, options.guarantee)
    series = {} if options.quick else {each: _series(each, tell) for each in options.guarantee}
    settings = {"documents_per_s": RATE, "seconds": seconds, "warm_s": WARM_S, "rounds": rounds}
    settings |= {"corpus": "*.py of the standard library", "index_tasks": 2, "standbys": "per-task"}
    return result("latency", command, settings, figures, series=series)


def _turned(guarantees: Sequence[str], number: int) -> list[str]:
    turn = number % len(guarantees)
    return [*guarantees[turn:], *guarantees[:turn]]


def _undisturbed(guarantee: str, interval_ms: int, seconds: float) -> list[float]:
    """Latencies behind the warm-up, each there."""
    told = _run(guarantee, interval_ms, seconds, ())
    if any(told.wrong.values()):
        raise runs.RunFailed(f"{guarantee}, {interval_ms} ms between checkpoints: {dict(told.wrong)} without a failure")
    return [latency for latency in told.latency_ms[int(WARM_S * RATE) :] if latency is not None]  # all of them


def _percentiles(latency_ms: Sequence[float]) -> dict[str, float]:
    return {name: percentile(latency_ms, share) for name, share in SHARES.items()}


def _run(guarantee: str, interval_ms: int, seconds: float, kills_s: Sequence[float]) -> Run:
    count = int(seconds * RATE) // latency_index.PARTITIONS * latency_index.PARTITIONS
    documents = latency_index.expected(count)
    options = [f"--guarantee={guarantee}", f"--checkpoint-interval={interval_ms / 1000}"]
    options += [f"--kill={KILLED}@{moment}" for moment in kills_s]
    with (
        watched(PIPELINE, {"count": count, "rate": RATE}, options) as job,
        sink_reader.reading(job.out, job.out.with_name("seen")) as reader,
    ):
        job.report(END_WITHIN_S)
        began_ns = job.view()["first_record_ns"]
        seen = reader.end()
        rows = latency_index.rows_of(job.out)
    words = [len(index) for index in documents]
    return Run(latencies(rows, seen, words, began_ns), latency_index.wrong(rows, documents), began_ns)


def latencies(
    rows: Sequence[Mapping[str, Any]], seen: Sequence[Seen], words: Sequence[int], began_ns: int
) -> list[float | None]:
    """By document: ms from when it was due until the reader had a row for each of its words; None for never.

    Args:
        rows: of the sink's one task, by position.
        words: how many different ones each document has.
    """
    numbers = {latency_index.name_of(number): number for number in range(len(words))}
    missing = list(words)
    had: set[tuple[int, str]] = set()
    found: list[float | None] = [None] * len(words)
    for each in seen:
        for row in rows[each.first : each.first + each.count]:
            number = numbers[row["document"]]
            if (number, row["word"]) in had:
                continue
            had.add((number, row["word"]))
            missing[number] -= 1
            if not missing[number]:
                found[number] = (each.at_ns - began_ns - number / RATE * 1e9) / 1e6
    return found


def _ratios(found: Mapping[str, Sequence[float]], guarantees: Sequence[str]) -> dict[str, Any]:
    """Of runs of one round and one interval; and of the longest and the shortest interval, of one round."""
    ratios: dict[str, Any] = {}
    for guarantee in guarantees:
        if guarantee != "none" and "none" in guarantees:
            for name in SHARES:
                pairs = [
                    pair
                    for interval in INTERVALS_MS
                    for pair in zip(
                        found[f"{guarantee}.{interval}.{name}_ms"], found[f"none.{interval}.{name}_ms"], strict=True
                    )
                ]
                ratios[f"{guarantee}_over_none.{name}"] = figure([mine / theirs for mine, theirs in pairs])
        shortest, longest = (
            found[f"{guarantee}.{interval}.p50_ms"] for interval in (INTERVALS_MS[0], INTERVALS_MS[-1])
        )
        apart = [long / short for short, long in zip(shortest, longest, strict=True)]
        ratios[f"{guarantee}.p50_{INTERVALS_MS[-1]}_over_{INTERVALS_MS[0]}"] = figure(apart)
    return ratios


def _series(guarantee: str, tell: Callable[[str], None]) -> dict[str, Any]:
    """One run with kills: latency by document, and what the rows have too little, too often, or wrong."""
    told = _run(guarantee, SERIES_INTERVAL_MS, SERIES_S, KILLS_S)
    if guarantee != "none" and any(told.wrong.values()):
        raise runs.RunFailed(f"{guarantee}, killed three times: {dict(told.wrong)}")
    there = [latency for latency in told.latency_ms if latency is not None]
    wrong = ", ".join(f"{count:,} {what}" for what, count in told.wrong.items())
    tell(f"{guarantee}, {KILLED} killed three times: median {median(there):.1f} ms, most {max(there):.0f} ms; {wrong}")
    latency_ms = [None if each is None else round(each, 2) for each in told.latency_ms]
    return {"kills_s": list(KILLS_S), "latency_ms": latency_ms, "incomplete": latency_ms.count(None), **told.wrong}
