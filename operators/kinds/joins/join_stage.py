"""The base classes of all joins: the keys and times of each side's records, and the header of a snapshot.

A new join kind defines `join_side`, its tables and, if it depends on watermarks, `advance`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from causal.errors import invariant
from operators.graph import LEFT, RIGHT, Node
from operators.kinds.joins.sides import KeyKinds, Pairing, time_of_side
from operators.stage.event_times import times_of
from operators.stage.floors import Reached
from operators.stage.scope import Scope
from operators.stage.stages import Stage, without
from operators.stage.watermark_merge import END_NS, IDLE_NS

_REACHED = ("mark", "floors")
"""The fields of the header that contain the event time reached."""


class JoinStage(Stage, ABC):
    """One task of a join between a left and a right side."""

    sides = True
    traces = False

    def __init__(self, node: Node, scope: Scope) -> None:
        super().__init__(node.name, scope)
        self._pairing = Pairing(node.name, scope.failures, node.subject)
        self._kinds = KeyKinds()

    @abstractmethod
    def join_side(self, side: int, records: list[Any], keys: list[Any]) -> list[Any]:
        """Add a batch of one side, with the key of each record; return the output records that it completes."""

    def run_side(self, side: int, records: list[Any], keys: list[Any] | None) -> list[Any]:
        keys = keys or []
        invariant(len(keys) == len(records), "a join has a key for each record", operator=self.name)
        self.count("unlike_keys", self._kinds.unlike(side, keys))
        return self.join_side(side, records, keys)

    def _timed(
        self, time_of: Callable[[Any], Any], records: list[Any], keys: list[Any]
    ) -> tuple[Sequence[int], Sequence[int]]:
        """Return the indices of the records that have a time, and their times; the others become dead letters."""
        times, lost = times_of(
            time_of, records, lambda index, problem: self.failed(index, records[index], problem, keys[index])
        )
        return without(range(len(records)), lost) if lost else range(len(records)), times

    # Snapshots.

    def header(self) -> dict[str, Any]:
        return {"kinds": self._kinds.header()}

    def load_header(self, header: dict[str, Any], full: bool) -> None:
        super().load_header(header, full)
        if "kinds" in header:
            self._kinds.load(header["kinds"])

    def merge_headers(self, headers: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Merge the kinds of keys; all other fields must be equal in all tasks."""
        kinds = [header["kinds"] for header in headers if "kinds" in header]
        merged = super().merge_headers(
            [{name: value for name, value in header.items() if name != "kinds"} for header in headers]
        )
        return {**merged, "kinds": KeyKinds.merged(kinds)} if kinds else merged


class TimedJoinStage(JoinStage):
    """One task of a join by event time: records wait for watermarks, and late records are sent to `.side("late")`."""

    def __init__(self, node: Node, scope: Scope) -> None:
        super().__init__(node, scope)
        left, right = time_of_side(node, LEFT), time_of_side(node, RIGHT)
        invariant(left is not None and right is not None, "a join is checked before it is built", operator=node.name)
        self._times: tuple[Callable[[Any], Any], Callable[[Any], Any]] = (left, right)  # type: ignore[assignment]
        """The functions that return the event time of left and right records."""
        self._tags = scope.tags
        self._reached = Reached(scope.config.key_groups, node.keyed)
        self._grace_ns: int = node.options.get("grace_ns", 0)

    def _less_grace(self, mark_ns: int) -> int:
        """Return the watermark by which this operator performs: with grace, it follows the input's at a distance."""
        return mark_ns if mark_ns in (END_NS, IDLE_NS) else mark_ns - self._grace_ns

    def _late(self, record: Any) -> None:
        self.count("late", 1)
        if "late" in self._tags:
            self.aside.setdefault("late", []).append(record)

    def header(self) -> dict[str, Any]:
        return {**self._reached.header(), **super().header()}

    def load_header(self, header: dict[str, Any], full: bool) -> None:
        super().load_header(header, full)
        self._reached.load(header)

    def merge_headers(self, headers: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Adopt the least watermark of the tasks; records that were late for the keys of other tasks remain late."""
        reached = self._reached.merged(headers)
        others = [{name: value for name, value in header.items() if name not in _REACHED} for header in headers]
        return {**super().merge_headers(others), **reached}
