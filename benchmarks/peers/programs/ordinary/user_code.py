"""The records of each workload of `ordinary` and the functions that a user writes for them; standard library alone.

A maker is a pure function of a partition and a number.  A key belongs to one partition, amounts are eighths and times
are 1024ths of a second, so sums and differences are exact: the rows of a workload are the same in every system,
whatever the order in which records of different keys come.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import itemgetter
from pathlib import Path
from typing import Any

from benchmarks.peers.programs import inputs

Record = dict[str, Any]

BEGAN_S = 1_700_000_000.0
"""Event time of the first record, about; a multiple of every window."""
TICKS = 1024
"""Units of event time in a second."""
JITTER = 2003
"""Records are out of order by up to this many ticks."""
OUT_OF_ORDER_S = 2.5
TUMBLING_S, SLIDING_S, EVERY_S = 10, 60, 10
WITHIN_S = 30
GAP_S = 5
TOP = 10
USERS = [f"user{number}" for number in range(10_000)]
ITEMS = [f"item{number}" for number in range(2_000)]
CATEGORIES = ["food", "fuel", "travel", "toys", "books"]
_WORDS, _LINES, _WORDS_PER_LINE, _SEED = 5_000, 1_024, 10, 7


def _lines() -> list[str]:
    chance = random.Random(_SEED)
    vocabulary = [f"word{number}" for number in range(_WORDS)]
    weights = list(accumulate(1 / (number + 1) for number in range(_WORDS)))
    return [" ".join(chance.choices(vocabulary, cum_weights=weights, k=_WORDS_PER_LINE)) for _ in range(_LINES)]


LINES = _lines()


def purchase(partition: int, i: int) -> Record:
    """Return the input of *profile*: five fields."""
    return {
        "user": USERS[i * 7919 % 5000 * 2 + partition],
        "amount": (i * 37 % 10007) / 8,
        "category": CATEGORIES[i % 5],
        "ts": BEGAN_S + i * 10 / TICKS,
        "note": f"n{i % 1000}",
    }


def reading(partition: int, i: int) -> Record:
    """Return the input of *windows* and *sliding*: five thousand a second and partition in event time, out of order."""
    return {
        "user": USERS[i * 7919 % 5000 * 2 + partition],
        "amount": (i * 37 % 10007) / 8,
        "ts": BEGAN_S + (i // 5 - i * 40503 % JITTER) / TICKS,
    }


def order(partition: int, i: int) -> Record:
    """Return the first input of *join*."""
    return {
        "user": USERS[i * 7919 % 5000 * 2 + partition],
        "order": i * 2 + partition,
        "amount": (i * 37 % 10007) / 8,
        "ts": BEGAN_S + (i * 10 - i * 40503 % JITTER) / TICKS,
    }


def payment(partition: int, i: int) -> Record:
    """Return the second input of *join*: a payment of a user comes ten seconds before his order, in the middle."""
    return {
        "user": USERS[(i + 1000) * 7919 % 5000 * 2 + partition],
        "payment": i * 2 + partition,
        "paid": (i * 41 % 10007) / 8,
        "ts": BEGAN_S + (i * 10 - i * 30011 % JITTER) / TICKS,
    }


def click(partition: int, i: int) -> Record:
    """Return the input of *sessions*: a thousand users are active at a time."""
    return {
        "user": USERS[(i // 10_000 * 1000 + i * 7 % 1000) % 5000 * 2 + partition],
        "amount": (i * 37 % 10007) / 8,
        "ts": BEGAN_S + (i // 2 - i * 40503 % JITTER) / TICKS,
    }


def line(partition: int, i: int) -> str:
    """Return the input of *words* and *running*: ten words."""
    return LINES[(i * 7919 + partition * 17) % _LINES]


def price(partition: int, i: int) -> Record:
    """Return the table of *as_of*: an item has another price every forty seconds."""
    return {
        "item": ITEMS[i * 7919 % 1000 * 2 + partition],
        "price": (i * 41 % 10007) / 8,
        "ts": BEGAN_S + (i * 40 - i * 30011 % JITTER) / TICKS,
    }


def sale(partition: int, i: int) -> Record:
    """Return the stream of *as_of*: an item is sold every ten seconds."""
    return {
        "item": ITEMS[i * 31 % 1000 * 2 + partition],
        "sale": i * 2 + partition,
        "quantity": i % 9 + 1,
        "ts": BEGAN_S + (i * 10 - i * 40503 % JITTER) / TICKS,
    }


# What the user does with them.

user_of: Callable[[Record], str] = itemgetter("user")
item_of: Callable[[Record], str] = itemgetter("item")
time_of: Callable[[Record], float] = itemgetter("ts")
amount_of: Callable[[Record], float] = itemgetter("amount")


def enriched(record: Record) -> Record:
    """Return the purchase with two fields more."""
    return {**record, "large": record["amount"] > 700, "eur": round(record["amount"] * 0.92, 2)}


def is_charged(record: Record) -> bool:
    """Return whether something was to be paid."""
    return bool(record["eur"] >= 0)


def profiled(state: MutableMapping[str, Any], record: Record) -> Record:
    """Take a purchase into the profile of its user; returns what the profile says now."""
    n = state["n"] = state.get("n", 0) + 1
    total = state["total"] = state.get("total", 0.0) + record["eur"]
    if record["large"]:
        state["large"] = state.get("large", 0) + 1
    return {
        "user": record["user"],
        "n": n,
        "mean": total / n,
        "large": state.get("large", 0),
        "category": record["category"],
    }


def nothing() -> tuple[int, float]:
    """Return the count and the sum of no readings."""
    return 0, 0.0


def added(sums: tuple[int, float], record: Record) -> tuple[int, float]:
    """Return count and sum with one reading more."""
    return sums[0] + 1, sums[1] + record["amount"]


def paired(placed: Record, paid: Record) -> Record:
    """Return an order with its payment."""
    return {
        "user": placed["user"],
        "order": placed["order"],
        "payment": paid["payment"],
        "lag": paid["ts"] - placed["ts"],
        "amount": placed["amount"],
    }


def visit(user: str, records: Sequence[Record]) -> Record:
    """Return what a session says of a user."""
    times, amounts = [record["ts"] for record in records], [record["amount"] for record in records]
    return {
        "user": user,
        "n": len(records),
        "sum": sum(amounts),
        "max": max(amounts),
        "start": min(times),
        "end": max(times),
    }


def ranked(top: list[tuple[int, str]], term: str, n: int) -> None:
    """Take a word into a list of the `TOP` most frequent ones."""
    top.append((n, term))
    top.sort(key=lambda counted: (-counted[0], counted[1]))
    del top[TOP:]


def sold(record: Record, valid: Record) -> Record:
    """Return a sale at the price that was valid."""
    return {
        "item": record["item"],
        "sale": record["sale"],
        "quantity": record["quantity"],
        "price": valid["price"],
        "total": valid["price"] * record["quantity"],
    }


# What the workloads are, and how their rows are verified.

Maker = Callable[[int, int], Any]


@dataclass(frozen=True)
class Workload:
    """One workload.

    Args:
        records: so many by default, over all inputs.
        inputs: name → (maker, its tenths of the records).
        verified: what rows are compared by; None: they are pairs (key, value), and the last value of each key is.
    """

    title: str
    records: int
    inputs: Mapping[str, tuple[Maker, int]]
    verified: Callable[[Any], Hashable] | None

    def counts(self, records: int) -> dict[str, int]:
        """Return how many records each input has in each partition."""
        return {name: records * tenths // 10 // inputs.PARTITIONS for name, (_, tenths) in self.inputs.items()}


WORKLOADS: Mapping[str, Workload] = {
    "profile": Workload("own operator", 2_400_000, {"purchases": (purchase, 10)}, itemgetter("mean")),
    "windows": Workload("tumbling windows", 2_000_000, {"readings": (reading, 10)}, tuple),
    "sliding": Workload("sliding windows", 500_000, {"readings": (reading, 10)}, tuple),
    "join": Workload(
        "interval join",
        1_000_000,
        {"orders": (order, 5), "payments": (payment, 5)},
        itemgetter("order", "payment", "lag"),
    ),
    "sessions": Workload(
        "sessions", 1_200_000, {"clicks": (click, 10)}, itemgetter("user", "n", "sum", "max", "start", "end")
    ),
    "words": Workload("word count, `Global()` + `Count()`", 800_000, {"lines": (line, 10)}, tuple),
    "running": Workload("word count, `.count`", 500_000, {"lines": (line, 10)}, None),
    "as_of": Workload(
        "as-of table join", 800_000, {"sales": (sale, 8), "prices": (price, 2)}, itemgetter("sale", "price", "total")
    ),
}


class Digest(inputs.Tally):
    """The tally of rows that may come in any order: how many, and the sum of their hashes.

    Processes that are compared have one seed for the hashes of texts (PYTHONHASHSEED).
    """

    def __init__(self, place: Path, verified: Callable[[Any], Hashable]) -> None:
        super().__init__(place)
        self._verified = verified

    def add(self, pairs: Sequence[Any]) -> None:
        self.rows += len(pairs)
        self.total += sum(map(hash, map(self._verified, pairs)))
        self._last_s = time.time()

    def add_columns(self, keys: Sequence[Any], values: Sequence[Any]) -> None:
        self.add(list(zip(keys, values, strict=True)))


def tally_of(workload: str, place: Path, verified: Callable[[Any], Hashable] | None = None) -> inputs.Tally:
    """Return the tally of a workload's rows; `verified` is for a system whose rows have another form."""
    compared_by = verified or WORKLOADS[workload].verified
    return inputs.Tally(place) if compared_by is None else Digest(place, compared_by)


def batches(maker: Maker, count: int, size: int) -> Iterable[list[Any]]:
    """Yield all records of an input in batches, the partitions in turn."""
    for start in range(0, count, size):
        for partition in range(inputs.PARTITIONS):
            yield [maker(partition, i) for i in range(start, min(count, start + size))]
