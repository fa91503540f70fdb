"""Where rows go in a test: a sink that keeps the records as they are, and its store, with the rules of every store."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from causal.errors import InvariantViolation
from causal.ports import Bundle, Held, Mark, SinkStore
from causal.values import decode, encode
from operators.sinks.account import Account, fenced
from operators.sinks.base import Sink

_LENGTH_BYTES = 4


class RecordsSink(Sink):
    """Stands in for a pipeline's sink: what that one cannot encode is refused as it would be, and records are kept."""

    def __init__(self, theirs: Sink) -> None:
        self._theirs = theirs

    def encode(self, records: Sequence[Any]) -> bytes:
        """The records, each behind its length."""
        self._theirs.encode(records)
        bodies = [encode(record) for record in records]
        return b"".join([part for body in bodies for part in (len(body).to_bytes(_LENGTH_BYTES, "big"), body)])

    def open_store(self, task: str, job_directory: Path) -> SinkStore:
        """Never asked: the kit has its own."""
        raise InvariantViolation("the rows of a test are kept in memory")


def records_in(rows: bytes) -> list[Any]:
    """The records that `RecordsSink` encoded."""
    found, place = [], 0
    while place < len(rows):
        length = int.from_bytes(rows[place : place + _LENGTH_BYTES], "big")
        place += _LENGTH_BYTES
        found.append(decode(rows[place : place + length]))
        place += length
    return found


def documents_in(rows: bytes) -> list[Any]:
    """The rows of a dead-letter output, which are JSON."""
    return [json.loads(line) for line in rows.splitlines()]


class MemoryStore:
    """The store of one sink task, in memory; it outlives every crash."""

    def __init__(self, task: str, run: str) -> None:
        self.task = task
        self._account = Account(task, run, 0)
        self._run = run
        self._bundles: list[tuple[int, bytes]] = []

    @property
    def rows(self) -> bytes:
        """All that is visible."""
        return b"".join([rows for _, rows in self._bundles])

    def open(self, incarnation: int) -> Held:
        """Fence every lower incarnation, then say what is held."""
        if incarnation < self._account.incarnation:
            raise fenced(self.task, incarnation)
        self._account.incarnation = incarnation
        return self._account.held()

    def last_bundle(self) -> Held:
        """What is held, for whoever has it open."""
        return self._account.held()

    def write(self, bundle: Bundle) -> None:
        """Rows and determinants, in one step."""
        self._account.fence(self._run, bundle.incarnation)
        if self._account.take(bundle) is not None:
            self._bundles.append((bundle.first, bundle.rows))

    def truncate(self, epoch: int) -> None:
        """Determinants of lower epochs are not needed any more."""
        self._account.truncate(epoch)

    def withdraw(self, mark: Mark) -> Held:
        """Take back what came after `mark`."""
        self._account.withdraw(mark)
        while self._bundles and self._bundles[-1][0] >= mark.next:
            self._bundles.pop()
        return self._account.held()
