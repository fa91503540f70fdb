"""The queries as pipelines: `pipeline(query, source, sink)`.

Events that are not of a query's kind are filtered out in the source's task.  Queries of event time stand on the
watermarks that `pipeline` puts behind the source.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from causal.errors import PipelineError
from examples.nexmark.auctions import Row, Sellers, Winning
from examples.nexmark.events import Event
from examples.nexmark.terms import CATEGORY, QUERIES, STATES, Terms, euros
from operators import Pipeline
from operators.pipeline import Stream
from operators.sinks.base import Sink
from operators.sources.base import Source

Query = Callable[[Stream[Event], Terms, int], Stream[Row]]
"""(events, terms, parallelism of the stateful operators) → rows."""


def pipeline(
    query: int,
    source: Source,
    sink: Sink,
    terms: Terms | None = None,
    parallelism: int = 2,
    out_of_order_s: float = 0.0,
    clean: Callable[[Any], Event] | None = None,
) -> Pipeline:
    """One query between a source of events and a sink of rows.

    Args:
        out_of_order_s: how far behind an event may be of one that was read before it.
        clean: makes an event of what the source gives, where that is none yet.

    Raises:
        PipelineError: there is no such query.
    """
    if query not in BUILT:
        raise PipelineError(f"there is no query {query}; there are {', '.join(map(str, sorted(BUILT)))}")
    built = Pipeline(f"nexmark-q{query}")
    read = built.source("events", source, parallelism=source.partitions)
    events: Stream[Event] = read if clean is None else read.map("clean", clean)
    if query in _BY_EVENT_TIME:
        events = events.watermarks("time", seconds, out_of_order_s=out_of_order_s)
    BUILT[query](events, terms or Terms(), parallelism).sink("out", sink)
    return built


def seconds(event: Event) -> float:
    """When an event happened."""
    return float(event["time_ms"]) / 1000


def _of(kind: str) -> Callable[[Event], bool]:
    def is_one(event: Event) -> bool:
        return bool(event["kind"] == kind)

    return is_one


def _q0(events: Stream[Event], terms: Terms, parallelism: int) -> Stream[Row]:
    return events


def _q1(events: Stream[Event], terms: Terms, parallelism: int) -> Stream[Row]:
    return events.filter("bids", _of("bid")).map("q1", lambda bid: {**bid, "price": euros(bid["price"])})


def _q2(events: Stream[Event], terms: Terms, parallelism: int) -> Stream[Row]:
    bids = events.filter("bids", lambda e: e["kind"] == "bid" and e["auction"] % terms.auction_skip == 0)
    return bids.map("q2", lambda bid: {"auction": bid["auction"], "price": bid["price"]})


def _seller_or_auction(event: Event) -> bool:
    if event["kind"] == "person":
        return event["state"] in STATES
    return bool(event["kind"] == "auction" and event["category"] == CATEGORY)


def _seller(event: Event) -> int:
    return int(event["id"] if event["kind"] == "person" else event["seller"])


def _q3(events: Stream[Event], terms: Terms, parallelism: int) -> Stream[Row]:
    keyed = events.filter("sellers", _seller_or_auction).key_by(_seller)
    return keyed.process("q3", Sellers(terms), parallelism)


def _auction_or_bid(event: Event) -> bool:
    return bool(event["kind"] != "person")


def _auction(event: Event) -> int:
    return int(event["id"] if event["kind"] == "auction" else event["auction"])


def _q9(events: Stream[Event], terms: Terms, parallelism: int) -> Stream[Row]:
    keyed = events.filter("auctions", _auction_or_bid).key_by(_auction)
    return keyed.process("q9", Winning(terms), parallelism)


_BY_EVENT_TIME = frozenset(QUERIES) - {0, 1, 2, 12}
BUILT: dict[int, Query] = {0: _q0, 1: _q1, 2: _q2, 3: _q3, 9: _q9}
