"""The branches of a chain, which form a tree of stages and their outputs and allow failed records to be traced back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from causal.records.batch import Records, encode_records
from causal.records.rows import listed
from causal.records.values import NotCarried
from operators.stage.failures import NO_KEY, Failures
from operators.stage.routing import Route
from operators.stage.stages import Stage, without


@dataclass(slots=True)
class Branch:
    """A stage and the destinations of its output, which are fused stages, routes out of the task, or both.

    Attributes:
        sides: a pair (tag, reader) for each side output.
        ordinals: the output channels that receive the stage's watermarks, which are the channels of its routes.
        plain: whether the stage emits only records; the chain sets this attribute.
        vectors: whether the stage's output is vectors, which can always be carried.
        shared: whether the output that leaves the task also has other readers, and failing records may be set aside.
        received: the most recent watermark that the stage received; END_NS once its input has ended.
        passed: the most recent watermark that the stage passed on.
    """

    stage: Stage
    children: list[Branch] = field(default_factory=list)
    routes: list[Route] = field(default_factory=list)
    sides: list[tuple[str, Branch]] = field(default_factory=list)
    ordinals: list[int] = field(default_factory=list)
    output: Any = field(default_factory=list)
    """The stage's most recent output in this event, used to locate a record that cannot be encoded."""
    vectors: bool = False
    plain: bool = True
    shared: bool = False
    received: int | None = None
    passed: int | None = None

    def side(self, tag: str) -> Branch | None:
        """Return the reader of a side output, or None if there is none."""
        return next((side for other, side in self.sides if other == tag), None)


class SideStage(Stage):
    """The first stage in the reader of a side output."""

    traces = False


@dataclass(frozen=True, slots=True)
class Input:
    """An input channel: its label in messages, and the key function, operator side and event-time function of its edge.

    Attributes:
        item: the index of the record item that is the key, if `key_of` returns an item (see `item_keys`).
        sender: the operator, side output and side of the channel's edge; "" if it has no edge.
    """

    label: str
    key_of: Callable[[Any], Any] | None = None
    side: int = 0
    time_of: Callable[[Any], Any] | None = None
    item: int | None = None
    sender: str = ""


class Numbers:
    """A counter that returns 0, 1, 2 … on successive calls; each chain has one, which is part of its snapshot."""

    __slots__ = ("next",)

    def __init__(self) -> None:
        self.next = 0

    def __call__(self) -> int:
        self.next += 1
        return self.next - 1


def descend(branch: Branch) -> Iterable[Branch]:
    """Return the branch and all its descendants in the order of their stages' ordinals, which is topological."""
    branches = [branch]
    place = 0
    while place < len(branches):
        branches += branches[place].children
        branches += [side for _, side in branches[place].sides]
        place += 1
    return sorted(branches, key=lambda branch: branch.stage.ordinal)


class Tracing:
    """Attributes records that have no route, or cannot be carried, to the operators that emitted them.

    Attributes:
        keys: the keys of the delivered records, if they have keys; the chain sets this attribute in each event.
    """

    def __init__(self, failures: Failures, record_bytes_max: int) -> None:
        self.keys: Sequence[Any] = ()
        self._failures = failures
        self._record_bytes_max = record_bytes_max

    def unroutable(self, branch: Branch, target: str, index: int, key: Any, problem: Exception) -> None:
        """Handle the failure of output `index` of the branch, which has no route to the operator `target`."""
        index = branch.stage.index_of(index)
        came_from, _ = self._came_from(branch, index)
        self._failures.failed(f"key_by before {target}", key, came_from, listed(branch.output)[index], problem)

    def travels(self, branch: Branch, record: Any, places: Iterator[tuple[int, Any]]) -> bool:
        """Return whether a record can be carried; if it cannot, report it as failed.

        Args:
            places: an iterator over (index, record) pairs of the branch's output, positioned after the previous record.
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
        """Return the output of a branch without the records that cannot be carried; each of these fails only once.

        This is used for output with several readers, so that no reader receives a record that is set aside.
        """
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
        """Return (index, key) of the delivered record that led to the stage's output, as far as they are known."""
        if index is None or not self._failures.delivers or not branch.stage.traces:
            return None, NO_KEY
        came_from = branch.stage.root_index(branch.stage.source_of(index))
        return came_from, self.keys[came_from] if self.keys and came_from is not None else NO_KEY
