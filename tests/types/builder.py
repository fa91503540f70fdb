"""Record types flow through the builder.  A line with `type: ignore` must be wrong: mypy reports one that is not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypedDict, assert_type

from operators import Context, Count, KeyedStream, Mean, Operator, Pipeline, Stream, Table, Tumbling, Window
from operators.sinks import SqliteSink
from operators.sources import ArrowSource, GeneratedSource, SequenceSource, SparkSource


class Bid(TypedDict):
    auction: int
    price: float


def make(partition: int, i: int) -> Bid:
    return {"auction": i % 7, "price": i / 2}


class Best(Operator):
    """Turns bids into prices."""

    def process(self, record: Bid, ctx: Context) -> Iterator[float]:
        if record["price"] > ctx.state.get("best", 0.0):
            ctx.state["best"] = record["price"]
            yield record["price"]


class Untyped(Operator):
    """An operator without annotations: nothing is known, and nothing is wrong."""

    def process(self, record, ctx):  # type: ignore[no-untyped-def]
        return [record]


def sources(pipeline: Pipeline) -> None:
    assert_type(pipeline.source("a", GeneratedSource(make, 10)), Stream[Bid])
    assert_type(pipeline.source("b", SequenceSource(lambda p, i, j: ["x"], 10)), Stream[str])
    assert_type(pipeline.source("c", SparkSource(lambda spark: spark)), Stream[dict[str, Any]])
    assert_type(pipeline.source("d", ArrowSource(lambda p, i, j: None, 10)), Stream[Any])
    pipeline.source("e", make)  # type: ignore[arg-type]
    GeneratedSource(lambda i: i, 10)  # type: ignore[arg-type, misc]


def per_record(bids: Stream[Bid], words: Stream[str]) -> None:
    assert_type(bids.map("m", lambda bid: bid["price"]), Stream[float])
    assert_type(bids.filter("f", lambda bid: bid["price"] > 1), Stream[Bid])
    assert_type(bids.flat_map("g", lambda bid: [str(bid["auction"])]), Stream[str])
    assert_type(bids.union(bids), Stream[Bid])
    bids.map("m", lambda bid: bid["bidder"])  # type: ignore[typeddict-item]
    bids.filter("f", lambda bid: bid.price > 1)  # type: ignore[attr-defined]
    bids.union(words)  # type: ignore[arg-type]
    assert_type(bids.sink("out", SqliteSink("out.db")), Pipeline)
    bids.sink("out", "out.db")  # type: ignore[arg-type]


def with_price(prices: list[float], bid: Bid) -> list[float]:
    return [*prices, bid["price"]]


def with_auction(bid: Bid) -> int:
    return bid["auction"]


def keyed(bids: Stream[Bid]) -> None:
    by_auction = bids.key_by(lambda bid: bid["auction"])
    assert_type(by_auction, KeyedStream[int, Bid])
    assert_type(by_auction.count("n"), Stream[tuple[int, int]])
    assert_type(
        by_auction.reduce("all", with_price, initial=list),
        Stream[tuple[int, list[float]]],
    )
    assert_type(by_auction.reduce("sum", lambda a, bid: a + bid["price"], initial=0.0), Stream[tuple[int, float]])
    assert_type(by_auction.process("best", Best()), Stream[float])
    assert_type(by_auction.process("any", Untyped()), Stream[Any])
    by_auction.process("best", Best)  # type: ignore[call-overload]
    bids.map("p", lambda bid: bid["price"]).key_by(int).process("best", Best())  # type: ignore[arg-type]
    by_auction.count(7)  # type: ignore[arg-type]
    assert_type(by_auction.key_by(str), KeyedStream[str, Bid])
    assert_type(by_auction.union(bids.key_by(with_auction)).count("m"), Stream[tuple[int, int]])
    assert_type(by_auction.timed(lambda bid: bid["price"]), KeyedStream[int, Bid])
    bids.count("n")  # type: ignore[attr-defined]
    bids.table("latest")  # type: ignore[attr-defined]


def prices(auction: int, bids: list[Bid], window: Window) -> list[str]:
    return [f"{auction}: {bid['price']} before {window.end}" for bid in bids]


def windows(bids: Stream[Bid]) -> None:
    timed = bids.watermarks("time", lambda bid: bid["price"])
    assert_type(timed, Stream[Bid])
    keyed = timed.key_by(lambda bid: bid["auction"])
    assert_type(keyed.window("n", Tumbling(10), Count()), Stream[tuple[int, Any, float, float]])
    assert_type(keyed.window("f", Tumbling(10), prices), Stream[str])
    assert_type(timed.window("u", Tumbling(10), prices), Stream[str])
    timed.key_by(str).window("s", Tumbling(10), prices)  # type: ignore[arg-type]
    keyed.window("w", 10, Mean(lambda bid: bid["price"]), lateness_s=3)
    keyed.window("w", Tumbling("10"), Count())  # type: ignore[arg-type]
    keyed.window("w", Tumbling(10), Count)  # type: ignore[arg-type]
    bids.watermarks("time", lambda bid: bid["at"])  # type: ignore[typeddict-item]


class Sale(TypedDict):
    auction: int
    buyer: str


def sold(bid: Bid, sale: Sale) -> str:
    return f"{bid['price']} by {sale['buyer']}"


def perhaps_sold(bid: Bid, sale: Sale | None) -> float | None:
    return None if sale is None else bid["price"]


def joins(bids: Stream[Bid], sales: Stream[Sale]) -> None:
    left, right = bids.key_by(lambda bid: bid["auction"]), sales.key_by(lambda sale: sale["auction"])
    by_name = sales.key_by(lambda sale: sale["buyer"])
    assert_type(left.join("j", right, within=(-1, 5)), Stream[tuple[Bid, Sale]])
    assert_type(left.join("k", right, within=(-1, 5), fn=sold), Stream[str])
    assert_type(left.join("l", right, within=(-1, 5), how="left", fn=perhaps_sold), Stream[float | None])
    assert_type(left.window_join("w", right, Tumbling(5), fn=sold), Stream[str])
    assert_type(left.join_table("t", right.table("sales"), fn=perhaps_sold, how="left"), Stream[float | None])
    assert_type(left.join_table("u", right.table("more")), Stream[tuple[Bid, Sale]])
    assert_type(left.join_table("v", right.table("then"), fn=sold, as_of=True), Stream[str])
    assert_type(left.join_table("x", right.table("perhaps"), how="left", as_of=True), Stream[tuple[Bid, Sale | None]])
    left.join("p", sales, within=(-1, 5))  # type: ignore[call-overload]
    bids.join("q", right, within=(-1, 5))  # type: ignore[attr-defined]
    left.join("m", by_name, within=(-1, 5))  # type: ignore[arg-type]
    left.join("n", right, within=(-1, 5), how="left", fn=sold)  # type: ignore[call-overload]
    left.join("o", right, within=5)  # type: ignore[call-overload]


def tables(bids: Stream[Bid]) -> None:
    keyed = bids.key_by(lambda bid: bid["auction"])
    latest = keyed.table("latest")
    assert_type(latest, Table[int, Bid])
    assert_type(latest.map_values("prices", lambda auction, bid: bid["price"]), Table[int, float])
    assert_type(latest.revisions("r"), Stream[tuple[int, Bid | None, Bid | None]])
    assert_type(keyed.window_table("w", Tumbling(5), Count()), Table[tuple[int, float, float], Any])
    latest.filter("f", lambda auction, bid: bid["buyer"])  # type: ignore[typeddict-item]
    keyed.window_table("w", 5, Count())  # type: ignore[arg-type]


def ask(bid: Bid, idempotency_key: str) -> int:
    return len(idempotency_key) + bid["auction"]


def calls(bids: Stream[Bid]) -> None:
    assert_type(bids.call("a", ask), Stream[tuple[Bid, int]])
    assert_type(bids.call("b", ask, combine=lambda bid, answer: f"{answer}", timeout_s=2), Stream[str])
    bids.call("c", lambda bid: 1)  # type: ignore[arg-type, misc]
