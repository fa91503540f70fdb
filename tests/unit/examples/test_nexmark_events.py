"""Nexmark's events: each from its number alone, in Beam's proportions, by Java's generator."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.errors import PipelineError
from examples.nexmark import model
from examples.nexmark.events import EPOCH, Events
from examples.nexmark.java_random import JavaRandom
from examples.nexmark.terms import QUERIES, Terms
from operators.source import SourceContext
from tests.members import examples

JAVA = {
    0: (-1155484576, 48, 15, 1302116447, 0.6374174253501083, -1930858313),
    42: (-1170105035, 63, 43, 102948884, 0.30871945533265976, 1190043011),
    1000003: (1608624854, 55, 57, 385821275, 0.41771524686542705, -948964201),
}
"""The values of nextInt(), nextInt(100), nextInt(64), nextInt(2000000000), nextDouble() and nextInt() of a
`java.util.Random` with each seed (OpenJDK 17)."""


@pytest.mark.parametrize("seed", JAVA)
def test_the_generator_is_java_s(seed: int) -> None:
    chance = JavaRandom(seed)
    drawn = (chance.int32(), chance.below(100), chance.below(64), chance.below(2_000_000_000), chance.fraction(),
            chance.int32())  # fmt: skip
    assert drawn == JAVA[seed]


@given(n=st.integers(0, 10**9), partitions=st.integers(1, 8), shuffled=st.sampled_from((1, 7, 100)))
def test_event_n_alone_is_event_n_of_a_run(n: int, partitions: int, shuffled: int) -> None:
    events = Events(out_of_order=shuffled)
    reader = events.source(None, partitions).open(n % partitions, SourceContext("events", Path(), 0))
    read = reader.read(n // partitions, 3)
    assert read is not None
    assert read.records == [events.event(n), events.event(n + partitions), events.event(n + 2 * partitions)]


def test_of_fifty_events_one_is_a_person_three_are_auctions_the_others_bids() -> None:
    events = Events(out_of_order=10).listed(20 * EPOCH)
    for first in range(0, len(events), EPOCH):
        assert Counter(event["kind"] for event in events[first : first + EPOCH]) == {
            "person": 1,
            "auction": 3,
            "bid": 46,
        }


def test_ids_are_given_once_and_in_order() -> None:
    events = Events().listed(5000)
    for kind in ("person", "auction"):
        ids = [event["id"] for event in events if event["kind"] == kind]
        assert ids == list(range(1000, 1000 + len(ids)))


@examples(divided_by=2)
@given(shuffled=st.integers(1, 300))
def test_shuffling_moves_no_event_further_than_is_said(shuffled: int) -> None:
    shape = Events(events_per_s=1000, out_of_order=shuffled)
    times = [event["time_ms"] for event in shape.listed(1000)]
    highest = 0
    for at in times:
        assert at >= highest - shape.out_of_order_s * 1000
        highest = max(highest, at)
    whole = 1000 // shuffled * shuffled
    plain = [event["time_ms"] for event in Events(events_per_s=1000).listed(whole)]
    assert sorted(times[:whole]) == plain


def test_sizes_and_hot_ids_are_as_said() -> None:
    events = Events().listed(20_000)
    sizes = {"person": 200, "auction": 500, "bid": 100}
    for kind, wanted in sizes.items():
        texts = [sum(len(str(v)) for v in e.values() if isinstance(v, str)) for e in events if e["kind"] == kind]
        assert 0.6 * wanted < sum(texts) / len(texts) < 1.1 * wanted, kind
    bids = [event for event in events if event["kind"] == "bid"]
    hot = sum(bid["auction"] % 100 == 0 for bid in bids)
    assert 0.45 < hot / len(bids) < 0.56


@pytest.mark.parametrize("query", [query for query in QUERIES if query != 12])
def test_every_query_of_the_model_has_rows(query: int) -> None:
    events = Events(events_per_s=100, out_of_order=20).listed(3000)
    terms = Terms(window_s=4, every_s=2, gap_s=1, auction_skip=7)
    assert len(model.rows(query, events, terms)) >= 5


def test_the_model_by_hand() -> None:
    auction = {"kind": "auction", "id": 7, "seller": 1, "category": 10, "reserve": 50, "initial_bid": 1}
    auction |= {"time_ms": 1000, "expires_ms": 5000, "item": "", "description": "", "extra": ""}
    offers = [(40, 1500, 1), (60, 4000, 2), (60, 2000, 3), (60, 2000, 4), (99, 5000, 5)]
    bids = [{"kind": "bid", "auction": 7, "bidder": w, "price": p, "time_ms": t, "extra": ""} for p, t, w in offers]
    won = model.rows(9, [auction, *bids])
    assert [(row["bidder"], row["price"], row["time_ms"]) for row in won] == [(3, 60, 2000)]
    sliding = model.rows(5, bids, Terms(window_s=4, every_s=2))
    assert {row["start_ms"]: row["bids"] for row in sliding} == {-2000: 1, 0: 3, 2000: 4, 4000: 2}


def test_a_term_that_is_no_number_is_one_line() -> None:
    with pytest.raises(PipelineError, match="setting gap_s is 'soon'; use a number"):
        Terms.of_settings({"gap_s": "soon"})
    assert Terms.of_settings({"gap_s": "3", "clock_s": "0.5", "query": "x"}) == Terms(gap_s=3, clock_s=0.5)
