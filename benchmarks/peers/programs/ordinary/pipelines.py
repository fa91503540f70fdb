"""The workloads of `ordinary` for this project, as its guide would write them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.peers.programs.checked_sink import CheckedTallySink
from benchmarks.peers.programs.inputs import PARTITIONS
from benchmarks.peers.programs.ordinary import user_code as code
from operators import Aggregate, Count, Global, Mean, Operator, Pipeline, Session, Sliding, Tumbling
from operators.sources import GeneratedSource

Stream = Any
Inputs = Mapping[str, Stream]


class Profile(Operator):
    """Keeps the profile of each user."""

    def process(self, record: Any, ctx: Any) -> Iterator[code.Record]:
        yield code.profiled(ctx.state, record)


class Top(Operator):
    """Keeps the most frequent words, and puts them out at the end."""

    def process(self, record: Any, ctx: Any) -> None:
        code.ranked(ctx.state.setdefault("top", []), record[0], record[1])

    def finish(self, ctx: Any) -> Iterator[tuple[str, int]]:
        for n, term in ctx.state["top"]:
            yield term, n


def _timed(stream: Stream, name: str, key: Callable[[code.Record], str] = code.user_of) -> Stream:
    return stream.watermarks(name, code.time_of, out_of_order_s=code.OUT_OF_ORDER_S).key_by(key)


def _words(lines: Stream) -> Stream:
    return lines.flat_map("words", str.split).key_by(lambda term: term)


def _profile(of: Inputs) -> Stream:
    charged = of["purchases"].map("enriched", code.enriched).filter("charged", code.is_charged)
    return charged.key_by(code.user_of).process("profile", Profile(), parallelism=PARTITIONS)


def _windows(of: Inputs) -> Stream:
    sums = Aggregate(code.nothing, code.added)
    return _timed(of["readings"], "time").window("sums", Tumbling(code.TUMBLING_S), sums, parallelism=PARTITIONS)


def _sliding(of: Inputs) -> Stream:
    windows = Sliding(code.SLIDING_S, code.EVERY_S)
    return _timed(of["readings"], "time").window("means", windows, Mean(code.amount_of), parallelism=PARTITIONS)


def _join(of: Inputs) -> Stream:
    orders, payments = _timed(of["orders"], "order-time"), _timed(of["payments"], "payment-time")
    within = (-code.WITHIN_S, code.WITHIN_S)
    return orders.join("paid", payments, within=within, fn=code.paired, parallelism=PARTITIONS)


def _sessions(of: Inputs) -> Stream:
    clicks = _timed(of["clicks"], "time")
    return clicks.window(
        "visits", Session(code.GAP_S), lambda user, records, _: [code.visit(user, records)], parallelism=PARTITIONS
    )


def _top_words(of: Inputs) -> Stream:
    counts = _words(of["lines"]).window("counts", Global(), Count(), parallelism=PARTITIONS)
    return counts.key_by(lambda counted: 0).process("top", Top(), parallelism=1)


def _running(of: Inputs) -> Stream:
    return _words(of["lines"]).count("counts", parallelism=PARTITIONS)


def _as_of(of: Inputs) -> Stream:
    prices = _timed(of["prices"], "price-time", code.item_of).table("price")
    sales = _timed(of["sales"], "sale-time", code.item_of)
    return sales.join_table("sold", prices, as_of=True, fn=code.sold, parallelism=PARTITIONS)


BUILT: Mapping[str, Callable[[Inputs], Stream]] = {
    "profile": _profile,
    "windows": _windows,
    "sliding": _sliding,
    "join": _join,
    "sessions": _sessions,
    "words": _top_words,
    "running": _running,
    "as_of": _as_of,
}
"""Workload → what comes out of the streams of its inputs."""

VERIFIED: Mapping[str, Callable[[Any], Any]] = {
    "windows": lambda row: (row[0], *row[1], row[2]),
    "sliding": lambda row: (row[0], row[1], row[2]),
}
"""Workload → key of comparison of rows that have another form than in the bare job."""


def built(pipeline: Pipeline, workload: str, records: int) -> Stream:
    """Return the rows of a workload: two tasks read its input, or one each of two inputs."""
    every, counts = code.WORKLOADS[workload].inputs, code.WORKLOADS[workload].counts(records)
    tasks = PARTITIONS // len(every)
    streams = {
        name: pipeline.source(name, GeneratedSource(maker, counts[name], PARTITIONS), tasks)
        for name, (maker, _) in every.items()
    }
    return BUILT[workload](streams)


def sink(workload: str, place: Path) -> CheckedTallySink:
    """Return the sink of a workload, which tallies the rows for the checks."""
    return CheckedTallySink(place, lambda: code.tally_of(workload, place, VERIFIED.get(workload)))
