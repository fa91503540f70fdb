"""One incarnation of one task in a test, and a chain that counts the records which it is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from causal import batch
from causal.batch import Chunk
from causal.ports import Chain, Output, Services, SnapshotJob
from causal.task import TaskProtocol

_OF_RECORDS = (batch.RECORDS, batch.LISTED)


class CountedChain:
    """A chain, and how many records it was given since the job began, replays counted once.

    Attributes:
        given: records so far.
        frozen: what `given` was at the last barrier.
    """

    def __init__(self, chain: Chain, given: int) -> None:
        self.given = self.frozen = given
        self._chain = chain

    def deliver(self, input: int, chunks: Sequence[Chunk], first: int, services: Services) -> list[Output]:
        """As the chain does."""
        self.given += sum([chunk.count for chunk in chunks if chunk.kind in _OF_RECORDS])
        return self._chain.deliver(input, chunks, first, services)

    def snapshot(self, full: bool) -> SnapshotJob:
        """As the chain does."""
        self.frozen = self.given
        return self._chain.snapshot(full)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._chain, name)


@dataclass(slots=True)
class Process:
    """A task that runs.

    Attributes:
        dialled: which incarnation of each neighbour it was told of.
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
        """When a turn is due although nothing arrives."""
        return self.protocol.next_deadline_ns(max(self.looked_ns, 0))
