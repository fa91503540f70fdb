"""The base class of the chains that a plan creates, in addition to `causal.ports.Chain`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from causal.ports import Output, PlainChain, Services, SnapshotJob
from causal.records.batch import Chunk
from operators.stage.stages import Stage


class OperatorChain(PlainChain, ABC):
    """A chain of operators; a chain without operators, such as that of a sink, needs no method of its own."""

    @property
    def stages(self) -> Sequence[Stage]:
        """The stages, ordered by their ordinals."""
        return ()

    def open(self) -> None:
        """Call the `open` method of each operator now instead of at the first event; a standby calls this to prepare.

        Raises:
            OperatorFailed: the `open` of an operator raised an exception.
        """

    def kept_keys(self, operator: str) -> Iterable[Any]:
        """Return the keys for which an operator keeps state; a key may occur more than once."""
        return (key for stage in self.stages if stage.shown_as == operator for key in stage.kept_keys())

    def restore_groups(self, parts: Iterable[bytes], groups: Collection[int]) -> None:
        """Load the state of some key groups; undivided parts are then incomplete for all groups that are not loaded."""
        self.restore(parts)

    # What each chain does with an event, and its snapshots; see `causal.ports.Chain`.

    @abstractmethod
    def deliver(self, input: int, chunks: Sequence[Chunk], first: int, services: Services) -> list[Output]: ...

    def next_timer_ns(self) -> int | None:
        return None

    def fire(self, due_ns: int, services: Services) -> list[Output]:
        return []

    def finish(self, services: Services) -> list[Output]:
        return []

    @abstractmethod
    def snapshot(self, full: bool, behind: str = "") -> SnapshotJob: ...
