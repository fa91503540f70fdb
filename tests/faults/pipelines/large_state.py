"""A kilobyte of state per key, a list and a map, which are merged all the time, and a row per record."""

from __future__ import annotations

from hashlib import shake_128
from typing import Any

from operators import ListState, MapState, Operator, Pipeline, ValueState
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource

KEYS = 7000
LOAD_BYTES = 1000


class Remember(Operator):
    """Emits what the state of the key contains."""

    load = ValueState[dict[str, Any]]()
    last = ListState[int]()
    by_digit = MapState[str, int]()

    def process(self, record: int, ctx: Any) -> Any:
        """Change all states of the key."""
        before = self.load.value or {"n": 0, "load": shake_128(b"%d" % ctx.key).digest(LOAD_BYTES)}
        assert before["load"] == shake_128(b"%d" % ctx.key).digest(LOAD_BYTES)
        self.load.value = {"n": before["n"] + 1, "load": before["load"]}
        self.last.append(record)
        if len(self.last) > 5:
            del self.last[:-3]
        digit = str(record % 10)
        self.by_digit[digit] = self.by_digit.get(digit, 0) + 1
        digits = str(list(self.by_digit.items()))
        yield {"i": record, "n": before["n"] + 1, "last": str(self.last[-3:]), "digits": digits}


pipeline = Pipeline("large-state")
settings = pipeline.settings
count, rate = int(settings.get("count", "60000")), float(settings.get("rate", "3000"))
records = pipeline.source("records", GeneratedSource(lambda partition, i: i, count, rate=rate))
kept = settings.get("kept", "disk")
(
    records.key_by(lambda i: i * 7919 % KEYS)
    .process("remember", Remember(), parallelism=1, state="disk" if kept == "disk" else "memory")
    .sink("out", SqliteSink(settings.get("out", "out.db")))
)
