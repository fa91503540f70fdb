"""The check of operators with `commutes = True`, whose records are also performed in a different order.

Two additional chains of the task receive the same records: one in the order of arrival, the other in a possible replay
order, in which the records of each input are together. At each output and barrier, their states must be equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from causal.errors import PipelineError
from causal.ports import Chain, Output, Services, SnapshotJob
from causal.records import batch
from causal.records.batch import Chunk
from causal.records.values import decode
from operators.graph import Node
from operators.state.canonical_parts import canonical

SHOWN_CHARACTERS_MAX = 200


class _Asked(Exception):
    """Raised when an event requests something that is logged, which fixes its place among the other events."""


class _NoServices:
    """The services of a chain that must not request anything."""

    def epoch(self) -> int:
        return 0

    def __getattr__(self, name: str) -> Any:
        raise _Asked(name)


class _Noting:
    """Services that record whether anything that is logged was requested."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.asked = False

    def epoch(self) -> int:
        return self._services.epoch()

    def __getattr__(self, name: str) -> Any:
        self.asked = True
        return getattr(self._services, name)


class ReorderedChain:
    """A chain whose operators declare that they commute, and two chains that show whether they do.

    After an event that uses logged answers, nothing is compared until the task begins again.
    """

    def __init__(self, chain: Chain, begun: Callable[[], Chain], fresh: Callable[[], Chain], nodes: Sequence[Node]):
        """
        Args:
            begun: returns another chain in the current state of `chain`.
            fresh: returns a chain without state.
        """
        self._chain = chain
        self._fresh = fresh
        self._nodes = [node for node in nodes if node.kind == "process"]
        self._pair: tuple[Chain, Chain] | None = (begun(), begun())
        self._open: list[tuple[int, list[Chunk], int]] = []

    def deliver(self, input: int, chunks: Sequence[Chunk], first: int, services: Services) -> list[Output]:
        """Deliver to the chain and to the two chains that are compared."""
        noting = _Noting(services)
        outputs = self._chain.deliver(input, chunks, first, noting)
        if noting.asked:
            self._pair = None
        if self._pair is not None:
            if outputs or any(chunk.kind != batch.RECORDS for chunk in chunks):
                self._compare()
                for each in self._pair:
                    each.deliver(input, chunks, first, _NoServices())
            else:
                self._pair[0].deliver(input, chunks, first, _NoServices())
                self._open.append((input, list(chunks), first))
        return outputs

    def snapshot(self, full: bool, behind: str = "") -> SnapshotJob:
        """Take a snapshot, after comparing the two chains."""
        self._compare()
        return self._chain.snapshot(full, behind)

    def ended(self, input: int, services: Services) -> list[Output]:
        """Process the end of an input, after a final comparison of the two chains."""
        self._compare()
        self._pair = None
        return self._chain.ended(input, services)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._chain, name)

    def _compare(self) -> None:
        """Perform the records that arrived since the last call in a different order, and compare the states.

        Raises:
            PipelineError: the states differ, or only the other order emits or requests anything.
        """
        if self._pair is None or not self._open:
            return
        by_input: dict[int, list[Chunk]] = {}
        firsts: dict[int, int] = {}
        for input, chunks, first in self._open:
            by_input.setdefault(input, []).extend(chunks)
            firsts.setdefault(input, first)
        self._open = []
        arrived, reordered = self._pair
        for input, chunks in reversed(by_input.items()):
            try:
                left = reordered.deliver(input, chunks, firsts[input], _NoServices())
            except _Asked as asked:
                raise self._refused(f"in another order it asks for {asked}") from None
            if left:
                raise self._refused("in another order it leaves records although it left none before")
        difference = _difference(canonical(arrived, self._fresh()), canonical(reordered, self._fresh()))
        if difference:
            raise self._refused(difference)

    def _refused(self, difference: str) -> PipelineError:
        names = ", ".join(repr(node.name) for node in self._nodes)
        return PipelineError(
            f"{self._nodes[0].where}: {names} declares commutes = True, but its records do not commute: "
            f"{difference}; set commutes = False, or make its state independent of the order (a dict keeps "
            "insertion order)"
        )


def _difference(arrived: Sequence[Any], reordered: Sequence[Any]) -> str:
    """Return the first difference between two states as a one-line description, or "" if they are equal."""
    for one, other in zip(arrived, reordered, strict=True):
        if one == other:
            continue
        if type(one) is dict:
            for table in one:
                here, there = one[table], other.get(table, [])
                differing = [(a, b) for a, b in zip(here, there, strict=False) if a != b]
                if differing:
                    shown = [repr(decode(entry))[:SHOWN_CHARACTERS_MAX] for entry in differing[0]]
                    return f"its [key, state] is {shown[0]} in the order of arrival, and {shown[1]} in another"
        return "its state differs in another order"
    return ""
