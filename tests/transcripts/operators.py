"""The operator that every task of a transcript runs: it numbers records, so that any difference in order shows.

A source passes records on as they are and a sink writes them as they come; what lies between appends how many
records it has had: `a` becomes `a1`, then `a12` one task further down.  `operator B: clock` and the like make
it use the causal services too.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from hashlib import shake_128
from typing import Any

from causal.ports import Output, PlainChain, Services
from causal.records import batch
from causal.records.batch import Chunk, decode_records, encode_records
from causal.records.values import decode, encode
from tests.simulation.chains import Whole

MS = 1_000_000
TIMER_MS = 100

TRAITS = ("clock", "random", "call", "timer", "misbehaves", "keyed")
"""The requests of an operator; `call=N` calls for an answer of N bytes. `keyed` counts for each first letter."""


class Numbering(PlainChain):
    """One task's chain.

    Args:
        ask: the outside world: gives an answer of this many bytes, another one each time.
        behind: something that differs from process to process and that no log knows.
    """

    def __init__(
        self, kind: str, outputs: int, traits: dict[str, int], ask: Callable[[int], bytes], behind: str
    ) -> None:
        self._kind = kind
        self._outputs = outputs
        self._traits = traits
        self._ask = ask
        self._behind = behind
        self._state: dict[str, int] = {"count": 0, "timer_ns": 0, "ticks": 0}

    def deliver(self, input: int, chunks: Sequence[Chunk], first: int, services: Services) -> list[Output]:
        records: list[Any] = []
        for chunk in chunks:
            records += chunk.body if chunk.kind == batch.LISTED else decode_records(chunk.body)
        return self._out([self._one(record, services) for record in records])

    def _one(self, record: Any, services: Services) -> Any:
        count = self._counted(record)
        if self._kind != "operator":
            return record
        label, *padding = record if isinstance(record, tuple) else (record,)
        label += str(count) + self._extra(services)
        return (label, *padding) if padding else label

    def _counted(self, record: Any) -> int:
        name = "count"
        if "keyed" in self._traits:
            name = f"count {(record[0] if isinstance(record, tuple) else record)[0]}"
        self._state[name] = self._state.get(name, 0) + 1
        return self._state[name]

    def _extra(self, services: Services) -> str:
        extra = ""
        if "clock" in self._traits:
            extra += f"@{services.now_ns() // MS}"
        if "random" in self._traits:
            draw = random.Random(services.seed() + self._state["count"].to_bytes(4, "big")).randrange(100)
            extra += f"%{draw:02}"
        if "call" in self._traits:
            size = self._traits["call"]
            answer = services.call(lambda: self._ask(size))
            extra += f"={answer[:8].decode()}" if size <= 8 else f"={len(answer)}B"
        if "timer" in self._traits and not self._state["timer_ns"]:
            self._state["timer_ns"] = services.now_ns() + TIMER_MS * MS
        if "misbehaves" in self._traits:
            extra += self._behind
        return extra

    def _out(self, records: list[Any]) -> list[Output]:
        if not records:
            return []
        if self._kind == "sink":
            return [(0, Chunk(batch.ROWS, len(records), "".join(_row(r) for r in records).encode()))]
        split: dict[int, list[Any]] = {}
        for record in records:
            label = record[0] if isinstance(record, tuple) else record
            split.setdefault(ord(label[0]) % self._outputs, []).append(record)
        return [(o, Chunk(batch.RECORDS, len(rs), encode_records(rs))) for o, rs in sorted(split.items())]

    def next_timer_ns(self) -> int | None:
        return self._state["timer_ns"] or None

    def fire(self, due_ns: int, services: Services) -> list[Output]:
        self._state["timer_ns"] = 0
        self._state["ticks"] += 1
        return self._out([f"tick{self._state['ticks']}@{due_ns // MS}"])

    def finish(self, services: Services) -> list[Output]:
        return []

    def snapshot(self, full: bool, behind: str = "") -> Whole:
        return Whole(encode(self._state))

    def restore(self, parts: Iterable[bytes]) -> None:
        for part in parts:
            self._state = decode(part)


def _row(record: Any) -> str:
    return f"{record[0] if isinstance(record, tuple) else record}\n"


def answer_of(text: str, bytes_wanted: int) -> bytes:
    """Return `bytes_wanted` bytes, the same for the same text, that no compression makes shorter."""
    return text.encode() if bytes_wanted <= len(text) else shake_128(text.encode()).digest(bytes_wanted)
