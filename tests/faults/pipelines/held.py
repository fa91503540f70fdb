"""The fraud chain with sources that hold back their end until a file is there, so a test decides how long it runs.

Which elements there are is fixed all the same: they come at a pace, and as fast as they are taken once it is there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from examples.fraud_chain import Ledger, Score, payment, total
from operators import Pipeline
from operators.sinks import SqliteSink
from tests.faults.pipelines.held_source import HeldSource

pipeline = Pipeline("held")
settings = pipeline.settings
count, rate, gate = int(settings["count"]), float(settings["rate"]), Path(settings["gate"])
width = int(settings.get("parallelism", "2"))


def card(record: Any) -> Any:
    """Return the key of every stage."""
    return record["card"]


shop = pipeline.source("shop", HeldSource(payment("shop"), count, rate, gate))
web = pipeline.source("web", HeldSource(payment("web"), count, rate, gate))
scored = shop.union(web).key_by(card).process("score", Score(), parallelism=width)
totals = scored.key_by(card).window("totals", 0.2, total, parallelism=width)
ledger = totals.key_by(card).process("ledger", Ledger(), parallelism=1)
scored.union(ledger).sink("out", SqliteSink(settings["out"]))
