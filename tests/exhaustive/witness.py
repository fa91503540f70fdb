"""An operator whose output testifies: each event asks the outside world, and every row names all answers behind it.

A *fact* is one line about one event of one task: what was delivered, and what the world answered.  Facts travel
with the records, so a row carries its whole past, and two rows that contradict each other say so by themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from causal.ports import Output, PlainChain, Services
from causal.records import batch
from causal.records.batch import Chunk, decode_records, encode_records
from causal.records.values import decode, encode
from tests.simulation.chains import Whole

Fact = tuple[int, int, str]
"""(task, number of the event in its life, what happened)."""


class Answers:
    """The outside world of one incarnation: no two answers are ever alike, in this life or another."""

    def __init__(self, task: int, incarnation: int) -> None:
        self.task = task
        self.incarnation = incarnation
        self.asked = 0

    def wall_ns(self) -> int:
        return 1_000 + 100 * self.incarnation + self.asked

    def entropy(self) -> bytes:
        self.asked += 1
        return bytes((self.task, self.incarnation, self.asked)).rjust(16, b"\x00")

    def token(self, number: int) -> bytes:
        """Return an answer that names the task that asked, so that its log can be searched for it."""
        self.asked += 1
        return f"<{self.task}.{number}={self.incarnation}.{self.asked}>".encode()


def token_in(fact: Fact) -> bytes:
    """Return the answer in a fact, as it stands in its task's determinant log."""
    return fact[2].split(";")[0].encode()


class Witness(PlainChain):
    """Copies each record to every output, with its own path and all facts known so far.

    Args:
        stores: whether each output is a store.
        betrays: asks the world behind the runtime's back at each event, which no log can know.
        timer: sets a timer that is due immediately at its first event.
        marks: a watermark, the number of its events, follows what each of them gave.
    """

    def __init__(
        self, task: int, stores: Sequence[bool], answers: Answers, betrays: bool, timer: bool, marks: bool
    ) -> None:
        self.marks = marks
        self.task = task
        self.stores = stores
        self.answers = answers
        self.betrays = betrays
        self.timer = timer
        self.armed = False
        self.number = 0
        self.facts: list[Fact] = []

    def _testify(self, what: str, services: Services) -> None:
        self.number += 1
        token = services.call(lambda: self.answers.token(self.number)).decode()
        parts = [token, what, str(services.now_ns()), services.seed().hex()[-6:]]
        if self.betrays:
            parts.append(f"unlogged {self.answers.incarnation}")
        self.facts.append((self.task, self.number, ";".join(parts)))

    def deliver(self, input: int, chunks: Sequence[Chunk], first: int, services: Services) -> list[Output]:
        records: list[Any] = []
        for chunk in chunks:
            if chunk.kind == batch.LISTED:
                records += [[name, []] for name in chunk.body]
            elif chunk.kind == batch.RECORDS:
                records += decode_records(chunk.body)
        received = {tuple(fact) for _, facts in records for fact in facts}
        self.facts = sorted({*self.facts, *received})
        self._testify(f"{input}:{','.join(name for name, _ in records)}", services)
        self.armed = self.timer and (self.armed or self.number == 1)
        known = [list(fact) for fact in sorted(self.facts)]
        out = [[f"{name}-{self.task}", known] for name, _ in records]
        tasks = [ordinal for ordinal, stored in enumerate(self.stores) if not stored]
        marks = [(ordinal, batch.watermark(self.number)) for ordinal in tasks] if self.marks else []
        if not out:
            return marks
        rows = Chunk(batch.ROWS, len(out), b"".join(map(encode, out)))
        sent = Chunk(batch.RECORDS, len(out), encode_records(out))
        return [(ordinal, rows if stored else sent) for ordinal, stored in enumerate(self.stores)] + marks

    def next_timer_ns(self) -> int | None:
        return 1 if self.armed else None

    def fire(self, due_ns: int, services: Services) -> list[Output]:
        self.armed = False
        self._testify(f"timer at {due_ns}", services)
        return []

    def finish(self, services: Services) -> list[Output]:
        return []

    def snapshot(self, full: bool, behind: str = "") -> Whole:
        return Whole(encode([self.number, self.armed, [list(fact) for fact in self.facts]]))

    def restore(self, parts: Iterable[bytes]) -> None:
        for part in parts:
            self.number, self.armed, self.facts = read_whole(part)


def read_whole(part: bytes) -> tuple[int, bool, list[Fact]]:
    """Return (events so far, whether the timer is set, facts) of a snapshot."""
    number, armed, facts = decode(part)
    return number, armed, [(task, event, what) for task, event, what in facts]
