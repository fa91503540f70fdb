"""The inverted index at 50 documents/s: how long until a reader of the sink has all change records of a document.

The experiment of Figures 9 to 12 of FlameStream, per guarantee and interval between checkpoints.  Latency counts from
the moment at which a document was due (so waiting because others are late counts) to the one at which a reader of the
database, a process of its own, finds the last of its rows there.  A round has every guarantee beside every other at
each interval, in an order that turns; ratios are taken within a round.  Runs whose rows are not there exactly
once count for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import runs, sink_reader
from benchmarks.harness.declared import Benchmark, Measurement, Option, some_of
from benchmarks.harness.measured import figure, percentile
from benchmarks.harness.sink_reader import Seen
from benchmarks.harness.watched import watched
from benchmarks.harness.written import records_in
from benchmarks.harness.zero_point import check_not_early
from benchmarks.jobs import latency_index
from benchmarks.peers.programs import index_documents

PIPELINE = Path(latency_index.__file__)
GUARANTEES = ("none", "causal", "epoch")
INTERVALS_MS = (50, 500, 1000)
SHARES = {"p50": 0.50, "p75": 0.75, "p95": 0.95, "p99": 0.99}
RATE = 50
WARM_S = 2.0
"""Documents of the start are not counted: processes of standbys come up next to the job."""
END_WITHIN_S = 90.0


OPTIONS = (
    Option("rounds", 3),
    Option("seconds", 9.0, "of documents per run"),
    Option("guarantee", ",".join(GUARANTEES), "which ones", some_of(GUARANTEES)),
)


def _measure(run: Measurement) -> None:
    options = run.options
    if options.seconds <= WARM_S:
        raise runs.RunFailed(f"the first {WARM_S:g} s are not counted; give more than that: --seconds {WARM_S * 4:g}")
    for number in run.rounds():
        for interval_ms in INTERVALS_MS:
            shown = []
            for guarantee in _turned(options.guarantee, number - 1):
                took_ms = run_of(guarantee, interval_ms, options.seconds, WARM_S)
                percentiles = {name: percentile(took_ms, share) for name, share in SHARES.items()}
                run.add_all(f"{guarantee}.{interval_ms}.", {f"{name}_ms": each for name, each in percentiles.items()})
                shown.append(f"{guarantee} {percentiles['p50']:.1f} / {percentiles['p99']:.1f}")
            run.report(f"round {number}, {interval_ms} ms between checkpoints: p50 / p99 ms: {', '.join(shown)}")
    run.figures |= _ratios(run.all_runs(), options.guarantee)


def _turned(guarantees: Sequence[str], number: int) -> list[str]:
    turn = number % len(guarantees)
    return [*guarantees[turn:], *guarantees[:turn]]


def run_of(guarantee: str, interval_ms: int, seconds: float, warm_s: float, rate: float = RATE) -> list[float]:
    """Run the index once; returns the latencies of the documents after the first `warm_s`.

    Args:
        rate: documents per second.

    Raises:
        RunFailed: its rows are not those of the documents.
    """
    count = int(seconds * rate) // latency_index.PARTITIONS * latency_index.PARTITIONS
    documents = index_documents.expected(count)
    options = [f"--guarantee={guarantee}", f"--checkpoint-interval={interval_ms / 1000}"]
    with (
        watched(PIPELINE, {"count": count, "rate": rate}, options) as job,
        sink_reader.reading(job.out, job.out.with_name("seen")) as reader,
    ):
        job.report(END_WITHIN_S)
        began_ns = latency_index.due_from_ns(job.directory)
        seen = reader.end()
        rows = list(records_in(job.out))
    wrong = index_documents.wrong(rows, documents)
    if any(wrong.values()):
        raise runs.RunFailed(f"{guarantee}, {interval_ms} ms between checkpoints: {wrong} without a failure")
    return counted(latencies(rows, seen, [len(index) for index in documents], began_ns, rate), warm_s, rate)


def counted(latency_ms: Sequence[float | None], warm_s: float, rate: float) -> list[float]:
    """Return the latencies after the first `warm_s` of the documents."""
    return [each for each in latency_ms[int(warm_s * rate) :] if each is not None]


def latencies(
    rows: Sequence[Mapping[str, Any]], seen: Sequence[Seen], words: Sequence[int], began_ns: int, rate: float = RATE
) -> list[float | None]:
    """Return by document the ms from when it was due until the reader had a row for each of its words; None for never.

    Args:
        rows: of the sink's one task, by position.
        words: how many different ones each document has.
        began_ns: the time at which the first document was due.

    Raises:
        RunFailed: a document was complete before it was due, so `began_ns` is not that time.
    """
    numbers = {index_documents.name_of(number): number for number in range(len(words))}
    missing = list(words)
    had: set[tuple[int, str]] = set()
    complete: list[float | None] = [None] * len(words)
    for each in seen:
        for row in rows[each.first : each.first + each.count]:
            number = numbers[row["document"]]
            if (number, row["word"]) in had:
                continue
            had.add((number, row["word"]))
            missing[number] -= 1
            if not missing[number]:
                complete[number] = (each.at_ns - began_ns - number / rate * 1e9) / 1e6
    check_not_early(each * 1e6 for each in complete if each is not None)
    return complete


def _ratios(runs_of: Mapping[str, Sequence[float]], guarantees: Sequence[str]) -> dict[str, Any]:
    """Return ratios of runs of one round and interval, and of the longest and the shortest interval of one round."""
    ratios: dict[str, Any] = {}
    for guarantee in guarantees:
        if guarantee != "none" and "none" in guarantees:
            for name in SHARES:
                pairs: list[tuple[float, float]] = []
                for interval in INTERVALS_MS:
                    mine, theirs = (runs_of[f"{each}.{interval}.{name}_ms"] for each in (guarantee, "none"))
                    pairs += zip(mine, theirs, strict=True)
                ratios[f"{guarantee}_over_none.{name}"] = figure([ours / of_none for ours, of_none in pairs])
        shortest, longest = (
            runs_of[f"{guarantee}.{interval}.p50_ms"] for interval in (INTERVALS_MS[0], INTERVALS_MS[-1])
        )
        apart = [long / short for short, long in zip(shortest, longest, strict=True)]
        ratios[f"{guarantee}.p50_{INTERVALS_MS[-1]}_over_{INTERVALS_MS[0]}"] = figure(apart)
    return ratios


SETTINGS = {
    "documents_per_s": RATE,
    "warm_s": WARM_S,
    "corpus": "*.py of the standard library",
    "index_tasks": 2,
    "standbys": "per-task",
}
BENCHMARK = Benchmark("latency", OPTIONS, _measure, digits=2, settings=SETTINGS)
