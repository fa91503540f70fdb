"""The queries as pipelines: `pipeline(query, source, sink)`.

Events that are not of a query's kind are filtered out in the source's task.  Queries of event time use the watermarks
that `pipeline` adds after the source.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from causal.errors import PipelineError
from examples.nexmark.auctions import LastSales, Row, Sellers, Winning
from examples.nexmark.events import Event
from examples.nexmark.terms import CATEGORY, QUERIES, STATES, Terms, euros, side_value
from operators import Aggregate, Count, Mean, Pipeline, Session, Sliding, Stream, Table, Tumbling, Window
from operators.sinks.contract import Sink
from operators.sources import GeneratedSource, Source

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
    """Return one query between a source of events and a sink of rows.

    Args:
        out_of_order_s: the largest lag of an event after one that was read before it.
        clean: makes an event of a record of the source, where that is not one yet.

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
    """Return the event time of an event in seconds."""
    return float(event["time_ms"]) / 1000


def _of(kind: str) -> Callable[[Event], bool]:
    def is_one(event: Event) -> bool:
        return bool(event["kind"] == kind)

    return is_one


def _q0(events: Stream[Event], terms: Terms, parallelism: int) -> Stream[Row]:
    """The events as they are (`map`)."""
    return events


def _q1(events: Stream[Event], terms: Terms, parallelism: int) -> Stream[Row]:
    """Bids in another currency (`map`)."""
    return events.filter("bids", _of("bid")).map("q1", lambda bid: {**bid, "price": euros(bid["price"])})


def _q2(events: Stream[Event], terms: Terms, parallelism: int) -> Stream[Row]:
    """Bids for some auctions (`filter`)."""
    bids = events.filter("bids", lambda e: e["kind"] == "bid" and e["auction"] % terms.auction_skip == 0)
    return bids.map("q2", lambda bid: {"auction": bid["auction"], "price": bid["price"]})


def _seller_or_auction(event: Event) -> bool:
    if event["kind"] == "person":
        return event["state"] in STATES
    return bool(event["kind"] == "auction" and event["category"] == CATEGORY)


def _seller(event: Event) -> int:
    return int(event["id"] if event["kind"] == "person" else event["seller"])


def _q3(events: Stream[Event], terms: Terms, parallelism: int) -> Stream[Row]:
    """Persons of three states who sell in category 10 (`process` with state and timers of event time)."""
    keyed = events.filter("sellers", _seller_or_auction).key_by(_seller)
    return keyed.process("q3", Sellers(terms), parallelism)


def _auction_or_bid(event: Event) -> bool:
    return bool(event["kind"] != "person")


def _auction(event: Event) -> int:
    return int(event["id"] if event["kind"] == "auction" else event["auction"])


def _q9(events: Stream[Event], terms: Terms, parallelism: int) -> Stream[Row]:
    """The winning bid per auction (`process` with an event-time timer at the end of the auction)."""
    keyed = events.filter("auctions", _auction_or_bid).key_by(_auction)
    return keyed.process("q9", Winning(terms), parallelism)


def _winners(events: Stream[Event], terms: Terms, parallelism: int) -> Stream[Row]:
    """Query 9 with the expiry of the auction as event time; rows of one moment are in the order of the auctions."""
    return _q9(events, terms, parallelism).timed(lambda won: won["expires_ms"] / 1000 + won["auction"] % 1000 * 1e-6)


def _q4(events: Stream[Event], terms: Terms, parallelism: int) -> Stream[Row]:
    """The mean winning price per category (`Sliding`, `Mean`)."""
    by_category = _winners(events, terms, parallelism).key_by(lambda won: won["category"])
    means = by_category.window("means", Sliding(terms.window_s, terms.every_s), Mean(_price), parallelism)
    return means.map("q4", lambda result: {"category": result[0], "mean": result[1], "start_ms": _ms(result[2])})


def _q5(events: Stream[Event], terms: Terms, parallelism: int) -> Stream[Row]:
    """The auctions with most bids, all that are equal (`Sliding`, `Count`)."""
    by_auction = events.filter("bids", _of("bid")).key_by(_auction)
    counts = by_auction.window("counts", Sliding(terms.window_s, terms.every_s), Count(), parallelism)
    return counts.key_by(_start).window("q5", Tumbling(terms.every_s), _most, parallelism)


def _most(start: float, counts: Sequence[Any], window: Window) -> list[Row]:
    """Return the highest of the counts of one sliding window, each (auction, bids, start, end)."""
    most = max([result[1] for result in counts])
    return [{"auction": result[0], "bids": most, "start_ms": _ms(start)} for result in counts if result[1] == most]


def _q6(events: Stream[Event], terms: Terms, parallelism: int) -> Stream[Row]:
    """The mean winning price of a seller's last ten sales (`delivery="ordered"`)."""
    by_seller = _winners(events, terms, parallelism).key_by(lambda won: won["seller"])
    return by_seller.process("q6", LastSales(terms), parallelism, delivery="ordered")


