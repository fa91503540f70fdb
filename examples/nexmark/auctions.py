"""Nexmark's own operators: a join without a window (query 3), the closing of auctions (9), a mean of the last (6).

The first two keep waiting records in the state of a key, and timers of event time remove them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from examples.nexmark.events import Event
from examples.nexmark.terms import Terms
from operators import Operator

Row = dict[str, Any]


class Sellers(Operator):
    """Joins each person with the auctions that the person opens, whichever arrives first."""

    def __init__(self, terms: Terms) -> None:
        self._waiting_ms = terms.waiting_s * 1000

    def process(self, record: Event, ctx: Any) -> Iterator[Row]:
        """Yield pairs a person with the auctions that waited, or an auction with its person."""
        state = ctx.state
        if record["kind"] == "person":
            person = state["person"] = {name: record[name] for name in ("name", "city", "state", "time_ms")}
            for auction, time_ms in state.pop("auctions", ()):
                yield from self._pair(person, auction, time_ms)
            self._forget(record, ctx)
        elif "person" in state:
            yield from self._pair(state["person"], record["id"], record["time_ms"])
        else:
            state.setdefault("auctions", []).append((record["id"], record["time_ms"]))
            self._forget(record, ctx)

    def on_timer(self, name: str, ctx: Any) -> None:
        """Clear the state, with which no later record can pair."""
        ctx.state.clear()

    def _pair(self, person: Row, auction: int, time_ms: int) -> Iterator[Row]:
        if abs(time_ms - person["time_ms"]) <= self._waiting_ms:
            yield {**{name: person[name] for name in ("name", "city", "state")}, "auction": auction}

    def _forget(self, record: Event, ctx: Any) -> None:
        ctx.set_timer((record["time_ms"] + self._waiting_ms + 1) / 1000, "forget", clock="event")


class Winning(Operator):
    """Emits the winning bid of each auction when it expires: the highest at or above the reserve."""

    def __init__(self, terms: Terms) -> None:
        self._waiting_ms = terms.waiting_s * 1000

    def process(self, record: Event, ctx: Any) -> None:
        """Keep bids that arrive before their auction, and afterwards only the best one."""
        state = ctx.state
        if record["kind"] == "auction":
            names = ("id", "seller", "category", "reserve", "time_ms", "expires_ms")
            auction = state["auction"] = [record[name] for name in names]
            state["best"] = _best([bid for bid in state.pop("early", ()) if self._fits(bid, auction)])
            ctx.set_timer(record["expires_ms"] / 1000, "close", clock="event")
            return
        if "closed" in state:
            return
        bid = (-record["price"], record["time_ms"], record["bidder"])
        if "auction" not in state:
            state.setdefault("early", []).append(bid)
            ctx.set_timer((record["time_ms"] + self._waiting_ms + 1) / 1000, "forget", clock="event")
        elif self._fits(bid, state["auction"]):
            state["best"] = _best([bid, *filter(None, [state["best"]])])

    def on_timer(self, name: str, ctx: Any) -> Iterator[Row]:
        """Close the auction, or remove its state."""
        state = ctx.state
        if name == "forget":
            if "auction" not in state:
                state.clear()
            return
        number, seller, category, _, _, expires_ms = state["auction"]
        best = state["best"]
        state.clear()
        state["closed"] = True
        ctx.set_timer((expires_ms + self._waiting_ms) / 1000, "forget", clock="event")
        if best is not None:
            yield {
                "auction": number,
                "seller": seller,
                "category": category,
                "expires_ms": expires_ms,
                "bidder": best[2],
                "price": -best[0],
                "time_ms": best[1],
            }

    def _fits(self, bid: tuple[int, int, int], auction: list[int]) -> bool:
        _, _, _, reserve, time_ms, expires_ms = auction
        return -bid[0] >= reserve and time_ms - self._waiting_ms <= bid[1] < expires_ms


class LastSales(Operator):
    """Emits, at each sale, the mean price of the last sales of the seller."""

    def __init__(self, terms: Terms) -> None:
        self._auctions = terms.auctions_mean

    def process(self, record: Row, ctx: Any) -> Iterator[Row]:
        """Process a sale; sales arrive in the order in which the auctions expired."""
        prices = ctx.state["prices"] = [*ctx.state.get("prices", ()), record["price"]][-self._auctions :]
        yield {"seller": record["seller"], "auction": record["auction"], "mean": sum(prices) / len(prices)}


def _best(bids: list[tuple[int, int, int]]) -> tuple[int, int, int] | None:
    """Return the highest bid, of equal ones the earliest; a bid is (-price, time, bidder)."""
    return min(bids, default=None)
