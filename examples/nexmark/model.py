"""The answers in plain Python: one process, all events in a list, no runtime.  Slow, short and easy to read.

`rows(query, events)` returns the rows in any order; compare multisets (`canonical`).
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from examples.nexmark.events import Event
from examples.nexmark.terms import CATEGORY, STATES, Terms, euros, side_value

Row = dict[str, Any]


def rows(query: int, events: Sequence[Event], terms: Terms | None = None) -> list[Row]:
    """Return the rows of one query over these events.

    Query 12 depends on the clock and has no such rows: see `bids_of`.
    """
    return list(_MODELS[query](events, terms or Terms()))


def canonical(rows: Iterable[Row]) -> Counter[str]:
    """Return the multiset of rows, each as JSON with its keys sorted."""
    return Counter(json.dumps(row, sort_keys=True) for row in rows)


def bids_of(events: Sequence[Event]) -> Counter[int]:
    """Return the number of bids of each bidder, which is the sum over the windows of query 12."""
    return Counter(bid["bidder"] for bid in _only(events, "bid"))


def _only(events: Sequence[Event], kind: str) -> list[Event]:
    return [event for event in events if event["kind"] == kind]


def _q0(events: Sequence[Event], terms: Terms) -> Iterator[Row]:
    yield from events


def _q1(events: Sequence[Event], terms: Terms) -> Iterator[Row]:
    for bid in _only(events, "bid"):
        yield {**bid, "price": euros(bid["price"])}


def _q2(events: Sequence[Event], terms: Terms) -> Iterator[Row]:
    for bid in _only(events, "bid"):
        if bid["auction"] % terms.auction_skip == 0:
            yield {"auction": bid["auction"], "price": bid["price"]}


def _q3(events: Sequence[Event], terms: Terms) -> Iterator[Row]:
    persons = {person["id"]: person for person in _only(events, "person") if person["state"] in STATES}
    for auction in _only(events, "auction"):
        person = persons.get(auction["seller"])
        if person is None or auction["category"] != CATEGORY:
            continue
        if abs(auction["time_ms"] - person["time_ms"]) <= terms.waiting_s * 1000:
            fields = {name: person[name] for name in ("name", "city", "state")}
            yield {**fields, "auction": auction["id"]}


def _q4(events: Sequence[Event], terms: Terms) -> Iterator[Row]:
    prices: dict[tuple[int, int], list[int]] = defaultdict(list)
    for won in _q9(events, terms):
        for start_ms in _starts(won["expires_ms"], terms):
            prices[start_ms, won["category"]].append(won["price"])
    for (start_ms, category), paid in prices.items():
        yield {"category": category, "mean": sum(paid) / len(paid), "start_ms": start_ms}


def _q5(events: Sequence[Event], terms: Terms) -> Iterator[Row]:
    bids: dict[int, Counter[int]] = defaultdict(Counter)
    for bid in _only(events, "bid"):
        for start_ms in _starts(bid["time_ms"], terms):
            bids[start_ms][bid["auction"]] += 1
    for start_ms, counts in bids.items():
        most = max(counts.values())
        for auction, count in counts.items():
            if count == most:
                yield {"auction": auction, "bids": count, "start_ms": start_ms}


def _q6(events: Sequence[Event], terms: Terms) -> Iterator[Row]:
    sold: dict[int, list[int]] = defaultdict(list)
    for won in sorted(_q9(events, terms), key=lambda won: (won["expires_ms"], won["auction"])):
        last = sold[won["seller"]] = [*sold[won["seller"]], won["price"]][-terms.auctions_mean :]
        yield {"seller": won["seller"], "auction": won["auction"], "mean": sum(last) / len(last)}


def _q7(events: Sequence[Event], terms: Terms) -> Iterator[Row]:
    size_ms = terms.window_s * 1000
    windows: dict[int, list[Event]] = defaultdict(list)
    for bid in _only(events, "bid"):
        windows[bid["time_ms"] // size_ms * size_ms].append(bid)
    for start_ms, bids in windows.items():
        highest = max(bid["price"] for bid in bids)
        for bid in bids:
            if bid["price"] == highest:
                fields = {name: bid[name] for name in ("auction", "bidder", "price", "time_ms")}
                yield {**fields, "start_ms": start_ms}


def _q8(events: Sequence[Event], terms: Terms) -> Iterator[Row]:
    size_ms = terms.window_s * 1000
    came = {person["id"]: person for person in _only(events, "person")}
    for auction in _only(events, "auction"):
        person = came.get(auction["seller"])
        if person is not None and person["time_ms"] // size_ms == auction["time_ms"] // size_ms:
            start_ms = person["time_ms"] // size_ms * size_ms
            yield {"id": person["id"], "name": person["name"], "reserve": auction["reserve"], "start_ms": start_ms}


def _q9(events: Sequence[Event], terms: Terms) -> Iterator[Row]:
    """Yield the highest bid at or above the reserve before the auction expires; of equal ones the earliest."""
    bids: dict[int, list[Event]] = defaultdict(list)
    for bid in _only(events, "bid"):
        bids[bid["auction"]].append(bid)
    for auction in _only(events, "auction"):
        since_ms = auction["time_ms"] - terms.waiting_s * 1000
        fit = [
            bid
            for bid in bids[auction["id"]]
            if since_ms <= bid["time_ms"] < auction["expires_ms"] and bid["price"] >= auction["reserve"]
        ]
        if fit:
            best = min(fit, key=lambda bid: (-bid["price"], bid["time_ms"], bid["bidder"]))
            yield {
                "auction": auction["id"],
                "seller": auction["seller"],
                "category": auction["category"],
                "expires_ms": auction["expires_ms"],
                "bidder": best["bidder"],
                "price": best["price"],
                "time_ms": best["time_ms"],
            }


def _q11(events: Sequence[Event], terms: Terms) -> Iterator[Row]:
    gap_ms = terms.gap_s * 1000
    times: dict[int, list[int]] = defaultdict(list)
    for bid in _only(events, "bid"):
        times[bid["bidder"]].append(bid["time_ms"])
    for bidder, at in times.items():
        session: list[int] = []
        for time_ms in [*sorted(at), None]:
            if session and (time_ms is None or time_ms - session[-1] >= gap_ms):
                row = {"bidder": bidder, "bids": len(session), "start_ms": session[0]}
                yield {**row, "end_ms": session[-1] + gap_ms}
                session = []
            if time_ms is not None:
                session.append(time_ms)


def _q13(events: Sequence[Event], terms: Terms) -> Iterator[Row]:
    for bid in _only(events, "bid"):
        fields = {name: bid[name] for name in ("auction", "bidder", "price", "time_ms")}
        yield {**fields, "value": side_value(bid["auction"] % terms.side_rows)}


def _q14(events: Sequence[Event], terms: Terms) -> Iterator[Row]:
    for session in _q11(events, terms):
        yield {**session, "value": side_value(session["bidder"] % terms.side_rows)}


def _starts(time_ms: int, terms: Terms) -> list[int]:
    """Return the starts in ms of the sliding windows that contain that time."""
    size_ms, every_ms = terms.window_s * 1000, terms.every_s * 1000
    last = time_ms // every_ms * every_ms
    return list(range(last, time_ms - size_ms, -every_ms))


_MODELS: dict[int, Callable[[Sequence[Event], Terms], Iterator[Row]]] = {
    0: _q0, 1: _q1, 2: _q2, 3: _q3, 4: _q4, 5: _q5, 6: _q6, 7: _q7, 8: _q8, 9: _q9, 11: _q11, 13: _q13, 14: _q14,
}  # fmt: skip
