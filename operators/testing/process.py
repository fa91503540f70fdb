"""The incarnation of a task in a test, and a chain that counts the records that it receives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from causal.ports import Chain, Output, Services, SnapshotJob
from causal.records import batch
from causal.records.batch import Chunk
from causal.task.task import TaskProtocol

_OF_RECORDS = (batch.RECORDS, batch.LISTED)


class CountedChain:
    """A chain, and how many records it has received since the job began, replays counted once.

    Attributes:
        received: records so far.
        frozen: `received` at the last barrier.
    """

    def __init__(self, chain: Chain, received: int) -> None:
        self.received = self.frozen = received
        self._chain = chain

    def deliver(self, input: int, chunks: Sequence[Chunk], first: int, services: Services) -> list[Output]:
        """Deliver to the chain, and count the records."""
        self.received += sum([chunk.count for chunk in chunks if chunk.kind in _OF_RECORDS])
        return self._chain.deliver(input, chunks, first, services)

    def snapshot(self, full: bool) -> SnapshotJob:
        """Take a snapshot of the chain, and note the count."""
        self.frozen = self.received
        return self._chain.snapshot(full)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._chain, name)


@dataclass(slots=True)
class Process:
    """A task that runs.

    Attributes:
        dialled: the incarnation of each neighbour that it knows.
        looked_ns: when it last found nothing to do.
    """

    index: int
    incarnation: int
    protocol: TaskProtocol
    chain: CountedChain
    dialled: dict[int, int] = field(default_factory=dict)
    looked_ns: int = -1
    segments: dict[int, dict[int, bytes]] = field(default_factory=dict)

    @property
    def due_ns(self) -> int | None:
        """The time at which a turn is due although nothing arrives."""
        return self.protocol.next_deadline_ns(max(self.looked_ns, 0))