def _q7(events: Stream[Event], terms: Terms, parallelism: int) -> Stream[Row]:
    """The highest bids, all that are equal (`Tumbling`, per part, then over all)."""
    parts = events.filter("bids", _of("bid")).key_by(lambda bid: bid["auction"] % _PARTS)
    highest = parts.window("parts", Tumbling(terms.window_s), Aggregate(list, _keep_highest), parallelism)
    return highest.key_by(_start).window("q7", Tumbling(terms.window_s), _highest_of_all, parallelism)


def _keep_highest(kept: list[Row], bid: Event) -> list[Row]:
    price = kept[0]["price"] if kept else -1
    if bid["price"] < price:
        return kept
    fields = {name: bid[name] for name in ("auction", "bidder", "price", "time_ms")}
    return [*kept, fields] if bid["price"] == price else [fields]


def _highest_of_all(start: float, parts: Sequence[Any], window: Window) -> list[Row]:
    """Return the highest of all among the highest bids of each part, each (part, bids, start, end)."""
    bids = [bid for part in parts for bid in part[1]]
    highest = max([bid["price"] for bid in bids])
    return [{**bid, "start_ms": _ms(start)} for bid in bids if bid["price"] == highest]


def _q8(events: Stream[Event], terms: Terms, parallelism: int) -> Stream[Row]:
    """Persons who opened auctions in the window in which they joined (`window_join`)."""
    size_ms = terms.window_s * 1000
    persons = events.filter("persons", _of("person")).key_by(lambda person: person["id"])
    auctions = events.filter("auctions", _of("auction")).key_by(lambda auction: auction["seller"])

    def pair(person: Event, auction: Event) -> Row:
        fields = {"id": person["id"], "name": person["name"], "reserve": auction["reserve"]}
        return {**fields, "start_ms": person["time_ms"] // size_ms * size_ms}

    return persons.window_join("q8", auctions, Tumbling(terms.window_s), fn=pair, parallelism=parallelism)


def _q11(events: Stream[Event], terms: Terms, parallelism: int) -> Stream[Row]:
    """Bids per session of a bidder (`Session`)."""
    by_bidder = events.filter("bids", _of("bid")).key_by(_bidder)
    sessions = by_bidder.window("sessions", Session(terms.gap_s), Count(), parallelism)
    return sessions.map(
        "q11",
        lambda result: {"bidder": result[0], "bids": result[1], "start_ms": _ms(result[2]), "end_ms": _ms(result[3])},
    )


def _q12(events: Stream[Event], terms: Terms, parallelism: int) -> Stream[Row]:
    """Bids per bidder in windows of the wall clock."""
    by_bidder = events.filter("bids", _of("bid")).key_by(_bidder)
    counts = by_bidder.window("counts", Tumbling(terms.clock_s, clock="processing"), Count(), parallelism)
    return counts.map("q12", lambda result: {"bidder": result[0], "bids": result[1], "start_ms": _ms(result[2])})


def _side(events: Stream[Any], terms: Terms) -> Table[int, Row]:
    """Return the side table, whose source ends before anything is joined with it."""

    def row(partition: int, i: int) -> Row:
        return {"key": i, "value": side_value(i)}

    read = events.pipeline.source("side", GeneratedSource(row, terms.side_rows))
    return read.key_by(lambda entry: entry["key"]).table("side-table")


def _q13(events: Stream[Event], terms: Terms, parallelism: int) -> Stream[Row]:
    """Bids with the data of a side table (`join_table(…, wait=True)`)."""
    by_place = events.filter("bids", _of("bid")).key_by(lambda bid: bid["auction"] % terms.side_rows)

    def joined(bid: Event, row: Row) -> Row:
        return {**{name: bid[name] for name in ("auction", "bidder", "price", "time_ms")}, "value": row["value"]}

    return by_place.join_table("q13", _side(events, terms), fn=joined, wait=True, parallelism=parallelism)


def _q14(events: Stream[Event], terms: Terms, parallelism: int) -> Stream[Row]:
    """Sessions of bidders with the data of a side table (`join_table(…, wait=True)`)."""
    by_place = _q11(events, terms, parallelism).key_by(lambda session: session["bidder"] % terms.side_rows)

    def joined(session: Row, row: Row) -> Row:
        return {**session, "value": row["value"]}

    return by_place.join_table("q14", _side(events, terms), fn=joined, wait=True, parallelism=parallelism)


def _price(won: Row) -> int:
    return int(won["price"])


def _bidder(bid: Event) -> int:
    return int(bid["bidder"])


def _start(result: Any) -> float:
    """Return the start of a window, from its result (key, value, start, end)."""
    return float(result[2])


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


_PARTS = 8
"""The number of keys for which query 7 first finds the highest bid, before it compares these."""
_BY_EVENT_TIME = frozenset(QUERIES) - {0, 1, 2, 12}
BUILT: dict[int, Query] = {
    0: _q0,
    1: _q1,
    2: _q2,
    3: _q3,
    4: _q4,
    5: _q5,
    6: _q6,
    7: _q7,
    8: _q8,
    9: _q9,
    11: _q11,
    12: _q12,
    13: _q13,
    14: _q14,
}
