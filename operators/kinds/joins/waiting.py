"""Records that wait until the other side of their operator has ended or event time has passed them.

Waiting records are kept as state, by (key, (time, number)); records without a time wait for the other side to end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from operators.graph import RIGHT, Node
from operators.kinds.joins.sides import inputs_of_side
from operators.kinds.joins.timelines import STEP_NS
from operators.stage.scope import Scope
from operators.stage.stages import Stage
from operators.stage.watermark_merge import END_NS, Origins
from operators.state.due_entries import DueEntries, in_key_order


class Waiting:
    """The waiting records of one task, and whether records still have to wait.

    Attributes:
        entries: the waiting records.
        over: whether the other side has ended, so that records no longer wait.
    """

    def __init__(self, node: Node, scope: Scope) -> None:
        """
        Args:
            node: an operator whose left side waits for its right side.
        """
        name, key_groups = node.name, scope.config.key_groups
        self.entries = DueEntries(f"{name}:held", name, key_groups)
        self.over = False
        self.mark_ns: int | None = None
        self._inputs = inputs_of_side(node, RIGHT, scope.task, scope.inputs)
        self._awaited = list(self._inputs)
        self._numbers = scope.numbers
        self._overdue = False
        """Whether records may still be waiting although, in the loaded state, the other side had already ended."""

    def waits(self, time_ns: int) -> bool:
        """Return whether a record with this time (END_NS for a record without one) has to wait."""
        return not self.over and (self.mark_ns is None or time_ns > last_over(self.mark_ns))

    def add(self, keys: Sequence[Any], times: Sequence[int], records: Sequence[Any]) -> None:
        """Add waiting records."""
        self.entries.add(keys, [(time_ns, self._numbers()) for time_ns in times], records)

    def passed(self, mark_ns: int) -> tuple[list[Any], list[Any]]:
        """Advance event time; return the (keys, records) that it releases, by time, key order and order of arrival."""
        self.mark_ns = mark_ns
        return self._taken(END_NS if self.over else mark_ns)

    def ended_before(self, input: int) -> None:
        """Record an input that had ended before the start; the next record or watermark releases waiting records."""
        self._awaited = [awaited for awaited in self._awaited if awaited != input]
        self.over = self._overdue = self.over or not self._awaited

    def overdue(self) -> tuple[list[Any], list[Any]]:
        """Return the (keys, records) that waited for inputs which have all ended after a change of the job graph."""
        overdue, self._overdue = self._overdue, False
        return self._taken(END_NS) if overdue else ([], [])

    def ended(self, input: int) -> tuple[list[Any], list[Any]]:
        """Record the end of an input; return the (keys, records) that it releases."""
        self._awaited = [awaited for awaited in self._awaited if awaited != input]
        if self._awaited or self.over:
            return [], []
        self.over = True
        return self._taken(END_NS)

    def _taken(self, until_ns: int) -> tuple[list[Any], list[Any]]:
        taken = in_key_order(self.entries.take(last_over(until_ns)))
        return [key for _, _, key, _, _ in taken], [record for *_, record in taken]

    def header(self) -> dict[str, Any]:
        """Return the state without the waiting records, for a snapshot."""
        return {"over": self.over, "awaited": list(self._awaited), "mark": self.mark_ns}

    def load(self, header: dict[str, Any]) -> None:
        """Restore what `header` returned."""
        self.over, self.mark_ns = header["over"], header["mark"]
        self._overdue = self.over
        self._awaited = list(self._inputs if header["awaited"] is None else header["awaited"])

    def rewired(self, headers: Sequence[dict[str, Any]], origins: Origins) -> list[dict[str, Any]]:
        """See `Stage.rewired`: records wait for an input unless all earlier inputs that it continues have ended.

        If there is no input left to wait for, because those that had not ended were removed, the next record or
        watermark releases the waiting records.
        """
        ended = [
            all(
                headers[place]["awaited"] is not None and input not in headers[place]["awaited"]
                for place, input in each
            )
            for each in origins
        ]
        awaited = [input for input in self._inputs if not (origins[input] and ended[input])]
        return [{**header, "awaited": awaited, "over": header["over"] or not awaited} for header in headers]

    @staticmethod
    def merged(headers: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Merge the rewired headers of several tasks; adopt the least watermark."""
        marks = [header["mark"] for header in headers]
        mark = None if None in marks else min(marks, default=None)
        return {**headers[0], "over": all(header["over"] for header in headers), "mark": mark}


class WaitingStage(Stage):
    """The base class of stages whose left side may have to wait for the right side; such stages make watermarks."""

    _waiting: Waiting | None = None
    """The waiting records; None if records never have to wait."""

    def _wait(self, node: Node, scope: Scope) -> None:
        """Prepare for waiting if the operator is configured to wait; the constructor calls this method."""
        self._waiting = Waiting(node, scope) if node.options["wait"] else None
        self.makes_marks = self._waiting is not None
        self._ready: list[tuple[Any, int | None]] = []

    def pieces(self) -> list[tuple[Any, int | None]]:
        ready, self._ready = self._ready, []
        return ready

    def ended_before(self, input: int) -> None:
        if self._waiting is not None:
            self._waiting.ended_before(input)

    def header(self) -> dict[str, Any]:
        header = super().header()
        return header if self._waiting is None else {**header, "waiting": self._waiting.header()}

    def load_header(self, header: dict[str, Any], full: bool) -> None:
        super().load_header(header, full)
        if self._waiting is not None and "waiting" in header:
            self._waiting.load(header["waiting"])

    def rewired(self, headers: Sequence[dict[str, Any]], origins: Origins) -> Sequence[dict[str, Any]]:
        if self._waiting is None or any("waiting" not in header for header in headers):
            return headers
        waiting = self._waiting.rewired([header["waiting"] for header in headers], origins)
        return [{**header, "waiting": each} for header, each in zip(headers, waiting, strict=True)]

    def merge_headers(self, headers: Sequence[dict[str, Any]]) -> dict[str, Any]:
        waiting = [header["waiting"] for header in headers if "waiting" in header]
        others = [{name: value for name, value in header.items() if name != "waiting"} for header in headers]
        return {**super().merge_headers(others), **({"waiting": Waiting.merged(waiting)} if waiting else {})}


def last_over(mark_ns: int) -> int:
    """Return the last time that has passed at a watermark; at the end of the input, all times have passed."""
    return mark_ns if mark_ns == END_NS else mark_ns - STEP_NS
