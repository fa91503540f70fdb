"""A test's sink, which keeps records unchanged, and its store, which follows the rules for every store."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from causal.errors import InvariantViolation, fenced
from causal.ports import Bundle, SinkStore, StoreState, WithdrawPoint
from causal.records.values import decode, encode
from operators.sinks.contract.account import Account
from operators.sinks.contract.sink import Sink

_LENGTH_BYTES = 4


class RecordsSink(Sink):
    """A replacement for a pipeline's sink: it refuses records that the original cannot encode, and keeps the others."""

    def __init__(self, theirs: Sink) -> None:
        self._theirs = theirs

    def encode(self, records: Sequence[Any]) -> bytes:
        """Return the encoded records, each preceded by its length."""
        self._theirs.encode(records)
        if self._theirs.upsert:
            records = [(revision[0], revision[2]) for revision in records]
        bodies = [encode(record) for record in records]
        return b"".join([part for body in bodies for part in (len(body).to_bytes(_LENGTH_BYTES, "big"), body)])

    def open_store(self, task: str, job_directory: Path) -> SinkStore:
        """Raise `InvariantViolation`, because the kit has its own stores."""
        raise InvariantViolation("the rows of a test are in memory and have no file")


def records_in(rows: bytes) -> list[Any]:
    """Return the records that `RecordsSink` encoded."""
    records, place = [], 0
    while place < len(rows):
        length = int.from_bytes(rows[place : place + _LENGTH_BYTES], "big")
        place += _LENGTH_BYTES
        records.append(decode(rows[place : place + length]))
        place += length
    return records


def documents_in(rows: bytes) -> list[Any]:
    """Return the rows of a dead-letter output, which are JSON documents."""
    return [json.loads(line) for line in rows.splitlines()]


class MemoryStore:
    """The store of one sink task, in memory; it survives every crash.

    Attributes:
        account: the account of the accepted bundles.
    """

    def __init__(self, task: str, run: str) -> None:
        self.task = task
        self.account = Account(task, run, 0)
        self._run = run
        self._bundles: list[tuple[int, bytes]] = []

    @property
    def rows(self) -> bytes:
        """The visible rows."""
        return b"".join([rows for _, rows in self._bundles])

    def open(self, task: str, run: str, incarnation: int) -> StoreState:
        """Fence all lower incarnations, and return the stored determinants."""
        if incarnation < self.account.incarnation:
            raise fenced(self.task, incarnation)
        self.account.incarnation = incarnation
        return self.account.store_state()

    def last_bundle(self) -> StoreState:
        """Return the stored state."""
        return self.account.store_state()

    def write(self, bundle: Bundle) -> None:
        """Accept rows and determinants in one atomic step."""
        self.account.fence(self._run, bundle.incarnation)
        if self.account.take(bundle) is not None:
            self._bundles.append((bundle.first, bundle.rows))

    def truncate(self, epoch: int) -> None:
        """Drop the determinants of lower epochs."""
        self.account.truncate(epoch)

    def withdraw(self, mark: WithdrawPoint) -> StoreState:
        """Withdraw the bundles after `mark`, and return the stored state."""
        self.account.withdraw(mark)
        while self._bundles and self._bundles[-1][0] >= mark.next:
            self._bundles.pop()
        return self.account.store_state()

    def close(self) -> None:
        """Do nothing, so that everything is kept."""
