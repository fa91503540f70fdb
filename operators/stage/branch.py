"""A chain is a tree of branches: a stage, and where its output goes; a failed record is traced back along it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from causal.records.batch import Records, encode_records
from causal.records.rows import listed
from causal.records.values import NotCarried
from causal.records.vectors import Vectors
from operators.stage.failures import NO_KEY, Failures
from operators.stage.routing import DirectRoute, Route, StraightRoute
from operators.stage.stages import Stage, without


@dataclass(slots=True)
class Branch:
    """A stage and where its output goes: fused stages, routes out of the task, or both.

    Attributes:
        sides: (tag, reader) of each side output.
        ordinals: output channels of its watermarks: those of its routes.
        plain: whether the stage emits only records; the chain sets it.
        shared: whether output that leaves the task has other readers as well, and records may be set aside.
        received: the last watermark that the stage received; END_NS when its input has ended.
        passed: the last watermark that it passed on.
    """

    stage: Stage
    children: list[Branch] = field(default_factory=list)
    routes: list[Route] = field(default_factory=list)
    sides: list[tuple[str, Branch]] = field(default_factory=list)
    ordinals: list[int] = field(default_factory=list)
    output: Any = field(default_factory=list)
    """The last output of the stage in this event, to find the place of a record that cannot be encoded."""
    plain: bool = True
    shared: bool = False
    received: int | None = None
    passed: int | None = None

    @property
    def leaves_straight(self) -> bool:
        """Whether the whole output goes to channels without being split."""
        return all(type(route) is DirectRoute or type(route) is StraightRoute for route in self.routes)

    def side(self, tag: str) -> Branch | None:
        """Return the reader of a side output."""
        return next((side for other, side in self.sides if other == tag), None)


class SideStage(Stage):
    """The first stage of the reader of a side output."""

    traces = False


@dataclass(frozen=True, slots=True)
class Input:
    """One input channel: its label in messages, and the keys, side of the operator and event time of its edge.

    Attributes:
        item: index of the item of a record that is its key, where `key_of` returns an item (see `item_keys`).
        sender: operator, side output and side of its edge; "" without one.
    """

    label: str
    key_of: Callable[[Any], Any] | None = None
    side: int = 0
    time_of: Callable[[Any], Any] | None = None
    item: int | None = None
    sender: str = ""


class Numbers:
    """Returns 0, 1, 2 … on successive calls; one object per chain, part of its snapshot."""

    __slots__ = ("next",)

    def __init__(self) -> None:
        self.next = 0

    def __call__(self) -> int:
        self.next += 1
        return self.next - 1


def descend(branch: Branch) -> Iterable[Branch]:
    """Return the branch and all below it, in the order of the ordinals of the stages, which is topological."""
    branches = [branch]
    place = 0
    while place < len(branches):
        branches += branches[place].children
        branches += [side for _, side in branches[place].sides]
        place += 1
    return sorted(branches, key=lambda branch: branch.stage.ordinal)


class Tracing:
    """A tracer that blames records that have no route, or cannot be carried, on the operator that gave them.

    Attributes:
        keys: of the records that were delivered, where there are any; the chain sets it in each event.
    """

    def __init__(self, failures: Failures, record_bytes_max: int) -> None:
        self.keys: Sequence[Any] = ()
        self._failures = failures
        self._record_bytes_max = record_bytes_max

    def unroutable(self, branch: Branch, target: str, index: int, key: Any, problem: Exception) -> None:
        """Handle output `index` of the branch, which has no route to the operator `target`."""
        index = branch.stage.index_of(index)
        came_from, _ = self._came_from(branch, index)
        self._failures.failed(f"key_by before {target}", key, came_from, listed(branch.output)[index], problem)

    def travels(self, branch: Branch, record: Any, places: Iterator[tuple[int, Any]]) -> bool:
        """Return whether a record can be carried; one that cannot has failed.

        Args:
            places: what the branch made, from where the record before was found.
        """
        index = next((index for index, output in places if output is record), None)
        try:
            self._failures.carried(record)
        except (NotCarried, ValueError) as problem:
            came_from, key = self._came_from(branch, index)
            self._failures.failed(branch.stage.name, key, came_from, record, problem)
            return False
        return True

    def carried(self, branch: Branch, records: Records) -> Records:
        """Return the output of a branch without the records that cannot be carried, each of which has failed once.

        For output that has several readers: none of them receives a record that is set aside.
        """
        if isinstance(records, Vectors):
            return records
        stage, stage.refused = branch.stage, ()
        try:
            if len(encode_records(records)) <= self._record_bytes_max:
                return records
        except NotCarried:
            pass  # each record is tried below
        branch.output = every = listed(records)
        places = iter(enumerate(every))
        refused = [index for index, record in enumerate(every) if not self.travels(branch, record, places)]
        stage.refused = refused
        if stage.keys is not None:
            stage.keys = without(stage.keys, refused)
        return without(every, refused) if refused else records

    def _came_from(self, branch: Branch, index: int | None) -> tuple[int | None, Any]:
        """Return (index, key) of the delivered record that led to the stage's output, where it is known."""
        if index is None or not self._failures.delivers or not branch.stage.traces:
            return None, NO_KEY
        came_from = branch.stage.root_index(branch.stage.source_of(index))
        return came_from, self.keys[came_from] if self.keys and came_from is not None else NO_KEY
