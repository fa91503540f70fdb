"""A job that proves its execution: every kind of nondeterminism, with each output hashed onto the one before it.

Card payments come from two sources.  Per card, `score` uses an outside service, the clock and random numbers,
sets timers, and chains each of its outputs to the card's previous one; `totals` sums processing-time
windows, and `ledger` chains those.  If any execution was lost, doubled, reordered or differed after a
failure, a chain breaks, and `check` finds it in the sink alone.

    causal run examples/fraud_chain.py --set out=/tmp/fraud.db --kill score/0@1.0
    python -m examples.fraud_chain /tmp/fraud.db
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from hashlib import blake2b
from typing import Any

from operators import Operator, Pipeline
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource

CARDS = 50


def chained(previous: str, content: Any) -> str:
    """Return the hash of an output: over the previous one of its chain and its own content."""
    return blake2b((previous + json.dumps(content, sort_keys=True)).encode(), digest_size=12).hexdigest()


def payment(source: str) -> Any:
    """Return the pure function that makes payment i of partition p of a source."""

    def make(partition: int, i: int) -> dict[str, Any]:
        serial = partition * 1_000_003 + i
        return {
            "id": f"{source}-{partition}-{i}",
            "card": (serial * 7919 + len(source)) % CARDS,
            "cents": serial % 997 + 1,
        }

    return make


def risk() -> int:
    """Return the outside world: no two calls have the same answer."""
    return int.from_bytes(os.urandom(4), "big")


class Score(Operator):
    """Scores each payment of a card, and emits a reminder a little later."""

    def process(self, record: Any, ctx: Any) -> Any:
        state = ctx.state
        content = {
            "payment": record["id"],
            "cents": record["cents"],
            "dice": ctx.random.randrange(1 << 30),
            "at": ctx.now(),
            "risk": ctx.call(risk) if record["cents"] % 5 == 0 else None,
            "uuid": str(ctx.uuid()) if record["cents"] % 11 == 0 else None,
        }
        if not state.get("waiting"):
            state["waiting"] = True
            ctx.set_timer(ctx.now() + 0.05, "remind")
        yield self._link(state, ctx.key, "payment", content)

    def on_timer(self, name: str, ctx: Any) -> Any:
        ctx.state["waiting"] = False
        yield self._link(ctx.state, ctx.key, "reminder", {"at": ctx.now(), "dice": ctx.random.random()})

    @staticmethod
    def _link(state: Any, card: int, what: str, fields: dict[str, Any]) -> dict[str, Any]:
        n, previous = state.get("n", 0) + 1, state.get("hash", "")
        content = {"chain": "score", "card": card, "n": n, "what": what, **fields}
        state["n"], state["hash"] = n, chained(previous, content)
        return {**content, "hash": state["hash"]}


class Ledger(Operator):
    """Chains the window totals of a card."""

    def process(self, record: Any, ctx: Any) -> Any:
        n, previous = ctx.state.get("n", 0) + 1, ctx.state.get("hash", "")
        content = {"chain": "ledger", "n": n, **record}
        ctx.state["n"], ctx.state["hash"] = n, chained(previous, content)
        yield {**content, "hash": ctx.state["hash"]}


def total(card: int, records: list[Any], window: Any) -> Any:
    """Yield the total of one window of one card: the outputs of `score` in it, and their sum."""
    yield {
        "card": card,
        "start": window.start,
        "end": window.end,
        "ns": [record["n"] for record in records],
        "cents": sum(record.get("cents", 0) for record in records),
    }


pipeline = Pipeline("fraud-chain")
settings = pipeline.settings
count = int(settings.get("count", "4000"))
rate = float(settings["rate"]) if settings.get("rate") else 2000.0
width = int(settings.get("parallelism", "2"))

shop = pipeline.source("shop", GeneratedSource(payment("shop"), count=count, partitions=1, rate=rate))
web = pipeline.source("web", GeneratedSource(payment("web"), count=count, partitions=1, rate=rate))
scored = shop.union(web).key_by(lambda r: r["card"]).process("score", Score(), parallelism=width)
totals = scored.key_by(lambda r: r["card"]).window("totals", 0.2, total, parallelism=width)
ledger = totals.key_by(lambda r: r["card"]).process("ledger", Ledger(), parallelism=1)
scored.union(ledger).sink("out", SqliteSink(settings.get("out", "fraud.db")))


def check(path: str, payments: int) -> dict[str, int]:
    """Verify the chains from the sink's database alone.

    Args:
        payments: the number of payments that must be there.

    Returns:
        Counts: rows, lost, doubled, broken (links whose hash, number or content does not follow), all but the first 0
        if the execution was exactly-once.
    """
    with sqlite3.connect(path) as database:
        rows = [
            json.loads(record) for (record,) in database.execute("SELECT record FROM output ORDER BY task, position")
        ]
    chains: dict[tuple[str, int], tuple[int, str]] = {}
    scores: dict[int, list[int]] = {}
    windowed: dict[int, list[int]] = {}
    cents = {"score": 0, "ledger": 0}
    seen: set[str] = set()
    doubled = broken = 0
    for row in rows:
        key = (row["chain"], row["card"])
        n, previous = chains.get(key, (0, ""))
        content = {name: value for name, value in row.items() if name != "hash"}
        broken += row["n"] != n + 1 or row["hash"] != chained(previous, content)
        chains[key] = (row["n"], row["hash"])
        cents[row["chain"]] += row.get("cents", 0)
        if row["chain"] == "score":
            scores.setdefault(row["card"], []).append(row["n"])
            if row["what"] == "payment":
                doubled += row["payment"] in seen
                seen.add(row["payment"])
        else:
            windowed.setdefault(row["card"], []).extend(row["ns"])
    broken += sum(windowed.get(card, []) != ns for card, ns in scores.items())
    broken += cents["score"] != cents["ledger"]
    return {"rows": len(rows), "lost": payments - len(seen), "doubled": doubled, "broken": broken}


if __name__ == "__main__":
    counts = check(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 8000)
    print(", ".join(f"{name} {value}" for name, value in counts.items()))
    sys.exit(bool(counts["lost"] or counts["doubled"] or counts["broken"]))
