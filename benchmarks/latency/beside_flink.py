"""The inverted index at 50 documents/s and PyFlink's, exactly once in both: until a reader has all rows of a document.

The same documents, rate, tasks and intervals between checkpoints as in `latency`; a round runs ours, then PyFlink, at
each interval.  Latency counts from the moment at which a document was due to the one at which the last of its rows is
visible: ours in SQLite, PyFlink's in a file of its `FileSink`, which appears when a checkpoint has committed it.  The
first seconds of both are not counted, in which the JVM compiles.  Runs whose rows are not there exactly once count for
nothing.  `behind_s`: how long after the last document was due its rows were visible; far above the latency of the
others, the system did not hold the rate.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness.declared import Benchmark, Measurement, Option
from benchmarks.harness.measured import percentile
from benchmarks.harness.runs import RunFailed
from benchmarks.harness.sink_reader import Seen
from benchmarks.jobs import latency_index
from benchmarks.latency import latency
from benchmarks.peers import comparison, venvs
from benchmarks.peers.checks import WrongOutput
from benchmarks.peers.launched import Usage
from benchmarks.peers.programs import index_documents

PEER = venvs.PEERS["pyflink"]
WORKLOAD = "paced_index"
LIMIT_S = 300.0
SHARES = {"p50": 0.50, "p99": 0.99}
_PART = re.compile(r"part-(.+)-(\d+)$")
OPTIONS = (
    Option("rounds", 1),
    Option("seconds", 30.0, "of documents per run"),
    Option("warm", 10.0, "seconds of documents that are not counted", setting="warm_s"),
    Option("rate", latency.RATE, "documents per second", setting="documents_per_s"),
    Option("intervals", "50,500,1000", "ms between checkpoints", lambda text: [int(each) for each in text.split(",")]),
    Option("venvs", venvs.default_place(), "where PyFlink lives", Path, setting=None),
)


def rows_in(place: Path) -> tuple[list[dict[str, Any]], list[Seen]]:
    """Return the rows of PyFlink's files, and when each file was visible, in ns since 1970.

    Rows of one writer are in the order in which it wrote them, so those of one word are.
    """
    since_s: dict[str, float] = json.loads((place / "visible.json").read_text())
    rows: list[dict[str, Any]] = []
    seen: list[Seen] = []
    for path in sorted(map(Path, since_s), key=_writer_and_turn):
        records = [json.loads(line) for line in path.read_text().splitlines()]
        seen.append(Seen(int(since_s[str(path)] * 1e9), "out/0", len(rows), len(records)))
        rows += records
    return rows, sorted(seen, key=lambda each: each.at_ns)


def _writer_and_turn(path: Path) -> tuple[str, int]:
    match = _PART.search(path.name)
    if match is None:
        raise WrongOutput(f"{path.name} is no file of a FileSink")
    return match[1], int(match[2])


def judged(
    place: Path, asked: Mapping[str, Any], outcome: Mapping[str, Any], usage: Usage, warm_s: float
) -> dict[str, float]:
    """Return the figures of a run of PyFlink, after its rows have been verified.

    Raises:
        WrongOutput: they are not exactly those of the documents.
    """
    rows, seen = rows_in(place)
    documents = index_documents.expected(asked["records"])
    wrong = index_documents.wrong(rows, documents)
    if any(wrong.values()):
        raise WrongOutput(f"pyflink, {asked['interval_s']:g} s between checkpoints: {wrong}")
    began_ns = int(float((place / "paced-since").read_text()) * 1e9)
    words = [len(index) for index in documents]
    took_ms = latency.latencies(rows, seen, words, began_ns, asked["rate"])
    return _figures(latency.counted(took_ms, warm_s, asked["rate"]))


def _figures(took_ms: Sequence[float]) -> dict[str, float]:
    figures = {f"{name}_ms": percentile(took_ms, share) for name, share in SHARES.items()}
    return {**figures, "behind_s": took_ms[-1] / 1e3}


def _measure(run: Measurement) -> dict[str, Any]:
    options = run.options
    count = int(options.seconds * options.rate) // latency_index.PARTITIONS * latency_index.PARTITIONS
    if options.seconds <= options.warm:
        raise RunFailed(f"the first {options.warm:g} s are not counted; give more than that with --seconds")
    python = venvs.interpreter(PEER, options.venvs, run.report)
    for number in run.rounds():
        for interval_ms in options.intervals:
            ours = latency.run_of("causal", interval_ms, options.seconds, options.warm, options.rate)
            figures = {"causal": _figures(ours)}
            asked = {"workload": WORKLOAD, "records": count, "rate": options.rate, "interval_s": interval_ms / 1000}
            judge = partial(judged, warm_s=options.warm)
            figures["pyflink"], _ = comparison.run(PEER.program, python, asked, LIMIT_S, judge)
            for name, each in figures.items():
                run.add_all(f"{name}.{interval_ms}.", each)
                shown = ", ".join(f"{what} {value:,.1f}" for what, value in each.items())
                run.report(f"round {number}, {interval_ms} ms between checkpoints, {name}: {shown}")
            run.add(
                f"pyflink_over_causal.{interval_ms}.p50", figures["pyflink"]["p50_ms"] / figures["causal"]["p50_ms"]
            )
    return {"python": sys.version.split()[0], "peer": PEER.requirements}


BENCHMARK = Benchmark("latency_flink", OPTIONS, _measure, digits=1, settings={"index_tasks": 2})
