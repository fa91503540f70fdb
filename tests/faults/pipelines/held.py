"""The fraud chain with sources that end when a test says so."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))  # `causal run` puts only this file's directory there

from examples.fraud_chain import Ledger, Score, payment, total
from operators import Pipeline
from operators.sinks import SqliteSink
from tests.faults.pipelines.held_source import EndedSource, Ending

pipeline = Pipeline("held")
settings = pipeline.settings
rate, ending = float(settings["rate"]), Ending(Path(settings["gate"]), int(settings["step"]))


def card(record: Any) -> Any:
    """The key of every stage."""
    return record["card"]


shop = pipeline.source("shop", EndedSource(payment("shop"), rate, ending))
web = pipeline.source("web", EndedSource(payment("web"), rate, ending))
scored = shop.union(web).key_by(card).process("score", Score(), parallelism=int(settings.get("parallelism", "2")))
totals = scored.key_by(card).window("totals", 0.2, total, parallelism=2)
ledger = totals.key_by(card).process("ledger", Ledger(), parallelism=1)
scored.union(ledger).sink("out", SqliteSink(settings["out"]))
