"""The records of a source in a test: one list per partition, in which `At` sets virtual times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from causal.errors import PipelineError
from causal.records.batch import Records
from causal.records.rows import listed
from causal.records.vectors import Vectors
from operators.engine.plan import Plan
from operators.records.seconds import ns_of_seconds
from operators.source import Source, SourceContext
from operators.sources.generated import SequenceSource

_LONG_AGO_NS = -(1 << 62)
"""The start time of a source with a rate in a test, chosen so that every element is already due."""


class _Nothing:
    """The type of a placeholder that stands for no record."""


_NOTHING: Final = _Nothing()


@dataclass(frozen=True, slots=True)
class At:
    """A record that becomes available when the wall clock reaches `seconds`; without a record, only time passes.

    Later records of the same partition do not become available earlier.
    """

    seconds: float
    record: Any = _NOTHING

    @property
    def empty(self) -> bool:
        """Whether there is no record, so that only time passes."""
        return self.record is _NOTHING


class Partition:
    """The elements of one partition, each with the time from which it is available.

    Attributes:
        endless: whether the partition stays open after its last element, because more may be added.
        ends_ns: the earliest time at which the partition ends.
    """

    def __init__(self, records: Iterable[Any] | Records = (), endless: bool = False) -> None:
        self.endless = endless
        self.ends_ns = 0
        self.taken = 0
        """The number of elements that have been read by any incarnation."""
        self._records: list[Any] | Vectors = []
        self._due_ns: list[int] = []
        if isinstance(records, Vectors):
            self._records = records
            self._due_ns = [0] * len(records)
        else:
            self.add(listed(records))

    def __len__(self) -> int:
        return len(self._records)

    def add(self, records: Iterable[Any]) -> None:
        """Add elements at the end."""
        for each in records:
            if isinstance(each, At):
                self.ends_ns = max(self.ends_ns, ns_of_seconds(each.seconds))
                if each.empty:
                    continue
                each = each.record
            self._records.append(each)  # type: ignore[union-attr]  # vectors are added as a whole
            self._due_ns.append(self.ends_ns)

    def read(self, position: int, count: int, now_ns: int) -> tuple[Any, bool] | None:
        """Return up to `count` elements from `position`, and whether the partition ends; None if there is nothing."""
        stop = position
        while stop < len(self._due_ns) and stop < position + count and self._due_ns[stop] <= now_ns:
            stop += 1
        ended = not self.endless and stop == len(self._due_ns) and self.ends_ns <= now_ns
        if stop == position and not ended:
            return None
        self.taken = max(self.taken, stop)
        return self._records[position:stop], ended

    def due_ns(self, position: int) -> int | None:
        """Return when an element or the end can be read at `position`, or None if that may never happen."""
        if position < len(self._due_ns):
            return self._due_ns[position]
        return None if self.endless else self.ends_ns


def partitions_of(plan: Plan, sources: Mapping[str, Source], inputs: Mapping[str, Any]) -> dict[str, list[Partition]]:
    """Return the partitions of every source, from `inputs` or else from a bounded generated source.

    Raises:
        PipelineError: `inputs` names something that is not a source, a source has no records, or the number of lists is
            not the number of the source's partitions.
    """
    for name in inputs:
        if name not in sources:
            known = ", ".join(sources)
            raise PipelineError(f"inputs name the source {name!r}, but pipeline {plan.name!r} has {known}")
    return {name: _partitions(name, source, inputs.get(name)) for name, source in sources.items()}


def _partitions(name: str, source: Source, inputs: Any) -> list[Partition]:
    if inputs is None:
        return _generated(name, source)
    if isinstance(inputs, Mapping) or not isinstance(inputs, Sequence) or isinstance(inputs, (str, bytes)):
        raise PipelineError(f"inputs of source {name!r} are a {type(inputs).__name__}; use a list of records")
    lists: list[Any] = list(inputs)
    if not lists or not all(type(each) is list for each in lists):
        lists = [lists] + [[] for _ in range(source.partitions - 1)]
    if len(lists) != source.partitions:
        raise PipelineError(
            f"the number of lists in the inputs of source {name!r} is {len(lists)}, but its number of partitions is "
            f"{source.partitions}; use one list for each partition, or one list of records that are not lists"
        )
    if source.vectors:
        return [Partition(_as_vectors(name, each)) for each in lists]
    return [Partition(each) for each in lists]


def _as_vectors(name: str, rows: list[Any]) -> Vectors:
    if not rows or any(type(row) is not dict for row in rows):
        raise PipelineError(f"source {name!r} returns vectors; give each of its partitions a list of at least one dict")
    from operators.records.exact_types import exact_vectors

    return exact_vectors({column: [row[column] for row in rows] for column in rows[0]})


def _generated(name: str, source: Source) -> list[Partition]:
    if not isinstance(source, SequenceSource) or source.count is None:
        raise PipelineError(f"source {name!r} is unbounded; use inputs={{{name!r}: [records]}}")
    partitions = []
    for number in range(source.partitions):
        reader = source.open(number, SourceContext(name, Path(), _LONG_AGO_NS))
        read = reader.read(0, source.count) if source.count else None
        reader.close()
        partitions.append(Partition([] if read is None else read.records))
    return partitions
