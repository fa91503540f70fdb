"""The Nexmark events: event n follows from n alone, as in Beam's generator, so a partition can be read from anywhere.

Of 50 events one is a new person, three are new auctions, 46 are bids.  An event is a dict with its `kind`.

    person   id, name, email, credit_card, city, state, time_ms, extra
    auction  id, item, description, initial_bid, reserve, time_ms, expires_ms, seller, category, extra
    bid      auction, bidder, price, time_ms, extra

Prices are in cents, times in ms since 1970.  The numbers are drawn in the order in which Beam draws them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from examples.nexmark.java_random import JavaRandom
from operators.sources import GeneratedSource

Event = dict[str, Any]

PERSONS, AUCTIONS, EPOCH = 1, 3, 50
"""The numbers of persons and auctions among each `EPOCH` events; the others are bids."""
FIRST_ID: Final = 1000
"""The first id of persons and of auctions."""
FIRST_CATEGORY: Final = 10
BASE_MS: Final = 1_436_918_400_000
"""2015-07-15, the event time of the first event in Beam."""

_CATEGORIES, _LEAD, _HOT, _SHUFFLE = 5, 10, 100, 953
_STATES = "AZ,CA,ID,OR,WA,WY".split(",")
_CITIES = "Phoenix,Los Angeles,San Francisco,Boise,Portland,Bend,Redmond,Seattle,Kent,Cheyenne".split(",")
_FIRST_NAMES = "Peter,Paul,Luke,John,Saul,Vicky,Kate,Julie,Sarah,Deiter,Walter".split(",")
_LAST_NAMES = "Shultz,Abrams,Spencer,White,Bartels,Walton,Smith,Jones,Noris".split(",")
_MASK = (1 << 64) - 1
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class Events:
    """The generator of events and its parameters; the defaults are Beam's.

    Attributes:
        events_per_s: in event time; the source has its own rate.
        out_of_order: the size of groups of neighbouring events that are shuffled; 1 for none, not a multiple of 953.
        base_ms: event time of event 0.
        scattered: seed each event's generator with its number, mixed.  Without it the seed is the number itself, as in
            Beam: similar seeds begin with similar draws, so that hot auctions occur in runs of thousands.
    """

    events_per_s: int = 10_000
    out_of_order: int = 1
    base_ms: int = BASE_MS
    in_flight_auctions: int = 100
    active_people: int = 1000
    hot_auction_ratio: int = 2
    hot_seller_ratio: int = 4
    hot_bidder_ratio: int = 4
    person_bytes: int = 200
    auction_bytes: int = 500
    bid_bytes: int = 100
    scattered: bool = True

    @property
    def out_of_order_s(self) -> float:
        """The largest lag of an event after one that was read before it."""
        return self.out_of_order / self.events_per_s + 0.001

    def event(self, n: int) -> Event:
        """Return the n-th event that is read, n from 0."""
        number = n - n % self.out_of_order + n * _SHUFFLE % self.out_of_order
        seed = _mixed(number) if self.scattered else number
        chance, time_ms = JavaRandom(seed), self._time_ms(number)
        place = number % EPOCH
        if place < PERSONS:
            return self._person(number, chance, time_ms)
        if place < PERSONS + AUCTIONS:
            return self._auction(number, chance, time_ms)
        return self._bid(number, chance, time_ms)

    def source(self, count: int | None, partitions: int = 1, rate: float | None = None) -> GeneratedSource:
        """`count // partitions` events per partition (None: endless), dealt to the partitions in turn."""

        def make(partition: int, i: int) -> Event:
            return self.event(i * partitions + partition)

        return GeneratedSource(make, None if count is None else count // partitions, partitions, rate)

    def listed(self, count: int) -> list[Event]:
        """Return the first `count` events."""
        return [self.event(n) for n in range(count)]

    def _time_ms(self, number: int) -> int:
        return self.base_ms + number * (1_000_000 // self.events_per_s) // 1000

    def _person(self, number: int, chance: JavaRandom, time_ms: int) -> Event:
        name = f"{_FIRST_NAMES[chance.below(11)]} {_LAST_NAMES[chance.below(9)]}"
        email = f"{_words(chance, 7)}@{_words(chance, 5)}.com"
        card = " ".join([f"{chance.below(10_000):04d}" for _ in range(4)])
        city, state = _CITIES[chance.below(10)], _STATES[chance.below(6)]
        size = 8 + len(name) + len(email) + len(card) + len(city) + len(state)
        return {
            "kind": "person",
            "id": last_person(number) + FIRST_ID,
            "name": name,
            "email": email,
            "credit_card": card,
            "city": city,
            "state": state,
            "time_ms": time_ms,
            "extra": _extra(chance, size, self.person_bytes),
        }

    def _auction(self, number: int, chance: JavaRandom, time_ms: int) -> Event:
        if chance.below(self.hot_seller_ratio) > 0:
            seller = last_person(number) // _HOT * _HOT
        else:
            seller = self._any_person(number, chance)
        category = FIRST_CATEGORY + chance.below(_CATEGORIES)
        initial_bid = _price(chance)
        horizon_ms = self._time_ms(number + self.in_flight_auctions * EPOCH // AUCTIONS) - time_ms
        expires_ms = time_ms + 1 + chance.below(max(horizon_ms * 2, 1))
        item, description = _words(chance, 20), _words(chance, 100)
        reserve = initial_bid + _price(chance)
        return {
            "kind": "auction",
            "id": last_auction(number) + FIRST_ID,
            "item": item,
            "description": description,
            "initial_bid": initial_bid,
            "reserve": reserve,
            "time_ms": time_ms,
            "expires_ms": expires_ms,
            "seller": seller + FIRST_ID,
            "category": category,
            "extra": _extra(chance, 48 + len(item) + len(description), self.auction_bytes),
        }

    def _bid(self, number: int, chance: JavaRandom, time_ms: int) -> Event:
        last = last_auction(number)
        if chance.below(self.hot_auction_ratio) > 0:
            auction = last // _HOT * _HOT
        else:
            least = max(last - self.in_flight_auctions, 0)
            auction = least + chance.below(last - least + 1 + _LEAD)
        if chance.below(self.hot_bidder_ratio) > 0:
            bidder = last_person(number) // _HOT * _HOT + 1
        else:
            bidder = self._any_person(number, chance)
        price = _price(chance)
        return {
            "kind": "bid",
            "auction": auction + FIRST_ID,
            "bidder": bidder + FIRST_ID,
            "price": price,
            "time_ms": time_ms,
            "extra": _extra(chance, 32, self.bid_bytes),
        }

    def _any_person(self, number: int, chance: JavaRandom) -> int:
        """Return the number of a person that is active or still to come."""
        people = last_person(number) + 1
        active = min(people, self.active_people)
        return people - active + chance.below(active + _LEAD)


def last_person(number: int) -> int:
    """Return the number of the last person at event `number`: that event itself, if it is a person, or the last one
    before.
    """
    return number // EPOCH * PERSONS + min(number % EPOCH, PERSONS - 1)


def last_auction(number: int) -> int:
    """Return the number of the auction that is event `number`, or else of the last one before it; -1 if there is
    none.
    """
    epoch, place = divmod(number, EPOCH)
    if place < PERSONS:
        return epoch * AUCTIONS - 1
    return epoch * AUCTIONS + min(place - PERSONS, AUCTIONS - 1)


def _mixed(number: int) -> int:
    """Return 64 bits, each of which depends on the whole number (the finalizer of splitmix64)."""
    mixed = (number + 1) * 0x9E3779B97F4A7C15 & _MASK
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    return mixed ^ mixed >> 27


def _price(chance: JavaRandom) -> int:
    return math.floor(math.pow(10.0, chance.fraction() * 6.0) * 100.0 + 0.5)


def _words(chance: JavaRandom, longest: int) -> str:
    """3 to `longest` - 1 letters and blanks, without those at the ends."""
    length, drawn = 3 + chance.below(longest - 3), []
    for _ in range(length):
        drawn.append(" " if chance.below(13) == 0 else _LETTERS[chance.below(26)])
    return "".join(drawn).strip(" ")


def _extra(chance: JavaRandom, size: int, average: int) -> str:
    """Return the padding that gives the events of this kind `average` bytes."""
    if size > average:
        return ""
    wanted = average - size
    delta = math.floor(wanted * 0.2 + 0.5)
    length = wanted - delta + (chance.below(2 * delta) if delta else 0)
    drawn: list[str] = []
    for _ in range(-(-length // 6)):
        rest = chance.int32()
        triples, rest = (_TRIPLES, rest) if rest >= 0 else (_TRIPLES_BELOW, -rest)
        drawn += (triples[rest % 17576], triples[rest // 17576 % 17576])
    return "".join(drawn)[:length]


def _triples(sign: int) -> list[str]:
    """Return the three digits of each number below 26^3, the last one first, as letters from "a" upwards or
    downwards.
    """
    letters = [chr(97 + sign * digit) for digit in range(26)]
    return [first + second + third for third in letters for second in letters for first in letters]


_TRIPLES = _triples(1)
_TRIPLES_BELOW = _triples(-1)
"""Java's remainder has the sign of the dividend: half of the characters are below "a"."""
