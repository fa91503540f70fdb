"""Sources that hold back their end until a file is there, so a test decides how long a job runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from examples.hosts.gated import GatedSource
from operators.source import Source
from operators.sources import GeneratedSource, SequenceSource


def hold_end(source: SequenceSource[Any], gate: str | None) -> Source[Any]:
    """Return the same source with its end held back; as it is without a gate."""
    return source if gate is None else GatedSource(source, Path(gate))


def held_generated(gate: str, *arguments: Any, **settings: Any) -> Source[Any]:
    """Return a `GeneratedSource` of these arguments with its end held back."""
    return with_end_at(gate, GeneratedSource, *arguments, **settings)


def with_end_at(gate: str, kind: type[SequenceSource[Any]], *arguments: Any, **settings: Any) -> Source[Any]:
    """Return a source of that kind and these arguments with its end held back."""
    return hold_end(kind(*arguments, **settings), gate)


class HeldSource(GatedSource):
    """One partition of `count` elements, at a pace."""

    def __init__(self, make: Callable[[int, int], Any], count: int, rate: float, gate: Path) -> None:
        super().__init__(GeneratedSource(make, count=count, rate=rate), gate)
